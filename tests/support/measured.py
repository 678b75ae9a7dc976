"""What benchmarks measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def newest_result(benchmark: str) -> Any:
    """What `python -m benchmarks.<benchmark> --save` wrote last."""
    results = Path(__file__).parents[2] / "benchmarks" / "results"
    return json.loads(max(results.glob(f"{benchmark}-*.json")).read_text("utf-8"))
