"""Snapping gives exactly what comparing every point with every anchor gives, and tells no more than the rule allows."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import Geod

from geo.anchors.index import AnchorIndex, inside, into_region
from geo.anchors.snapping import Level, rule_of_names, snap_to_anchors, snap_to_candidates, snap_to_categories
from geo.plane import Plane, Region

GEOD = Geod(ellps="WGS84")
NAMES = ("clinic", "food", "shop", "worship")
PLANES = {
    "town": Plane(Region("town", 60.1, 24.8, 60.3, 25.2)),
    "antimeridian": Plane(Region("antimeridian", -18.0, 179.0, -16.0, -179.0)),
    "wide": Plane(Region("wide", 35.0, -20.0, 70.0, 45.0)),
    "pole": Plane(Region("pole", 80.0, -180.0, 90.0, 180.0)),
}
LEVELS = st.lists(st.sampled_from(list(Level)), min_size=len(NAMES), max_size=len(NAMES))


def index_of(region: str, count: int, seed: int, kind: str = "clusters", popular: bool = False) -> AnchorIndex:
    """Anchors in clusters of some hundred metres, on one spot, or anywhere; ids in another order than rows."""
    plane, generator = PLANES[region], np.random.default_rng(seed)
    area = plane.region
    lat, east = generator.uniform(area.south, area.north, count), generator.uniform(0, area.width, count)
    if kind != "spread":
        of = generator.integers(0, max(1, count // 12), count)
        lat, east = lat[of], east[of]
    if kind == "clusters":
        lat, east = lat + generator.normal(0, 0.002, count), east + generator.normal(0, 0.004, count)
    lat = np.round(np.clip(lat, area.south, area.north), 6)
    lon = np.remainder(area.west + np.clip(np.round(east, 6), 0, area.width) + 180.0, 360.0) - 180.0
    lon = np.where(inside(area, lat, lon), lon, area.west)
    ids = [f"node/{number}" for number in generator.permutation(count)]
    categories = [list(generator.permutation(len(NAMES))[: generator.integers(1, 4)]) for _ in ids]
    popularity = generator.choice([0.0, 0.2, 1.0, 30.0], count, p=[0.1, 0.3, 0.5, 0.1]) if popular else None
    return AnchorIndex(plane, NAMES, ids, lat, lon, categories, popularity)


def noisy_near(index: AnchorIndex, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points on anchors, some way off, and anywhere, also outside the region."""
    generator = np.random.default_rng(seed)
    at = generator.integers(0, len(index), count)
    far = generator.choice([0.0, 0.002, 0.02, 1.0], (2, count))
    lat = np.clip(index.lat[at] + far[0] * generator.normal(size=count), -90, 90)
    lon = np.remainder(index.lon[at] + 2 * far[1] * generator.normal(size=count) + 180, 360) - 180
    return np.round(lat, 6), np.round(lon, 6)


def brute(index: AnchorIndex, lat: Any, lon: Any, rule: Any, epsilon_per_m: float, reach_m: float, k: int) -> list[tuple[int, float]]:
    """The k best anchors of one point with their scores relative to the best, by comparing all."""
    own_lat, own_lon = into_region(index.plane.region, np.array([lat]), np.array([lon]))
    count = len(index)
    distance = np.atleast_1d(GEOD.inv(np.full(count, own_lon[0]), np.full(count, own_lat[0]), index.lon, index.lat)[2])
    found = []
    for anchor in range(count):
        codes = index.codes[anchor][index.codes[anchor] >= 0]
        if index.popularity[anchor] > 0 and distance[anchor] <= reach_m and not (np.asarray(rule)[codes] == Level.NONE).any():
            found.append((-(math.log(index.popularity[anchor]) - epsilon_per_m * distance[anchor]), anchor))
    found.sort()
    return [(anchor, math.exp(found[0][0] - minus)) for minus, anchor in found[:k]]


def told(index: AnchorIndex, anchor: int, rule: Any) -> tuple[int, int]:
    codes = index.codes[anchor][index.codes[anchor] >= 0]
    return (-1 if (np.asarray(rule)[codes] == Level.PERTURBED).any() else anchor), int(index.codes[anchor, 0])


