"""A line of the log that tells how far the work is."""

from __future__ import annotations

import logging
from collections.abc import Callable

from worker.snapshot import Snapshot

log = logging.getLogger("pagemill.worker")


def log_progress(look: Callable[[], Snapshot]) -> None:
    """Log how the chunks stand that are worked on, and their engine; nothing if there are none."""
    snapshot = look()
    work, engine = snapshot.work, snapshot.engine
    if not work.chunks_held:
        return
    held_blocks = engine.blocks_used / max(1, engine.blocks_total)
    log.info(
        "progress: %d of %d rows of %s; %.1f tokens/s, %d requests running, %d waiting, "
        "KV blocks %.0f%% used, %.0f%% of prompt tokens from the prefix cache",
        work.rows_done, work.rows_total,
        "1 chunk" if work.chunks_held == 1 else f"{work.chunks_held} chunks",
        snapshot.tokens_per_second,
        engine.running, engine.waiting, 100 * held_blocks, 100 * snapshot.prefix_cache_hit_ratio,
        extra={
            "event": "progress",
            "job_ids": list(work.jobs),
            "chunks_held": work.chunks_held,
            "rows_done": work.rows_done,
            "rows_total": work.rows_total,
            "tokens_per_second": round(snapshot.tokens_per_second, 1),
            "running": engine.running,
            "waiting": engine.waiting,
            "kv_blocks_used": engine.blocks_used,
            "kv_blocks_total": engine.blocks_total,
            "prefix_cache_hit_ratio": round(snapshot.prefix_cache_hit_ratio, 4),
        },
    )  # fmt: skip
