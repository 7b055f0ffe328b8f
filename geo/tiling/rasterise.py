"""From roads and places in degrees to the lattice cells they touch, with metres in each."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from geo.tiling.lattice import Lattice
from geo.tiling.pack import merge_cells
from geo.tiling.shapes import EDGE_DEG, on_plane, share_of_boxes

__all__ = ["MAX_CELLS_OF_AREA", "areas_to_cells", "points_to_cells", "segments_to_cells", "spread_around"]

MAX_CELLS_OF_AREA = 4_000_000
CHUNK = 200_000
_SLACK_DEG = 1e-9
"""The region's own edge, with the rounding of floats, is inside."""
_HALF_TURN = 180.0
_TURN = 360.0

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def segments_to_cells(lattice: Lattice, start: Floats, end: Floats) -> tuple[Ints, Floats, Bools]:
    """Spread straight segments over the cells that they cross.

    Parameters
    ----------
    lattice : Lattice
    start, end : ndarray of float64 with shape (n, 2)
        Longitude and latitude in degrees, finite. A segment takes the short way round, so it may cross the antimeridian; what lies outside
        the region is cut off.

    Returns
    -------
    cell_xy : ndarray of int64 with shape (m, 2)
        A cell can come more than once (`geo.tiling.pack.merge_cells`).
    metres : ndarray of float64 with shape (m,)
        Length on the plane in each.
    inside : ndarray of bool with shape (n,)
        Which segments meet the region.
    """
    cells, metres = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
    inside = np.zeros(len(start), np.bool_)
    for begin in range(0, len(start), CHUNK):
        part = slice(begin, begin + CHUNK)
        a, b, inside[part] = _clipped(lattice, start[part], end[part])
        xy, length = _split(lattice, *_subdivided(a, b))
        cells.append(xy)
        metres.append(length)
    return np.concatenate(cells), np.concatenate(metres), inside


def points_to_cells(lattice: Lattice, lon_lat: Floats) -> tuple[Ints, Bools]:
    """Return the cells of the points inside the region, shape (m, 2), and which of the points those are, shape (n,)."""
    e7 = np.rint(lon_lat * 1e7).astype(np.int64)
    inside = lattice.contains_degrees(e7[:, 1], e7[:, 0])
    return _cells_of(lattice, _in_cells(lattice, lon_lat[inside])), inside


def areas_to_cells(lattice: Lattice, polygons: list[Any]) -> Iterator[tuple[Ints, Floats]]:
    """Yield, for each polygon, the cells that it covers and the share of each, in (0, 1]; none where it misses the region.

    Parameters
    ----------
    lattice : Lattice
    polygons : list of shapely.Polygon or shapely.MultiPolygon
        In degrees, as for `geo.tiling.shapes.on_plane`.

    Raises
    ------
    ValueError
        If `on_plane` refuses one, or its bounds hold more than `MAX_CELLS_OF_AREA` cells.
    """
    for polygon in polygons:
        shape = on_plane(lattice.plane, polygon)
        if shape.is_empty:
            yield np.zeros((0, 2), np.int64), np.zeros(0)
            continue
        corner = (np.array(shape.bounds).reshape(2, 2) - lattice.origin_mm / 1000.0) / lattice.cell_m
        low = np.maximum(np.floor(corner[0]).astype(np.int64), 0)
        high = np.minimum(np.ceil(corner[1]).astype(np.int64), lattice.shape)
        if np.prod(high - low) > MAX_CELLS_OF_AREA:
            raise ValueError(f"`polygon` should span at most {MAX_CELLS_OF_AREA} lattice cells: take a larger cell.")
        shapely.prepare(shape)
        xy = np.stack([axis.ravel() for axis in np.meshgrid(*map(np.arange, low, high), indexing="ij")], axis=1)
        share = share_of_boxes(shape, lattice.corners_m(np.concatenate([xy, xy + 1], axis=1)))
        yield xy[share > 0], share[share > 0]


def spread_around(cell_xy: Ints, metres: Floats, shape: tuple[int, int], reach: int) -> tuple[Ints, Floats]:
    """Spread each cell's metres evenly over the square of cells around it: positions are no better than a few metres.

    Parameters
    ----------
    cell_xy : ndarray of int64 with shape (m, 2)
        Cells inside the lattice.
    metres : ndarray of float64 with shape (m,)
    shape : tuple of int
        nx, ny; what would fall outside stays at the edge.
    reach : int
        Cells in either direction, at least 0.

    Returns
    -------
    cell_xy : ndarray of int64 with shape (k, 2)
        Each cell once.
    metres : ndarray of float64 with shape (k,)
        In sum as before.

    Raises
    ------
    ValueError
        If an argument does not fit.
    """
    if reach < 0:
        raise ValueError("`reach` should be at least 0.")
    cells, held = merge_cells(cell_xy, metres, shape)
    steps = np.arange(-reach, reach + 1)
    for axis in (0, 1) if reach else ():
        moved = np.repeat(cells, len(steps), axis=0)
        moved[:, axis] = np.clip(moved[:, axis] + np.tile(steps, len(cells)), 0, shape[axis] - 1)
        cells, held = merge_cells(moved, np.repeat(held / len(steps), len(steps)), shape)
    return cells, held


