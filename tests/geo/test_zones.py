"""Zones: which one a position is in, and every shape that is refused."""

import math

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from pyproj import Geod

from geo.plane import Region
from geo.zones import Zones, box_shape, circle_shape, polygon_shape, region_shape

SQUARE = [(24.0, 60.0), (25.0, 60.0), (25.0, 61.0), (24.0, 61.0)]


@pytest.mark.parametrize(
    ("corners", "words"),
    [
        ([], "empty"),
        ([(24.0, 60.0), (25.0, 60.0)], "three different corners"),
        ([(24.0, 60.0), (25.0, 60.0), (24.0, 60.0)], "three different corners"),
        ([(24.0, 60.0), (25.0, 61.0), (26.0, 62.0)], "empty|itself"),
        ([(24.0, 60.0), (25.0, 61.0), (25.0, 60.0), (24.0, 61.0)], "itself"),
        ([(179.0, -18.0), (-179.0, -18.0), (-179.0, -16.0), (179.0, -16.0)], "antimeridian.*split"),
        ([(-179.0, -10.0), (179.0, -10.0), (179.0, 10.0), (-179.0, 10.0)], "180 degrees.*split"),
        ([(-120.0, 0.0), (0.0, 0.0), (120.0, 0.0), (0.0, 10.0)], "wider than 180 degrees.*split"),
        ([(24.0, 60.0), (25.0, 160.0), (25.0, 61.0)], "no longitude and latitude"),
        ([(48.0, 111.5), (48.0, 112.0), (49.0, 112.0)], "axes swapped"),
        ([(24.0, math.nan), (25.0, 60.0), (25.0, 61.0)], "no longitude"),
    ],
)
def test_unusable_polygons_are_refused(corners: list[tuple[float, float]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        polygon_shape(corners)


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ((-18, 179, -16, -179), "antimeridian.*split"),
        ((-10, -179, 10, 179), "wider than 180 degrees.*split"),
        ((61, 24, 60, 25), "empty"),
        ((60, 24, 61, 24), "empty"),
        ((60, 24, 91, 25), "no longitude and latitude"),
    ],
)
def test_unusable_boxes_are_refused(box: tuple[float, float, float, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        box_shape(*box)


@pytest.mark.parametrize(
    ("circle", "words"),
    [
        ((24.0, 60.0, 0.0), "empty"),
        ((24.0, 95.0, 10.0), "centre"),
        ((24.0, 89.0, 200_000.0), "pole"),
        ((179.99, 0.0, 5000.0), "antimeridian"),
    ],
)
def test_unusable_circles_are_refused(circle: tuple[float, float, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        circle_shape(*circle)


def test_a_circle_has_its_radius_on_the_ground() -> None:
    lon, lat = shapely.get_coordinates(circle_shape(24.9, 60.2, 500.0)).T
    ones = np.ones(len(lon))
    distance = Geod(ellps="WGS84").inv(24.9 * ones, 60.2 * ones, lon, lat)[2]
    np.testing.assert_allclose(distance, 500.0, rtol=1e-6)


def test_the_first_zone_by_name_counts_and_a_border_belongs_to_its_zone() -> None:
    zones = Zones({"b": polygon_shape(SQUARE), "a": box_shape(60.5, 24.5, 61.5, 25.5), "c": box_shape(10, 10, 11, 11)})
    assert zones.names == ("a", "b", "c")
    at = np.array([[60.2, 24.2], [60.7, 24.7], [60.0, 24.0], [61.2, 25.2], [0.0, 0.0], [np.nan, np.nan], [24.2, 60.2], [10.5, 10.5]])
    assert zones.first(at).tolist() == [1, 0, 1, 0, -1, -1, -1, 2]
    assert zones.overlaps() == [("a", "b")]


def test_no_zones_hold_nothing() -> None:
    assert Zones({}).first(np.zeros((3, 2))).tolist() == [-1, -1, -1]
    assert Zones({}).overlaps() == []
    assert Zones({"a": polygon_shape(SQUARE)}).first(np.zeros((0, 2))).tolist() == []


def test_zones_that_only_touch_do_not_overlap() -> None:
    assert Zones({"a": box_shape(0, 0, 1, 1), "b": box_shape(0, 1, 1, 2)}).overlaps() == []


@given(
    st.lists(st.tuples(*[st.integers(-6, 6)] * 2, st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=8),
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=1, max_size=20),
)
def test_boxes_hold_what_their_sides_say(boxes: list[tuple[int, int, int, int]], points: list[tuple[float, float]]) -> None:
    zones = Zones({f"{i}": box_shape(south, west, south + height, west + width) for i, (south, west, height, width) in enumerate(boxes)})
    expected = [next((i for i, (s, w, h, v) in enumerate(boxes) if s <= lat <= s + h and w <= lon <= w + v), -1) for lat, lon in points]
    assert zones.first(np.array(points)).tolist() == expected


def test_a_region_across_the_antimeridian_is_two_boxes() -> None:
    shape = region_shape(Region("fiji", -20, 177, -15, -178))
    assert shapely.contains_xy(shape, 178, -17)
    assert shapely.contains_xy(shape, -179, -17)
    assert not shapely.contains_xy(shape, 0, -17)
