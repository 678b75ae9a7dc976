"""Output rows as CSV: as RFC 4180 has it, in UTF-8, with line feeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa

from jobs.errors import UsageError
from jobs.json_rows import rows_as_json
from jobs.schema import ERROR, free_name

_ERROR = "error"
_ERROR_FIELDS = tuple(field.name for field in ERROR)
_QUOTED = frozenset('",\r\n')


def header(schema: pa.Schema) -> bytes:
    """The names of the columns; those of an error are columns of their own."""
    flat = _has_errors(schema)
    errors = [f"{_ERROR}.{name}" for name in _ERROR_FIELDS] if flat else []
    taken = set(schema.names)
    names: list[str] = []
    for name in schema.names:
        if name == _ERROR and flat:
            names += errors
        elif name in errors:  # a column of the user's own
            names.append(free_name(name, taken))
        else:
            names.append(name)
    return _line([_text(name) for name in names])


def csv_lines(table: pa.Table) -> Iterator[bytes]:
    """A record a row, each with its line break; see docs/output.md.

    Raises:
        UsageError: a column has no form in CSV.
    """
    flat = _has_errors(table.schema)
    for row in rows_as_json(table):
        cells: list[str] = []
        for name, value in row.items():
            if name == _ERROR and flat:
                error = value or {}
                cells += [_cell(name, error.get(field)) for field in _ERROR_FIELDS]
            else:
                cells.append(_cell(name, value))
        yield _line(cells)


def _has_errors(schema: pa.Schema) -> bool:
    """Whether errors have fields; those of scores are codes alone."""
    return _ERROR in schema.names and pa.types.is_struct(schema.field(_ERROR).type)


def _cell(name: str, value: Any) -> str:
    """Nothing for null; a text that is empty is quoted, so that the two differ."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return _text(value)
    try:
        return _text(orjson.dumps(value).decode())
    except TypeError as error:  # nested deeper than orjson writes
        raise UsageError(
            f"column {name!r} cannot be written as CSV: {error}; Parquet can hold it"
        ) from error


def _text(text: str) -> str:
    if text and _QUOTED.isdisjoint(text) and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def _line(cells: list[str]) -> bytes:
    return (",".join(cells) + "\n").encode("utf-8", "replace")
