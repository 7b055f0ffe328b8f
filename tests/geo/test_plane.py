import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import Geod

from geo.plane import MAX_SCALE, Plane, Region

GEOD = Geod(ellps="WGS84")
REGIONS = {
    "equator": Region("equator", -1.0, 30.0, 1.5, 32.0),
    "north 60": Region("north 60", 59.0, 24.0, 61.0, 31.0),
    "north 78": Region("north 78", 76.0, 10.0, 81.0, 34.0),
    "antimeridian": Region("antimeridian", -20.0, 177.0, -12.0, -178.0),
    "pole": Region("pole", 85.0, -180.0, 89.9, 180.0),
    "south pole": Region("south pole", -90.0, -180.0, -70.0, 180.0),
    "continent": Region("continent", 34.0, -12.0, 72.0, 45.0),
    "almost a turn": Region("almost a turn", 80.0, -179.0, 89.0, 179.0),
}
PLANES = {name: Plane(region) for name, region in REGIONS.items()}
ROUND_TRIP_M = 0.005
POLE_M = 0.3
"""Error near the pole of a polar plane, where PROJ's formula cancels."""
SHORTEST_M = 10.0
"""Below this, rounding to millimetres shows in the ratio."""

POLE_E7 = 899_998_000

names = st.sampled_from(sorted(REGIONS))
unit = st.floats(0.0, 1.0)


def place(region, u, v):
    lat = region.south + u * (region.north - region.south)
    lon = (region.west + v * region.width + 180.0) % 360.0 - 180.0
    return lat, lon


def e7(*degrees):
    return np.array([round(value * 1e7) for value in degrees])


@settings(max_examples=600, deadline=None)
@given(names, unit, unit, unit, unit)
def test_plane_lengths_stay_between_the_stated_scales(name, u1, v1, u2, v2):
    plane = PLANES[name]
    (lat1, lon1), (lat2, lon2) = place(plane.region, u1, v1), place(plane.region, u2, v2)
    lat, lon = e7(lat1, lat2), e7(lon1, lon2)
    a, b = plane.to_mm(lat, lon)
    ground = GEOD.inv(lon[0] / 1e7, lat[0] / 1e7, lon[1] / 1e7, lat[1] / 1e7)[2]
    length = np.hypot(*(a - b)) / 1000.0
    slack = 0.0015 if np.max(np.abs(lat)) < POLE_E7 else POLE_M
    assert plane.scale_min * ground - slack <= length <= plane.scale_max * ground + slack


@settings(max_examples=300, deadline=None)
@given(names, unit, unit, st.floats(0.0, 360.0), st.floats(SHORTEST_M, 5000.0))
def test_short_lengths_stay_between_the_stated_scales(name, u, v, azimuth, metres):
    plane = PLANES[name]
    lat, lon = place(plane.region, u, v)
    lon2, lat2, _ = GEOD.fwd(lon, lat, azimuth, metres)
    points = e7(lat, lat2), e7(lon, lon2)
    back = plane.to_degrees(plane.to_mm(*points))
    ground = GEOD.inv(back[0, 1], back[0, 0], back[1, 1], back[1, 0])[2]
    length = np.hypot(*np.diff(plane.to_mm(*points), axis=0)[0]) / 1000.0
    slack = 0.01 if np.max(np.abs(points[0])) < POLE_E7 else POLE_M
    assert plane.scale_min * ground - slack <= length <= plane.scale_max * ground + slack


@settings(max_examples=300, deadline=None)
@given(names, unit, unit)
def test_round_trip_is_exact_to_millimetres(name, u, v):
    plane = PLANES[name]
    lat, lon = (axis / 1e7 for axis in e7(*place(plane.region, u, v)))
    back = plane.to_degrees(plane.to_mm(e7(lat), e7(lon)))
    assert -180.0 <= back[0, 1] < 180.0
    ground = GEOD.inv(lon, lat, back[0, 1], back[0, 0])[2]
    assert ground < ROUND_TRIP_M or (np.abs(e7(lat)[0]) >= POLE_E7 and ground < POLE_M)


