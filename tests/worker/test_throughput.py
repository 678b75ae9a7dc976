"""Tokens per second over a sliding window."""

import pytest

from worker.throughput import Throughput

pytestmark = pytest.mark.quick


def fed(samples, window=10.0):
    made = Throughput(window)
    for at, count in samples:
        made.add(count, at)
    return made


def steady(rate, until, since=0.0):
    return [(since + i / 2, rate * i / 2) for i in range(int((until - since) * 2) + 1)]


def test_nothing_is_no_speed():
    assert Throughput().per_second(5.0) == 0.0
    assert fed([(0.0, 0)]).per_second(5.0) == 0.0


def test_before_the_window_is_full_it_is_the_mean_so_far():
    assert fed(steady(40, until=4)).per_second(4.0) == pytest.approx(40)


@pytest.mark.parametrize("late", [0.0, 0.3, 0.49])
def test_a_steady_pace_is_told_exactly_also_between_two_samples(late):
    assert fed(steady(40, until=60)).per_second(60.0 + late) == pytest.approx(40)


def test_only_the_window_counts():
    """Fast for a minute, then half as fast for the length of the window."""
    fast = steady(100, until=60)
    slow = [(at, 6000 + count) for at, count in steady(50, until=70, since=60)]
    assert fed(fast + slow).per_second(70.0) == pytest.approx(50)


def test_a_window_that_begins_between_two_samples_takes_its_share():
    """A step of 8 s gave 80 tokens; the window sees its last 4 s, and 6 s without any."""
    made = fed([(0.0, 0), (8.0, 80), (14.0, 80)])
    assert made.per_second(14.0) == pytest.approx(4.0)


def test_an_engine_that_fell_idle_slows_down_to_nothing():
    made = fed(steady(40, until=20))
    assert made.per_second(25.0) == pytest.approx(20)
    assert made.per_second(31.0) == 0.0
    assert made.per_second(1000.0) == 0.0


def test_work_after_a_long_rest_starts_from_the_rest():
    made = fed([*steady(40, until=20), (1000.0, 800), (1000.5, 820)])
    assert made.per_second(1000.5) == pytest.approx(2.0)


def test_samples_older_than_the_window_are_dropped():
    made = fed(steady(40, until=1000))
    assert len(made._samples) <= 23
