"""A worker's metrics for Prometheus; docs/operations.md explains each.

They are made from one look at the worker when they are asked for, so that counting them costs
the work nothing. No metric has a label by job or chunk: every job would be a time series for
ever. What is asked of one job, SQL answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

import jobs
from engine.messages import STEP_BUCKETS, EngineStats
from worker.snapshot import Snapshot, WorkerState


def worker_registry(look: Callable[[], Snapshot], model: str) -> CollectorRegistry:
    """A registry of its own, with a worker's metrics and those of its process."""
    registry = CollectorRegistry()
    registry.register(WorkerCollector(look, model))
    ProcessCollector(registry=registry)
    return registry


class WorkerCollector(Collector):
    """Makes the metrics of a worker.

    Args:
        look: takes a snapshot of it.
        model: as its jobs name it.
    """

    def __init__(self, look: Callable[[], Snapshot], model: str) -> None:
        self._look = look
        self._model = model

    def collect(self) -> Iterator[Metric]:
        snapshot = self._look()
        yield from _about(snapshot, self._model)
        yield from _tokens(snapshot)
        yield from _engine(snapshot)
        yield from _work(snapshot)
        yield from _heartbeat(snapshot)
        yield from _notifications(snapshot)


def _about(snapshot: Snapshot, model: str) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "pagemill_build",
        "What this worker runs",
        {
            "version": jobs.__version__,
            "model": model,
            "device": snapshot.device or "",
            "dtype": snapshot.dtype or "",
        },
    )
    yield _labelled(
        GaugeMetricFamily("pagemill_worker_state", "1 for the state it is in", labels=["state"]),
        {state: float(state is snapshot.state) for state in WorkerState},
    )


def _tokens(snapshot: Snapshot) -> Iterator[Metric]:
    stats = snapshot.engine
    yield _counter(
        "pagemill_prompt_tokens", "Prompt tokens of requests that began", stats.prompt_tokens
    )
    yield _counter("pagemill_cached_tokens", "Those found in the prefix cache", stats.cached_tokens)
    yield _counter("pagemill_generated_tokens", "Tokens generated", stats.generated_tokens)
    yield _counter(
        "pagemill_late_tokens",
        "Tokens sampled for requests that had ended, and discarded",
        stats.late_tokens,
    )
    yield _gauge(
        "pagemill_tokens_per_second",
        "Tokens generated per second, over the last 10 seconds",
        snapshot.tokens_per_second,
    )
    yield _gauge(
        "pagemill_prefix_cache_hit_ratio",
        "Share of the prompt tokens that were cached, since the start",
        snapshot.prefix_cache_hit_ratio,
    )


def _engine(snapshot: Snapshot) -> Iterator[Metric]:
    stats = snapshot.engine
    yield _gauge("pagemill_requests_running", "Requests in the batch", stats.running)
    yield _gauge("pagemill_requests_waiting", "Requests that wait for a place", stats.waiting)
    yield _gauge("pagemill_kv_blocks_used", "KV blocks that requests hold", stats.blocks_used)
    yield _gauge(
        "pagemill_kv_blocks_cached", "KV blocks kept for the prefix cache", stats.blocks_cached
    )
    yield _gauge("pagemill_kv_blocks_capacity", "KV blocks that there are", stats.blocks_total)
    yield _counter("pagemill_preemptions", "Times a request lost its KV blocks", stats.preemptions)
    yield _counter(
        "pagemill_swap_outs", "Those whose KV blocks were kept in host memory", stats.swap_outs
    )
    yield _counter("pagemill_swap_ins", "Times such a request came back", stats.swap_ins)
    yield _gauge(
        "pagemill_swap_blocks_used",
        "Blocks of host memory that preempted requests hold",
        stats.swap_blocks_used,
    )
    yield _gauge(
        "pagemill_swap_blocks_capacity", "Blocks of host memory for them", stats.swap_blocks_total
    )
    yield _counter(
        "pagemill_out_of_memory", "Times a step found no memory and was cut", stats.out_of_memory
    )
    yield _step_histogram(stats)
    yield _counter(
        "pagemill_device_seconds", "Seconds that the engine computed", stats.step_seconds
    )
    yield _counter(
        "pagemill_engine_restarts",
        "Engines started in place of one that died",
        snapshot.engine_restarts,
    )
    yield _gauge(
        "pagemill_rows_suspected",
        "Rows of which one may kill the engine; they run apart",
        snapshot.rows_suspected,
    )
    yield _counter(
        "pagemill_rows_blamed", "Rows that were found to kill engines", snapshot.rows_blamed
    )


def _work(snapshot: Snapshot) -> Iterator[Metric]:
    work = snapshot.work
    yield _labelled(
        CounterMetricFamily("pagemill_rows", "Rows finished here", labels=["outcome"]),
        {"completed": work.completed, "failed": work.failed},
    )
    yield _labelled(
        CounterMetricFamily("pagemill_chunks", "Chunks that ended here", labels=["outcome"]),
        work.outcomes,
    )
    yield _gauge("pagemill_chunks_held", "Chunks that are worked on", work.chunks_held)
    yield _gauge(
        "pagemill_lease_age_seconds",
        "Since the oldest lease that is held was taken; 0 without one",
        work.lease_age,
    )


def _heartbeat(snapshot: Snapshot) -> Iterator[Metric]:
    yield _gauge(
        "pagemill_heartbeat_age_seconds",
        "Since a heartbeat last reached the database",
        snapshot.heartbeat_age,
    )
    yield _counter(
        "pagemill_heartbeat_failures", "Heartbeats that failed", snapshot.heartbeat_failures
    )


def _notifications(snapshot: Snapshot) -> Iterator[Metric]:
    yield _counter(
        "pagemill_notifications", "Notifications that URLs have taken", snapshot.notified
    )
    yield _counter(
        "pagemill_notification_failures",
        "Attempts to tell a URL that were in vain",
        snapshot.notification_failures,
    )
    yield _counter(
        "pagemill_notifications_given_up",
        "Notifications that are not tried again",
        snapshot.notifications_given_up,
    )


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value)


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value)  # its sample is called NAME_total


def _labelled(family: Any, values: Any) -> Metric:
    for label, value in values.items():
        family.add_metric([str(label)], value)
    made: Metric = family
    return made


def _step_histogram(stats: EngineStats) -> Metric:
    bounds = [*map(str, STEP_BUCKETS), "+Inf"]
    counts = itertools.accumulate(stats.step_buckets)
    return HistogramMetricFamily(
        "pagemill_step_duration_seconds",
        "How long an engine step took",
        buckets=list(zip(bounds, counts, strict=True)),
        sum_value=stats.step_seconds,
    )