@settings(deadline=None, max_examples=120)
@given(
    region=st.sampled_from(sorted(PLANES)),
    kind=st.sampled_from(["clusters", "spots", "spread"]),
    count=st.integers(2, 150),
    seed=st.integers(0, 10_000),
    popular=st.booleans(),
    rules=st.lists(LEVELS, min_size=1, max_size=3),
    reach_m=st.sampled_from([0.0, 150.0, 900.0, 40_000.0, 3e6]),
    epsilon_per_m=st.sampled_from([1e-5, 0.002, 0.03]),
    k=st.integers(1, 6),
)
def test_all_forms_agree_with_comparing_everything(
    region: str, kind: str, count: int, seed: int, popular: bool, rules: Any, reach_m: float, epsilon_per_m: float, k: int
) -> None:
    index = index_of(region, count, seed, kind, popular)
    lat, lon = noisy_near(index, 12, seed + 1)
    rule_of = np.random.default_rng(seed).integers(0, len(rules), len(lat))
    arguments = (index, lat, lon, rules, epsilon_per_m, reach_m, rule_of)
    anchors, categories = snap_to_anchors(*arguments), snap_to_categories(*arguments, k=k)
    candidates = snap_to_candidates(*arguments, k=k)
    assert (categories.anchor == -1).all()
    for row, which in enumerate(rule_of):
        rule = rules[which]
        best = brute(index, lat[row], lon[row], rule, epsilon_per_m, reach_m, k)
        expected = told(index, best[0][0], rule) if best else (-1, -1)
        assert (anchors.anchor[row], anchors.category[row]) == expected
        by_category: dict[int, float] = {}
        by_candidate: dict[tuple[int, int], float] = {}
        for anchor, score in best:
            for code in index.codes[anchor][index.codes[anchor] >= 0].tolist():
                by_category[code] = by_category.get(code, 0.0) + score
            name = told(index, anchor, rule)
            by_candidate[name] = by_candidate.get(name, 0.0) + score
        if best:
            assert by_category[int(categories.category[row])] == pytest.approx(max(by_category.values()), rel=1e-9)
        else:
            assert categories.category[row] == -1
        given = list(zip(candidates.anchor[row].tolist(), candidates.category[row].tolist(), candidates.share[row].tolist(), strict=True))
        filled = given[: len(by_candidate)]
        assert all(entry == (-1, -1, 0.0) for entry in given[len(by_candidate) :])
        assert {entry[:2] for entry in filled} == set(by_candidate)
        total = sum(by_candidate.values())
        for *name, share in filled:
            assert share == pytest.approx(by_candidate[(name[0], name[1])] / total, rel=1e-9, abs=1e-300)
        assert [entry[2] for entry in filled] == sorted((entry[2] for entry in filled), reverse=True)


def simple(lat: Any, lon: Any, categories: Any = None, ids: Any = None, popularity: Any = None) -> AnchorIndex:
    count = len(lat)
    return AnchorIndex(PLANES["town"], NAMES, ids or [f"a{at}" for at in range(count)], lat, lon, categories or [[1]] * count, popularity)


FULL, PERTURBED, NONE = ([level] * len(NAMES) for level in (Level.FULL, Level.PERTURBED, Level.NONE))


def test_an_anchor_exactly_on_the_cap_is_in_reach_and_a_hair_beyond_is_not() -> None:
    index = simple([60.2], [25.0])
    distance = float(GEOD.inv(25.004, 60.2, 25.0, 60.2)[2])
    for reach_m, expected in ((distance, 0), (math.nextafter(distance, 0.0), -1), (distance - 1e-6, -1), (distance + 1e-6, 0)):
        assert snap_to_anchors(index, [60.2], [25.004], FULL, 0.01, reach_m).anchor.tolist() == [expected]


def test_of_equally_near_anchors_the_lowest_id_as_text_wins() -> None:
    index = simple([60.2] * 3, [25.0] * 3, ids=["node/9", "node/10", "way/1"])
    assert index.ids == ("node/10", "node/9", "way/1")
    assert snap_to_anchors(index, [60.2001], [25.0], FULL, 0.01, 100.0).anchor.tolist() == [0]


def test_the_nearest_on_the_ground_wins_where_the_plane_says_otherwise() -> None:
    """Far from the middle the plane shrinks what points to it, and stretches what lies across, by some per cent each."""
    plane = PLANES["wide"]
    lat, lon = 36.0, -18.0
    to_middle = GEOD.inv(lon, lat, 12.5, 52.5)[0]
    inwards = GEOD.fwd(lon, lat, to_middle, 10_000.0)[:2]
    turns = [GEOD.fwd(lon, lat, azimuth, 9_995.0)[:2] for azimuth in range(10, 370, 10)]
    disagreements = 0
    for other in turns:
        index = AnchorIndex(plane, NAMES, ["far", "near"], [inwards[1], other[1]], [inwards[0], other[0]], [[0], [0]])
        mm = plane.to_mm(*(np.rint(np.array(c) * 1e7).astype(np.int64) for c in ([lat, *index.lat], [lon, *index.lon])))
        on_plane = np.hypot(*(mm[1:] - mm[0]).T)
        disagreements += int(on_plane[0] < on_plane[1])
        assert index.ids[snap_to_anchors(index, [lat], [lon], FULL, 1e-4, 20_000.0).anchor[0]] == "near"
    assert disagreements > 5


