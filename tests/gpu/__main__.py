"""Checks the kernels and the engine on a GPU: against float64, and against transformers.

    python -m tests.gpu [--dry-run] [--budget 540] [--only 'attention*'] [--out FOLDER]

Each check prints a line and stops no other one; the exit code is 1 if any failed. The results go
to `$OUT`, else to `benchmarks/results/`.
"""

from __future__ import annotations

import os
import sys

from benchmarks.gpu.command import Script, main
from benchmarks.gpu.items import Item, unique
from tests.gpu import (
    attention_checks,
    cache_checks,
    engine_checks,
    row_checks,
    rule_checks,
    sampling_checks,
    sanitizer_checks,
)

# Groups of checks: while one compiles, another one has the device.
AT_ONCE = max(1, min(6, (os.cpu_count() or 2) // 2))


def items(dry: bool) -> tuple[Item, ...]:
    return unique(
        [
            *attention_checks.items(dry),
            *engine_checks.items(dry),
            *cache_checks.items(dry),
            *row_checks.items(dry),
            *rule_checks.items(dry),
            *sampling_checks.items(dry),
            *sanitizer_checks.items(dry),
        ]
    )


if __name__ == "__main__":
    script = Script("gpu_test", "tests.gpu", items, at_once=AT_ONCE)
    sys.exit(main(script, (__doc__ or "").splitlines()[0]))
