"""The histogram of step times."""

import pytest

from engine.messages import STEP_BUCKETS
from engine.step_times import StepTimes

pytestmark = pytest.mark.quick


def test_a_bound_belongs_to_its_own_bucket():
    times = StepTimes()
    for bound in STEP_BUCKETS:
        times.add(bound)
        times.add(bound * 1.001)
    assert times.buckets == (1, *[2] * (len(STEP_BUCKETS) - 1), 1)
    assert times.seconds == pytest.approx(sum(STEP_BUCKETS) * 2.001)


def test_no_time_at_all_and_a_very_long_one():
    times = StepTimes()
    times.add(0.0)
    times.add(1e6)
    assert times.buckets == (1, *[0] * (len(STEP_BUCKETS) - 1), 1)
