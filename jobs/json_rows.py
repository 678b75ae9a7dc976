"""Output rows as JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa

from jobs.errors import UsageError
from jobs.json_values import json_values
from jobs.schema import EXTRA_KEYS, OUTPUT

# Rows that are Python objects at once, and how many bytes of Arrow they come from: log
# probabilities can take megabytes a row, and many times that as objects.
_MOST_ROWS, _MOST_BYTES = 256, 1 << 20
_BLANKS = str.maketrans("\r\n", "  ")
# Characters of UTF-8 that JSON takes as they are, and at which readers of lines may break one, as
# `str.splitlines` does: next line, line separator, paragraph separator.
_BREAKS = re.compile(b"\xc2\x85|\xe2\x80[\xa8\xa9]")


def json_lines(table: pa.Table) -> Iterator[bytes]:
    """One JSON object a row, each with its line break; see docs/output.md for the types.

    Raises:
        UsageError: a column has no form in JSON.
    """
    extra = table.schema.field(EXTRA_KEYS) if EXTRA_KEYS in table.schema.names else None
    expand = extra is not None and pa.types.is_string(extra.type)
    for row in rows_as_json(table):
        if expand:
            row[EXTRA_KEYS] = _json_object(row[EXTRA_KEYS])
        try:
            yield json_line(row)
        except TypeError as error:  # nested deeper than orjson writes
            name = next((name for name, value in row.items() if not _fits(value)), "")
            raise _no_form(name, table.schema, error) from error


def json_line(value: Any) -> bytes:
    """A value as one line of JSON, whatever its reader takes for the end of a line.

    Raises:
        TypeError: it has no form in JSON.
    """
    line = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    return _BREAKS.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), line)


def rows_as_json(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Each row as values that JSON has, with bounded memory.

    The bytes of tokens are lists of integers, as in OpenAI's answers; other bytes are base64.

    Raises:
        UsageError: a column has no form in JSON.
    """
    names = table.schema.names
    rows = max(1, min(_MOST_ROWS, _MOST_BYTES * table.num_rows // max(1, table.nbytes)))
    for batch in table.to_batches(max_chunksize=rows):
        columns = [_column(batch, name) for name in names]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    try:
        if name in OUTPUT.names:
            return json_values(batch.column(name), binary=list)
        return json_values(batch.column(name))
    except TypeError as error:
        raise _no_form(name, batch.schema, error) from error


def _no_form(name: str, schema: pa.Schema, error: TypeError) -> UsageError:
    return UsageError(
        f"column {name!r} ({schema.field(name).type}) cannot be written as JSON: {error}; Parquet "
        "can hold it"
    )


def _fits(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def _json_object(text: str | None) -> Any:
    """The extra keys of a JSONL row. A Parquet column of that name may hold any text."""
    if text is None or not text.startswith("{"):
        return text
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    # It would end the line of the row. Where JSON has a line break, a blank means the same.
    return orjson.Fragment(text.translate(_BLANKS))
