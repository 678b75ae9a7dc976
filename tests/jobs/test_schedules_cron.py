"""Cron expressions, and what clocks that are put forward and back make of them."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import UsageError
from jobs.schedules.cron import parse_cron
from tests.support import wall_clock
from tests.support.wall_clock import utc

pytestmark = pytest.mark.quick

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # by half an hour
    "Africa/Casablanca",  # back for Ramadan
    "Asia/Kolkata",
    "UTC",
)
FIRST, LAST = utc(2026, 1, 1), utc(2031, 1, 1)
HALF_A_DAY = timedelta(hours=12)


def times(expression: str, zone: str, after: datetime, number: int) -> list[str]:
    """The next times, as the wall shows them."""
    cron = parse_cron(expression, zone)
    found = islice(cron.after(after), number)
    return [f"{time.astimezone(cron.zone):%d %H:%M%z}" for time in found]


# ---- the clock is put forward, and back


def test_a_time_that_the_clock_jumps_over_is_run_after_the_gap() -> None:
    found = times("30 2 * * *", "Europe/Berlin", utc(2026, 3, 28), 3)
    assert found == ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]


def test_several_times_in_the_gap_are_one() -> None:
    found = times("0,20,40 2,3 * * *", "Europe/Berlin", utc(2026, 3, 29), 3)
    assert found == ["29 03:00+0200", "29 03:20+0200", "29 03:40+0200"]


def test_a_time_that_is_there_twice_is_run_once() -> None:
    found = times("30 2 * * *", "Europe/Berlin", utc(2026, 10, 24), 3)
    assert found == ["24 02:30+0200", "25 02:30+0200", "26 02:30+0100"]


def test_asked_between_the_two_it_is_the_next_day() -> None:
    assert times("30 2 * * *", "Europe/Berlin", utc(2026, 10, 25, 1), 1) == ["26 02:30+0100"]


def test_every_quarter_goes_through_both() -> None:
    for start in (utc(2026, 3, 28, 23), utc(2026, 10, 24, 23)):
        found = list(islice(parse_cron("*/15 * * * *", "Europe/Berlin").after(start), 24))
        assert found == [start + timedelta(minutes=15 * i) for i in range(1, 25)]


def test_half_an_hour_of_summer() -> None:
    assert times("10 2 * * *", "Australia/Lord_Howe", utc(2026, 10, 3, 12), 2) == [
        "04 02:30+1100",
        "05 02:10+1100",
    ]
    assert times("40 * * * *", "Australia/Lord_Howe", utc(2026, 4, 4, 14), 3) == [
        "05 01:40+1100",
        "05 01:40+1030",
        "05 02:40+1030",
    ]


# ---- against a model that looks at every minute


@cache
def changes(zone: str) -> list[datetime]:
    """When the clock is put, in five years."""
    found = []
    moment = FIRST
    while moment < LAST:
        later = moment + timedelta(hours=1)
        if moment.astimezone(ZoneInfo(zone)).utcoffset() != (
            later.astimezone(ZoneInfo(zone)).utcoffset()
        ):
            found.append(later)
        moment = later
    return found


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> str:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.integers(1, high - low)
    item = number.map(str) | span | st.tuples(span, step).map(lambda p: f"{p[0]}/{p[1]}")
    some = st.lists(item, min_size=1, max_size=3).map(",".join)
    return draw(st.just("*") | step.map(lambda s: f"*/{s}") | some)


@st.composite
def questions(draw: st.DrawFn) -> tuple[str, str, datetime]:
    """An expression, a zone, and a moment, mostly near to one when the clock is put."""
    # Early hours are when clocks are put.
    hour = fields(0, 23) | fields(0, 4)
    day, month, weekday = (draw(st.just("*") | fields(*r)) for r in ((1, 31), (1, 12), (0, 7)))
    zone = draw(st.sampled_from(ZONES))
    anywhen = st.integers(0, (LAST - FIRST) // timedelta(minutes=1)).map(
        lambda minute: FIRST + timedelta(minutes=minute)
    )
    near = [change - HALF_A_DAY for change in changes(zone)]
    moment = draw(st.sampled_from(near) | anywhen if near else anywhen)
    return f"{draw(fields(0, 59))} {draw(hour)} {day} {month} {weekday}", zone, moment


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(questions())
def test_as_if_every_minute_were_looked_at(question: tuple[str, str, datetime]) -> None:
    expression, zone, after = question
    until = after + 3 * HALF_A_DAY
    try:
        cron = parse_cron(expression, zone)
    except UsageError:
        found = []  # it never comes
    else:
        found = [time for time in islice(cron.after(after), 3000) if time <= until]
        assert cron.newest(after, until, 5) == found[-5:]
    assert found == wall_clock.times(expression, ZoneInfo(zone), after, until)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", ["30 2 * * *", "15,45 1-3 * * *", "*/15 * * * *"])
def test_each_change_of_five_years(zone: str, expression: str) -> None:
    cron = parse_cron(expression, zone)
    for change in changes(zone):
        after, until = change - HALF_A_DAY, change + HALF_A_DAY
        expected = wall_clock.times(expression, ZoneInfo(zone), after, until)
        assert list(islice(cron.after(after), len(expected))) == expected


# ---- what is accepted


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        (" 0  2 * * mon-fri ", "0 2 * * 1-5"),
        ("0 2 * JAN,feb *", "0 2 * 1,2 *"),
        ("0 2 * * 7", "0 2 * * 0"),
        ("5-5/7 0-0/1 * * *", "5 0 * * *"),
        ("0 2 * * MON-MON/2", "0 2 * * 1"),
        ("0,10-10/5 2 * * *", "0,10 2 * * *"),
    ],
)
def test_other_ways_to_write_it(expression: str, same: str) -> None:
    after = utc(2026, 1, 1)
    assert times(expression, "UTC", after, 20) == times(same, "UTC", after, 20)


def test_the_day_of_the_month_or_of_the_week() -> None:
    assert times("0 0 13 * FRI", "UTC", utc(2026, 11, 1), 3) == [
        "06 00:00+0000",
        "13 00:00+0000",
        "20 00:00+0000",
    ]


def test_the_last_day_and_the_second_monday() -> None:
    assert times("0 0 L * *", "UTC", utc(2028, 2, 1), 1) == ["29 00:00+0000"]
    assert times("0 0 * * MON#2", "UTC", utc(2026, 11, 1), 1) == ["09 00:00+0000"]


def test_a_leap_day_comes() -> None:
    assert parse_cron("0 0 29 2 *", "UTC").next(utc(2026, 1, 1)) == utc(2028, 2, 29)


def test_a_moment_between_two_minutes() -> None:
    moment = datetime(2026, 1, 1, 0, 0, 59, 999_999, tzinfo=UTC)
    assert parse_cron("* * * * *", "UTC").next(moment) == utc(2026, 1, 1, 0, 1)


def test_the_newest_of_many_years_are_found_at_once() -> None:
    cron = parse_cron("* * * * *", "Europe/Berlin")
    found = cron.newest(utc(2000, 1, 1), utc(2026, 1, 1), 3)
    assert found == [utc(2025, 12, 31, 23, 58), utc(2025, 12, 31, 23, 59), utc(2026, 1, 1)]


# ---- what is refused


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("60 2 * * *", "its minute is '60'; it must be made of *, numbers 0 to 59"),
        ("0 24 * * *", "its hour is '24'; it must be made of *, numbers 0 to 23"),
        ("0 2 0 * *", "its day of the month is '0'"),
        ("0 2 * 13 *", "its month is '13'"),
        ("0 2 * * mun", "its day of the week is 'mun'"),
        ("0 2 * * 1-", "its day of the week is '1-'"),
        ("5-1 2 * * *", "its minute is '5-1'"),
        ("*/0 2 * * *", "its minute is '*/0'"),
        ("*/90 * * * *", "its minute is '*/90', but steps are counted anew after 60"),
        ("0 2 * *", "has 4 fields; it must have five: minute, hour, day of the month"),
        ("0 0 2 * * *", "has 6 fields"),
        ("", "has 0 fields"),
        ("@reboot", "'@reboot' is not known; known are @yearly"),
        ("0 0 31 2 *", "'0 0 31 2 *' never comes: no month that it names has such a day"),
        ("0 0 31 4,6,9,11 *", "never comes"),
        ("1," * 200, "has 400 characters; 255 may be"),
    ],
)
def test_an_expression_that_is_none(expression: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_cron(expression, "UTC")
    assert said in str(refused.value)


@pytest.mark.slow
@given(st.text(max_size=40) | st.text("0123456789*/-,LW# @", max_size=20))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        cron = parse_cron(text, "Europe/Berlin")
    except UsageError:
        return
    assert cron.next(utc(2026, 1, 1)) is not None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Europe/Berln", "there is no time zone 'Europe/Berln'; did you mean Europe/Berlin?"),
        ("europe/berlin", "Europe/Berlin"),
        ("Europe", "there is no time zone 'Europe'"),
        ("../../etc/passwd", "there is no time zone"),
        ("/etc/localtime", "there is no time zone"),
        ("", "there is no time zone ''"),
        ("a\0b", "there is no time zone"),
    ],
)
def test_a_zone_that_is_none(name: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_cron("0 2 * * *", name)
    assert said in str(refused.value)


def test_a_machine_without_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_there(name: str) -> ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr("jobs.schedules.cron.ZoneInfo", none_there)
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    with pytest.raises(UsageError, match="run `pip install tzdata`"):
        parse_cron("0 2 * * *", "Europe/Berlin")
