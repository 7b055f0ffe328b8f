"""Places on real roads: simulated vehicles on Helsinki's streets, and San Francisco's cabs on an Overpass extract."""

import csv
import gzip
import math
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import iterparse

import numpy as np
from numpy.typing import NDArray

from geo.plane import Plane, Region
from geo.tiling.lattice import Lattice
from geo.tiling.rasterise import points_to_cells, spread_around
from geo.tiling.tiling import OFF_ROAD, REACH_CELLS
from jobs.bench.density.places import Place, require
from jobs.tiling.places import Places, road_cells
from jobs.tiling.readers import read_places

__all__ = ["SIDE", "covered_box", "helsinki", "place_on_roads", "san_francisco"]

SIDE = 256
"""Cells along each side of a place; the contenders' quadtrees need a power of two."""
VEHICLES = "sumo_fcd/helsinki_seed42.fcd.xml.gz"
HELSINKI_ROADS = "roads/Helsinki.osm.pbf"
CABS = ("cabspotting/abboip.csv.gz", "cabspotting/ickguwa.csv.gz")
SAN_FRANCISCO_ROADS = "roads/san_francisco_overpass.json.gz"
EDGE = 0.01
"""Part of the roads that is cut off at each side of a box: an extract keeps whole roads, so some reach far out of what it covers."""

Floats = NDArray[np.float64]


def helsinki(data: Path) -> Place:
    """Return Helsinki: every second of 300 simulated vehicles as a place of an independent user, on the extract's roads.

    Parameters
    ----------
    data : Path
        Folder of the samples.

    Raises
    ------
    UserError
        If a file is not there.
    """
    fixes = np.array(list(_vehicles(require(data, VEHICLES))))
    return place_on_roads("Helsinki", read_places(require(data, HELSINKI_ROADS)), fixes)


def san_francisco(data: Path) -> Place:
    """Return San Francisco: every fix of two cabs as a place of an independent user, on the extract's roads.

    Parameters
    ----------
    data : Path
        Folder of the samples.

    Raises
    ------
    UserError
        If a file is not there.
    """
    fixes = np.array([fix for name in CABS for fix in _cab(require(data, name))])
    return place_on_roads("San Francisco", read_places(require(data, SAN_FRANCISCO_ROADS)), fixes)


def place_on_roads(name: str, roads: Places, fixes: Floats) -> Place:
    """Return a place whose lattice covers the box of the roads.

    Parameters
    ----------
    name : str
    roads : Places
    fixes : ndarray of float64 with shape (m, 2)
        Longitude and latitude of the users; those outside the box are left out.

    Returns
    -------
    Place
        `SIDE` × `SIDE` cells of a whole number of metres; where the box is no square, the rest is empty. The public weight of a cell is
        that of `geo.tiling.tiling.tile`: roads, spread around, and the share off the roads.
    """
    plane = Plane(covered_box(roads))
    extent_m = float((plane.bounds_mm[2:] - plane.bounds_mm[:2]).max()) / 1000
    lattice = Lattice(plane, math.ceil(extent_m / SIDE))
    found = road_cells(roads, lattice)
    near, region, crowd = np.zeros((SIDE, SIDE)), np.zeros((SIDE, SIDE)), np.zeros((SIDE, SIDE))
    cells, metres = spread_around(found.cell_xy, found.road_m, lattice.shape, REACH_CELLS)
    near[tuple(cells.T)] = metres
    region[: lattice.shape[0], : lattice.shape[1]] = 1.0
    np.add.at(crowd, tuple(points_to_cells(lattice, fixes)[0].T), 1.0)
    return Place(name, crowd, (1 - OFF_ROAD) * near / near.sum() + OFF_ROAD * region / region.sum())


def covered_box(roads: Places) -> Region:
    """Return the box that an extract covers: without `EDGE` of its roads, by length, at each side.

    Parameters
    ----------
    roads : Places
        With at least one line.
    """
    start, end, _ = roads.segments()
    middle = (start + end) / 2
    length = np.hypot(*((end - start) * [math.cos(math.radians(float(middle[:, 1].mean()))), 1.0]).T)
    sides = []
    for axis in (0, 1):
        order = np.argsort(middle[:, axis], kind="stable")
        below = np.cumsum(length[order]) / length.sum()
        sides.append([float(middle[order[np.searchsorted(below, part)], axis]) for part in (EDGE, 1 - EDGE)])
    (west, east), (south, north) = sides
    return Region(roads.name, south, west, north, east)


def _vehicles(path: Path) -> Iterator[tuple[float, float]]:
    """Yield longitude and latitude of each vehicle in each step of SUMO's output."""
    with gzip.open(path) as file:
        for _, element in iterparse(file):
            if element.tag == "vehicle":
                yield float(element.attrib["x"]), float(element.attrib["y"])
            elif element.tag == "timestep":
                element.clear()


def _cab(path: Path) -> Iterator[tuple[float, float]]:
    """Yield longitude and latitude of each fix."""
    with gzip.open(path, "rt", encoding="ascii", newline="") as file:
        for row in csv.DictReader(file):
            yield float(row["lng"]), float(row["lat"])
