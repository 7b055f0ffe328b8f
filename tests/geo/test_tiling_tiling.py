"""The tiling: one leaf for every position on Earth, ties by lowest id, and a version over all its content."""

import dataclasses
import pickle

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.plane import Plane, Region
from geo.tiling.lattice import Lattice, same_region
from geo.tiling.tiling import Tiling, tile
from geo.tree import Tree

REGIONS = {
    "city": Region("city", 60.1, 24.6, 60.4, 25.4),
    "antimeridian": Region("antimeridian", -20.0, 177.0, -12.0, -178.0),
    "pole": Region("pole", 85.0, -180.0, 89.9, 180.0),
    "south": Region("south", -36.0, 149.0, -33.0, 152.0),
    "village": Region("village", 46.0, 7.0, 46.1, 7.2),
}
CELL_M = {"city": 25, "antimeridian": 1000, "pole": 500, "south": 333, "village": 50}
ROAD_CELLS = {"village": 11}
"""So few that leaves differ in depth."""


def roads(name, seed=3):
    count = ROAD_CELLS.get(name, 400)
    lattice = Lattice(Plane(REGIONS[name]), CELL_M[name])
    generator = np.random.default_rng(seed)
    middle, spread = np.array(lattice.shape) / 2, np.array(lattice.shape) / 8
    cells = np.clip(generator.normal(middle, spread, (count, 2)).astype(int), 0, np.array(lattice.shape) - 1)
    return cells, generator.exponential(30.0, count)


def tiling_of(name, fanouts=(6, 5), **how):
    return tile(Plane(REGIONS[name]), CELL_M[name], fanouts, *roads(name), **how)


TILINGS = {name: tiling_of(name) for name in REGIONS}
TILINGS["village"] = tiling_of("village", reach=0, off_road=0.0)
names = st.sampled_from(sorted(REGIONS))


def e7(*degrees):
    return np.rint(np.array(degrees) * 1e7).astype(np.int64)


@settings(max_examples=300, deadline=None)
@given(names, st.data())
def test_a_point_has_the_leaf_that_a_walk_over_closed_polygons_finds_with_ties_by_lowest_id(name, data):
    tiling = TILINGS[name]
    side, (nx, ny) = tiling.lattice.cell_mm, tiling.lattice.shape
    # Coordinates on tile edges, one millimetre beside them, and anywhere.
    near = st.sampled_from([-1, 0, 0, 0, 1])
    x = data.draw(
        st.one_of(st.integers(0, nx * side), st.builds(int.__add__, st.sampled_from((tiling.box[:, ::2] * side).ravel().tolist()), near))
    )
    y = data.draw(
        st.one_of(st.integers(0, ny * side), st.builds(int.__add__, st.sampled_from((tiling.box[:, 1::2] * side).ravel().tolist()), near))
    )
    leaf = int(tiling.leaf_of(np.array([[x, y]]) + tiling.lattice.origin_mm)[0])
    if not (0 <= x <= nx * side and 0 <= y <= ny * side):
        assert leaf == tiling.elsewhere
        return
    polygons = shapely.box(*(tiling.box * side).T)
    node = 0
    while tiling.tree.children[node]:
        first = tiling.tree.first_child[node]
        children = [n for n in range(first, first + tiling.tree.children[node]) if n != tiling.tree.leaves[tiling.elsewhere]]
        node = next(child for child in children if shapely.intersects(polygons[child], shapely.Point(x, y)))
    assert tiling.tree.leaves[leaf] == node


@settings(max_examples=200, deadline=None)
@given(names, st.floats(-95.0, 95.0), st.floats(-720.0, 720.0))
def test_every_position_has_one_leaf_and_outside_the_region_it_is_elsewhere(name, lat, lon):
    tiling, region = TILINGS[name], REGIONS[name]
    leaf = int(tiling.leaf_of_degrees(e7(lat), e7(lon))[0])
    lat, lon = e7(lat)[0], e7(lon)[0]
    east = (lon - round(region.west * 1e7)) % 3_600_000_000
    inside = round(region.south * 1e7) <= lat <= round(region.north * 1e7) and east <= round(region.width * 1e7)
    assert (leaf != tiling.elsewhere) == inside


