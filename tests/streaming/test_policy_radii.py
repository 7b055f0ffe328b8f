"""The ladder of radii, the blurring function, and the three preference models."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.policy.preferences import Context, FullTable, RoleTables, WeightedSum
from streaming.policy.radii import LADDER_STEPS, blur_m, ladder_m, rung_m

AT_WORK = Context("friends", "meeting", frozenset({"work", "summer"}), "zone:hospital")
ELSEWHERE = Context("strangers", "any", frozenset(), "*")


def test_the_ladder_doubles_every_other_rung() -> None:
    ladder = ladder_m(200.0)
    assert len(ladder) == LADDER_STEPS + 1
    assert ladder[:3] == (200.0, 200.0 * math.sqrt(2), 400.0)
    assert ladder[-1] == 200.0 * 1024
    assert all(b / a == pytest.approx(math.sqrt(2)) for a, b in pairwise(ladder))


@given(st.floats(1, 1e5), st.floats(1, 1024))
def test_a_radius_is_rounded_up_by_less_than_a_rung(full: float, times: float) -> None:
    rung = rung_m(full * times, ladder_m(full))
    assert rung in ladder_m(full)
    assert full * times * (1 - 1e-9) <= rung < full * times * (math.sqrt(2) + 1e-9)


def test_what_differs_from_a_rung_in_the_last_bits_is_that_rung() -> None:
    for rung in ladder_m(123.4):
        assert rung_m(math.nextafter(rung, math.inf), ladder_m(123.4)) == rung
        assert rung_m(math.nextafter(rung, 0.0), ladder_m(123.4)) == rung


@pytest.mark.parametrize("radius_m", [199.0, 204_801.0, math.inf, math.nan, -1.0])
def test_a_radius_off_the_ladder_is_refused(radius_m: float) -> None:
    with pytest.raises(ValueError, match="from 200"):
        rung_m(radius_m, ladder_m(200.0))


@pytest.mark.parametrize("full", [0.0, -1.0, math.inf, math.nan])
def test_a_ladder_needs_a_finest_radius(full: float) -> None:
    with pytest.raises(ValueError, match="full_radius_m"):
        ladder_m(full)


@given(st.floats(1, 1000), st.floats(1, 1024), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_preference_never_blurs_more(full: float, times: float, one: float, other: float) -> None:
    low, high = sorted([one, other])
    assert full * (1 - 1e-12) <= blur_m(high, full, full * times) <= blur_m(low, full, full * times) * (1 + 1e-12)
    assert blur_m(1.0, full, full * times) == full
    assert blur_m(0.0, full, full * times) == full * times


def test_half_a_preference_is_the_geometric_mean() -> None:
    assert blur_m(0.5, 100.0, 6400.0) == pytest.approx(800.0)


def test_a_weighted_sum_adds_weight_times_value() -> None:
    model = WeightedSum.model_validate(
        {
            "model": "weighted",
            "weights": {"usage": 0.1, "role": 0.2, "time": 0.3, "place": 0.4},
            "usage": {"meeting": 1.0, "*": 0.5},
            "role": {"friends": 0.9},
            "time": {"work": 0.5, "*": 1.0},
            "place": {"zone:hospital": 0.0, "*": 1.0},
        }
    )
    assert model.value(AT_WORK) == pytest.approx(0.1 + 0.2 * 0.9 + 0.3 * 0.5)
    assert model.value(AT_WORK._replace(usage="any", place="*", calendars=frozenset())) == pytest.approx(0.05 + 0.18 + 0.3 + 0.4)
    assert model.value(ELSEWHERE) is None, "no value for other roles"


def test_a_factor_without_weight_needs_no_values() -> None:
    model = WeightedSum.model_validate({"model": "weighted", "weights": {"time": 1.0}, "time": {"work": 0.7}})
    assert model.value(AT_WORK) == 0.7
    assert model.value(ELSEWHERE) is None


def test_role_tables_read_the_table_of_the_role() -> None:
    model = RoleTables.model_validate(
        {
            "model": "role-tables",
            "weights": {"usage": 0.5, "time": 0.5},
            "roles": {"friends": {"usage": {"*": 1.0}, "time": {"work": 0.2}}, "*": {"usage": {"any": 0.4}, "time": {"*": 0.0}}},
        }
    )
    assert model.value(AT_WORK) == pytest.approx(0.6)
    assert model.value(ELSEWHERE) == pytest.approx(0.2)
    assert model.value(AT_WORK._replace(calendars=frozenset())) is None, "a role's own table is not mended by that of others"


def test_a_full_table_takes_the_most_specific_entry() -> None:
    model = FullTable.model_validate(
        {
            "model": "full-table",
            "table": {
                "friends": {"meeting": {"work": {"*": 0.3, "zone:hospital": 0.1}}, "*": {"*": {"*": 0.5}}},
                "*": {"any": {"*": {"*": 0.9}}, "meeting": {"work": {"zone:hospital": 1.0}}},
            },
        }
    )
    assert model.value(AT_WORK) == 0.1
    assert model.value(AT_WORK._replace(place="zone:school")) == 0.3
    assert model.value(AT_WORK._replace(calendars=frozenset())) == 0.5
    assert model.value(ELSEWHERE) == 0.9
    assert model.value(ELSEWHERE._replace(usage="meeting")) is None