def test_anchors_across_the_antimeridian_are_near() -> None:
    index = AnchorIndex(PLANES["antimeridian"], NAMES, ["west", "east"], [-17.0, -17.0], [179.9995, -179.98], [[0], [0]])
    snapped = snap_to_anchors(index, [-17.0, -17.0], [-179.9995, 179.9999], FULL, 0.01, 300.0)
    assert [index.ids[at] for at in snapped.anchor] == ["west", "west"]


def test_none_wins_over_perturbed_and_perturbed_over_full() -> None:
    clinic, food, shop = 0, 1, 2
    index = simple([60.2, 60.21, 60.22], [25.0] * 3, [[shop, clinic], [food, shop], [shop]])
    rule = rule_of_names(index, {"clinic": Level.NONE, "food": Level.PERTURBED}, Level.FULL)
    snapped = snap_to_anchors(index, index.lat, index.lon, rule, 0.01, 500.0)
    assert snapped.anchor.tolist() == [-1, -1, 2]
    assert snapped.category.tolist() == [-1, food, shop]


def test_perturbed_candidates_of_a_category_are_one_entry() -> None:
    index = simple([60.2, 60.2, 60.2], [25.0, 25.001, 25.002], [[1], [1], [2]])
    rule = rule_of_names(index, {"food": Level.PERTURBED}, Level.FULL)
    got = snap_to_candidates(index, [60.2], [25.0], rule, 0.001, 500.0, k=3)
    assert got.anchor.tolist() == [[-1, 2, -1]]
    assert got.category.tolist() == [[1, 2, -1]]
    assert got.share[0].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("rule", [NONE, FULL])
def test_nothing_offered_or_nothing_near_is_unanchored(rule: Any) -> None:
    index = simple([60.2], [25.0], popularity=None if rule is NONE else [0.0])
    assert snap_to_anchors(index, [60.2], [25.0], rule, 0.01, 100.0).category.tolist() == [-1]
    assert snap_to_categories(index, [60.2], [25.0], rule, 0.01, 100.0, k=3).category.tolist() == [-1]
    assert snap_to_candidates(index, [60.2], [25.0], rule, 0.01, 100.0, k=2).anchor.tolist() == [[-1, -1]]


def test_a_popular_place_beats_a_near_one_by_the_stated_score() -> None:
    index = simple([60.2, 60.2], [25.0, 25.01], ids=["near", "popular"], popularity=[1.0, 100.0])
    gap_m = float(GEOD.inv(25.0, 60.2, 25.01, 60.2)[2])
    for epsilon_per_m, expected in ((math.log(100) / gap_m * 1.001, "near"), (math.log(100) / gap_m * 0.999, "popular")):
        assert index.ids[snap_to_anchors(index, [60.2], [25.0], FULL, epsilon_per_m, 5000.0).anchor[0]] == expected


def test_no_points_give_empty_answers() -> None:
    index = simple([60.2], [25.0])
    assert snap_to_anchors(index, [], [], FULL, 0.01, 100.0).anchor.shape == (0,)
    assert snap_to_categories(index, [], [], FULL, 0.01, 100.0, k=2).category.shape == (0,)
    assert snap_to_candidates(index, [], [], FULL, 0.01, 100.0, k=2).share.shape == (0, 2)


def test_a_batch_gives_what_its_points_give_alone() -> None:
    index = index_of("town", 400, 5, popular=True)
    lat, lon = noisy_near(index, 9000, 6)
    rules = [FULL, PERTURBED, [2, 0, 1, 2]]
    rule_of = np.arange(9000) % 3
    epsilon_per_m, reach_m = np.linspace(0.001, 0.02, 9000), np.linspace(100.0, 2000.0, 9000)
    whole = snap_to_anchors(index, lat, lon, rules, epsilon_per_m, reach_m, rule_of)
    for row in range(0, 9000, 451):
        alone = snap_to_anchors(index, [lat[row]], [lon[row]], rules[rule_of[row]], epsilon_per_m[row], reach_m[row])
        assert (alone.anchor[0], alone.category[0]) == (whole.anchor[row], whole.category[row])


