"""Range answers: the share of each tile's roads inside a polygon, on the plane and from degrees."""

import math
import time
from functools import cache

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.plane import Plane, Region
from geo.tiling.lattice import Lattice
from geo.tiling.ranges import Ranges
from geo.tiling.shapes import on_ground, on_plane, region_on_plane
from geo.tiling.tiling import tile

CELL_M = 50
PLANE = Plane(Region("town", 60.15, 24.9, 60.19, 25.0))
GENERATOR = np.random.default_rng(11)
CELLS = GENERATOR.integers(20, 80, (500, 2))
ROAD_M = GENERATOR.exponential(30.0, 500)
TILING = tile(PLANE, CELL_M, (4, 4), CELLS, ROAD_M)
ROADS_ALONE = tile(PLANE, CELL_M, (4, 4), CELLS, ROAD_M, off_road=0.0)
BARE = tile(PLANE, CELL_M, (4, 4))
TILINGS = (TILING, ROADS_ALONE, BARE)
RANGES = {tiling: Ranges(tiling) for tiling in TILINGS}
WEST, SOUTH = PLANE.bounds_mm[:2] / 1000.0
EAST, NORTH = PLANE.bounds_mm[2:] / 1000.0
RECORD_S, RANGE_S = 0.1, 0.05
REGIONS = {
    "town": Region("town", 60.15, 24.9, 60.19, 25.0),
    "antimeridian": Region("antimeridian", -20.0, 177.0, -12.0, -178.0),
    "pole": Region("pole", 85.0, -180.0, 89.9, 180.0),
    "south pole": Region("south pole", -90.0, -180.0, -70.0, 180.0),
    "almost a turn": Region("almost a turn", 80.0, -179.0, 89.0, 179.0),
}
AREA_M2 = 510_065_621_724_088.0
"""Of the ellipsoid WGS 84."""

counts = st.integers(0, 2**32).map(lambda seed: np.random.default_rng(seed).negative_binomial(0.5, 0.01, len(TILING.tree.leaves)))
corners = st.tuples(st.floats(WEST, EAST), st.floats(SOUTH, NORTH))


@cache
def coarse(name):
    return tile(Plane(REGIONS[name]), 50 if name == "town" else 1500, (4, 3))


def dense(leaves, fractions, tiling=TILING):
    out = np.zeros(len(tiling.tree.leaves))
    out[leaves] = fractions
    return out


def triangle(*points):
    shape = shapely.Polygon(points)
    return shape if shape.is_valid and shape.area > 1.0 else None


def pieces_of(tiling):
    """Polygons, leaves and weights: road cells, and for each leaf its area inside the region by the off-road share."""
    lattice, leaves = tiling.lattice, np.delete(np.arange(len(tiling.tree.leaves)), tiling.elsewhere)
    xy = tiling.cell_xy
    region = region_on_plane(tiling.plane)
    shapes = [*lattice.corners_m(np.concatenate([xy, xy + 1], axis=1)), *lattice.corners_m(tiling.box[tiling.tree.leaves[leaves]])]
    shapes = shapely.intersection(shapely.box(*np.array(shapes).T), region)
    area, road = shapely.area(shapes[len(xy) :]), tiling.cell_weight.sum()
    even = area / area.sum() * (tiling.off_road / (1 - tiling.off_road) * road if road else 1.0)
    return shapes, np.concatenate([tiling.cell_leaf, leaves]), np.concatenate([tiling.cell_weight, even])


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(TILINGS), corners, corners, corners)
def test_the_share_equals_a_sum_over_all_road_cells_and_the_area_of_each_tile(tiling, a, b, c):
    shape = triangle(a, b, c)
    if shape is None:
        return
    got = dense(*RANGES[tiling].coverage(shape), tiling)
    shapes, leaf, weight = PIECES[tiling]
    inside = shapely.area(shapely.intersection(shape, shapes)) / shapely.area(shapes) * weight
    want = np.bincount(leaf, inside, minlength=len(got)) / np.maximum(np.bincount(leaf, weight, minlength=len(got)), 1e-9)
    assert np.allclose(got, want, atol=1e-9)


