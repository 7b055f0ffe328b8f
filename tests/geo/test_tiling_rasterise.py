"""Roads on the lattice: each cell gets the metres that run through it, and nothing outside the region is invented."""

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.plane import Plane, Region
from geo.tiling.lattice import Lattice
from geo.tiling.pack import merge_cells
from geo.tiling.rasterise import areas_to_cells, points_to_cells, segments_to_cells, spread_around

TOWN = Region("town", 60.15, 24.9, 60.19, 25.0)
LATTICE = Lattice(Plane(TOWN), 50)
DATE_LINE = Lattice(Plane(Region("date line", -18.0, 179.0, -16.0, -179.0)), 500)
lon = st.floats(24.88, 25.02)
lat = st.floats(60.14, 60.2)
step = st.floats(-0.02, 0.02)


def on_lattice(lattice, lon_lat):
    e7 = np.rint(np.array(lon_lat) * 1e7).astype(np.int64)
    return (lattice.plane.to_mm(e7[:, 1], e7[:, 0]) - lattice.origin_mm) / 1000.0


@settings(max_examples=150, deadline=None)
@given(lon, lat, step, step)
def test_each_cell_gets_the_length_that_shapely_finds_in_it(lon1, lat1, step_lon, step_lat):
    lon2, lat2 = lon1 + step_lon, lat1 + step_lat
    inside = shapely.LineString([(lon1, lat1), (lon2, lat2)]).intersection(shapely.box(TOWN.west, TOWN.south, TOWN.east, TOWN.north))
    cells, metres, kept = segments_to_cells(LATTICE, np.array([[lon1, lat1]]), np.array([[lon2, lat2]]))
    if inside.length < 1e-6:
        assert metres.sum() < 0.2
        return
    assert kept.all()
    line = shapely.LineString(on_lattice(LATTICE, shapely.get_coordinates(inside)))
    assert metres.sum() == pytest.approx(line.length, abs=0.05)
    xy, total = merge_cells(cells, metres, LATTICE.shape)
    boxes = shapely.box(*np.concatenate([xy, xy + 1], axis=1).T * 50.0)
    # At most: a line along a lattice line is in two closed boxes, and counted in one.
    assert (total <= shapely.length(shapely.intersection(line, boxes)) + 1.0).all()


def test_a_line_along_a_lattice_line_is_counted_once():
    x, y = LATTICE.origin_mm + np.array([30 * 50_000, 10 * 50_000])
    ends = LATTICE.plane.to_degrees(np.array([[x, y], [x, y + 200_000]]))[:, ::-1]
    _, metres, _ = segments_to_cells(LATTICE, ends[:1], ends[1:])
    assert metres.sum() == pytest.approx(200.0, abs=0.02)


def test_a_step_over_the_antimeridian_is_short():
    cells, metres, kept = segments_to_cells(DATE_LINE, np.array([[179.9, -17.0]]), np.array([[-179.9, -17.0]]))
    assert kept.all()
    # 0.2 degrees of longitude at 17 S.
    assert metres.sum() == pytest.approx(21_294, rel=0.005)
    assert np.ptp(cells[:, 0]) == pytest.approx(21_294 / 500, abs=2)


def test_what_lies_outside_is_cut_off_and_told():
    start = np.array([[24.8, 60.17], [24.8, 60.17], [10.0, 50.0], [24.95, 60.17], [-155.0, 60.17]])
    end = np.array([[24.95, 60.17], [25.2, 60.17], [10.1, 50.0], [24.95, 60.17], [-155.1, 60.17]])
    _, metres, kept = segments_to_cells(LATTICE, start, end)
    assert kept.tolist() == [True, True, False, True, False]
    degree = 111_412 * np.cos(np.radians(60.17))
    assert metres.sum() == pytest.approx(degree * (0.05 + 0.1), rel=0.01)


def test_no_segments_give_no_cells():
    cells, metres, kept = segments_to_cells(LATTICE, np.zeros((0, 2)), np.zeros((0, 2)))
    assert cells.shape == (0, 2)
    assert len(metres) == len(kept) == 0


def test_a_road_round_a_pole_keeps_its_length():
    lattice = Lattice(Plane(Region("pole", 85.0, -180.0, 89.9, 180.0)), 500)
    ring = np.stack([np.linspace(-180.0, 180.0, 3601), np.full(3601, 88.0)], axis=1)
    _, metres, kept = segments_to_cells(lattice, ring[:-1], ring[1:])
    assert kept.all()
    assert metres.sum() == pytest.approx(2 * np.pi * 223_300, rel=0.002)


@settings(max_examples=100, deadline=None)
@given(lon, lat)
def test_a_point_is_in_its_cell_or_outside(lon, lat):
    cells, kept = points_to_cells(LATTICE, np.array([[lon, lat]]))
    if kept[0]:
        place = on_lattice(LATTICE, [(lon, lat)])[0] / 50
        assert (cells[0] <= place).all()
        assert (place <= cells[0] + 1).all()
    else:
        assert not len(cells)


def test_areas_cover_their_cells_by_share():
    shape = shapely.box(24.93, 60.16, 24.95, 60.17)
    miss = shapely.box(10.0, 50.0, 10.1, 50.1)
    (cells, share), (no_cells, nothing) = areas_to_cells(LATTICE, [shape, miss])
    ring = shapely.segmentize(shape, 0.001)
    area = shapely.Polygon(on_lattice(LATTICE, shapely.get_coordinates(ring))).area
    assert share.sum() * 50**2 == pytest.approx(area, rel=1e-3)
    assert ((share > 0) & (share <= 1)).all()
    assert len(np.unique(cells, axis=0)) == len(cells)
    assert len(no_cells) == len(nothing) == 0


def test_an_area_of_too_many_cells_is_refused():
    fine = Lattice(Plane(Region("wide", 50.0, 10.0, 52.0, 12.0)), 1)
    with pytest.raises(ValueError, match="larger cell"):
        list(areas_to_cells(fine, [shapely.box(10.5, 50.5, 11.5, 51.5)]))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 3), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1))
def test_spread_metres_are_even_over_the_square_around_and_none_is_lost_at_the_edge(nx, ny, reach, places):
    cells = np.minimum(np.array(places), [nx - 1, ny - 1])
    metres = np.arange(1.0, len(cells) + 1)
    wide = np.zeros((nx + 2 * reach, ny + 2 * reach))
    for (x, y), held in zip(cells, metres, strict=True):
        wide[x : x + 2 * reach + 1, y : y + 2 * reach + 1] += held / (2 * reach + 1) ** 2
    want = np.zeros((nx, ny))
    for (x, y), held in np.ndenumerate(wide):
        want[min(max(x - reach, 0), nx - 1), min(max(y - reach, 0), ny - 1)] += held
    got, total = spread_around(cells, metres, (nx, ny), reach)
    assert len(np.unique(got, axis=0)) == len(got)
    image = np.zeros((nx, ny))
    image[tuple(got.T)] = total
    assert np.allclose(image, want)


def test_roads_cannot_be_spread_by_less_than_no_cell():
    with pytest.raises(ValueError, match="reach"):
        spread_around(np.array([[0, 0]]), np.ones(1), (2, 2), -1)
