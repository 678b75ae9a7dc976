"""Steps on their way through planning, the device and retirement: one at a time, or two.

Overlapped, the host plans a step and handles the tokens of the one before last while the device
computes the one between. The device needs nothing of the host for that: tokens that one step
samples and the next one reads never leave it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.batch import PENDING, Batch, SampledToken, by_request
from engine.launched_step import LaunchedStep
from engine.micro_batches import MicroBatches
from engine.scheduler import Scheduler
from engine.sequence import Sequence

Launch = Callable[[Batch, LaunchedStep | None], LaunchedStep]


@dataclass(slots=True)
class _Step:
    """A planned step.

    Attributes:
        began: when the device was given it, by `time.perf_counter`.
        launched: None where it was computed in pieces, or is to be computed when it retires.
        sampled: once the host knows what it gave.
    """

    batch: Batch
    began: float = 0.0
    launched: LaunchedStep | None = None
    sampled: list[SampledToken] | None = None


class Pipeline:
    """Plans, computes and retires steps.

    Args:
        steps: computes a step and waits for it.
        launch: gives the device a whole step and does not wait; None for one step at a time.
        observe: told how many tokens each step computed, and in how many seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        steps: MicroBatches,
        launch: Launch | None,
        observe: Callable[[int, float], None],
    ) -> None:
        self._scheduler = scheduler
        self._steps = steps
        self._launch = launch
        self._observe = observe
        self._flight: deque[_Step] = deque()
        self._idle_since = 0.0  # when the last step was known to be computed

    @property
    def in_flight(self) -> int:
        """Steps that have not retired."""
        return len(self._flight)

    def fill(self, on_planned: Callable[[Batch], None]) -> bool:
        """Plan as many steps as may be in flight, and launch them; false if there are none.

        Args:
            on_planned: called with each new step before anything of it is computed.
        """
        if not self._flight:
            self._begin(self._scheduler.schedule(), on_planned)
        if self._flight and self._launch is not None:
            self._begin(self._scheduler.schedule_ahead(), on_planned)
        return bool(self._flight)

    def retire(self) -> list[Sequence]:
        """Wait for the oldest step and apply what it gave; see `Scheduler.retire`."""
        sampled = self._collect(self._flight[0])
        return self._scheduler.retire(self._flight.popleft().batch, sampled)

    def _begin(self, batch: Batch, on_planned: Callable[[Batch], None]) -> None:
        if not batch:
            return
        on_planned(batch)
        step = _Step(batch, time.perf_counter())
        if self._launch is not None:
            self._give(step, self._launch)
        self._flight.append(step)

    def _give(self, step: _Step, launch: Launch) -> None:
        """Launch a step; where memory is short, compute it at once, after the one before."""
        before = self._flight[-1] if self._flight else None
        batch = step.batch
        if before is not None and before.launched is None:
            batch = with_tokens(batch, self._collect(before))
        given = before.launched if before is not None else None
        batch, step.launched = self._steps.launch(batch, lambda whole: launch(whole, given))
        if step.launched is None:
            if before is not None:
                batch = with_tokens(batch, self._collect(before))
            step.sampled = self._steps.execute(batch)
            self._computed(step)

    def _collect(self, step: _Step) -> list[SampledToken]:
        if step.sampled is None:
            if step.launched is None:
                step.sampled = self._steps.execute(step.batch)
            else:
                step.sampled = self._steps.collect(step.launched.collect)
            self._computed(step)
        return step.sampled

    def _computed(self, step: _Step) -> None:
        now = time.perf_counter()
        self._observe(step.batch.num_tokens, now - max(step.began, self._idle_since))
        self._idle_since = now


def with_tokens(batch: Batch, sampled: list[SampledToken]) -> Batch:
    """A batch with what the step before it sampled in place of `PENDING`.

    Of a sequence whose token cannot be trusted it is some token: what the batch gives is discarded.
    """
    tokens, _ = by_request(sampled)
    sequences = tuple(
        s._replace(token_ids=(max(0, tokens[s.request_id].token_id),))
        if s.token_ids == (PENDING,)
        else s
        for s in batch.sequences
    )
    return replace(batch, sequences=sequences)
