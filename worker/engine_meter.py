"""What the engines of a worker have done: their counts go on when one engine follows another."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from engine.messages import STEP_BUCKETS, EngineStats
from worker.throughput import Throughput

NO_STEPS = (0,) * (len(STEP_BUCKETS) + 1)


class EngineMeter:
    """Adds up what each engine reports of itself. Threads may share it.

    An engine that is killed takes with it what it counted since its last report, which is half
    a second while it computes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._former = EngineStats(step_buckets=NO_STEPS)
        self._latest = EngineStats()
        self._restarts = 0
        self._rows_blamed = 0
        self._generated = Throughput()
        self._generated.add(0, time.monotonic())

    def take(self, stats: EngineStats) -> None:
        """Note the latest report of the engine that runs."""
        with self._lock:
            self._latest = stats
            self._generated.add(
                self._former.generated_tokens + stats.generated_tokens, time.monotonic()
            )

    def engine_died(self) -> None:
        """The engine is gone, and with it all that it held; its counts stay."""
        with self._lock:
            self._former = _summed(self._former, self._latest)
            self._latest = EngineStats()

    def engine_restarted(self) -> None:
        with self._lock:
            self._restarts += 1

    def row_blamed(self) -> None:
        with self._lock:
            self._rows_blamed += 1

    @property
    def rows_blamed(self) -> int:
        """Rows that were found to kill engines."""
        return self._rows_blamed

    @property
    def restarts(self) -> int:
        """Engines that were started in place of one that died."""
        return self._restarts

    def totals(self) -> EngineStats:
        """How the engine stands, with the counts of all engines since the worker started."""
        with self._lock:
            return _summed(self._former, self._latest)

    def tokens_per_second(self) -> float:
        """Generated tokens per second, over the last ten seconds or so."""
        with self._lock:
            return self._generated.per_second(time.monotonic())


def _summed(former: EngineStats, latest: EngineStats) -> EngineStats:
    """The state of the latest, and the counts of both."""
    buckets = latest.step_buckets or NO_STEPS
    return replace(
        latest,
        steps=former.steps + latest.steps,
        prompt_tokens=former.prompt_tokens + latest.prompt_tokens,
        cached_tokens=former.cached_tokens + latest.cached_tokens,
        generated_tokens=former.generated_tokens + latest.generated_tokens,
        late_tokens=former.late_tokens + latest.late_tokens,
        preemptions=former.preemptions + latest.preemptions,
        swap_outs=former.swap_outs + latest.swap_outs,
        swap_ins=former.swap_ins + latest.swap_ins,
        out_of_memory=former.out_of_memory + latest.out_of_memory,
        step_seconds=former.step_seconds + latest.step_seconds,
        step_buckets=tuple(map(sum, zip(former.step_buckets, buckets, strict=True))),
    )