PIECES = {tiling: pieces_of(tiling) for tiling in TILINGS}


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 0.99), st.floats(-30.0, 30.0), st.none() | counts)
def test_two_halves_make_the_whole_with_any_counts(share, tilt, count):
    x = WEST + share * (EAST - WEST)
    far = 10_000.0
    cut = [(x + tilt * far / 100, SOUTH - far), (x - tilt * far / 100, NORTH + far)]
    left = shapely.Polygon([*cut, (WEST - 5 * far, NORTH + far), (WEST - 5 * far, SOUTH - far)])
    right = shapely.Polygon([*cut, (EAST + 5 * far, NORTH + far), (EAST + 5 * far, SOUTH - far)])
    for tiling, ranges in RANGES.items():
        both = dense(*ranges.coverage(left, count), tiling) + dense(*ranges.coverage(right, count), tiling)
        assert np.allclose(np.delete(both, tiling.elsewhere), 1.0, atol=1e-6)


@pytest.mark.parametrize("name", ["town", "antimeridian", "pole", "south pole", "almost a turn"])
def test_the_whole_region_holds_every_tile_whole_also_where_its_edge_cuts_tiles(name):
    tiling, region = coarse(name), REGIONS[name]
    ranges, count = Ranges(tiling), np.arange(len(tiling.tree.leaves))
    west, middle, east = region.west + region.width * np.array([0, 0.5, 1]) - (360 if region.west > 0 else 0)
    halves = [shapely.box(west, region.south, middle, region.north), shapely.box(middle, region.south, east, region.north)]
    for counts in (None, count):
        both = sum(dense(*ranges.coverage_of_degrees(half, counts), tiling) for half in halves)
        assert np.delete(both, tiling.elsewhere) == pytest.approx(1.0, abs=1e-6)
        assert both[tiling.elsewhere] == 0


def test_elsewhere_is_never_counted_however_far_the_polygon_reaches():
    for tiling, ranges in RANGES.items():
        leaf, fraction = ranges.coverage(shapely.box(-1e6, -1e6, 1e6, 1e6))
        assert leaf.tolist() == [k for k in range(len(tiling.tree.leaves)) if k != tiling.elsewhere]
        assert (fraction == 1.0).all()


def test_land_without_roads_holds_the_off_road_share_alone():
    # All roads are in cells 19 to 80: the first columns of the lattice hold none.
    strip = shapely.box(WEST, SOUTH, WEST + 10 * CELL_M, NORTH)
    assert not len(RANGES[ROADS_ALONE].coverage(strip)[0])
    region = region_on_plane(PLANE)
    part = region.intersection(strip).area / region.area
    _, leaf, weight = PIECES[TILING]
    held = np.bincount(leaf, weight)
    assert (dense(*RANGES[TILING].coverage(strip)) * held).sum() == pytest.approx(0.05 * part * held.sum())
    _, leaf, weight = PIECES[BARE]
    held = np.bincount(leaf, weight)
    assert (dense(*RANGES[BARE].coverage(strip), BARE) * held).sum() == pytest.approx(part * held.sum())


def test_counts_move_users_towards_the_fuller_neighbour_and_even_counts_move_none():
    tiling, ranges = BARE, RANGES[BARE]
    box = tiling.box[tiling.tree.leaves]
    right = int(np.argmax(box[:, 2] * (box[:, 1] == 0)))
    left = int(np.flatnonzero((box[:, 2] == box[right, 0]) & (box[:, 1] == 0))[0])
    x0, y0, x1, y1 = tiling.lattice.corners_m(box[[left]])[0]
    east_half = shapely.box((x0 + x1) / 2, y0, x1, y1)
    area = ranges.coverage(east_half)
    assert area[0].tolist() == [left]
    shares = []
    for crowd in (0, 10, 1000):
        count = np.full(len(box), 10)
        count[right] = crowd
        shares.append(float(ranges.coverage(east_half, count)[1][0]))
    assert shares[0] < float(area[1][0]) - 0.02 < float(area[1][0]) + 0.02 < shares[2]
    weight = np.bincount(PIECES[tiling][1], PIECES[tiling][2], minlength=len(box))
    for even in (weight * 1000, np.zeros(len(box))):
        assert float(ranges.coverage(east_half, even)[1][0]) == pytest.approx(float(area[1][0]), abs=1e-9)


