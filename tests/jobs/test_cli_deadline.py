"""Deadlines as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs.cli.deadline import parse_deadline, parse_since
from jobs.errors import UsageError

pytestmark = pytest.mark.quick

NOW = datetime(2030, 1, 31, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        (" 8h ", timedelta(hours=8)),
        ("1.5h", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
    ],
)
def test_durations_count_from_now(text: str, expected: timedelta) -> None:
    assert parse_deadline(text, NOW) == NOW + expected


def test_a_time_with_its_zone() -> None:
    assert parse_deadline("2030-01-31T10:00+01:00", NOW) == NOW + timedelta(hours=1)


def test_a_time_without_a_zone_is_local() -> None:
    parsed = parse_deadline("2031-01-31 08:00", NOW)

    assert parsed == datetime(2031, 1, 31, 8, 0).astimezone()
    assert parsed.tzinfo is not None


@pytest.mark.parametrize("text", ["", "soon", "8", "h", "8x", "-8h", "2030-13-01", "9" * 30 + "d"])
def test_what_is_no_deadline_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--deadline"):
        parse_deadline(text, NOW)


def test_a_time_that_has_passed_is_refused() -> None:
    with pytest.raises(UsageError, match="has passed"):
        parse_deadline("2030-01-31T07:59+00:00", NOW)


# ---- since when


def test_since_counts_back_from_now() -> None:
    assert parse_since("2d", NOW) == NOW - timedelta(days=2)
    assert parse_since("0s", NOW) == NOW
    assert parse_since("2030-01-31T08:30+01:00", NOW) == NOW - timedelta(minutes=30)
    assert parse_since("2030-01-01", NOW).tzinfo is not None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("yesterday", "--since 'yesterday' is neither a duration"),
        ("2031-01-01", "--since '2031-01-01' is yet to come"),
        ("99999999d", "too far away"),
    ],
)
def test_since_of_no_moment_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_since(text, NOW)
