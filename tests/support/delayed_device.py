"""A device that computes what it is given in its own time, as a GPU does, on a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from engine.batch import Batch, SampledToken
from engine.core import Engine
from engine.launched_step import LaunchedStep


@dataclass(frozen=True)
class DelayedStep:
    """A `LaunchedStep` that may not have begun."""

    step: int
    result: Future[LaunchedStep]
    device: DelayedDevice

    def collect(self) -> list[SampledToken]:
        sampled = self.result.result().collect()
        self.device.events.append(("collected", self.step))
        return sampled


class DelayedDevice:
    """Puts a queue between an engine's host and its computation.

    Copies of blocks and steps go through it in their order, on a thread of its own.

    Args:
        seconds: that each step takes longer.

    Attributes:
        events: `launched`, `computed` and `collected`, with the number of the step, as they
            happen.
    """

    def __init__(self, engine: Engine, seconds: float = 0.0) -> None:
        self.events: list[tuple[str, int]] = []
        self._seconds = seconds
        self._queue = ThreadPoolExecutor(1, thread_name_prefix="device")
        self._launch, self._execute = engine.runner.launch, engine.runner.execute
        engine.runner.launch = self.launch  # type: ignore[method-assign, assignment]
        engine.runner.execute = self.execute  # type: ignore[method-assign]
        steps: Any = engine._steps
        steps._copy = self._queued(steps._copy)
        steps._swap = _QueuedSwap(
            self._queued(steps._swap.swap_out), self._queued(steps._swap.swap_in)
        )

    def launch(self, batch: Batch, before: DelayedStep | None = None) -> DelayedStep:
        self.events.append(("launched", batch.step))
        result = self._queue.submit(self._compute, batch, before)
        return DelayedStep(batch.step, result, self)

    def execute(self, batch: Batch) -> list[SampledToken]:
        """One step at a time."""
        return self.launch(batch).collect()

    def close(self) -> None:
        self._queue.shutdown()

    def _compute(self, batch: Batch, before: DelayedStep | None) -> LaunchedStep:
        began = time.monotonic()
        launched = self._launch(batch, None if before is None else before.result.result())
        time.sleep(max(0.0, began + self._seconds - time.monotonic()))
        self.events.append(("computed", batch.step))
        return launched

    def _queued(self, run: Callable[[Any], None]) -> Callable[[Any], None]:
        def submit(copies: Any) -> None:
            self._queue.submit(run, copies).add_done_callback(lambda done: done.result())

        return submit


@dataclass(frozen=True)
class _QueuedSwap:
    swap_out: Callable[[Any], None]
    swap_in: Callable[[Any], None]
