"""The optimal remap: a noisy point moves to where the true one is expected, given a public prior."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geo.anchors.index import into_region, plane_xy_m
from geo.anchors.search import PlaneSearch
from geo.plane import Plane

__all__ = ["Remap"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 512
_STEPS = 100
_STILL_M = 0.1
_TOUCHING_M = 0.001
"""Distances below it count as it, so that Weiszfeld's weights stay finite at a place of the prior."""


class Remap:
    """Move noisy points to the place of least expected loss.

    Guarantee
        That of the noisy point: this is post-processing, and costs nothing, if and only if the prior is public or already private (for
        instance the density that was released yesterday). With a prior made of raw positions it would reveal them.
    Formula
        z' = argmin over y of the sum over x with d(x, z) <= reach_m of prior(x) · exp(-epsilon_per_m · d(x, z)) · loss(x, y), for
        loss = d² (`mean`: the posterior mean) and loss = d (`median`: the geometric median, by Weiszfeld's iteration); d is the
        distance on the plane, which differs from the ground's by the plane's scale. The same is what an attacker with this prior
        guesses, so its expected loss is also the privacy that is left against him.
    Source
        Chatzikokolakis, ElSalamouny, Palamidessi, "Efficient utility improvement for location privacy" (PoPETs 2017(4)).

    Parameters
    ----------
    plane : Plane
    lat, lon : array_like of float with shape (m,)
        Places of the prior in degrees inside the region: anchors, or the middles of cells.
    prior : array_like of float with shape (m,)
        Weight of each place, finite, at least 0 and not all 0; need not add up to 1.

    Raises
    ------
    ValueError
        If an argument has another shape or is outside its range.
    """

    def __init__(self, plane: Plane, lat: ArrayLike, lon: ArrayLike, prior: ArrayLike) -> None:
        columns = [np.asarray(column, np.float64) for column in (lat, lon, prior)]
        if columns[0].ndim != 1 or any(column.shape != columns[0].shape for column in columns):
            raise ValueError("`lat`, `lon` and `prior` should be of one shape (m,).")
        if not all(np.isfinite(column).all() for column in columns):
            raise ValueError("`lat`, `lon` and `prior` should be finite.")
        if (columns[2] < 0).any() or not (columns[2] > 0).any():
            raise ValueError("`prior` should be at least 0 everywhere and more than 0 somewhere.")
        likely = columns[2] > 0
        self.plane = plane
        self._xy = plane_xy_m(plane, columns[0][likely], columns[1][likely])
        self._prior = columns[2][likely]
        self._search = PlaneSearch(self._xy)

    def mean(self, lat: ArrayLike, lon: ArrayLike, epsilon_per_m: float, reach_m: float) -> Floats:
        """Return the posterior means of noisy points.

        Parameters
        ----------
        lat, lon : array_like of float with shape (n,)
            Noisy points in degrees.
        epsilon_per_m : float
            Privacy parameter of the noise in 1/m, more than 0.
        reach_m : float
            Places farther away do not count, metres: the 99 % radius of the noise.

        Returns
        -------
        ndarray of float64 with shape (n, 2)
            Latitude and longitude in degrees. A point without a place of the prior in its reach stays where it is.
        """
        return self._remap(lat, lon, epsilon_per_m, reach_m, median=False)

    def median(self, lat: ArrayLike, lon: ArrayLike, epsilon_per_m: float, reach_m: float) -> Floats:
        """Return the posterior geometric medians of noisy points; arguments and result are those of `mean`."""
        return self._remap(lat, lon, epsilon_per_m, reach_m, median=True)

    def _remap(self, lat: ArrayLike, lon: ArrayLike, epsilon_per_m: float, reach_m: float, median: bool) -> Floats:
        out = plane_xy_m(self.plane, *into_region(self.plane.region, np.asarray(lat, np.float64), np.asarray(lon, np.float64)))
        for rows, start, place, weight in self._posteriors(out, epsilon_per_m, reach_m):
            xy = self._xy[place]
            out[rows] = _middle(xy, weight, start)
            if median:
                out[rows] = _median(xy, weight, start, out[rows])
        return self.plane.to_degrees(np.rint(out * 1000.0).astype(np.int64))

    def _posteriors(self, xy: Floats, epsilon_per_m: float, reach_m: float) -> Iterator[tuple[Ints, Ints, Ints, Floats]]:
        """Yield, a block at a time, the rows that have a place in reach, where each begins, the places and their weights."""
        for begin in range(0, len(xy), _BLOCK):
            block = xy[begin : begin + _BLOCK]
            row, place, distance = self._search.within(block, np.full(len(block), float(reach_m)))
            if not len(row):
                continue
            order = np.lexsort((place, row))
            row, place, distance = row[order], place[order], distance[order]
            start = np.flatnonzero(np.diff(row, prepend=-1))
            log = np.log(self._prior[place]) - epsilon_per_m * distance
            top = np.repeat(np.maximum.reduceat(log, start), np.diff(start, append=len(row)))
            yield begin + row[start], start, place, np.exp(log - top)


def _middle(xy: Floats, weight: Floats, start: Ints) -> Floats:
    """Return the weighted means of groups that begin at `start`."""
    return np.asarray(np.add.reduceat(xy * weight[:, None], start) / np.add.reduceat(weight, start)[:, None])


def _median(xy: Floats, weight: Floats, start: Ints, guess: Floats) -> Floats:
    """Return the weighted geometric medians of groups (Weiszfeld, Tohoku Math. J. 1937)."""
    count = np.diff(start, append=len(xy))
    for _ in range(_STEPS):
        apart = xy - np.repeat(guess, count, axis=0)
        distance = np.maximum(np.sqrt(apart[:, 0] ** 2 + apart[:, 1] ** 2), _TOUCHING_M)
        better = _middle(xy, weight / distance, start)
        moved = float(np.abs(better - guess).max())
        guess = better
        if moved < _STILL_M:
            break
    return guess
