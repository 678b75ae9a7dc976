"""The file formats of rows; light, so that the command line can name them at once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path


class Format(StrEnum):
    """What an input may be."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class OutputFormat(StrEnum):
    """How answers may be written."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"
    OPENAI = "openai"  # JSONL, each line as in the output file of an OpenAI batch


# What is put behind a name that has none.
ENDINGS = {
    OutputFormat.PARQUET: ".parquet",
    OutputFormat.JSONL: ".jsonl",
    OutputFormat.CSV: ".csv",
    OutputFormat.OPENAI: ".jsonl",
}


def format_of(path: Path) -> OutputFormat | None:
    """The format that the name of an output file tells."""
    known = {
        ".parquet": OutputFormat.PARQUET,
        ".pq": OutputFormat.PARQUET,
        ".jsonl": OutputFormat.JSONL,
        ".ndjson": OutputFormat.JSONL,
        ".json": OutputFormat.JSONL,
        ".csv": OutputFormat.CSV,
    }
    return known.get(path.suffix.lower())
