"""An engine of a few lines that dies as it is told, and a worker's side that starts the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from engine.messages import BatchChanged
from engine.request import FinishReason, Request, RequestOutput
from worker.inflight import PROBE, Inflight
from worker.requests import row_of


class PlayedEngine:
    """Runs requests to their end through `Inflight`, as the bridge and real engines do.

    Args:
        places: requests in a batch.
        steps: of each request until its answer; 1 if it is not named.
        kills: at which of its steps a row kills the engine.
        killed: asked before each step, whether the engine is killed from outside.

    Attributes:
        answers: by request.
        deaths: all of them.
        alone: how often each row was alone in an engine that died.
    """

    def __init__(
        self,
        places: int,
        steps: Mapping[str, int],
        kills: Mapping[str, int],
        killed: Callable[[], bool] = lambda: False,
    ) -> None:
        self.inflight = Inflight()
        self.inflight.engine_started()
        self.answers: dict[str, RequestOutput] = {}
        self.deaths = 0
        self.alone: Counter[str] = Counter()
        self._places, self._steps, self._kills, self._killed = places, steps, kills, killed
        self._apart: list[set[str]] = []  # rows that run apart together
        self._begun: set[str] | None = None
        self._waiting: list[Request] = []
        self._running: dict[Request, int] = {}

    def add(self, requests: list[Request]) -> None:
        self.inflight.add(requests, self._take)
        self._waiting += self.inflight.due()

    def apart(self, requests: list[Request]) -> None:
        """Add rows that must run with no others; holds them to it."""
        group = {row_of(r) for r in requests}
        self._apart.append(group)
        self.inflight.add(requests, self._take, apart=lambda: self._begin(group))
        self._waiting += self.inflight.due()

    def run(self, requests: list[Request]) -> None:
        """Until there is nothing to do any more."""
        self.add(requests)
        while self._waiting or self._running:
            if not self._step():
                self._die()
            self._waiting += self.inflight.due()
        assert len(self.inflight) == 0

    def _begin(self, group: set[str]) -> None:
        assert not self._running, "they are not alone"
        assert not self._waiting, "they would not be alone"
        self._begun = group

    def _take(self, output: RequestOutput) -> None:
        assert output.request_id not in self.answers, "answered twice"
        self.answers[output.request_id] = output

    def _step(self) -> bool:
        """Compute one step; false if the engine died of it."""
        if self._killed():
            return False
        entered = self._waiting[: self._places - len(self._running)]
        del self._waiting[: len(entered)]
        self._running.update(dict.fromkeys(entered, 0))
        inside = {row_of(r) for r in self._running} - {PROBE.request_id}
        for group in self._apart:
            assert inside.isdisjoint(group) or (inside <= group and self._begun is group)
        if entered:
            self.inflight.batch_changed(BatchChanged(tuple(r.request_id for r in entered)))
        for request in self._running:
            self._running[request] += 1
        if any(self._running[r] == self._kills.get(row_of(r)) for r in self._running):
            return False
        if self._killed():
            return False
        for request in [r for r, n in self._running.items() if n >= self._steps.get(row_of(r), 1)]:
            del self._running[request]
            output = answer(request)
            sink = self.inflight.answer(output)
            assert (sink is None) == (request is PROBE)
            if sink is not None:
                sink(output)
        return True

    def _die(self) -> None:
        self.deaths += 1
        rows = {row_of(r) for r in self._running} - {PROBE.request_id}
        if len(rows) == 1:
            self.alone.update(rows)
        death = self.inflight.engine_died("it was killed by SIGKILL")
        assert death.admitted == len(rows)
        for sink, output in death.answers:
            sink(output)
        self._waiting, self._running = [], {}
        self.inflight.engine_started()


def answer(request: Request) -> RequestOutput:
    return RequestOutput(request.request_id, (1,), "a", FinishReason.LENGTH, 1, 0, 1)
