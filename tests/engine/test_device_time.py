"""Whose the time of the steps is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batch import Batch, ScheduledSequence
from engine.device_time import DeviceTime
from engine.sampling_params import SamplingParams

pytestmark = pytest.mark.quick

PARAMS = SamplingParams()


def batch(**tokens: int) -> Batch:
    """A step that computes so many tokens of each request."""
    return Batch(
        1,
        tuple(
            ScheduledSequence(request_id.replace("__", "/beam "), (5,) * n, 0, (0,), True, PARAMS)
            for request_id, n in tokens.items()
        ),
    )


def test_a_step_is_divided_by_the_tokens_that_it_computed() -> None:
    time = DeviceTime()
    time.begin(batch(prompt=90, decode=1, other=9))
    time.add(2.0)
    assert time.take_all() == pytest.approx({"prompt": 1.8, "decode": 0.02, "other": 0.18})


def test_what_was_told_is_not_told_again() -> None:
    time = DeviceTime()
    time.begin(batch(a=1, b=1))
    time.add(1.0)
    assert time.take(["a", "unknown"]) == {"a": 0.5}
    time.begin(batch(b=1))
    time.add(1.0)
    assert time.take(["a"]) == {}
    assert time.take_all() == {"b": 1.5}
    assert time.take_all() == {}


def test_beams_are_of_their_request_and_a_fork_is_not_free() -> None:
    time = DeviceTime()
    time.begin(batch(search__0=1, search__1=1, fork=0, plain=1))
    time.add(4.0)
    assert time.take_all() == {"search": 2.0, "fork": 1.0, "plain": 1.0}


def test_the_time_that_the_last_step_is_waited_for_is_its_own() -> None:
    """Overlapped, two steps are planned at first, and none at the end."""
    time = DeviceTime()
    time.begin(batch(a=3))
    time.begin(batch(a=1, b=4))
    time.add(1.0)
    time.begin(batch(b=1))
    time.add(1.0)
    time.add(1.0)
    assert time.take_all() == {"a": 0.5, "b": 2.5}


def test_time_before_anything_is_planned_is_nobodys() -> None:
    time = DeviceTime()
    time.add(1.0)
    assert time.take_all() == {}


steps = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 500), min_size=1),
        st.floats(0.0001, 10),
        st.sets(st.sampled_from("abcdefgh")),
    ),
    max_size=30,
)


@given(steps, st.booleans())
def test_all_of_the_time_is_told_once_whoever_asks_when(
    steps: list[tuple[dict[str, int], float, set[str]]], all_at_times: bool
) -> None:
    time, told = DeviceTime(), dict.fromkeys("abcdef", 0.0)
    expected = dict.fromkeys("abcdef", 0.0)
    for tokens, seconds, asked in steps:
        time.begin(batch(**tokens))
        time.add(seconds)
        weights = {i: n or 1 for i, n in tokens.items()}
        for request_id, weight in weights.items():
            expected[request_id] += seconds * weight / sum(weights.values())
        taken = time.take_all() if all_at_times and len(asked) > 3 else time.take(asked)
        assert all(value > 0 for value in taken.values())
        for request_id, value in taken.items():
            told[request_id] += value
    for request_id, value in time.take_all().items():
        told[request_id] += value
    assert told == pytest.approx(expected)
    assert sum(told.values()) == pytest.approx(sum(seconds for _, seconds, _ in steps))
