"""Which of many fixed points of a plane lie near a batch of others: a k-d tree that is walked level by level, a batch at a time.

Why not a library: with 100,000 anchors, one core and one query a point, shapely's `STRtree.query_nearest` reached 90,000 points a second
and `rtree.nearest_v` 40,000, both below the 300,000 that snapping promises; a uniform grid degenerates where places cluster.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["PlaneSearch"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAF = 16


class PlaneSearch:
    """Points of a plane, split in halves along x and y by turns (Bentley, CACM 1975) until a leaf has at most 16.

    Parameters
    ----------
    xy : ndarray of float64 with shape (m, 2)
        Finite, at least one point.
    """

    def __init__(self, xy: Floats) -> None:
        count = len(xy)
        order, start = np.arange(count), np.array([0, count])
        self._splits: list[Floats] = []
        self._starts: list[Ints] = [start]
        while count > _LEAF << len(self._splits):
            axis = len(self._splits) % 2
            node = np.repeat(np.arange(len(start) - 1), np.diff(start))
            order = order[np.lexsort((xy[order, axis], node))]
            middle = (start[:-1] + start[1:]) // 2
            self._splits.append(xy[order[middle], axis])
            start = np.concatenate([np.stack([start[:-1], middle], axis=1).ravel(), [count]])
            self._starts.append(start)
        self._order = order
        self._xy = np.ascontiguousarray(xy[order].T)

    def __len__(self) -> int:
        return len(self._order)

    def kth_distance(self, xy: Floats, k: int) -> Floats:
        """Bound the distance to the k-th nearest point.

        Parameters
        ----------
        xy : ndarray of float64 with shape (n, 2)
        k : int
            At least 1.

        Returns
        -------
        ndarray of float64 with shape (n,)
            An upper bound, reached by k points: the k-th distance in the smallest node around the point that has k. Infinite if there
            are fewer than k.
        """
        if k > len(self):
            return np.full(len(xy), np.inf)
        level = max(level for level, start in enumerate(self._starts) if np.diff(start).min() >= k)
        node = np.zeros(len(xy), np.int64)
        for depth in range(level):
            node = 2 * node + (xy[:, depth % 2] >= self._splits[depth].take(node))
        squared = self._squared(level, node, xy[:, 0], xy[:, 1])[1]
        nearest = squared.min(axis=0) if k == 1 else np.partition(squared, k - 1, axis=0)[k - 1]
        return np.asarray(np.sqrt(nearest))

    def within(self, xy: Floats, reach: Floats) -> tuple[Ints, Ints, Floats]:
        """Find all points within a reach of each.

        Parameters
        ----------
        xy : ndarray of float64 with shape (n, 2)
        reach : ndarray of float64 with shape (n,)
            At least 0; the edge counts.

        Returns
        -------
        row, point : ndarray of int64 with shape (p,)
            Pairs in no particular order.
        distance : ndarray of float64 with shape (p,)
        """
        row, node = np.arange(len(xy)), np.zeros(len(xy), np.int64)
        columns = np.ascontiguousarray(xy.T)
        for depth, split in enumerate(self._splits):
            beyond = columns[depth % 2].take(row) - split.take(node)
            far = reach.take(row)
            left, right = np.flatnonzero(beyond <= far), np.flatnonzero(beyond >= -far)
            node *= 2
            row, node = np.concatenate([row.take(left), row.take(right)]), np.concatenate([node.take(left), node.take(right) + 1])
        at, squared = self._squared(len(self._splits), node, columns[0].take(row), columns[1].take(row))
        found = np.flatnonzero(squared <= reach.take(row) ** 2)
        return row.take(found % max(len(row), 1)), self._order.take(at.take(found)), np.sqrt(squared.take(found))

    def _squared(self, level: int, node: Ints, x: Floats, y: Floats) -> tuple[Ints, Floats]:
        """Return places in the order and squared distances, shape (largest node, n); infinite beyond a node's end."""
        start = self._starts[level]
        at = start.take(node) + np.arange(np.diff(start).max())[:, None]
        beyond = at >= start.take(node + 1)
        np.minimum(at, len(self) - 1, out=at)
        squared = (self._xy[0].take(at) - x) ** 2 + (self._xy[1].take(at) - y) ** 2
        squared[beyond] = np.inf
        return at, squared
