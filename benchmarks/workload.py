"""A workload: prompts in token ids, and how much work is in them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Workload:
    """JSON lines with `id`, `text`, `ids` (the prompt's tokens), `max_tokens`, `ignore_eos`.

    Attributes:
        name: the file's name without its suffix.
        sha256: of the file's bytes.
    """

    path: Path
    name: str
    sha256: str
    rows: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, path: Path) -> Workload:
        """Raises SystemExit where a line is no row of a workload."""
        content = path.read_bytes()
        rows = []
        for number, line in enumerate(content.splitlines(), 1):
            row = json.loads(line)
            if not row.get("ids") or row.get("max_tokens", 0) < 1 or not row.get("ignore_eos"):
                raise SystemExit(
                    f"{path}, line {number}: a row needs `ids`, `max_tokens` and "
                    "`ignore_eos: true`; `python -m benchmarks.workloads` writes such files"
                )
            rows.append(row)
        if not rows:
            raise SystemExit(f"{path} has no rows")
        return cls(path, path.stem, hashlib.sha256(content).hexdigest(), tuple(rows))

    def first(self, rows: int) -> Workload:
        """The same with no more than its first rows."""
        return Workload(self.path, self.name, self.sha256, self.rows[:rows])

    @property
    def generated_tokens(self) -> int:
        return sum(row["max_tokens"] for row in self.rows)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(row["ids"]) for row in self.rows)

    @property
    def unique_prompt_tokens(self) -> int:
        """Tokens of the prompts when each common prefix counts once: nodes of their trie."""
        total, before = 0, []
        for ids in sorted(row["ids"] for row in self.rows):
            total += len(ids) - _common(before, ids)
            before = ids
        return total

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "sha256": self.sha256,
            "rows": len(self.rows),
            "prompt_tokens": self.prompt_tokens,
            "unique_prompt_tokens": self.unique_prompt_tokens,
            "generated_tokens": self.generated_tokens,
        }


def _common(a: list[int], b: list[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