def test_other_counts_are_not_answered_with_remembered_ones():
    ranges, shape = RANGES[TILING], shapely.box(WEST + 1500, SOUTH + 1500, WEST + 2500, SOUTH + 2500)
    first, second = np.arange(len(TILING.tree.leaves)), np.arange(len(TILING.tree.leaves))[::-1]
    answers = [ranges.coverage(shape, count)[1].tolist() for count in (first, second, None, first, second.astype(float))]
    assert answers[0] == answers[3] != answers[1] == answers[4]
    assert answers[2] not in answers[:2]


@pytest.mark.parametrize("count", [[1.0], [-1.0] * 17, [math.nan] * 17, [math.inf] * 17])
def test_counts_that_are_none_are_refused(count):
    assert len(TILING.tree.leaves) == 17
    with pytest.raises(ValueError, match="count"):
        RANGES[TILING].coverage(shapely.box(WEST, SOUTH, EAST, NORTH), np.array(count))


def test_a_multipolygon_is_the_sum_of_its_parts():
    boxes = [shapely.box(WEST + a, SOUTH + a, WEST + a + 700, SOUTH + a + 900) for a in (1000, 2500)]
    both = dense(*RANGES[TILING].coverage(shapely.MultiPolygon(boxes)))
    assert np.allclose(both, sum(dense(*RANGES[TILING].coverage(box)) for box in boxes))


def with_corner(x, y):
    with np.errstate(invalid="ignore"):
        return shapely.Polygon([(0, 0), (x, y), (10, 0)])


BAD = [
    (shapely.Polygon([(0, 0), (10, 10), (10, 0), (0, 10)]), "valid: self-intersection"),
    (shapely.Polygon(), "empty"),
    (with_corner(10, np.nan), "finite"),
    (with_corner(np.inf, 10), "finite"),
    (shapely.Point(1, 2), "not a Point"),
    (None, "not a NoneType"),
    ([(0, 0), (1, 1)], "not a list"),
]


@pytest.mark.parametrize(("polygon", "word"), BAD)
def test_what_is_no_area_is_refused_in_one_sentence(polygon, word):
    for answer in (RANGES[TILING].coverage, lambda shape: on_plane(PLANE, shape)):
        with pytest.raises(ValueError, match=word) as error:
            answer(polygon)
        assert "\n" not in str(error.value)
        assert str(error.value).endswith(".")


@pytest.mark.parametrize(
    ("polygon", "word"),
    [
        (shapely.box(-179, -10, 179, 10), "180 degrees wide"),
        (shapely.Polygon([(179, -17), (-179, -17), (-179, -16), (179, -16)]), "180 degrees wide"),
        (shapely.box(60.1, 100.0, 60.2, 101.0), "longitude first"),
        (shapely.box(361, 0, 362, 1), "longitude"),
    ],
)
def test_degrees_out_of_range_and_polygons_round_the_world_are_refused(polygon, word):
    with pytest.raises(ValueError, match=word):
        on_plane(PLANE, polygon)


def test_a_polygon_in_degrees_is_cut_to_the_region_and_keeps_its_place():
    inside = on_plane(PLANE, shapely.box(24.93, 60.16, 24.95, 60.17))
    # At 60.165 N a degree of latitude is 111,416 m, one of longitude 55,521 m (WGS 84).
    assert inside.area == pytest.approx(0.01 * 111_416 * 0.02 * 55_521, rel=1e-3)
    over = on_plane(PLANE, shapely.box(20.0, 60.0, 30.0, 61.0))
    assert over.area == pytest.approx(on_plane(PLANE, shapely.box(24.9, 60.15, 25.0, 60.19)).area)
    assert on_plane(PLANE, shapely.box(10.0, 50.0, 11.0, 51.0)).is_empty
    turned = on_plane(PLANE, shapely.box(24.93 - 360, 60.16, 24.95 - 360, 60.17))
    assert turned.area == pytest.approx(inside.area, rel=1e-6)


def test_a_polygon_that_misses_the_region_covers_nothing():
    for leaf, fraction in (
        RANGES[TILING].coverage_of_degrees(shapely.box(10.0, 50.0, 11.0, 51.0)),
        RANGES[TILING].coverage(shapely.box(EAST + 1000, NORTH + 1000, EAST + 2000, NORTH + 2000)),
    ):
        assert len(leaf) == len(fraction) == 0


