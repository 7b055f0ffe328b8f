"""What a random range asks of a tree: the public workload by which a privacy budget is divided over its levels."""

import numpy as np
from numpy.typing import NDArray

from geo.tree import Tree

__all__ = ["range_workload"]

PARTS = (1e-4, 1e-1)
"""Smallest and largest area of a range, as parts of the lattice."""
SIDES = 64
LEAST = 1e-12


def range_workload(tree: Tree, box: NDArray[np.int64], shape: tuple[int, int]) -> list[float]:
    """Return how many nodes of each level answer a random range, from the public boxes alone.

    A range is a square whose area is log-uniform in `PARTS` of the lattice and whose place is uniform inside it; on an axis shorter than
    its side it covers the whole lattice. It uses the inner nodes that it contains and whose parent it does not contain, and the leaves
    that it meets and whose parent it does not contain. On an axis of length X, a range of side s that begins at t, uniform from 0 to
    X - s, contains [a, b] if b - s <= t <= a, and meets it if a - s < t < b; both axes are independent. The root is never used: measuring
    it costs the other levels more than it gives.

    The deepest level always is: no range contains the root, since the largest is a third of the longer side, so some range meets a leaf
    whose parent it does not contain. A tree of one tile and "elsewhere" has the workload [0, 1].

    Parameters
    ----------
    tree : Tree
    box : ndarray of int64 with shape (n, 4)
        x0, y0, x1, y1 of each node, the root's the whole lattice; boxes without area count nothing.
    shape : tuple of int
        Sides of the lattice.

    Returns
    -------
    list of float
        For each level, root first; 0 for the root.
    """
    side = np.sqrt(np.geomspace(*PARTS, SIDES) * float(np.prod(shape)))[:, None]
    contained, met = np.ones((SIDES, len(tree))), np.ones((SIDES, len(tree)))
    for axis, length in enumerate(shape):
        low, high, room = box[:, axis], box[:, axis + 2], np.maximum(length - side, LEAST)
        covered = side >= length
        contained *= np.where(covered, 1.0, np.maximum(np.minimum(low, room) - np.maximum(high - side, 0), 0) / room)
        met *= np.where(covered, 1.0, np.maximum(np.minimum(high, room) - np.maximum(low - side, 0), 0) / room)
    inside = contained.mean(axis=0)
    used = np.where(tree.children == 0, met.mean(axis=0), inside)
    used[1:] -= inside[tree.parent[1:]]
    used[(box[:, 0] == box[:, 2]) | (tree.level == 0)] = 0.0
    return [float(used[part].sum()) for part in tree.levels]
