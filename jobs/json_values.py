"""Arrow columns as values that JSON can hold; docs/output.md says which type becomes what.

A column is converted as a whole, type by type. Arrow's own way to Python goes value by value,
and ends where Python's types do: at the year 9999, and at nanoseconds.
"""

from __future__ import annotations

import base64
import datetime
import uuid
from collections.abc import Callable
from itertools import islice, pairwise
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

Binary = Callable[[bytes], Any]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_ORDINAL = _EPOCH.toordinal()
_DAYS_OF_400_YEARS = 146_097  # after which the calendar repeats itself
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECOND = 1_000_000  # in microseconds, like all times below
_DAY = 86_400 * _SECOND


def base64_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def json_values(column: pa.Array, binary: Binary = base64_text) -> list[Any]:
    """One value a row: None, bool, int, float (NaN too), str, list, or dict with names.

    Args:
        binary: what becomes of bytes.

    Raises:
        TypeError: JSON has no form for the column's type.
    """
    kind = column.type
    for fits, convert in _CONVERTERS:
        if fits(kind):
            return convert(column, binary)
    raise TypeError(f"{kind} has no form in JSON")


def _plain(column: pa.Array, binary: Binary) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _text(column: pa.Array, binary: Binary) -> list[str | None]:
    """Bytes that are no UTF-8, which a Parquet string may hold, become U+FFFD."""
    try:
        return _plain(column, binary)
    except UnicodeDecodeError:
        raw = column.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode(errors="replace") for value in raw]


def _bytes(column: pa.Array, binary: Binary) -> list[Any]:
    return [None if value is None else binary(value) for value in column.to_pylist()]


def _decimals(column: pa.Array, binary: Binary) -> list[str | None]:
    return [None if value is None else str(value) for value in column.to_pylist()]


def _lists(column: pa.Array, binary: Binary) -> list[list[Any] | None]:
    items = iter(json_values(column.flatten(), binary))
    lengths = pc.list_value_length(column).to_pylist()
    return [None if length is None else list(islice(items, length)) for length in lengths]


def _structs(column: pa.StructArray, binary: Binary) -> list[dict[str, Any] | None]:
    names = [field.name for field in column.type]
    if len(set(names)) < len(names):
        raise TypeError(f"{column.type} has two fields of one name, which no JSON object can have")
    fields = [json_values(column.field(i), binary) for i in range(len(names))]
    rows = zip(*fields, strict=True) if fields else ((),) * len(column)
    return [
        dict(zip(names, row, strict=True)) if valid else None
        for valid, row in zip(column.is_valid().to_pylist(), rows, strict=True)
    ]


def _maps(column: pa.MapArray, binary: Binary) -> list[dict[str, Any] | None]:
    """Objects. A key that is no text becomes its JSON; of equal keys the last one counts."""
    ends = column.offsets.to_pylist()  # into keys and items, which know nothing of slices
    first, count = ends[0], ends[-1] - ends[0]
    keys = map(_key, json_values(column.keys.slice(first, count), binary))
    items = list(zip(keys, json_values(column.items.slice(first, count), binary), strict=True))
    return [
        dict(items[start - first : end - first]) if valid else None
        for valid, (start, end) in zip(column.is_valid().to_pylist(), pairwise(ends), strict=True)
    ]


def _key(key: Any) -> str:
    return key if isinstance(key, str) else orjson.dumps(key).decode()


def _categories(column: pa.DictionaryArray, binary: Binary) -> list[Any]:
    return json_values(column.dictionary_decode(), binary)


def _extensions(column: pa.ExtensionArray, binary: Binary) -> list[Any]:
    if column.type.extension_name == "arrow.uuid":
        return _bytes(column.storage, lambda value: str(uuid.UUID(bytes=value)))
    if column.type.extension_name == "arrow.bool8":
        return json_values(column.storage.cast(pa.bool_()))
    return json_values(column.storage, binary)


def _dates(column: pa.Array, binary: Binary) -> list[str | None]:
    a_day = 1 if types.is_date32(column.type) else 86_400_000
    return [None if v is None else _date(v // a_day) for v in _integers(column)]


def _times(column: pa.Array, binary: Binary) -> list[str | None]:
    return [None if v is None else _time(v) for v in _microseconds(column)]


def _timestamps(column: pa.Array, binary: Binary) -> list[str | None]:
    zone = _zone(column.type.tz)
    return [None if v is None else _timestamp(v, zone) for v in _microseconds(column)]


def _durations(column: pa.Array, binary: Binary) -> list[float | None]:
    a_second = _PER_SECOND[column.type.unit]
    return [None if v is None else v / a_second for v in _integers(column)]


def _integers(column: pa.Array) -> list[int | None]:
    values: list[int | None] = column.view(
        pa.int32() if column.type.bit_width == 32 else pa.int64()
    ).to_pylist()
    return values


def _microseconds(column: pa.Array) -> list[int | None]:
    a_second = _PER_SECOND[column.type.unit]
    return [None if v is None else v * _SECOND // a_second for v in _integers(column)]


def _date(days: int) -> str:
    """ISO 8601 of days since 1970; years outside 1 to 9999 have a sign and six digits."""
    cycles, rest = divmod(days + _EPOCH_ORDINAL - 1, _DAYS_OF_400_YEARS)
    day = datetime.date.fromordinal(rest + 1)
    year = day.year + 400 * cycles
    return f"{year:04}{day:-%m-%d}" if 0 < year < 10_000 else f"{year:+07}{day:-%m-%d}"


def _time(time: int) -> str:
    seconds, fraction = divmod(abs(time), _SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{'-' if time < 0 else ''}{hour:02}:{minute:02}:{second:02}"
    return f"{text}.{fraction:06}" if fraction else text


def _timestamp(time: int, zone: datetime.tzinfo | None) -> str:
    """In its time zone, unless that leads out of Python's years: then in UTC."""
    if zone is not None:
        try:
            return (_EPOCH + datetime.timedelta(microseconds=time)).astimezone(zone).isoformat()
        except OverflowError:
            pass
    days, rest = divmod(time, _DAY)
    return f"{_date(days)}T{_time(rest)}{'' if zone is None else '+00:00'}"


def _zone(name: str | None) -> datetime.tzinfo | None:
    if name is None:
        return None
    try:
        zone: datetime.tzinfo = pa.lib.string_to_tzinfo(name)
    except ValueError:  # a zone that this machine does not know; the moment is the same in UTC
        return datetime.UTC
    return zone


def _is_plain(kind: pa.DataType) -> bool:
    return bool(types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


_CONVERTERS: list[tuple[Callable[[Any], bool], Callable[[Any, Binary], list[Any]]]] = [
    (lambda kind: isinstance(kind, pa.BaseExtensionType), _extensions),
    (types.is_null, _plain),
    (_is_plain, _plain),
    (_is_text, _text),
    (_is_binary, _bytes),
    (types.is_decimal, _decimals),
    (types.is_date, _dates),
    (types.is_time, _times),
    (types.is_timestamp, _timestamps),
    (types.is_duration, _durations),
    (_is_list, _lists),
    (types.is_struct, _structs),
    (types.is_map, _maps),
    (types.is_dictionary, _categories),
]
