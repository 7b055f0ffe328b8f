"""Faults seen in other systems, each by its number in the project's list, and the right behaviour here."""

from typing import Any

import numpy as np
import orjson
import pytest

from streaming.closing import Closer
from streaming.decode import Decoder
from streaming.earlier import EarlierSpends
from streaming.settings import Settings, parse_settings
from streaming.shard import ShardState, tick_grid

SECRET = b"k" * 32
TICK = 28_333_334
START = TICK * 60_000
REGION = {"name": "munich", "south": 47.5, "west": 11.0, "north": 48.6, "east": 12.3}
HOME = {"user": "d1", "lat": 48.1, "lon": 11.5}


def settings(**sections: object) -> Settings:
    return parse_settings({"region": REGION, "secret": {"env": "UNUSED"}, **sections})


class Job:
    """The job without Flink: records in, the rows of each tick out."""

    def __init__(self, **sections: object) -> None:
        self.config = settings(**sections)
        self.closer, self.state = Closer(self.config, SECRET, ["traces"], EarlierSpends.none()), ShardState.empty({})

    def close(self, *documents: dict[str, Any] | bytes, tick: int = TICK) -> dict[str, list[dict[str, Any]]]:
        values = [doc if isinstance(doc, bytes) else orjson.dumps({**HOME, "t": tick * 60_000, **doc}) for doc in documents]
        n = len(values)
        decoder = Decoder(self.config.source, tick_grid(self.config), SECRET)
        rows = decoder.decode(values, np.full(n, tick * 60_000 + 59_000), np.zeros(n, int), np.arange(n))
        rows["tick"] = tick
        out, _ = self.closer.close(self.state, 0, tick, rows)
        return {topic: [orjson.loads(line.split("\t")[1]) for line in lines] for topic, lines in out.items()}


def position(out: dict[str, list[dict[str, Any]]]) -> tuple[float, float]:
    (row,) = out["traces"]
    return row["lat"], row["lon"]


def test_a1_null_island_neither_pulls_the_mean_nor_makes_a_leap() -> None:
    good = ({"t": START}, {"t": START + 30_000, "lat": 48.1001})
    bad = ({"t": START + 10_000, "lat": 0.0, "lon": 0.0}, {"t": START + 20_000, "lat": 4e-7, "lon": 0.0})
    alone, mixed = Job().close(*good), Job().close(*good, *bad)
    assert position(alone) == position(mixed)
    assert mixed["balance"][0]["reasons"] == {"null_island": 2}
    assert mixed["balance"][0]["used"] == 2


def test_a2_a_tick_without_a_valid_position_does_not_show_the_last_one() -> None:
    releases = []
    for last in (48.0, 48.4):
        job = Job()
        job.close({"lat": last})
        releases.append(position(job.close({"lat": 0, "lon": 0, "valid": False}, tick=TICK + 1)))
    assert releases[0] == releases[1]


def test_a4_a_reported_speed_is_not_read() -> None:
    two = ({"t": START}, {"t": START + 55_000, "lat": 48.10013})
    fast = tuple({**doc, "speed": 1202.6} for doc in two)
    assert Job().close(*two) == Job().close(*fast)


def test_a13_a_place_sent_again_gives_the_same_release() -> None:
    many = [{"t": START + second * 1000} for second in range(20)]
    assert position(Job().close(*many)) == position(Job().close(*many)) == position(Job().close(many[0]))


def test_a14_identical_events_count_once() -> None:
    (balance,) = Job().close({}, {}, {}, {"created_at": 7})["balance"]
    assert (balance["used"], balance["duplicate"]) == (1, 3)


def test_a16_a_far_future_event_harms_nobody_else() -> None:
    others = [{"user": f"u{i}"} for i in range(10)]
    out = Job().close({"t": START + 86_400_000}, *others)
    assert out["balance"][0]["used"] == 10
    assert out["balance"][0]["reasons"] == {"future": 1}


def test_a19_two_fixes_within_a_second_and_at_one_instant() -> None:
    half_second = ({"t": START + 200}, {"t": START + 700, "lat": 48.100027})  # 3 m: 6 m/s
    assert Job().close(*half_second)["balance"][0]["used"] == 2
    same_instant = ({"t": START}, {"t": START, "lat": 48.100027})
    assert Job().close(*same_instant)["balance"][0]["duplicate"] == 1


def test_a30_standing_still_is_no_duplicate() -> None:
    (balance,) = Job().close(*({"t": START + second * 1000} for second in range(3)))["balance"]
    assert (balance["used"], balance["duplicate"]) == (3, 0)


@pytest.mark.parametrize("extra", ["dest", "trip_name", "polyline", "inregions", "SSID"])
def test_a31_fields_that_are_not_named_never_pass(extra: str) -> None:
    out = Job().close({extra: "SENTINEL-48.137,11.575"}, {"t": 1, extra: "SENTINEL"}, b'{"x":"SENTINEL')
    assert b"SENTINEL" not in orjson.dumps(out)
    assert out["traces"] == Job().close({})["traces"]
