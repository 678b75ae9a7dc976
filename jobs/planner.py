"""The order in which rows are answered, and how they are cut into chunks.

Rows that share a prefix should meet in one engine at the same time, so that the KV cache of the
prefix is computed once. `jobs` has no tokenizer, so prefixes are those of the text. In
lexicographic order any two rows have between them only rows that share at least as long a
prefix with both: neighbours share the most. Messages are compared as the JSON that the
normalized copy holds, `[{"role":"system","content":"…"},…]`: its text agrees as far as the
messages do, and the system prompt comes first in it.

A whole input cannot be sorted in bounded memory in one pass, and its output could not be
merged before the end; so the order holds within windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.errors import UsageError
from jobs.rows import Row

WINDOW_ROWS = 65_536
WINDOW_BYTES = 64 << 20
MAX_CHUNK_ROWS = 256


def check_chunk_rows(chunk_rows: int) -> None:
    if not 1 <= chunk_rows <= MAX_CHUNK_ROWS:
        raise UsageError(f"chunk_rows is {chunk_rows}; it must be from 1 to {MAX_CHUNK_ROWS}")


def prefix_order(rows: Sequence[Row]) -> list[int]:
    """Indices of the rows that can be answered, by shared prefix; chats before bare prompts.

    Rows with the same text keep their order. Tools come before the messages, since chat templates
    write them there.
    """
    chats = [
        (row.chat or b"", row.messages, i) for i, row in enumerate(rows) if row.messages is not None
    ]
    prompts = [(row.prompt, i) for i, row in enumerate(rows) if row.prompt is not None]
    return [entry[-1] for entries in (sorted(chats), sorted(prompts)) for entry in entries]


def cut(order: Sequence[int], chunk_rows: int) -> Iterator[Sequence[int]]:
    """Consecutive chunks of `chunk_rows`, the last one possibly smaller."""
    for start in range(0, len(order), chunk_rows):
        yield order[start : start + chunk_rows]
