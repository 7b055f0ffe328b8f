from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from geo.plane import Plane
from geo.tiling.tiling import Tiling, tile
from streaming.counting import ShardCounts, count_tick, count_unclosed
from streaming.decode import Decoder
from streaming.settings import parse_settings
from streaming.shard import tick_grid

SECRET = b"k" * 32
TICK = 28_333_334
START = TICK * 60_000
REGION = {"name": "helsinki", "south": 60.0, "west": 24.5, "north": 60.4, "east": 25.4}
CONFIG = parse_settings({"region": REGION, "secret": {"env": "UNUSED"}})
TILING: Tiling = tile(Plane(CONFIG.region.region()), 200, (4, 4))


def fixes(*docs: dict[str, Any]) -> NDArray[np.void]:
    values = [orjson.dumps({"user": "a", "t": START, "lat": 60.2, "lon": 24.9, **doc}) for doc in docs]
    n = len(values)
    return Decoder(CONFIG.source, tick_grid(CONFIG), SECRET).decode(values, np.full(n, START + 59_000), np.zeros(n, int), np.arange(n))


def counted(*docs: dict[str, Any]) -> NDArray[np.int64]:
    found = count_tick(TILING, 0, TICK, fixes(*docs))
    total = np.zeros(len(TILING.tree.leaves), np.int64)
    total[found.leaf] = found.count
    return total


def test_a_user_is_counted_once_where_the_first_fix_is() -> None:
    first, second = {"t": START + 1}, {"t": START + 2, "lat": 60.01, "lon": 24.51}
    np.testing.assert_array_equal(counted(first, second), counted(first))
    np.testing.assert_array_equal(counted(second, first), counted(first))
    assert (counted(second) != counted(first)).any()


@pytest.mark.parametrize("place", [{"lat": -33.0, "lon": 151.0}, {"lat": 95}, {"lat": None}, {"lat": 0, "lon": 0}, {"lat": "x"}])
def test_who_is_outside_or_has_no_usable_place_is_counted_elsewhere(place: dict[str, Any]) -> None:
    total = counted(place, {"user": "b"})
    assert total[TILING.elsewhere] == 1
    assert total.sum() == 2


def test_a_bad_position_does_not_hide_a_good_one() -> None:
    np.testing.assert_array_equal(counted({"lat": 95}, {"t": START + 5}), counted({}))


def test_every_record_has_one_outcome() -> None:
    docs = [{"t": START + i} for i in range(4)] + [{"t": START}, {"user": "b", "lat": 95}, {"user": None}, {"t": START - 10**6}]
    found = count_tick(TILING, 3, TICK, fixes(*docs))
    balance = found.balance
    assert (balance.used, balance.merged, balance.duplicate, balance.rejected, balance.late) == (1, 3, 1, 2, 1)
    assert balance.records == len(docs) == 8
    withheld = found.outcomes(published=False)
    assert (withheld.used, withheld.withheld) == (0, 1)
    assert found.outcomes(published=True) == balance
    open_ = count_unclosed(3, TICK, fixes(*docs)).balance
    assert (open_.used, open_.withheld, open_.unclosed, open_.rejected, open_.late) == (0, 5, 5, 2, 1)


def test_counts_survive_the_way_to_the_publisher() -> None:
    found = count_tick(TILING, 3, TICK, fixes({}, {"user": "b", "lat": 1}))
    again = ShardCounts.load(found.dump())
    np.testing.assert_array_equal(again.leaf, found.leaf)
    np.testing.assert_array_equal(again.count, found.count)
    assert again.balance == found.balance


places = st.tuples(st.sampled_from("abcdef"), st.integers(0, 5), st.floats(59.9, 60.5), st.floats(24.4, 25.5))


@given(st.lists(places, max_size=12), st.sampled_from("abcdef"), st.floats(59.9, 60.5), st.floats(24.4, 25.5))
def test_one_user_more_changes_one_leaf_by_one_and_a_move_changes_two(
    rows: list[tuple[str, int, float, float]], who: str, lat: float, lon: float
) -> None:
    others = [{"user": user, "t": START + t, "lat": y, "lon": x} for user, t, y, x in rows if user != who]
    here = {"user": who, "lat": lat, "lon": lon}
    without, with_ = counted(*others), counted(*others, here)
    assert sorted((with_ - without).tolist()) == [0] * (len(without) - 1) + [1]
    moved = counted(*others, {**here, "lat": 60.123, "lon": 25.01})
    change = np.abs(TILING.tree.sums(moved) - TILING.tree.sums(with_))
    assert change[0] == 0
    for level in TILING.tree.levels:
        assert change[level].sum() in (0, 1, 2)
