"""The two file formats of rows; light, so that the command line can name them at once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path


class Format(StrEnum):
    PARQUET = "parquet"
    JSONL = "jsonl"


def format_of(path: Path) -> Format | None:
    """The format that a file name tells."""
    known = {
        ".parquet": Format.PARQUET,
        ".pq": Format.PARQUET,
        ".jsonl": Format.JSONL,
        ".ndjson": Format.JSONL,
        ".json": Format.JSONL,
    }
    return known.get(path.suffix.lower())
