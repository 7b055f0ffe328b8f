"""The log of a replay: records that the job's own decoder reads, in the order of time, with a heartbeat a tick in every partition."""

from typing import Literal

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.replay.fixes import SCHEMA, batch_of
from jobs.replay.log import LogBuilder, Record
from streaming.decode import Decoder
from streaming.records import Kind
from streaming.settings import SourceSettings
from streaming.ticks import TickGrid

GRID = TickGrid(60_000, 30_000)
NOON = 1_710_072_000_000
QUIET = 3
SECRET = b"x" * 32
FIXES = st.lists(
    st.tuples(st.text(min_size=1, max_size=4), st.integers(0, 900_000), st.none() | st.floats(-200, 200), st.floats(-200, 200)),
    min_size=1,
    max_size=20,
)


def log(fixes: list[tuple[str, int, float | None, float]], source: SourceSettings | None = None, partitions: int = 3) -> list[Record]:
    rows = sorted(fixes, key=lambda fix: fix[1])
    users, times, lat, lon = zip(*rows, strict=True)
    batch = batch_of(users, [NOON + t for t in times], lat, lon, range(len(rows))).fixes.select(SCHEMA.names[:-1])
    halves = [batch.slice(0, len(rows) // 2), batch.slice(len(rows) // 2)]
    return list(LogBuilder(source or SourceSettings(), GRID, partitions, QUIET).records(half for half in halves if len(half)))


@pytest.mark.parametrize("unit", ["ms", "s", "us", "iso"])
@given(fixes=FIXES)
def test_the_decoder_reads_what_was_written(
    unit: Literal["ms", "s", "us", "iso"], fixes: list[tuple[str, int, float | None, float]]
) -> None:
    source = SourceSettings(user='wh"o', time="zeit", time_unit=unit)
    records = [record for record in log(fixes, source) if record.partition is not None]
    nothing = np.zeros(len(records), np.int64)
    rows = Decoder([source], GRID, SECRET).decode([r.value for r in records], np.array([r.t_ms for r in records]), nothing, nothing)
    times = sorted(NOON + t for _, t, *_ in fixes)
    assert rows["log_ms"].tolist() == times
    assert rows["t_ms"].tolist() == times
    assert not set(rows["kind"].tolist()) & {Kind.MALFORMED, Kind.MISSING_FIELD, Kind.WRONG_TYPE, Kind.LATE, Kind.FUTURE}
    good = sorted(
        (t, round(lat * 1e7))
        for _, t, lat, lon in fixes
        if lat is not None and abs(lat) <= 90 and abs(lon) <= 180 and max(abs(lat), abs(lon)) > 0.01
    )
    is_fix = rows["kind"] == Kind.FIX
    assert sorted(zip((rows["t_ms"][is_fix] - NOON).tolist(), rows["lat_e7"][is_fix].tolist(), strict=True)) == good


@given(fixes=FIXES)
def test_times_never_step_back_and_each_user_keeps_a_partition(fixes: list[tuple[str, int, float | None, float]]) -> None:
    records = log(fixes)
    times = [record.t_ms for record in records]
    assert times == sorted(times)
    homes: dict[str, set[int | None]] = {}
    for record in records:
        if record.partition is not None:
            homes.setdefault(orjson.loads(record.value)["user"], set()).add(record.partition)
    assert all(len(found) == 1 and found <= {0, 1, 2} for found in homes.values())


def test_a_heartbeat_begins_each_tick_and_one_closes_the_last() -> None:
    records = log([("a", 10_000, 1.0, 1.0), ("a", 130_000, 1.0, 1.0)])
    beats = [record.t_ms - NOON for record in records if record.partition is None]
    assert beats == [0, 60_000, 120_000, 210_000]
    assert records[0].partition is None
    assert GRID.first_open(records[-1].t_ms) == GRID.tick_of(np.array([NOON + 130_000]))[0] + 1


def test_heartbeats_pause_in_a_long_silence_when_nobody_is_enrolled_any_more() -> None:
    beats = [record.t_ms - NOON for record in log([("a", 0, 1.0, 1.0), ("a", 3_600_000, 1.0, 1.0)]) if record.partition is None]
    assert beats == [0, 60_000, 120_000, 180_000, 3_600_000, 3_690_000]