def test_positions_outside_are_counted_and_not_clipped_into_the_edge_tiles():
    tiling, region = TILINGS["city"], REGIONS["city"]
    lat, lon = e7(60.2, 31.2, 60.2, 60.4, 60.1), e7(25.0, 121.5, 25.4000001, 25.4, 24.6)
    leaf = tiling.leaf_of_degrees(lat, lon)
    assert (leaf == tiling.elsewhere).tolist() == [False, True, True, False, False]
    assert np.bincount(leaf).sum() == 5
    # The plane alone would have moved them to the boundary.
    assert (tiling.leaf_of(tiling.plane.to_mm(lat, lon)) != tiling.elsewhere).all()
    assert region.east == 25.4


def test_no_positions_have_no_leaves():
    tiling, nothing = TILINGS["city"], np.zeros(0, np.int64)
    assert tiling.leaf_of_degrees(nothing, nothing).tolist() == []
    assert tiling.leaf_of(np.zeros((0, 2), np.int64)).tolist() == []


def test_leaves_of_few_road_cells_differ_in_depth():
    tree = TILINGS["village"].tree
    assert set(np.delete(tree.level[tree.leaves], TILINGS["village"].elsewhere)) == {1, 2}


def test_tiles_on_both_sides_of_the_antimeridian_are_neighbours():
    tiling = TILINGS["antimeridian"]
    west, east, same = tiling.leaf_of_degrees(e7(-16.0, -16.0, -16.0), e7(179.9999, -179.9999, 180.0001))
    assert tiling.elsewhere not in (west, east)
    assert same == east
    xy = tiling.plane.to_mm(e7(-16.0, -16.0), e7(179.9999, -179.9999))
    assert np.hypot(*(xy[0] - xy[1])) < 50_000


@pytest.mark.parametrize("name", sorted(REGIONS))
def test_road_cells_lie_in_their_leaf_and_keep_all_their_metres(name):
    tiling = TILINGS[name]
    cells, weight = roads(name)
    assert np.array_equal(tiling.leaf_of_cells(tiling.cell_xy), tiling.cell_leaf)
    assert tiling.cell_weight.sum() == pytest.approx(weight.sum(), abs=1e-2 * len(weight))
    assert tiling.leaf_weight.sum() == pytest.approx(tiling.cell_weight.sum())
    assert tiling.leaf_weight[tiling.elsewhere] == 0
    own = tiling_of(name, reach=0, off_road=0.0)
    assert np.array_equal(np.unique(own.cell_xy, axis=0), np.unique(cells, axis=0))
    assert own.cell_weight.sum() == pytest.approx(weight.sum(), abs=1e-3 * len(weight))
    centres = tiling.cell_xy * tiling.lattice.cell_mm + tiling.lattice.cell_mm // 2 + tiling.lattice.origin_mm
    assert np.array_equal(tiling.leaf_of(centres), tiling.cell_leaf)


def test_without_roads_the_tiles_share_the_area_evenly():
    tiling = tile(Plane(REGIONS["south"]), 333, (5, 5))
    box = np.delete(tiling.box[tiling.tree.leaves], tiling.elsewhere, axis=0)
    area = np.prod(box[:, 2:] - box[:, :2], axis=1)
    assert len(area) == 25
    assert area.max() < 1.25 * area.min()
    assert not len(tiling.cell_weight)


def test_tiles_share_roads_and_area_by_the_off_road_share():
    plane, (cells, weight) = Plane(REGIONS["city"]), roads("city")
    largest = []
    for off_road in (0.0, 0.05, 0.5):
        tiling = tile(plane, 25, (5, 5), cells, weight, off_road=off_road)
        box = tiling.box[tiling.tree.leaves]
        area = np.prod(box[:, 2:] - box[:, :2], axis=1) / np.prod(tiling.lattice.shape)
        held = np.delete((1 - off_road) * tiling.leaf_weight / tiling.leaf_weight.sum() + off_road * area, tiling.elsewhere)
        assert len(held) == 25
        assert held.max() < 1.3 / 25
        largest.append(area.max())
    # A quarter of the lattice needs no tile of its own where nobody is expected off the roads.
    assert largest[0] > 2 * largest[2]


@pytest.mark.parametrize("off_road", [-0.1, 1.0, np.nan])
def test_the_off_road_share_has_limits(off_road):
    with pytest.raises(ValueError, match="off_road"):
        tiling_of("city", off_road=off_road)


def test_roads_without_weight_are_refused():
    with pytest.raises(ValueError, match="all zero"):
        tile(Plane(REGIONS["city"]), 25, (4,), [[3, 4]], [0.0])


