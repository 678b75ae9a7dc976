"""Columns as JSON values: what Python's own types cannot hold, and what JSON has no type for."""

from __future__ import annotations

import datetime
import re
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.json_values import json_values

pytestmark = pytest.mark.quick


def shown_by_numpy(value: int, unit: Any) -> str:
    """As numpy writes it; we write years outside 1 to 9999 with a sign and six digits."""
    match = re.fullmatch(r"(-?\d+)(-\d\d-\d\d.*?)(\.0+)?", str(np.datetime64(value, unit)))
    assert match is not None
    year = int(match[1])
    return (f"{year:04}" if 0 < year < 10_000 else f"{year:+07}") + match[2]


@settings(deadline=None, max_examples=300)
@example(-719_162, 0)  # the first day of the year 1
@example(-719_163, -1)  # the last one of the year 0
@example(-719_528, -(10**6))  # the first one of the year 0
@example(-719_529, 10**6 - 1)
@example(2_932_896, 86_399_999_999)  # the last day of the year 9999
@example(2_932_897, 86_400_000_000)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63) + 1, 2**63 - 1))
def test_dates_and_times_far_beyond_the_calendars_of_python(days: int, ticks: int) -> None:
    dates = pa.array([days], pa.int32()).view(pa.date32())
    assert json_values(dates) == [shown_by_numpy(days, "D")]
    number = pa.array([ticks], pa.int64())
    for unit in ("ms", "us"):
        expected = [shown_by_numpy(ticks, unit)]
        if unit == "ms":  # numpy shows three digits of a second
            expected = [re.sub(r"(\.\d{3})$", r"\g<1>000", expected[0])]
        moments = number.view(pa.timestamp(unit))
        assert json_values(moments) == expected
        if not 0 < int(expected[0].partition("-")[0] or -1) < 9999:
            assert json_values(number.view(pa.timestamp(unit, "UTC"))) == [f"{expected[0]}+00:00"]
        assert len(json_values(number.view(pa.timestamp(unit, "Asia/Kolkata")))) == 1
    assert json_values(number.view(pa.duration("ns"))) == [ticks / 10**9]
    assert len(json_values(number.view(pa.time64("us")))) == 1


def test_moments_are_shown_in_their_time_zone() -> None:
    def shown(zone: str) -> Any:
        return json_values(pa.array([0], pa.timestamp("s", zone)))[0]

    assert shown("Asia/Kolkata") == shown("+05:30") == "1970-01-01T05:30:00+05:30"
    assert shown("Mars/Olympus_Mons") == "1970-01-01T00:00:00+00:00"  # nobody knows it


@pytest.mark.parametrize("wrap", [pa.list_, pa.large_list, lambda kind: kind])
def test_nanoseconds_are_cut_to_microseconds(wrap: Any) -> None:
    kind = pa.struct([("t", pa.timestamp("ns"))])
    value = {"t": 1_893_456_000_123_456_789}
    column = pa.array([value] if wrap(kind) == kind else [[value]], wrap(kind))

    (found,) = json_values(column)

    assert (found if wrap(kind) == kind else found[0]) == {"t": "2030-01-01T00:00:00.123456"}
    assert json_values(pa.array([1_234_567], pa.time64("ns"))) == ["00:00:00.001234"]


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (pa.array([b"\x00\xff", b""]), ["AP8=", ""]),
        (pa.array([1, -2]), ["1", "-2"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([0.5, 2.0]), ["0.5", "2.0"]),
        (
            pa.array([datetime.date(2030, 1, 31), datetime.date(1, 1, 1)]),
            ["2030-01-31", "0001-01-01"],
        ),
        (pa.array([[1, 2], []]), ["[1,2]", "[]"]),
        (pa.array([{"a": "é"}, {"a": None}]), ['{"a":"é"}', '{"a":null}']),
    ],
)
def test_keys_of_maps_that_are_no_text_are_their_json(keys: pa.Array, shown: list[str]) -> None:
    column = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), keys, pa.array([7, 8]))

    assert json_values(column) == [dict(zip(shown, (7, 8), strict=True))]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], None, [2, 3], []], pa.list_(pa.int8())),
        pa.array([[1, 2], None, [3, 4], [5, None]], pa.list_(pa.int8(), 2)),
        pa.array([{"a": 1}, None, {"a": 2}, {"a": None}]),
        pa.array([[("a", 1)], None, [("b", 2), ("c", 3)], []], pa.map_(pa.string(), pa.int8())),
        pa.array(["a", None, "b", "a"]).dictionary_encode(),
        pa.array([b"a", None, b"b", b""]),
        pa.array([1, None, 2, 3], pa.timestamp("us")),
    ],
    ids=lambda column: str(column.type),
)
def test_a_slice_has_its_own_values(column: pa.Array) -> None:
    whole = json_values(column)
    assert None in whole
    for start in range(5):
        for length in range(5):
            assert json_values(column.slice(start, length)) == whole[start : start + length]


def test_of_equal_keys_the_last_one_counts() -> None:
    column = pa.array([[("k", 1), ("j", 2), ("k", 3)]], pa.map_(pa.string(), pa.int64()))

    assert json_values(column) == [{"k": 3, "j": 2}]


def test_text_that_is_no_utf8_is_shown_with_replacements() -> None:
    raw = pa.array([b"fine", b"\xff\xfe!", None])
    column = pa.Array.from_buffers(pa.string(), 3, raw.buffers())

    assert json_values(column) == ["fine", "\ufffd\ufffd!", None]


def test_bytes_can_be_shown_in_another_way_at_any_depth() -> None:
    column = pa.array([[{"a": b"\x01\x02"}, None]])

    assert json_values(column, binary=list) == [[{"a": [1, 2]}, None]]


def test_extension_types_are_the_values_that_they_stand_for() -> None:
    tensor = pa.fixed_shape_tensor(pa.int8(), (2,))
    column = pa.ExtensionArray.from_storage(tensor, pa.array([[1, 2], None], tensor.storage_type))
    assert json_values(column) == [[1, 2], None]
    truth = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None, 0], pa.int8()))
    assert json_values(truth) == [True, None, False]
    assert json_values(pa.array([uuid.UUID(int=1).bytes], pa.uuid())) == [str(uuid.UUID(int=1))]


@pytest.mark.parametrize("arrow", [pa.list_view(pa.int8()), pa.large_list_view(pa.int8())])
def test_views_are_lists(arrow: pa.DataType) -> None:
    assert json_values(pa.array([[1, 2], None, []], arrow)[1:]) == [None, []]


def test_what_json_cannot_show_is_told() -> None:
    with pytest.raises(TypeError, match="month_day_nano_interval has no form in JSON"):
        json_values(pa.array([None], pa.month_day_nano_interval()))
