"""Calendars: weekly wall time, days on which clocks change, what overlaps."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.policy.calendars import DAY_MINUTES, DAYS, WEEK_MINUTES, Week, is_time_zone, local_time, minute_of_week, week_mask

ZONES = ["UTC", "Europe/Helsinki", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Asia/Kathmandu"]
INTERVALS = st.lists(
    st.tuples(st.sets(st.sampled_from(DAYS), min_size=1).map(sorted), st.integers(0, DAY_MINUTES - 1), st.integers(0, DAY_MINUTES)),
    max_size=3,
)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def holds(intervals: list[tuple[list[str], int, int]], wall: datetime) -> bool:
    """Say it again, by the hands of a clock."""
    minute, today, yesterday = wall.hour * 60 + wall.minute, DAYS[wall.weekday()], DAYS[wall.weekday() - 1]
    return any(
        (start <= minute < end and today in days)
        if end > start
        else (minute >= start and today in days) or (minute < end and yesterday in days)
        for days, start, end in intervals
    )


@given(INTERVALS, st.sampled_from(ZONES), st.integers(788_918_400, 2_051_222_400))
def test_a_mask_says_what_the_wall_clock_says(intervals: list[tuple[list[str], int, int]], zone: str, second: int) -> None:
    instant = datetime.fromtimestamp(second, UTC)
    wall = instant.astimezone(ZoneInfo(zone))
    mask = week_mask(intervals)
    assert bool(mask[minute_of_week(zone, second * 1000)]) == holds(intervals, wall)


@pytest.mark.parametrize(
    ("at", "minute"),
    [
        ("2026-03-29T00:59:59.999+00:00", 2 * 60 + 59),
        ("2026-03-29T01:00:00+00:00", 4 * 60),  # 03:00 is skipped
        ("2026-10-25T00:30:00+00:00", 3 * 60 + 30),
        ("2026-10-25T01:30:00+00:00", 3 * 60 + 30),  # 03:30 comes again
    ],
)
def test_the_days_on_which_helsinki_changes_its_clocks(at: str, minute: int) -> None:
    assert minute_of_week("Europe/Helsinki", ms(at)) == 6 * DAY_MINUTES + minute


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("day", ["2026-03-08", "2026-03-29", "2026-04-05", "2026-10-25", "2011-12-30"])
def test_every_instant_of_a_day_on_which_clocks_change_is_in_a_calendar_or_its_opposite(zone: str, day: str) -> None:
    work = week_mask([(DAYS[:5], 8 * 60, 16 * 60), (("sun",), 22 * 60, 3 * 60 + 30)])
    week = Week({"work": work, "rest": ~work})
    start = ms(f"{day}T00:00:00+00:00") - 14 * 3_600_000
    for t in range(start, start + 52 * 3_600_000, 600_000):
        assert len(week.sets[int(week.set_of_minute[minute_of_week(zone, t)])]) == 1


def test_sets_are_those_that_hold_together() -> None:
    week = Week({"a": week_mask([(("mon",), 0, 600)]), "b": week_mask([(("mon",), 540, 660)]), "never": np.zeros(WEEK_MINUTES, bool)})
    assert {week.sets[i] for i in week.set_of_minute[[0, 540, 600, 660]]} == {frozenset(names) for names in ("a", "ab", "b", "")}
    assert set(week.sets) == {frozenset(names) for names in ("a", "ab", "b", "")}
    assert week.overlap("a", "b") == "mon 09:00"
    assert week.overlap("a", "never") is None
    assert Week({}).sets == (frozenset(),)


def test_instants_outside_the_calendar_have_a_wall_time_too() -> None:
    for t in (-(10**17), 10**17, -(10**15), 10**15, 0, -1):
        for zone in ZONES:
            assert 0 <= minute_of_week(zone, t) < WEEK_MINUTES
    assert local_time("UTC", 0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert local_time("Europe/Helsinki", 1).utcoffset() == timedelta(hours=2)


@pytest.mark.parametrize("name", ["Europe", "Europe/Atlantis", "localtime", "posixrules", "Factory", "", "../UTC", "/etc/localtime"])
def test_what_is_no_time_zone_everywhere_is_none(name: str) -> None:
    assert not is_time_zone(name)
    assert is_time_zone("Europe/Helsinki")