def test_a_polygon_in_degrees_covers_what_it_covers_on_the_plane():
    shape = shapely.Polygon([(24.92, 60.155), (24.96, 60.16), (24.95, 60.18)])
    leaf, fraction = RANGES[TILING].coverage_of_degrees(shape)
    again, same = RANGES[TILING].coverage(on_plane(PLANE, shape))
    assert leaf.tolist() == again.tolist()
    assert len(leaf)
    assert np.array_equal(fraction, same)


def test_a_polygon_over_the_antimeridian_may_be_cut_there_or_run_on():
    plane = Plane(REGIONS["antimeridian"])
    run_on = on_plane(plane, shapely.box(179.5, -17.0, 180.5, -16.0))
    cut = on_plane(plane, shapely.MultiPolygon([shapely.box(179.5, -17, 180, -16), shapely.box(-180, -17, -179.5, -16)]))
    assert run_on.area == pytest.approx(cut.area, rel=1e-6)
    assert run_on.symmetric_difference(cut).area < 1e-4 * run_on.area


@pytest.mark.parametrize("name", sorted(REGIONS))
def test_tiles_on_the_ground_are_valid_lie_within_180_degrees_and_do_not_overlap(name):
    tiling = coarse(name)
    shapes = on_ground(tiling.lattice, tiling.box[tiling.tree.leaves])
    assert shapes[tiling.elsewhere].is_empty
    real = np.delete(shapes, tiling.elsewhere)
    assert shapely.is_valid(real).all()
    west, south, east, north = shapely.bounds(real).T
    assert west.min() >= -180
    assert east.max() <= 180
    assert south.min() >= -90
    assert north.max() <= 90
    covered = shapely.union_all(real)
    assert shapely.area(real).sum() == pytest.approx(covered.area, rel=1e-4)
    region = REGIONS[name]
    window = shapely.box(region.west, region.south, region.west + region.width, region.north)
    both = covered.union(shapely.affinity.translate(covered, 360.0))
    assert both.intersection(window).area == pytest.approx(window.area, rel=1e-4)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["town", "antimeridian", "pole"]), st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_a_position_lies_in_the_drawn_polygon_of_its_leaf(name, u, v):
    region, tiling = REGIONS[name], coarse(name)
    lat = region.south + u * (region.north - region.south)
    lon = (region.west + v * region.width + 180) % 360 - 180
    leaf = tiling.leaf_of_degrees(*(np.array([round(value * 1e7)]) for value in (lat, lon)))
    shape = on_ground(tiling.lattice, tiling.box[tiling.tree.leaves[leaf]])[0]
    assert shape.distance(shapely.Point(lon, lat)) < 2e-4


def test_equal_areas_stay_equal_on_the_ground():
    plane = Plane(Region("cap", 80.0, -180.0, 90.0, 180.0))
    halves = [on_plane(plane, shapely.box(west, 80, west + 180, 90)).area for west in (-180, 0)]
    # Share of the sphere of the same area; the flattening changes it by less than 1 %.
    assert sum(halves) == pytest.approx(AREA_M2 * (1 - np.sin(np.radians(80))) / 2, rel=0.02)


def test_a_range_on_a_thousand_tiles_takes_milliseconds():
    generator = np.random.default_rng(8)
    plane = Plane(Region("city", 60.1, 24.7, 60.3, 25.2))
    middle = np.array(Lattice(plane, 25).shape) // 2
    cells = np.clip(generator.normal(middle, middle / 4, (20_000, 2)).astype(int), 0, 2 * middle - 1)
    ranges = Ranges(tile(plane, 25, (10, 10, 10), cells, generator.exponential(30.0, 20_000)))
    count = generator.poisson(8.0, 1001)
    disc = shapely.Point(*((plane.bounds_mm[:2] + plane.bounds_mm[2:]) / 2000)).buffer(2000.0)
    prepared, answered = [], []
    for turn in range(5):
        begin = time.process_time()
        ranges.coverage(shapely.box(0, 0, 1, 1), count + turn)
        prepared.append(time.process_time() - begin)
        begin = time.process_time()
        ranges.coverage(disc, count + turn)
        answered.append(time.process_time() - begin)
    assert min(prepared) < RECORD_S
    assert min(answered) < RANGE_S