@settings(max_examples=300, deadline=None)
@given(names, st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_any_integers_are_clipped_into_the_bounds(name, lat, lon):
    plane = PLANES[name]
    xy = plane.to_mm(np.array([lat]), np.array([lon]))
    assert xy.dtype == np.int64
    assert np.all(xy >= plane.bounds_mm[:2])
    assert np.all(xy <= plane.bounds_mm[2:])
    back = plane.to_degrees(xy)[0]
    assert plane.region.south - 1e-7 <= back[0] <= plane.region.north + 1e-7


@settings(max_examples=200, deadline=None)
@given(names, unit, unit)
def test_bounds_cover_the_region_without_clipping(name, u, v):
    plane = PLANES[name]
    for edge in ((u, 0.0), (u, 1.0), (0.0, v), (1.0, v), (u, v)):
        lat, lon = place(plane.region, *edge)
        xy = plane.to_mm(e7(lat), e7(lon))
        assert np.all(xy > plane.bounds_mm[:2])
        assert np.all(xy < plane.bounds_mm[2:])


def test_outside_points_move_to_the_nearer_boundary():
    plane = PLANES["antimeridian"]
    outside = plane.to_mm(e7(-30.0, 5.0, -15.0, -15.0), e7(179.0, 179.0, 170.0, -170.0))
    inside = plane.to_mm(e7(-20.0, -12.0, -15.0, -15.0), e7(179.0, 179.0, 177.0, -178.0))
    np.testing.assert_array_equal(outside, inside)


def test_longitude_is_taken_modulo_a_turn():
    plane = PLANES["antimeridian"]
    lat = e7(-15.0, -15.0, -15.0)
    assert len(np.unique(plane.to_mm(lat, e7(-179.0, 181.0, 541.0)), axis=0)) == 1


@pytest.mark.parametrize("name", sorted(REGIONS))
def test_far_plane_points_come_back_finite(name):
    plane = PLANES[name]
    extremes = np.array([[x, y] for x in (-(2**62), 0, 2**62) for y in (-(2**62), 0, 2**62)])
    back = plane.to_degrees(extremes)
    assert np.all(np.isfinite(back))
    assert np.all((back[:, 1] >= -180.0) & (back[:, 1] < 180.0))


def test_empty_arrays():
    plane = PLANES["equator"]
    empty = plane.to_mm(np.array([], dtype=np.int32), np.array([], dtype=np.int32))
    assert empty.shape == (0, 2)
    assert plane.to_degrees(empty).shape == (0, 2)


def test_floats_are_refused():
    with pytest.raises(TypeError, match="integers"):
        PLANES["equator"].to_mm(np.array([0.5]), np.array([30.5]))


def test_pickle_gives_the_same_plane():
    plane = PLANES["pole"]
    copy = pickle.loads(pickle.dumps(plane))
    assert copy.region == plane.region
    assert (copy.scale_max, copy.scale_min) == (plane.scale_max, plane.scale_min)
    np.testing.assert_array_equal(copy.to_mm(e7(88.0), e7(10.0)), plane.to_mm(e7(88.0), e7(10.0)))


def test_scales_enclose_one_and_stay_below_the_limit():
    for plane in PLANES.values():
        assert 0.9 < plane.scale_min < 1.0 < plane.scale_max <= MAX_SCALE


@pytest.mark.parametrize(
    "region",
    [Region("world", -90, -180, 90, 180), Region("half", 0, -90, 60, 90), Region("hemisphere", 0, -180, 90, 180)],
)
def test_regions_that_are_too_large_are_refused(region):
    with pytest.raises(ValueError, match="split"):
        Plane(region)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("name", ("", 0, 0, 1, 1)),
        ("south", ("r", -91, 0, 1, 1)),
        ("south", ("r", 2, 0, 1, 1)),
        ("south", ("r", 1, 0, 1, 1)),
        ("north", ("r", 0, 0, float("nan"), 1)),
        ("west", ("r", 0, -181, 1, 1)),
        ("west", ("r", 0, 1, 1, 1)),
        ("east", ("r", 0, 0, 1, float("inf"))),
    ],
)
def test_a_wrong_field_is_named(field, values):
    with pytest.raises(ValueError, match=f"`{field}`"):
        Region(*values)
