"""The shape of a counting tree: nodes in breadth-first order, and sums of leaf values up to the root."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tree"]


class Tree:
    """A rooted tree whose nodes are numbered breadth-first, so that levels and siblings lie together.

    Parameters
    ----------
    parent : ndarray of int64 with shape (n,)
        ``parent[0] == -1``; ``parent[i] < i`` and never descending, for all others.

    Attributes
    ----------
    parent : ndarray of int64 with shape (n,)
    level : ndarray of int64 with shape (n,)
        Distance from the root.
    levels : list of slice
        The nodes of each level, root first.
    children : ndarray of int64 with shape (n,)
        Number of children.
    leaves : ndarray of int64
        The nodes without children, ascending. Leaf number k is node ``leaves[k]``.

    Raises
    ------
    ValueError
        If `parent` is not such a tree.
    """

    def __init__(self, parent: NDArray[np.int64]) -> None:
        parent = np.asarray(parent, np.int64)
        if parent.ndim != 1 or not len(parent) or parent[0] != -1 or (parent[1:] < 0).any():
            raise ValueError("`parent` should hold -1 for node 0 and a node for every other one.")
        if (parent[1:] >= np.arange(1, len(parent))).any() or (np.diff(parent) < 0).any():
            raise ValueError("`parent` should be numbered breadth-first: each parent before its children, siblings together.")
        self.parent = parent
        self.parent.flags.writeable = False
        self.children = np.bincount(parent[1:], minlength=len(parent))
        self.leaves = np.flatnonzero(self.children == 0)
        self.levels = self._levels()
        self.level = np.repeat(np.arange(len(self.levels)), [part.stop - part.start for part in self.levels])

    def _levels(self) -> list[slice]:
        ends = [1]
        while ends[-1] < len(self.parent):
            # The next level ends before the first node whose parent is not in this one.
            ends.append(int(np.searchsorted(self.parent, ends[-1])))
        return [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def first_child(self) -> NDArray[np.int64]:
        """The first child of each node; of a leaf, where it would be."""
        return 1 + np.cumsum(self.children) - self.children

    def sums(self, leaf_values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, for each node, the sum over the leaves below it.

        Parameters
        ----------
        leaf_values : ndarray of int64 with shape (leaves,)

        Returns
        -------
        ndarray of int64 with shape (n,)
        """
        values = np.zeros(len(self), np.int64)
        values[self.leaves] = leaf_values
        for part in reversed(self.levels[1:]):
            np.add.at(values, self.parent[part], values[part])
        return values
