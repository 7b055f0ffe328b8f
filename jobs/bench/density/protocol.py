"""The measure of the density bench: random rectangles, their true answers, relative errors, and means with confidence intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

import numpy as np
from numpy.typing import NDArray

__all__ = ["CONFIDENCE", "SIZE_CLASSES", "Mean", "SummedArea", "draw_rectangles", "mean_of", "relative_errors"]

SIZE_CLASSES = {"small": (1e-4, 1e-3), "medium": (1e-3, 1e-2), "large": (1e-2, 1e-1)}
"""Part of the lattice's area that a rectangle of each class covers: from, to (excluded)."""
ASPECT = 4.0
"""Largest ratio of a rectangle's sides before rounding."""
SANITY = 0.001
"""Smallest divisor of an error, as a part of all users."""
CONFIDENCE = 0.95

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Mean:
    """A mean over runs.

    Parameters
    ----------
    mean
        The mean.
    half_width
        Half the width of its confidence interval, normal approximation.
    """

    mean: float
    half_width: float


class SummedArea:
    """Sums of a lattice's values over rectangles, by a summed-area table (Crow, SIGGRAPH 1984).

    Parameters
    ----------
    values : ndarray with shape (nx, ny)
    """

    def __init__(self, values: NDArray[np.int64] | Floats) -> None:
        self._sums = np.zeros((values.shape[0] + 1, values.shape[1] + 1))
        self._sums[1:, 1:] = values.cumsum(axis=0).cumsum(axis=1)

    def over(self, rectangles: Integers) -> Floats:
        """Return the sum over each rectangle.

        Parameters
        ----------
        rectangles : ndarray of int64 with shape (n, 4)
            x0, y0, x1, y1: the cells (x, y) with x0 <= x < x1 and y0 <= y < y1.

        Returns
        -------
        ndarray of float64 with shape (n,)
        """
        x0, y0, x1, y1 = rectangles.T
        return np.asarray(self._sums[x1, y1] - self._sums[x0, y1] - self._sums[x1, y0] + self._sums[x0, y0])

    def blocks(self, x_edges: Integers, y_edges: Integers) -> Floats:
        """Return the sums over the blocks between lines.

        Parameters
        ----------
        x_edges : ndarray of int64 with shape (a + 1,)
            Ascending.
        y_edges : ndarray of int64 with shape (b + 1,)
            Ascending.

        Returns
        -------
        ndarray of float64 with shape (a, b)
        """
        return np.diff(np.diff(self._sums[np.ix_(x_edges, y_edges)], axis=0), axis=1)


def draw_rectangles(rng: np.random.Generator, shape: tuple[int, int], parts: tuple[float, float], count: int) -> Integers:
    """Draw random rectangles of lattice cells.

    Area and ratio of sides are log-uniform, so that no scale is preferred; sides are rounded to cells and drawn again if the area
    leaves its class or a side the lattice; the place is uniform among those inside.

    Parameters
    ----------
    rng : Generator
    shape : tuple of int
        nx, ny.
    parts : tuple of float
        Smallest and largest (excluded) part of the lattice's area.
    count : int
        Number of rectangles, at least 1.

    Returns
    -------
    ndarray of int64 with shape (count, 4)
        x0, y0, x1, y1, as for `SummedArea.over`.
    """
    size = np.array(shape)
    kept = np.empty((0, 2), np.int64)
    while len(kept) < count:
        area = np.exp(rng.uniform(math.log(parts[0]), math.log(parts[1]), count)) * size.prod()
        ratio = np.exp(rng.uniform(-math.log(ASPECT), math.log(ASPECT), count))
        sides = np.rint(np.sqrt(area[:, None] * np.stack([ratio, 1 / ratio], axis=1))).astype(np.int64)
        part = sides.prod(axis=1) / size.prod()
        fits = (sides >= 1).all(axis=1) & (sides <= size).all(axis=1) & (part >= parts[0]) & (part < parts[1])
        kept = np.concatenate([kept, sides[fits]])
    kept = kept[:count]
    corner = rng.integers(0, size - kept + 1)
    return np.concatenate([corner, corner + kept], axis=1)


def relative_errors(answers: Floats, truth: Floats, users: int) -> Floats:
    """Return |answer - truth| / max(truth, 0.001 · users) (Qardaji, Yang, Li, ICDE 2013).

    Parameters
    ----------
    answers, truth : ndarray of float64 with shape (n,)
    users : int
        Number of users in the snapshot.

    Returns
    -------
    ndarray of float64 with shape (n,)
    """
    return np.asarray(np.abs(answers - truth) / np.maximum(truth, SANITY * users))


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean of independent runs.

    Parameters
    ----------
    values
        One value for each run; a single run has an infinite interval.
    """
    if len(values) == 1:
        return Mean(values[0], math.inf)
    half_width = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * stdev(values) / math.sqrt(len(values))
    return Mean(fmean(values), half_width)
