"""Public zones: named shapes of longitude and latitude, and which of them a position lies in."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import shapely
from numpy.typing import NDArray
from pyproj import Geod
from shapely.geometry.base import BaseGeometry

from geo.plane import Region

__all__ = ["Zones", "box_shape", "circle_shape", "polygon_shape", "region_shape"]

_CIRCLE_CORNERS = 72
_MAX_LAT, _MAX_LON, _HALF_TURN = 90.0, 180.0, 180.0
_MIN_CORNERS = 3
_SPLIT = "split it at 180 degrees of longitude into parts"


def polygon_shape(corners: Sequence[tuple[float, float]]) -> BaseGeometry:
    """Return a polygon.

    Parameters
    ----------
    corners : sequence of (longitude, latitude)
        Degrees, in order around the polygon; the first may be repeated at the end. Edges are straight in these coordinates.

    Raises
    ------
    ValueError
        If it is empty, crosses itself or the antimeridian, is wider than 180 degrees, or has a corner out of range.
    """
    for lon, lat in corners:
        if not (abs(lon) <= _MAX_LON and abs(lat) <= _MAX_LAT):
            swapped = " (are the axes swapped? a corner is [longitude, latitude])" if abs(lon) <= _MAX_LAT and abs(lat) <= _MAX_LON else ""
            raise ValueError(f"has the corner [{lon:g}, {lat:g}], which is no longitude and latitude in degrees{swapped}")
    if len(set(corners)) < _MIN_CORNERS:
        raise ValueError("is empty: a polygon needs three different corners")
    lons = [lon for lon, _ in corners]
    steps = [abs(a - b) for a, b in zip(lons, [*lons[1:], lons[0]], strict=True)]
    if max(steps) > _HALF_TURN:
        raise ValueError(f"has an edge across more than 180 degrees of longitude: it crosses the antimeridian or is too wide, so {_SPLIT}")
    if max(lons) - min(lons) > _HALF_TURN:
        raise ValueError(f"is wider than 180 degrees of longitude: {_SPLIT}")
    shape = shapely.Polygon(corners)
    if not shapely.is_valid(shape):
        raise ValueError(f"crosses or touches itself ({shapely.is_valid_reason(shape)}): give its corners in order, each once")
    if shape.area == 0:
        raise ValueError("is empty: its corners lie on one line")
    return shape


def box_shape(south: float, west: float, north: float, east: float) -> BaseGeometry:
    """Return a box of degrees.

    Raises
    ------
    ValueError
        As for `polygon_shape`, or if south is not below north, or west not below east.
    """
    if west > east:
        raise ValueError(f"has its west above its east, as if it crossed the antimeridian: {_SPLIT}")
    if east - west > _HALF_TURN:
        raise ValueError(f"is wider than 180 degrees of longitude: {_SPLIT}")
    if south >= north or west == east:
        raise ValueError("is empty: its south should be below its north, and its west below its east")
    return polygon_shape([(west, south), (east, south), (east, north), (west, north)])


def circle_shape(lon: float, lat: float, radius_m: float) -> BaseGeometry:
    """Return the 72-cornered polygon whose corners lie `radius_m` metres of WGS 84 geodesic from a point.

    Raises
    ------
    ValueError
        As for `polygon_shape`, or if the radius is not above 0, or the circle holds a pole.
    """
    if not (math.isfinite(radius_m) and radius_m > 0):
        raise ValueError("is empty: the radius of a circle should be above 0 metres")
    if not (abs(lon) <= _MAX_LON and abs(lat) <= _MAX_LAT):
        raise ValueError(f"has the centre [{lon:g}, {lat:g}], which is no longitude and latitude in degrees")
    geod = Geod(ellps="WGS84")
    if any(radius_m >= geod.inv(lon, lat, lon, pole)[2] for pole in (-_MAX_LAT, _MAX_LAT)):
        raise ValueError("holds a pole: use a box instead")
    ways = np.arange(_CIRCLE_CORNERS) * (360.0 / _CIRCLE_CORNERS)
    ones = np.ones(_CIRCLE_CORNERS)
    lons, lats, _ = geod.fwd(lon * ones, lat * ones, ways, radius_m * ones)
    return polygon_shape(list(zip(lons.tolist(), lats.tolist(), strict=True)))


def region_shape(region: Region) -> BaseGeometry:
    """Return a region as one box, or as two if it crosses the antimeridian."""
    if region.west < region.east:
        return shapely.box(region.west, region.south, region.east, region.north)
    parts = [(region.west, _MAX_LON), (-_MAX_LON, region.east)]
    return shapely.union_all([shapely.box(west, region.south, east, region.north) for west, east in parts if west < east])


class Zones:
    """Zones that are looked up for many positions at once.

    Parameters
    ----------
    shapes : mapping of str to geometry
        Valid shapes by name, in degrees of longitude and latitude.

    Attributes
    ----------
    names : tuple of str
        Sorted; a zone's number is its place here.
    """

    def __init__(self, shapes: Mapping[str, BaseGeometry]) -> None:
        self.names = tuple(sorted(shapes))
        self._shapes = np.array([shapes[name] for name in self.names], dtype=object)
        self._tree = shapely.STRtree(self._shapes)

    def first(self, lat_lon: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the first zone by name that holds each position; a zone holds its border.

        Parameters
        ----------
        lat_lon : ndarray of float64 with shape (n, 2)
            Latitude and longitude in degrees; rows with NaN are in no zone.

        Returns
        -------
        ndarray of int32 with shape (n,)
            Numbers of zones, -1 for none.
        """
        out = np.full(len(lat_lon), len(self.names), dtype=np.int32)
        rows = np.flatnonzero(np.isfinite(lat_lon).all(axis=1))
        if len(rows) and self.names:
            points = shapely.points(lat_lon[rows, 1], lat_lon[rows, 0])
            found, zone = self._tree.query(points, predicate="intersects")
            np.minimum.at(out, rows[found], zone.astype(np.int32))
        out[out == len(self.names)] = -1
        return out

    def overlaps(self) -> list[tuple[str, str]]:
        """Return the pairs of zones, by name, whose insides meet."""
        one, other = self._tree.query(self._shapes, predicate="intersects")
        pairs = [(i, j) for i, j in zip(one.tolist(), other.tolist(), strict=True) if i < j]
        return sorted((self.names[i], self.names[j]) for i, j in pairs if not shapely.touches(self._shapes[i], self._shapes[j]))
