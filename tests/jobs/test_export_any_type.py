"""Whatever a Parquet column may hold has a form in JSON."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
import math
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.json_rows import json_lines


class Kind(NamedTuple):
    """A type, and pairs of a value as Arrow takes it and as JSON shows it."""

    type: pa.DataType
    pairs: st.SearchStrategy[tuple[Any, Any]]


def kind(arrow: pa.DataType, values: st.SearchStrategy[Any], show: Any = lambda v: v) -> Kind:
    return Kind(arrow, values.map(lambda value: (value, show(value))))


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
BYTES = st.binary(max_size=6)
MOMENTS = st.datetimes()
FARTHEST = datetime.timedelta(days=100_000_000)  # about what 64 bits of microseconds hold
LEAVES = st.sampled_from(
    [
        Kind(pa.null(), st.just((None, None))),
        kind(pa.bool_(), st.booleans()),
        kind(pa.int8(), st.integers(-(2**7), 2**7 - 1)),
        kind(pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        kind(pa.uint64(), st.integers(0, 2**64 - 1)),
        kind(pa.float16(), st.floats(width=16), finite),
        kind(pa.float32(), st.floats(width=32), finite),
        kind(pa.float64(), st.floats(), finite),
        kind(pa.string(), TEXT),
        kind(pa.large_string(), TEXT),
        kind(pa.string_view(), TEXT),
        kind(pa.binary(), BYTES, lambda v: base64.b64encode(v).decode()),
        kind(pa.large_binary(), BYTES, lambda v: base64.b64encode(v).decode()),
        kind(
            pa.binary(3), st.binary(min_size=3, max_size=3), lambda v: base64.b64encode(v).decode()
        ),
        kind(
            pa.decimal128(10, 2),
            st.integers(-(10**9), 10**9).map(lambda n: decimal.Decimal(n).scaleb(-2)),
            str,
        ),
        kind(pa.decimal256(50, 0), st.integers(0, 10**50 - 1).map(decimal.Decimal), str),
        kind(pa.date32(), st.dates(), datetime.date.isoformat),
        kind(pa.date64(), st.dates(), datetime.date.isoformat),
        kind(pa.time32("s"), st.times().map(lambda t: t.replace(microsecond=0)), str),
        kind(pa.time64("us"), st.times(), str),
        kind(pa.time64("ns"), st.times(), str),
        kind(pa.timestamp("us"), MOMENTS, datetime.datetime.isoformat),
        kind(
            pa.timestamp("us", "UTC"),
            MOMENTS.map(lambda m: m.replace(tzinfo=datetime.UTC)),
            datetime.datetime.isoformat,
        ),
        kind(
            pa.duration("us"),
            st.timedeltas(-FARTHEST, FARTHEST),
            lambda d: (d // datetime.timedelta(microseconds=1)) / 10**6,
        ),
        kind(pa.dictionary(pa.int8(), pa.string()), TEXT),
        kind(pa.uuid(), st.uuids(), str),
    ]
)
# Arrow does not yet write or read all of these below a list or a struct.
NESTABLE = LEAVES.filter(
    lambda k: (
        not isinstance(k.type, pa.BaseExtensionType | pa.DictionaryType)
        and k.type != pa.string_view()
    )
)


def or_null(inner: Kind) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.just((None, None)) | inner.pairs


def lists(inner: Kind) -> st.SearchStrategy[Kind]:
    def of(arrow: pa.DataType, **size: int) -> Kind:
        items = st.lists(or_null(inner), **({"max_size": 3} | size))
        return Kind(arrow, items.map(lambda pairs: ([a for a, _ in pairs], [j for _, j in pairs])))

    return st.sampled_from(
        [
            of(pa.list_(inner.type)),
            of(pa.large_list(inner.type)),
            of(pa.list_(inner.type, 2), min_size=2, max_size=2),
        ]
    )


def structs(inner: Kind) -> Kind:
    values = st.tuples(or_null(inner), or_null(inner)).map(
        lambda pairs: tuple(dict(zip("ab", side, strict=True)) for side in zip(*pairs, strict=True))
    )
    return Kind(pa.struct([("a", inner.type), ("b", inner.type)]), values)


def maps(inner: Kind) -> Kind:
    values = st.dictionaries(TEXT, or_null(inner), max_size=3).map(
        lambda items: (
            [(k, a) for k, (a, _) in items.items()],
            {k: j for k, (_, j) in items.items()},
        )
    )
    return Kind(pa.map_(pa.string(), inner.type), values)


KINDS = LEAVES | st.recursive(
    NESTABLE,
    lambda inner: inner.flatmap(lists) | inner.map(structs) | inner.map(maps),
    max_leaves=4,
)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_every_column_that_parquet_can_hold_is_json(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(KINDS, min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*map(or_null, kinds)), max_size=6))
    skipped = data.draw(st.integers(0, len(rows)))
    columns = {str(i): pa.array([row[i][0] for row in rows], k.type) for i, k in enumerate(kinds)}
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    table = pq.read_table(file)

    found = [json.loads(line) for line in json_lines(table.slice(skipped))]

    expected = [{str(i): pair[1] for i, pair in enumerate(row)} for row in rows[skipped:]]
    assert found == expected
