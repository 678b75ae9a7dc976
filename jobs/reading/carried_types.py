"""The types of carried columns, which stay what they are as far as Arrow can reorder them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import types

_LEAST_INDEX_BITS = 32


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type in which columns are carried; it holds the same values.

    Lists and strings take the place of views, which Arrow cannot reorder. Dictionaries get wide
    indices: each row group may bring another dictionary, and those of all of them have to fit
    into one.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_extension(kind)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_list_view(kind) or types.is_list(kind):
        return pa.list_(_plain(kind.value_field))
    if types.is_large_list_view(kind) or types.is_large_list(kind):
        return pa.large_list(_plain(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_field), kind.list_size)
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), _plain(kind.item_field), kind.keys_sorted)
    if types.is_struct(kind):
        return pa.struct([_plain(field) for field in kind])
    if types.is_dictionary(kind):
        narrow = kind.index_type.bit_width < _LEAST_INDEX_BITS
        index = pa.int32() if narrow else kind.index_type
        return pa.dictionary(index, plain_type(kind.value_type), kind.ordered)
    return kind


def convert(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as another type, with the same values.

    Raises:
        pyarrow.ArrowException, ValueError: the type cannot hold them. It is refused, too, where
            Arrow would make other values of them: 7 of "007", 1.0 of 1.05, a day of a moment.
    """
    plain = plain_type(column.type)
    if not _holds(kind, plain):
        raise ValueError(f"{column.type} is not {kind}")
    if column.type != plain:
        column = _as_plain(column, plain)
    return column if column.type == kind else column.cast(kind)


def _plain(field: pa.Field) -> pa.Field:
    # Null may be in the next file of a folder.
    return field.with_type(plain_type(field.type)).with_nullable(True)


def _plain_extension(kind: pa.BaseExtensionType) -> pa.DataType:
    storage = plain_type(kind.storage_type)
    if storage == kind.storage_type:
        return kind
    if isinstance(kind, pa.JsonType):
        return pa.json_(storage)
    if isinstance(kind, pa.OpaqueType):
        return pa.opaque(storage, kind.type_name, kind.vendor_name)
    return storage


def _as_plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        extended = isinstance(kind, pa.BaseExtensionType)
        storage = _as_plain(column.storage, kind.storage_type if extended else kind)
        return pa.ExtensionArray.from_storage(kind, storage) if extended else storage
    if _has_list_views(column.type):  # Arrow's cast of one makes a list that is not valid
        return pa.array(column.to_pylist(), kind)
    return column.cast(kind)


def _has_list_views(kind: pa.DataType) -> bool:
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return True
    return any(_has_list_views(kind.field(i).type) for i in range(kind.num_fields))


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )


# Of types that are alike, Arrow's cast keeps the value, or raises.
_ALIKE: tuple[Callable[[pa.DataType], bool], ...] = (
    _is_text,
    _is_binary,
    types.is_integer,
    types.is_decimal,
    types.is_date,
    types.is_time,
    types.is_duration,
)


def _holds(wanted: pa.DataType, given: pa.DataType) -> bool:
    """Whether a cast from one plain type to another keeps all values, or raises."""
    if given == wanted or types.is_null(given):
        return True
    if types.is_dictionary(given) or types.is_dictionary(wanted):
        return _holds(_values(wanted), _values(given))
    if _is_list(given) and _is_list(wanted):
        return _holds(wanted.value_type, given.value_type)
    if types.is_map(given) and types.is_map(wanted):
        pairs = ((wanted.key_type, given.key_type), (wanted.item_type, given.item_type))
        return all(_holds(w, g) for w, g in pairs)
    if types.is_struct(given) and types.is_struct(wanted):
        return _holds_fields(wanted, given)
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        # What has no zone is no moment: nobody knows in which one it was meant.
        return (given.tz is None) == (wanted.tz is None)
    if types.is_floating(wanted) and wanted.bit_width >= 32:
        if types.is_integer(given):
            return True
        return bool(types.is_floating(given)) and given.bit_width <= wanted.bit_width
    return any(is_one(given) and is_one(wanted) for is_one in _ALIKE)


def _holds_fields(wanted: pa.StructType, given: pa.StructType) -> bool:
    """Whether no field is left out; one that is missing becomes null."""
    names = [field.name for field in wanted]
    if len(set(names)) < len(names) or len({f.name for f in given}) < given.num_fields:
        return False
    return all(
        field.name in names and _holds(wanted.field(field.name).type, field.type) for field in given
    )


def _values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if types.is_dictionary(kind) else kind