def _clipped(lattice: Lattice, start: Floats, end: Floats) -> tuple[Floats, Floats, Bools]:
    """Cut segments to the region (Liang and Barsky, "A new concept and method for line clipping", ACM TOG 1984)."""
    region = lattice.plane.region
    middle = np.array([region.west + region.width / 2, (region.south + region.north) / 2])
    half = np.array([region.width / 2, (region.north - region.south) / 2]) + _SLACK_DEG
    a, step = start - middle, end - start
    a[:, 0] = np.remainder(a[:, 0] + _HALF_TURN, _TURN) - _HALF_TURN
    step[:, 0] = np.remainder(step[:, 0] + _HALF_TURN, _TURN) - _HALF_TURN
    enter, leave = np.zeros(len(a)), np.ones(len(a))
    for axis in (0, 1):
        if axis == 0 and region.width == _TURN:
            continue  # no meridian is a boundary
        with np.errstate(divide="ignore", invalid="ignore"):
            near, far = (-half[axis] - a[:, axis]) / step[:, axis], (half[axis] - a[:, axis]) / step[:, axis]
        still = step[:, axis] == 0
        within = np.abs(a[:, axis]) <= half[axis]
        enter = np.where(still, np.where(within, enter, 2.0), np.maximum(enter, np.minimum(near, far)))
        leave = np.where(still, leave, np.minimum(leave, np.maximum(near, far)))
    kept = enter <= leave
    base = a[kept] + middle
    return base + step[kept] * enter[kept, None], base + step[kept] * leave[kept, None], kept


def _subdivided(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Cut segments into pieces that are straight on the plane too."""
    pieces = np.maximum(np.ceil(np.abs(b - a).max(axis=1, initial=0.0) / EDGE_DEG), 1).astype(np.int64)
    of = np.repeat(np.arange(len(a)), pieces)
    place = (np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces))[:, None]
    step = ((b - a) / pieces[:, None])[of]
    return a[of] + step * place, a[of] + step * (place + 1)


def _split(lattice: Lattice, start: Floats, end: Floats) -> tuple[Ints, Floats]:
    """Split segments at the lattice lines; return the cell and the metres of each piece."""
    a, b = _in_cells(lattice, start), _in_cells(lattice, end)
    step = b - a
    number, at = [np.tile(np.arange(len(a)), 2)], [np.repeat([0.0, 1.0], len(a))]
    for axis in (0, 1):
        low, high = np.minimum(a[:, axis], b[:, axis]), np.maximum(a[:, axis], b[:, axis])
        first = np.floor(low).astype(np.int64) + 1
        crossings = np.maximum(np.ceil(high).astype(np.int64) - first, 0)
        of = np.repeat(np.arange(len(a)), crossings)
        line = first[of] + np.arange(len(of)) - np.repeat(np.cumsum(crossings) - crossings, crossings)
        number.append(of)
        at.append((line - a[of, axis]) / step[of, axis])
    of, t = np.concatenate(number), np.concatenate(at)
    order = np.lexsort((t, of))
    of, t = of[order], t[order]
    piece = np.flatnonzero(of[1:] == of[:-1])
    of, begin, end_t = of[piece], t[piece], t[piece + 1]
    metres = (end_t - begin) * np.hypot(*step[of].T) * lattice.cell_m
    return _cells_of(lattice, a[of] + step[of] * ((begin + end_t) / 2)[:, None]), metres


def _in_cells(lattice: Lattice, lon_lat: Floats) -> Floats:
    e7 = np.rint(lon_lat * 1e7).astype(np.int64)
    return (lattice.plane.to_mm(e7[:, 1], e7[:, 0]) - lattice.origin_mm) / lattice.cell_mm


def _cells_of(lattice: Lattice, xy: Floats) -> Ints:
    """Return the cells, each open below and closed above, as tiles are."""
    return np.clip(np.ceil(xy).astype(np.int64) - 1, 0, np.array(lattice.shape) - 1)