def test_an_index_survives_pickling_and_its_digest_tells_every_change() -> None:
    index = index_of("town", 60, 3, popular=True)
    snap_to_anchors(index, index.lat, index.lon, FULL, 0.01, 100.0)
    back = pickle.loads(pickle.dumps(index))
    assert back.digest == index.digest
    assert (back.ids, back.codes.tolist()) == (index.ids, index.codes.tolist())
    base: dict[str, Any] = {"lat": [60.2, 60.21], "lon": [25.0, 25.0], "categories": [[1], [1, 2]], "ids": ["a", "b"], "popularity": [1, 1]}
    changes = [{}, {"lat": [60.2, 60.22]}, {"categories": [[1], [2, 1]]}, {"ids": ["a", "c"]}, {"popularity": [1, 2]}]
    assert len({simple(**{**base, **change}).version for change in changes}) == len(changes)
    with pytest.raises(ValueError, match="read-only"):
        index.lat[0] = 1.0


NAN = float("nan")
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "NaN latitude": ({"lat": [60.2, NAN]}, "Anchor 2 should have a latitude"),
    "infinite longitude": ({"lon": [float("inf"), 25.0]}, "Anchor 1 should have a latitude"),
    "latitude out of range": ({"lat": [60.2, 90.5]}, "Anchor 2"),
    "outside the region": ({"lat": [60.2, 61.0]}, "Anchor 2 should lie in region 'town'"),
    "swapped axes": ({"lat": [25.0, 25.0], "lon": [60.2, 60.2]}, "Anchor 1 should lie in region"),
    "the same id twice": ({"ids": ["x", "x"]}, "Anchor 2 has the id 'x', as anchor 1 has"),
    "an empty id": ({"ids": ["x", ""]}, "Anchor 2 should have an id"),
    "no category": ({"categories": [[1], []]}, "Anchor 2 should have at least one"),
    "an unknown category": ({"categories": [[1], [4]]}, "Anchor 2 should have different categories"),
    "a category twice": ({"categories": [[1, 1], [1]]}, "Anchor 1 should have different categories"),
    "negative popularity": ({"popularity": [1.0, -1.0]}, "Anchor 2 should have a popularity"),
    "NaN popularity": ({"popularity": [NAN, 1.0]}, "Anchor 1 should have a popularity"),
    "columns of different length": ({"lat": [60.2]}, "same length"),
    "no anchors": ({"ids": [], "lat": [], "lon": [], "categories": []}, "at least one"),
    "categories not sorted": ({"category_names": ["b", "a"]}, "sorted"),
    "an empty category name": ({"category_names": ["", "a"]}, "not empty"),
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_bad_anchors_are_refused_by_number(what: str) -> None:
    change, words = BAD[what]
    base: dict[str, Any] = {"ids": ["x", "y"], "lat": [60.2, 60.2], "lon": [25.0, 25.0], "categories": [[0], [1]], "category_names": NAMES}
    with pytest.raises(ValueError, match=words):
        AnchorIndex(PLANES["town"], **{**base, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lat": [NAN]}, "finite"),
        ({"lat": [60.2, 60.2]}, "one shape"),
        ({"rules": [2, 2]}, "4 categories"),
        ({"rules": [3] * 4}, "levels"),
        ({"rule_of": 1}, "places in `rules`"),
        ({"rule_of": [0, 0]}, "one for each"),
        ({"epsilon_per_m": 0.0}, "epsilon_per_m"),
        ({"epsilon_per_m": NAN}, "epsilon_per_m"),
        ({"reach_m": -1.0}, "reach_m"),
        ({"reach_m": float("inf")}, "reach_m"),
        ({"k": 0}, "`k`"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, Any], words: str) -> None:
    base: dict[str, Any] = {"lat": [60.2], "lon": [25.0], "rules": FULL, "epsilon_per_m": 0.01, "reach_m": 100.0, "k": 2}
    with pytest.raises(ValueError, match=words):
        snap_to_candidates(simple([60.2], [25.0]), **{**base, **change})
    with pytest.raises(ValueError, match="no category"):
        rule_of_names(simple([60.2], [25.0]), {"casino": Level.FULL}, Level.NONE)


def test_points_outside_the_region_count_as_on_its_edge() -> None:
    area = PLANES["antimeridian"].region
    lat, lon = into_region(area, np.array([-20.0, -17.0, -17.0, -17.0]), np.array([179.5, 170.0, -170.0, -179.5]))
    assert lat.tolist() == [-18.0, -17.0, -17.0, -17.0]
    assert lon.tolist() == [179.5, 179.0, -179.0, -179.5]
