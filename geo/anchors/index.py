"""The anchors of a region: public places with categories, checked, in the order of their ids, and fast to search near."""

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pyproj import Geod

from geo.anchors.search import PlaneSearch
from geo.plane import Plane, Region

__all__ = ["AnchorIndex", "geodesic_m", "inside", "into_region", "plane_xy_m"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

VERSION_DIGITS = 16
SLACK_M = 1.0
"""By how much a distance on the plane may be off besides the scale: rounding to 1e-7 degrees and to millimetres, and PROJ near a pole."""

_GEOD = Geod(ellps="WGS84")
_E7 = 10_000_000
_EDGE_DEG = 1e-7
_TURN, _HALF_TURN, _RIGHT = 360.0, 180.0, 90.0
_OFFERS = 64


class AnchorIndex:
    """Public places that a noisy point may be moved to; immutable, and pickled as its columns.

    Anchors are numbered in the order of their ids as text, so that the lowest number has the lowest id. An anchor outside the region is
    refused: the program that reads files leaves such places out and counts them.

    Parameters
    ----------
    plane : Plane
        Public plane of the region.
    category_names : sequence of str
        Public names of categories, different, not empty, sorted.
    ids : sequence of str
        Different and not empty.
    lat, lon : array_like with shape (n,)
        Degrees, inside the region.
    categories : sequence of sequences of int
        Codes of each anchor: one or more different places in `category_names`. The first is told where only the category may be.
    popularity : array_like with shape (n,), optional
        Public weight of each anchor, finite and at least 0; 1 by default. An anchor of popularity 0 is never offered.

    Attributes
    ----------
    plane : Plane
    category_names : tuple of str
    ids : tuple of str
    lat, lon, popularity : ndarray of float64 with shape (n,)
    codes : ndarray of int64 with shape (n, most)
        Codes of each anchor in the order given, filled up with -1.

    Raises
    ------
    ValueError
        Names the anchor, counted from 1 in the order given, and what is wrong with it.
    """

    def __init__(
        self,
        plane: Plane,
        category_names: Sequence[str],
        ids: Sequence[str],
        lat: ArrayLike,
        lon: ArrayLike,
        categories: Sequence[Sequence[int]],
        popularity: ArrayLike | None = None,
    ) -> None:
        self.plane, self.category_names = plane, tuple(category_names)
        if not all(isinstance(name, str) and name for name in self.category_names):
            raise ValueError("`category_names` should be texts that are not empty.")
        if list(self.category_names) != sorted(set(self.category_names)):
            raise ValueError("`category_names` should be sorted and different.")
        if not len(ids):
            raise ValueError("`ids` should hold at least one anchor.")
        columns = [np.array(column, np.float64) for column in (lat, lon, np.ones(len(ids)) if popularity is None else popularity)]
        if any(column.shape != (len(ids),) for column in columns) or len(categories) != len(ids):
            raise ValueError("`ids`, `lat`, `lon`, `categories` and `popularity` should have the same length.")
        _check_ids(ids)
        codes = _codes(categories, len(self.category_names))
        _check_places(plane.region, *columns)
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)
        self.ids = tuple(ids[at] for at in order)
        self.lat, self.lon, self.popularity = (column[order] for column in columns)
        self.codes: Ints = codes[order]
        for shared in (self.lat, self.lon, self.popularity, self.codes):
            shared.flags.writeable = False
        self._xy_m = plane_xy_m(plane, self.lat, self.lon)
        self._offer = lru_cache(maxsize=_OFFERS)(self._build_offer)

    def __reduce__(self) -> tuple[Callable[..., "AnchorIndex"], tuple[Any, ...]]:
        """Pickle as the columns; what speeds up the search is built again."""
        categories = [[int(code) for code in row if code >= 0] for row in self.codes]
        return AnchorIndex, (self.plane, self.category_names, self.ids, self.lat, self.lon, categories, self.popularity)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def version(self) -> str:
        """First 16 hexadecimal digits of `digest`."""
        return self.digest[:VERSION_DIGITS]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all content, in hexadecimal digits: region, categories, ids, positions and popularity."""
        head = {
            "region": [self.plane.region.name, *self.plane.region.bounds],
            "category_names": self.category_names,
            "ids": self.ids,
            "most": self.codes.shape[1],
        }
        digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
        digest.update(np.ascontiguousarray(self.codes, "<i8").tobytes())
        for column in (self.lat, self.lon, self.popularity):
            digest.update(np.ascontiguousarray(column, "<f8").tobytes())
        return digest.hexdigest()

    def offered(self, hidden: NDArray[np.bool_]) -> Ints:
        """Return the numbers of the anchors of positive popularity that have no hidden category.

        Parameters
        ----------
        hidden : ndarray of bool with shape (categories,)
        """
        return self._offer(np.asarray(hidden, np.bool_).tobytes())[0]

    def near(
        self, hidden: NDArray[np.bool_], lat: Floats, lon: Floats, reach_m: Floats, k: int, wider_m: Floats
    ) -> tuple[Ints, Ints, Floats]:
        """Find all offered anchors within a reach that are not farther than the k-th nearest by more than a margin; exactly.

        The search runs on the plane. With scale bounds s <= plane / ground <= S: if k anchors are within P on the plane, the k-th on
        the ground is within P / s, and all wanted ones are within S · (P / s + margin) and S · reach on the plane. Of what lies
        there the geodesic is computed; some may be farther than wanted, none is missed.

        Parameters
        ----------
        hidden : ndarray of bool with shape (categories,)
            Categories whose anchors are not offered.
        lat, lon : ndarray of float64 with shape (n,)
            Degrees inside the region.
        reach_m : ndarray of float64 with shape (n,)
            Largest distance, in ground metres; the edge counts.
        k : int
            At least 1.
        wider_m : ndarray of float64 with shape (n,)
            Margin in ground metres.

        Returns
        -------
        row, anchor : ndarray of int64 with shape (p,)
            Pairs in no particular order.
        distance_m : ndarray of float64 with shape (p,)
            Ground metres on WGS 84.
        """
        row, anchor, _ = self._near_on_plane(hidden, lat, lon, reach_m, k, wider_m)
        distance_m = geodesic_m(lat.take(row), lon.take(row), self.lat.take(anchor), self.lon.take(anchor))
        near = np.flatnonzero(distance_m <= reach_m.take(row))
        return row.take(near), anchor.take(near), distance_m.take(near)

    def nearest(self, hidden: NDArray[np.bool_], lat: Floats, lon: Floats, reach_m: Floats) -> Ints:
        """Find the nearest offered anchor of each point by geodesic distance, exactly; of equally near ones, the lowest.

        Where the plane leaves one candidate alone, its geodesic is not computed.

        Parameters
        ----------
        hidden, lat, lon, reach_m
            As for `near`.

        Returns
        -------
        ndarray of int64 with shape (n,)
            Its number, or -1 where none is within the reach.
        """
        row, anchor, plane_m = self._near_on_plane(hidden, lat, lon, reach_m, 1, np.zeros(len(lat)))
        best_m = np.full(len(lat), np.inf)
        np.minimum.at(best_m, row, plane_m)
        limit_m = (best_m + SLACK_M) / self.plane.scale_min * self.plane.scale_max + SLACK_M
        close = np.flatnonzero(plane_m <= limit_m.take(row))
        row, anchor, plane_m = row.take(close), anchor.take(close), plane_m.take(close)
        alone = np.bincount(row, minlength=len(lat)).take(row) == 1
        sure = alone & ((plane_m + SLACK_M) / self.plane.scale_min <= reach_m.take(row))
        out = np.full(len(lat), -1, np.int64)
        out[row[sure]] = anchor[sure]
        row, anchor = row[~sure], anchor[~sure]
        distance_m = geodesic_m(lat.take(row), lon.take(row), self.lat.take(anchor), self.lon.take(anchor))
        near = np.flatnonzero(distance_m <= reach_m.take(row))
        near = near[np.lexsort((anchor[near], distance_m[near], row[near]))]
        near = near[np.flatnonzero(np.diff(row[near], prepend=-1))]
        out[row[near]] = anchor[near]
        return out

    def _near_on_plane(
        self, hidden: NDArray[np.bool_], lat: Floats, lon: Floats, reach_m: Floats, k: int, wider_m: Floats
    ) -> tuple[Ints, Ints, Floats]:
        numbers, search = self._offer(np.asarray(hidden, np.bool_).tobytes())
        if search is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        xy = plane_xy_m(self.plane, lat, lon)
        kth_m = (search.kth_distance(xy, k) + SLACK_M) / self.plane.scale_min
        row, at, plane_m = search.within(xy, np.minimum(reach_m, kth_m + wider_m) * self.plane.scale_max + SLACK_M)
        return row, numbers.take(at), plane_m

    def _build_offer(self, hidden: bytes) -> tuple[Ints, PlaneSearch | None]:
        # The code -1, no category, is the last place of the table.
        table = np.append(np.frombuffer(hidden, np.bool_), False)
        numbers = np.flatnonzero(~table[self.codes].any(axis=1) & (self.popularity > 0))
        numbers.flags.writeable = False
        return numbers, PlaneSearch(self._xy_m[numbers]) if len(numbers) else None


def inside(region: Region, lat: Floats, lon: Floats) -> NDArray[np.bool_]:
    """Tell which positions lie in a region, its edge and 1e-7 degrees beyond it included.

    Parameters
    ----------
    region : Region
    lat, lon : ndarray of float64 with shape (n,)
        Degrees; longitudes count modulo 360.
    """
    east = np.remainder(lon - region.west + _EDGE_DEG, _TURN) <= region.width + 2 * _EDGE_DEG
    return (lat >= region.south - _EDGE_DEG) & (lat <= region.north + _EDGE_DEG) & east


def into_region(region: Region, lat: Floats, lon: Floats) -> tuple[Floats, Floats]:
    """Move positions that lie outside a region to the nearer meridian and parallel of its boundary; others stay as they are.

    Parameters
    ----------
    region : Region
    lat, lon : ndarray of float64 with shape (n,)
        Degrees.

    Returns
    -------
    lat, lon : ndarray of float64 with shape (n,)
    """
    east = np.remainder(lon - region.west, _TURN)
    to_east = np.where(east - region.width <= _TURN - east, region.east, region.west)
    return np.clip(lat, region.south, region.north), np.where(east <= region.width, lon, to_east)


def plane_xy_m(plane: Plane, lat: Floats, lon: Floats) -> Floats:
    """Project degrees inside the region to plane metres, shape (n, 2)."""
    lat_e7, lon_e7 = (np.rint(np.asarray(column) * _E7).astype(np.int64) for column in (lat, lon))
    return np.asarray(plane.to_mm(lat_e7, lon_e7) / 1000.0)


def geodesic_m(lat: Floats, lon: Floats, to_lat: Floats, to_lon: Floats) -> Floats:
    """Return the lengths of geodesics on WGS 84 in metres, shape (n,)."""
    if len(lat) == 0:
        return np.zeros(0)
    # pyproj takes an array of one element for a scalar, which NumPy deprecates: never pass one.
    size = len(lat)
    columns = (lon, lat, to_lon, to_lat) if size > 1 else (np.repeat(column, 2) for column in (lon, lat, to_lon, to_lat))
    return np.asarray(_GEOD.inv(*columns)[2], np.float64)[:size]


def _check_ids(ids: Sequence[str]) -> None:
    seen: dict[str, int] = {}
    for at, name in enumerate(ids, start=1):
        if not (isinstance(name, str) and name):
            raise ValueError(f"Anchor {at} should have an id, a text that is not empty.")
        if seen.setdefault(name, at) != at:
            raise ValueError(f"Anchor {at} has the id {name!r}, as anchor {seen[name]} has: ids should be different.")


def _codes(categories: Sequence[Sequence[int]], names: int) -> Ints:
    for at, own in enumerate(categories, start=1):
        if not len(own):
            raise ValueError(f"Anchor {at} should have at least one category.")
        if len(set(own)) != len(own) or not all(0 <= code < names for code in own):
            raise ValueError(f"Anchor {at} should have different categories, each a place in `category_names`.")
    counts = np.array([len(own) for own in categories])
    codes = np.full((len(counts), counts.max()), -1, np.int64)
    codes[np.arange(counts.max()) < counts[:, None]] = [code for own in categories for code in own]
    return codes


def _check_places(region: Region, lat: Floats, lon: Floats, popularity: Floats) -> None:
    valid = np.isfinite(lat) & np.isfinite(lon) & (np.abs(lat) <= _RIGHT) & (np.abs(lon) <= _HALF_TURN)
    for good, what in (
        (valid, "should have a latitude from -90 to 90 and a longitude from -180 to 180 degrees"),
        (np.isfinite(popularity) & (popularity >= 0), "should have a popularity that is finite and at least 0"),
        (valid & inside(region, np.where(valid, lat, 0.0), np.where(valid, lon, 0.0)), f"should lie in region {region.name!r}"),
    ):
        if not good.all():
            raise ValueError(f"Anchor {np.argmin(good) + 1} {what}.")
