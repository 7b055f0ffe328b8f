"""What the readers hand over: roads and places in degrees, and their way to lattice cells."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geo.tiling.lattice import Lattice
from geo.tiling.pack import merge_cells
from geo.tiling.rasterise import areas_to_cells, points_to_cells, segments_to_cells
from jobs.errors import UserError

__all__ = ["Places", "RoadCells", "road_cells"]


@dataclass
class Places:
    """The features of one file; lines, points and areas know the number of the feature that they belong to.

    Attributes
    ----------
    name : str
        Of the file, for messages.
    source, licence : str
        Owner and terms.
    features : int
        Roads or places, including those without a usable geometry.
    incomplete : int
        Features of which a part is missing in the file, as at the edge of an extract; the rest of them counts.
    unplaced : int
        Features without any geometry.
    """

    name: str
    source: str
    licence: str
    features: int = 0
    incomplete: int = 0
    unplaced: int = 0
    areas: list[tuple[int, Any]] = field(default_factory=list)
    _lines: "array[float]" = field(default_factory=lambda: array("d"))
    _line_ends: "array[int]" = field(default_factory=lambda: array("q"))
    _line_owners: "array[int]" = field(default_factory=lambda: array("q"))
    _points: "array[float]" = field(default_factory=lambda: array("d"))
    _point_owners: "array[int]" = field(default_factory=lambda: array("q"))

    def add_line(self, owner: int, lon_lat: Iterable[Sequence[float]]) -> None:
        """Add a line of at least two positions."""
        for position in lon_lat:
            self._lines.extend(position[:2])
        self._line_ends.append(len(self._lines) // 2)
        self._line_owners.append(owner)

    def add_point(self, owner: int, lon_lat: Sequence[float]) -> None:
        """Add a point."""
        self._points.extend(lon_lat[:2])
        self._point_owners.append(owner)

    def segments(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Return starts and ends of all straight pieces, shape (n, 2), longitude first, and their features, shape (n,)."""
        lon_lat = np.array(self._lines, np.float64).reshape(-1, 2)
        ends = np.array(self._line_ends, np.int64)
        line = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        joined = np.flatnonzero(line[1:] == line[:-1])
        return lon_lat[joined], lon_lat[joined + 1], np.array(self._line_owners, np.int64)[line[joined]]

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return all points, shape (n, 2), longitude first, and their features."""
        return np.array(self._points, np.float64).reshape(-1, 2), np.array(self._point_owners, np.int64)


@dataclass(frozen=True)
class RoadCells:
    """Places on a lattice.

    Attributes
    ----------
    cell_xy : ndarray of int64 with shape (m, 2)
        Each cell once.
    road_m : ndarray of float64 with shape (m,)
        Metres of road in each. A point counts as much as a road straight across one cell, an area as such a road in each of its cells,
        by the share that it covers.
    outside : int
        Features that have a geometry, but none of it in the region.
    """

    cell_xy: NDArray[np.int64]
    road_m: NDArray[np.float64]
    outside: int


def road_cells(places: Places, lattice: Lattice) -> RoadCells:
    """Bring places to the lattice of a region; what lies outside it is left out.

    Raises
    ------
    UserError
        If there are no places, none of them is in the region, or an area cannot be used.
    """
    region = lattice.plane.region.name
    if places.features == places.unplaced:
        raise UserError(f"`{places.name}` holds no roads or places: nothing can be built from it.")
    seen = np.zeros(places.features, np.bool_)
    start, end, owner = places.segments()
    cells, metres, inside = segments_to_cells(lattice, start, end)
    seen[owner[inside]] = True
    points, owner = places.points()
    point_cells, inside = points_to_cells(lattice, points)
    seen[owner[inside]] = True
    parts, weights = [cells, point_cells], [metres, np.full(len(point_cells), float(lattice.cell_m))]
    for feature, area in places.areas:
        try:
            ((area_cells, share),) = areas_to_cells(lattice, [area])
        except ValueError as error:
            raise UserError(f"Feature {feature + 1} of `{places.name}` is no usable area: {error}") from error
        seen[feature] |= len(area_cells) > 0
        parts.append(area_cells)
        weights.append(share * lattice.cell_m)
    xy, road_m = merge_cells(np.concatenate(parts), np.concatenate(weights), lattice.shape)
    placed = places.features - places.unplaced
    if not len(xy):
        raise UserError(f"None of the {placed} roads and places of `{places.name}` lies in region {region!r}.")
    return RoadCells(xy, road_m, placed - int(seen.sum()))