def test_a_large_region_keeps_no_cell_without_roads_near():
    plane = Plane(Region("country", 50.0, 8.0, 51.0, 10.0))
    cells = np.random.default_rng(6).integers(0, Lattice(plane, 25).shape, (300, 2))
    tiling = tile(plane, 25, (10, 10), cells, np.full(300, 25.0))
    assert np.prod(tiling.lattice.shape) > 20_000_000
    assert len(tiling.cell_weight) <= 9 * 300


def test_regions_are_the_same_if_they_cover_the_same_ground_under_any_name():
    region = REGIONS["city"]
    assert same_region(region, dataclasses.replace(region, name="town"))
    for side in ("south", "west", "north", "east"):
        assert not same_region(region, dataclasses.replace(region, **{side: getattr(region, side) + 1e-7}))


def test_a_lattice_smaller_than_one_cell_has_one_tile():
    tiling = tile(Plane(Region("dot", 10.0, 20.0, 10.0001, 20.0001)), 100_000, (4, 4))
    assert tiling.lattice.shape == (1, 1)
    assert len(tiling.tree.leaves) == 2


def test_the_version_is_a_function_of_all_content():
    plane, (cells, weight) = Plane(REGIONS["city"]), roads("city")
    base = tiling_of("city")
    moved = Region("city", 60.1, 24.6, 60.4, 25.4000001)
    others = [
        tile(plane, 25, (5, 6), cells, weight),
        tile(plane, 26, (6, 5), np.minimum(cells, np.array(Lattice(plane, 26).shape) - 1), weight),
        tile(plane, 25, (6, 5), cells, np.concatenate([weight[:-1], weight[-1:] + 0.02])),
        tile(plane, 25, (6, 5), np.concatenate([cells[:-1], cells[-1:] + np.array([1, 0])]), weight),
        tile(Plane(moved), 25, (6, 5), cells, weight),
        tile(plane, 25, (6, 5), cells, weight, off_road=0.050001),
        tile(plane, 25, (6, 5), cells, weight, reach=2),
        tile(Plane(dataclasses.replace(REGIONS["city"], name="town")), 25, (6, 5), cells, weight),
    ]
    assert base.version == tiling_of("city").version == pickle.loads(pickle.dumps(base)).version
    assert len({base.version, *(other.version for other in others)}) == 1 + len(others)


def parts(tiling):
    return {field.name: getattr(tiling, field.name) for field in dataclasses.fields(tiling)}


def changed(array, index, value):
    out = array.copy()
    out[index] = value
    return out


def faults():
    tiling = TILINGS["city"]
    leaf = tiling.tree.leaves[-1]
    yield "tile the rectangle", {"box": changed(tiling.box, (leaf, 2), tiling.box[leaf, 2] - 1)}
    yield "root's box", {"box": changed(tiling.box, (0, 2), tiling.box[0, 2] - 1)}
    yield "siblings", {"box": changed(tiling.box, (1, 2), tiling.box[1, 2] + 1)}
    yield "elsewhere", {"box": changed(tiling.box, (tiling.tree.children[0], 2), 1)}
    yield "in the box of its leaf", {"cell_xy": changed(tiling.cell_xy, 0, tiling.cell_xy[-1])}
    yield "in the box of its leaf", {"cell_xy": changed(tiling.cell_xy, 0, (-1, -1))}
    yield "above zero", {"cell_weight": changed(tiling.cell_weight, 0, np.nan)}
    yield "above zero", {"cell_weight": changed(tiling.cell_weight, 0, 0.0)}
    yield "off_road", {"off_road": 1.0}
    yield "off_road", {"off_road": -0.01}
    yield "off_road", {"off_road": np.nan}
    yield "cell_start", {"cell_start": changed(tiling.cell_start, 0, 1)}
    yield "shapes", {"cell_start": tiling.cell_start[:-1]}
    yield "shapes", {"tree": Tree(np.array([-1, 0, 0]))}


@pytest.mark.parametrize(("word", "change"), list(faults()))
def test_parts_that_do_not_fit_each_other_are_refused(word, change):
    with pytest.raises(ValueError, match=word):
        Tiling(**{**parts(TILINGS["city"]), **change})


def test_the_arrays_are_locked():
    with pytest.raises(ValueError, match="read-only"):
        TILINGS["city"].box[0, 0] = 1


@pytest.mark.parametrize("cell_m", [0, -5, 100_001])
def test_the_side_of_a_cell_has_limits(cell_m):
    with pytest.raises(ValueError, match="cell_m"):
        tile(Plane(REGIONS["city"]), cell_m, (4,))
