"""The requests without an answer, and which of them may be in the engine now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.messages import BatchChanged
from engine.request import Request, RequestOutput
from engine.sampling_params import SamplingParams
from worker.requests import row_of
from worker.suspects import Deaths, Group, Suspects

Sink = Callable[[RequestOutput], None]

# What an engine must answer before it gets a suspect. One that dies of any request whatever is
# broken, and then no row is to blame. Token 0 is in every vocabulary.
PROBE = Request("probe", (0,), SamplingParams(max_tokens=1))


@dataclass(frozen=True, slots=True)
class Death:
    """What the end of an engine says about the rows in its batch.

    Attributes:
        admitted: rows without an answer that held a place in the batch.
        blamed: the row that is found to kill engines, if one is.
        message: why it is blamed.
        answers: to its requests, for their sinks.
    """

    admitted: int
    blamed: str | None = None
    message: str = ""
    answers: tuple[tuple[Sink, RequestOutput], ...] = ()


class Inflight:
    """Keeps each request until it has its answer, across deaths of engines.

    While rows are suspected of killing the engine, only a group of them is sent (see
    `Suspects`), once all that was sent before is answered; all other requests are kept back.
    Samples of a row are suspected as one.
    Not thread-safe.
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Request, Sink]] = {}
        self._rows: dict[str, dict[str, None]] = {}  # request ids without an answer, by row
        self._admitted: dict[str, str] = {}  # row of each request in the engine's batch
        self._sent: set[str] = set()  # to the engine that runs, and not answered
        self._due: list[Request] = []
        self._suspects = Suspects()
        self._group: Group | None = None  # whose requests were sent
        self._up = False  # whether there is an engine
        self._probing = False
        self._holds_back = False  # requests that are to be sent when there is no suspect

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def suspects(self) -> int:
        """Rows that are suspected of killing the engine."""
        return len(self._suspects)

    def add(
        self, requests: Iterable[Request], sink: Sink, apart: Callable[[], None] | None = None
    ) -> None:
        """Take requests; `due` has those of them that may be sent at once.

        Args:
            apart: the requests are to run with no others in the engine; called before they do.
        """
        free = self._up and not self._probing and apart is None and self._suspects.group is None
        self._holds_back = self._holds_back or not free
        rows: dict[str, None] = {}
        for request in requests:
            self._entries[request.request_id] = request, sink
            row = row_of(request)
            self._rows.setdefault(row, {})[request.request_id] = None
            rows[row] = None
            if free:
                self._send(request)
        if apart is not None and rows:
            self._suspects.set_apart(rows, apart)
            self._advance()

    def due(self) -> tuple[Request, ...]:
        """What is to be sent to the engine now; each request once to each engine."""
        due = tuple(self._due)
        self._due.clear()
        return due

    def abort(self, request_ids: Iterable[str]) -> tuple[str, ...]:
        """Forget requests; returns those of them that had no answer."""
        gone = []
        for request_id in request_ids:
            entry = self._entries.pop(request_id, None)
            if entry is not None:
                self._sent.discard(request_id)
                gone.append(request_id)
                row = row_of(entry[0])
                if self._forget(request_id, row):
                    self._suspects.taken_back(row)
        self._advance()
        return tuple(gone)

    def answer(self, output: RequestOutput) -> Sink | None:
        """Note an answer; returns whose it is, if anybody waits for it."""
        self._admitted.pop(output.request_id, None)
        if output.request_id == PROBE.request_id:
            self._probing = False
            self._send_group()
            return None
        entry = self._entries.pop(output.request_id, None)
        if entry is None:
            return None
        self._sent.discard(output.request_id)
        row = row_of(entry[0])
        if self._forget(output.request_id, row):
            self._suspects.answered(row)
            self._advance()
        return entry[1]

    def batch_changed(self, change: BatchChanged) -> None:
        """Note who holds a place in the engine's batch."""
        for request_id in change.left:
            self._admitted.pop(request_id, None)
        for request_id in change.entered:
            entry = self._entries.get(request_id)
            self._admitted[request_id] = request_id if entry is None else row_of(entry[0])

    def engine_started(self) -> None:
        """A new engine is there; `due` has what it gets first."""
        self._sent.clear()
        self._due.clear()
        self._admitted.clear()
        self._up = True
        self._probing = self._suspects.group is not None
        if self._probing:
            self._due.append(PROBE)
        else:
            self._send_group()

    def engine_died(self, how: str) -> Death:
        """Note a death, and who was inside.

        Args:
            how: what was seen of it.
        """
        inside = dict.fromkeys(self._admitted.values())
        self._admitted.clear()
        self._up = False
        wanted = [row for row in inside if row in self._rows]
        if not wanted:
            return Death(0)
        deaths = self._suspects.engine_died(wanted, with_others=len(wanted) < len(inside))
        if deaths is None:
            return Death(len(wanted))
        row, message = wanted[0], _crash_message(deaths, how)
        answers = tuple(
            (self._entries.pop(i)[1], RequestOutput.without_answer(i, "engine_crashed", message))
            for i in self._rows.pop(row)
        )
        return Death(1, row, message, answers)

    def _forget(self, request_id: str, row: str) -> bool:
        """Take a request out of its row; whether it was the row's last."""
        left = self._rows[row]
        del left[request_id]
        if not left:
            del self._rows[row]
        return not left

    def _advance(self) -> None:
        """Go on to the next group, where the last one is through."""
        group = self._suspects.group
        if not self._up or self._probing:
            return
        if self._holds_back if group is None else group is not self._group and not self._sent:
            self._send_group()

    def _send_group(self) -> None:
        self._group = self._suspects.group
        self._holds_back = self._group is not None
        if self._group is None:
            ids: Iterable[str] = self._entries
        else:
            if self._group.on_begin is not None:
                self._group.on_begin()
            ids = (i for row in self._group.rows for i in self._rows[row])
        for request_id in ids:
            self._send(self._entries[request_id][0])

    def _send(self, request: Request) -> None:
        if request.request_id not in self._sent:
            self._sent.add(request.request_id)
            self._due.append(request)


def _crash_message(deaths: Deaths, how: str) -> str:
    beside = f" and {deaths.beside} times while it computed it beside others" * bool(deaths.beside)
    return (
        f"the engine died {deaths.alone} times while it computed this row alone{beside}; the last "
        f"time {how}. The row is not tried again; look into the worker's log, and at what is "
        "unusual in the row"
    )
