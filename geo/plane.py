"""The public metric plane of a region: the step from degrees to integer millimetres, and back."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import Proj

__all__ = ["MAX_SCALE", "Plane", "Region"]

MAX_SCALE = 1.05
"""Largest scale that a plane may have; a region within about 3900 km of its middle stays below it."""

_SCALE_MARGIN = 1e-5
"""Added to the sampled scales: covers the finite differences behind ``Proj.get_factors`` (about 1e-6)."""

_SCALE_SHARE = 0.05
"""Share of ``scale - 1`` added as well: covers sampling, and geodesics that leave the region (the Earth's radii differ by 1 %)."""

_BOUNDS_MARGIN = 1e-3
"""Share of the image's extent by which the public rectangle is widened: covers the arcs between two samples of the boundary."""

_SAMPLES = 64
_E7 = 10_000_000
_TURN = 360.0
_HALF_TURN = 180.0
_TURN_E7 = 360 * _E7


@dataclass(frozen=True)
class Region:
    """A public rectangle of latitude and longitude.

    Parameters
    ----------
    name : str
        Not empty; appears in error messages.
    south, north : float
        Degrees, -90 <= south < north <= 90.
    west, east : float
        Degrees in [-180, 180] and different; ``west > east`` means that the region crosses the antimeridian,
        ``west = -180, east = 180`` that it spans all longitudes.

    Raises
    ------
    ValueError
        Names the field that is wrong.
    """

    name: str
    south: float
    west: float
    north: float
    east: float

    def __post_init__(self) -> None:
        """Check every field."""
        if not self.name:
            raise ValueError("`name` of a region should not be empty.")
        for field, limit in (("south", 90.0), ("west", 180.0), ("north", 90.0), ("east", 180.0)):
            value = getattr(self, field)
            if not (math.isfinite(value) and abs(value) <= limit):
                raise ValueError(f"`{field}` of region {self.name!r} should be a number of degrees from -{limit:g} to {limit:g}.")
        if self.south >= self.north:
            raise ValueError(f"`south` of region {self.name!r} should be less than `north`.")
        if self.west == self.east:
            raise ValueError(f"`west` of region {self.name!r} should differ from `east`; use -180 and 180 for all longitudes.")

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """South, west, north and east as floats, whatever numbers they were given as."""
        return float(self.south), float(self.west), float(self.north), float(self.east)

    @property
    def width(self) -> float:
        """Degrees of longitude from west to east, in (0, 360]."""
        width = self.east - self.west
        return width if width > 0 else width + _TURN


class Plane:
    """Lambert azimuthal equal-area plane (WGS 84) centred on the middle of a region.

    A region that spans all longitudes is centred on the pole that is nearer to it. The plane depends on the region alone, which is
    public. Instances are cheap to rebuild and pickle as their region.

    Parameters
    ----------
    region : Region
        Small enough that lengths are stretched by at most `MAX_SCALE`.

    Attributes
    ----------
    region : Region
    scale_max, scale_min : float
        Bounds of (plane length / ground length) in every direction anywhere in the region, and along any geodesic or straight plane
        line between two of its points. They are the extreme axes of Tissot's indicatrix over a dense grid that includes the boundary,
        moved away from 1 by 1e-5 plus 5 % of their distance from 1, and rounded outwards to 1e-9.
    bounds_mm : ndarray of int64 with shape (4,)
        x0, y0, x1, y1: a rectangle that covers the image of the region; x points east, y north, (0, 0) is the middle.

    Raises
    ------
    ValueError
        If the region is too large for one plane.

    Notes
    -----
    The projection is J. P. Snyder, *Map Projections: A Working Manual*, USGS Professional Paper 1395 (1987), section 24, as PROJ's
    ``laea`` computes it. Its scale depends on the distance c from the middle: 1 / cos(c/2) across and cos(c/2) along the radius.
    Positions are rounded to millimetres, and going back to degrees is exact to 5 mm; where the middle is a pole, PROJ's formula cancels,
    and both are exact to 0.3 m only within 20 m of it.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        lat_0, lon_0 = _middle(region)
        # Longitudes enter as offsets from the middle, so that the antimeridian is never a special case for PROJ.
        self._proj = Proj(proj="laea", lat_0=lat_0, lon_0=0, ellps="WGS84", units="m")
        self._lon_0 = lon_0
        self._lon_0_e7 = round(lon_0 * _E7)
        self._half_e7 = round(region.width / 2 * _E7)
        self._south_e7, self._north_e7 = round(region.south * _E7), round(region.north * _E7)
        self.scale_max, self.scale_min, bounds = _measure(region)
        self.bounds_mm: NDArray[np.int64] = np.array(bounds, dtype=np.int64)
        self.bounds_mm.flags.writeable = False

    def __reduce__(self) -> tuple[Callable[[Region], "Plane"], tuple[Region]]:
        """Pickle as the region."""
        return Plane, (self.region,)

    def to_mm(self, lat_e7: NDArray[np.integer[Any]], lon_e7: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Project positions, clipped to the region.

        Parameters
        ----------
        lat_e7, lon_e7 : ndarray of int with shape (n,)
            1e-7 degrees, any integers; longitudes are taken modulo 360 degrees, and what lies outside the region is moved to the
            nearer meridian and parallel of its boundary.

        Returns
        -------
        ndarray of int64 with shape (n, 2)
            x, y in millimetres, inside `bounds_mm`; always finite.

        Raises
        ------
        TypeError
            If an array does not hold integers.
        """
        lat_e7, lon_e7 = np.asarray(lat_e7), np.asarray(lon_e7)
        if lat_e7.dtype.kind not in "iu" or lon_e7.dtype.kind not in "iu":
            raise TypeError("`lat_e7` and `lon_e7` should be arrays of integers in 1e-7 degrees.")
        offset = np.remainder(np.remainder(lon_e7.astype(np.int64), _TURN_E7) - self._lon_0_e7 + _TURN_E7 // 2, _TURN_E7) - _TURN_E7 // 2
        lon = np.clip(offset, -self._half_e7, self._half_e7) / _E7
        lat = np.clip(lat_e7.astype(np.int64), self._south_e7, self._north_e7) / _E7
        x, y = self._project(lon, lat)
        out = np.empty((lat.size, 2), dtype=np.int64)
        out[:, 0] = np.rint(x * 1000.0)
        out[:, 1] = np.rint(y * 1000.0)
        return np.clip(out, self.bounds_mm[:2], self.bounds_mm[2:])

    def to_degrees(self, xy_mm: NDArray[np.int64]) -> NDArray[np.float64]:
        """Place points of the plane on the ground.

        Parameters
        ----------
        xy_mm : ndarray of int64 with shape (n, 2)
            x, y in millimetres, clipped to `bounds_mm`.

        Returns
        -------
        ndarray of float64 with shape (n, 2)
            Latitude in [-90, 90] and longitude in [-180, 180), degrees.
        """
        xy = np.clip(np.asarray(xy_mm, dtype=np.int64), self.bounds_mm[:2], self.bounds_mm[2:]) / 1000.0
        lon, lat = self._project(xy[:, 0], xy[:, 1], inverse=True)
        out = np.empty((len(xy), 2), dtype=np.float64)
        out[:, 0] = lat
        # The remainder of a tiny negative number rounds to 360: wrap that value once more.
        turned = np.remainder(lon + self._lon_0 + _HALF_TURN, _TURN)
        out[:, 1] = np.where(turned >= _TURN, 0.0, turned) - _HALF_TURN
        return out

    def _project(
        self, first: NDArray[np.float64], second: NDArray[np.float64], inverse: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # PROJ's wrapper takes an array of one element for a scalar, which NumPy deprecates: never pass one.
        size = len(first)
        if size == 1:
            first, second = np.repeat(first, 2), np.repeat(second, 2)
        out = self._proj(first, second, inverse=inverse)
        return np.asarray(out[0])[:size], np.asarray(out[1])[:size]


def _middle(region: Region) -> tuple[float, float]:
    if region.width == _TURN:
        return (90.0 if region.north + region.south >= 0 else -90.0), 0.0
    lon = region.west + region.width / 2
    return (region.south + region.north) / 2, round(lon - _TURN if lon >= _HALF_TURN else lon, 7)


@lru_cache(maxsize=64)
def _measure(region: Region) -> tuple[float, float, tuple[int, int, int, int]]:
    proj = Proj(proj="laea", lat_0=_middle(region)[0], lon_0=0, ellps="WGS84", units="m")
    dense = np.linspace(-1.0, 1.0, 8 * _SAMPLES + 1)
    coarse = np.linspace(-1.0, 1.0, _SAMPLES + 1)
    inner = [axis.ravel() for axis in np.meshgrid(coarse, coarse)]
    ones = np.ones_like(dense)
    u = np.concatenate([inner[0], dense, dense, ones, -ones])
    v = np.concatenate([inner[1], ones, -ones, dense, dense])
    lon = u * (region.width / 2)
    lat = np.clip((region.south + region.north) / 2 + v * (region.north - region.south) / 2, region.south, region.north)
    factors = proj.get_factors(lon, lat)
    largest, smallest = float(np.max(factors.tissot_semimajor)), float(np.min(factors.tissot_semiminor))
    above = (largest - 1.0) * (1.0 + _SCALE_SHARE) + _SCALE_MARGIN
    below = (1.0 - smallest) * (1.0 + _SCALE_SHARE) + _SCALE_MARGIN
    if not (math.isfinite(above) and 1.0 + above <= MAX_SCALE):
        raise ValueError(f"Region {region.name!r} should be split: its plane would stretch lengths by more than {MAX_SCALE - 1:.0%}.")
    x, y = (np.asarray(axis) * 1000.0 for axis in proj(lon, lat))
    margin = _BOUNDS_MARGIN * max(float(np.ptp(x)), float(np.ptp(y))) + 1000.0
    bounds = (
        math.floor(float(x.min()) - margin),
        math.floor(float(y.min()) - margin),
        math.ceil(float(x.max()) + margin),
        math.ceil(float(y.max()) + margin),
    )
    return math.ceil((1.0 + above) * 1e9) / 1e9, math.floor((1.0 - below) * 1e9) / 1e9, bounds
