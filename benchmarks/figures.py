"""From runs to what a comparison says: medians, ratios, shares of the ceiling."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

_MEDIANS = (
    "tokens_per_second",
    "generate_seconds",
    "load_seconds",
    "prime_seconds",
    "peak_memory_mb",
)


def summarize(runs: Sequence[dict[str, Any]], bounds: Sequence[float]) -> dict[str, Any]:
    """Medians over an engine's runs.

    Args:
        runs: reports of `run_once`, in the order of the rounds.
        bounds: seconds that the ceiling of the same round would take for the same rows.
    """
    medians = {
        key: round(statistics.median(values), 3)
        for key in _MEDIANS
        if (values := [run[key] for run in runs if run.get(key) is not None])
    }
    shares = [bound / run["generate_seconds"] for run, bound in zip(runs, bounds, strict=True)]
    return {
        "rows": runs[0]["rows"],
        **medians,
        "share_of_ceiling": round(statistics.median(shares), 3),
    }


def times_as_fast(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> float:
    """How many times as fast as a peer we are: median over the rounds, each a pair of neighbours.

    Other work on the machine comes and goes; two runs of one round share most of it.
    """
    pairs = zip(ours, theirs, strict=True)
    ratios = [b["generate_seconds"] / a["generate_seconds"] for a, b in pairs]
    return round(statistics.median(ratios), 2)


def table(engines: dict[str, dict[str, Any]]) -> str:
    """The summaries as a table for a terminal."""
    lines = [
        f"{'engine':28} {'rows':>5} {'tokens/s':>9} {'ceiling':>8} {'pagemill is':>12} "
        f"{'start-up':>9} {'memory':>9} {'agrees':>7}"
    ]
    for name, engine in engines.items():
        if "failed" in engine:
            lines.append(f"{name:28} failed: {engine['failed'].splitlines()[0]}")
            continue
        same, times = engine["agreement"], engine.get("pagemill_times_as_fast")
        lines.append(
            f"{name:28} {engine['rows']:5} {engine['tokens_per_second']:9.1f} "
            f"{engine['share_of_ceiling']:8.0%} {f'{times:.2f}x' if times else '':>12} "
            f"{engine['load_seconds']:7.1f} s {engine['peak_memory_mb']:6.0f} MB "
            f"{same['equal']:>3}/{same['prompts']}"
        )
    return "\n".join(lines)
