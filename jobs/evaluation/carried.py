"""The columns of a row that are no prompt, by the names that they have in the user's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from jobs.kinds import JobKind
from jobs.reading.blocks import Block
from jobs.schema import CARRIED_PREFIX, EXTRA_KEYS, own_fields

_OURS = {field.name for kind in JobKind for field in own_fields(kind)}


def data_of_block(block: Block) -> Iterator[Mapping[str, Any]]:
    """Those of the rows of a block that was read."""
    if block.carried is None:
        return ({} for _ in block.rows)
    names = [name.removeprefix(CARRIED_PREFIX) for name in block.carried.schema.names]
    return _rows(names, block.carried.columns)


def data_of_output(table: pa.Table, carried: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Those of output rows.

    Args:
        carried: names of the carried columns, as the output has them.
    """
    if not carried:
        return ({} for _ in range(table.num_rows))
    return _rows(carried, [table.column(name) for name in carried])


def _rows(names: Sequence[str], columns: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    values = [column.to_pylist() for column in columns]
    if list(names) == [EXTRA_KEYS]:
        return (_of_json(text) for (text,) in zip(*values, strict=True))
    own = [_own_name(name) for name in names]
    return (dict(zip(own, row, strict=True)) for row in zip(*values, strict=True))


def _of_json(text: Any) -> Mapping[str, Any]:
    """Keys of a row of JSON lines; a column of a Parquet file may have the same name."""
    if text is None:
        return {}
    try:
        found = orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        found = None
    return found if isinstance(found, dict) else {EXTRA_KEYS: text}


def _own_name(name: str) -> str:
    """The name in the user's file: the output has `input.text` where a column of ours is `text`."""
    bare = name
    while bare.startswith("input."):
        bare = bare.removeprefix("input.")
    return bare if bare in _OURS else name
