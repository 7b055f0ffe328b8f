"""Post-processing of published counts: how users lie inside a tile, judged by how full its neighbours are."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Smoothing"]

PIXELS_PER_SIDE = 4
"""Pixels along the side of a leaf, on average."""
REACH_PIXELS = 3
"""Half width of the window, about three quarters of a leaf's side."""
MAX_PIXELS = 1024
LEAST = 1e-6
"""Smallest density, as a part of the mean: it keeps a spread even where the window is empty."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Smoothing:
    """Weights that rise towards fuller neighbours; a function of published counts and public weights alone.

    One step of pycnophylactic interpolation (W. R. Tobler, "Smooth pycnophylactic interpolation for geographical regions", Journal of the
    American Statistical Association 74, 1979). Let d(q) = count / weight of the leaf that holds place q. Then place p gets the weight

        w(p) · Σ w(q) d(q) / Σ w(q),   q over the window around p,

    and spreading each leaf's count in proportion to these weights keeps every leaf's count. Places are put on a square picture whose lines
    lie at quantiles of the weight along each axis, so that leaves, which share the weight evenly, are about equally large on it wherever
    they are; the window is a square of 2 · `REACH_PIXELS` + 1 pixels.

    Parameters
    ----------
    xy : array_like with shape (p, 2)
        Places, in any unit; a lattice's cells for instance.
    weight : array_like of float with shape (p,)
        Public weights, finite and not negative.
    leaf : array_like of int with shape (p,)
        Leaf number of each place.
    leaves : int
        Number of leaves; some may hold no place.

    Raises
    ------
    ValueError
        If the arrays do not fit each other.
    """

    def __init__(self, xy: ArrayLike, weight: ArrayLike, leaf: ArrayLike, leaves: int) -> None:
        places, self.leaf, self.leaves = np.asarray(xy), np.asarray(leaf, np.int64), leaves
        self.weight: Floats = np.array(weight, np.float64)
        if places.shape != (len(self.weight), 2) or self.leaf.shape != self.weight.shape:
            raise ValueError("`xy`, `weight` and `leaf` should have the shapes (p, 2), (p,) and (p,).")
        if not (np.isfinite(self.weight).all() and (self.weight >= 0).all()):
            raise ValueError("`weight` should be finite and not negative.")
        if len(self.leaf) and not (self.leaf.min() >= 0 and self.leaf.max() < leaves):
            raise ValueError("`leaf` should hold numbers from 0 to `leaves` less 1.")
        self._leaf_weight = np.bincount(self.leaf, self.weight, minlength=leaves)
        sides = math.ceil(math.sqrt(max(np.count_nonzero(self._leaf_weight), 1)))
        self._side = min(PIXELS_PER_SIDE * sides, MAX_PIXELS)
        x, y = (_quantile(places[:, axis], self.weight) for axis in (0, 1))
        self._pixel = (x * self._side).astype(np.int64) * self._side + (y * self._side).astype(np.int64)
        self._window_weight = self._windows(self.weight)

    def weights(self, count: NDArray[Any]) -> Floats:
        """Return the weights for spreading counts.

        Parameters
        ----------
        count : ndarray with shape (leaves,)
            Published counts, finite and not negative.

        Returns
        -------
        ndarray of float64 with shape (p,)
            Zero where the public weight is zero; only their ratios inside a leaf matter.

        Raises
        ------
        ValueError
            If `count` is none of that.
        """
        value = np.asarray(count, np.float64)
        if value.shape != (self.leaves,) or not (np.isfinite(value).all() and (value >= 0).all()):
            raise ValueError("`count` should have a finite number of at least 0 for each leaf.")
        held = self._leaf_weight > 0
        density = np.divide(value, self._leaf_weight, out=np.zeros(self.leaves), where=held)
        total = float(value[held].sum())
        if total == 0:
            return self.weight
        crowd = self._windows(self.weight * density[self.leaf])
        around = np.divide(crowd, self._window_weight, out=np.zeros(len(crowd)), where=self._window_weight > 0)
        smooth: Floats = self.weight * np.maximum(around, LEAST * total / self._leaf_weight.sum())[self._pixel]
        return smooth

    def _windows(self, values: Floats) -> Floats:
        """Return the sum over the window around each pixel, shape (side²,)."""
        side = self._side
        picture: Floats = np.bincount(self._pixel, values, minlength=side * side).astype(np.float64).reshape(side, side)
        for _ in (0, 1):
            # Turned after each step: first the rows, then the columns.
            padded = np.pad(picture, ((REACH_PIXELS, REACH_PIXELS), (0, 0)))
            picture = np.asarray(sum(padded[shift : shift + side] for shift in range(2 * REACH_PIXELS + 1))).T
        return picture.ravel()


def _quantile(place: NDArray[Any], weight: Floats) -> Floats:
    """Return the part of the weight below each place, half of its own line included; from 0 to less than 1."""
    lines, line = np.unique(place, return_inverse=True)
    held = np.bincount(line, weight, minlength=len(lines))
    total = held.sum()
    below = (np.cumsum(held) - held / 2) / (total if total > 0 else 1.0)
    return np.asarray(np.clip(below, 0.0, np.nextafter(1.0, 0.0))[line])
