"""Measures the kernels and the engine on a GPU, each as a share of what the device reaches.

    python -m benchmarks.gpu [--dry-run] [--budget 540] [--only 'decode*'] [--out FOLDER]

First the ceilings, then what there are targets for, then the rest, as far as the time goes; what
was cut is named. The results go to `$OUT`, else to `benchmarks/results/`.
"""

from __future__ import annotations

import sys

from benchmarks.gpu import (
    attention,
    cascade,
    ceilings,
    copies,
    elementwise,
    peers,
    sampling,
    throughput,
)
from benchmarks.gpu.command import Script, main
from benchmarks.gpu.items import Item, unique
from benchmarks.gpu.targets import judge


def items(dry: bool) -> tuple[Item, ...]:
    """In the order of their importance."""
    return unique(
        [
            *ceilings.items(dry),
            *attention.targets(dry),
            *cascade.targets(dry),
            *throughput.targets(dry),
            *peers.items(dry),
            *throughput.items(dry),
            *attention.items(dry),
            *cascade.items(dry),
            *elementwise.items(dry),
            *sampling.items(dry),
            *copies.items(dry),
        ]
    )


if __name__ == "__main__":
    script = Script("gpu_bench", "benchmarks.gpu", items, judge=judge)
    sys.exit(main(script, (__doc__ or "").splitlines()[0]))
