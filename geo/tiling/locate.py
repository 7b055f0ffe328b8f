"""Second step of a tiling: which box holds which point, for millions of points at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Locator"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Locator:
    """Boxes that tile a rectangle, cut into columns of equal neighbours, so that two binary searches find a point.

    The vertical edges of all boxes cut the rectangle into columns. In one column the boxes lie on each other without a gap; their upper
    edges, column by column, are one ascending array.

    Attributes
    ----------
    edges : ndarray of int64
        Right edges of all columns but the last.
    tops : ndarray of int64
        column · `stride` + upper edge, for each box in each column.
    boxes : ndarray of int32
        The box below each of `tops`.
    stride : int
        More than the height of the rectangle.
    width, height : int
        Of the rectangle, which begins at 0, 0.
    """

    edges: Ints
    tops: Ints
    boxes: NDArray[np.int32]
    stride: int
    width: int
    height: int

    @classmethod
    def of(cls, box: Ints, width: int, height: int) -> "Locator":
        """Index boxes.

        Parameters
        ----------
        box : ndarray of int64 with shape (n, 4)
            x0, y0, x1, y1; those with x0 == x1 and y0 == y1 hold nothing.
        width, height : int
            Of the rectangle.

        Raises
        ------
        ValueError
            If the boxes do not cover the rectangle, stick out of it, or overlap.
        """
        real = np.flatnonzero((box[:, :2] != box[:, 2:]).any(axis=1))
        x0, y0, x1, y1 = box[real].T
        lines = np.unique(np.concatenate([x0, x1, [0, width]]))
        first = np.searchsorted(lines, x0)
        spans = np.searchsorted(lines, x1) - first
        fault = ValueError("`box` should tile the rectangle: without a gap, an overlap, or a box that sticks out.")
        if (spans <= 0).any() or (y0 >= y1).any() or lines[0] != 0 or lines[-1] != width:
            raise fault
        item = np.repeat(np.arange(len(real)), spans)
        column = first[item] + np.arange(len(item)) - np.repeat(np.cumsum(spans) - spans, spans)
        order = np.lexsort((y0[item], column))
        item, column = item[order], column[order]
        opens = np.diff(column, prepend=-1) != 0
        below = np.where(opens, 0, np.roll(y1[item], 1))
        closes = np.roll(opens, -1)
        if opens.sum() != len(lines) - 1 or (y0[item] != below).any() or (y1[item][closes] != height).any():
            raise fault
        stride = height + 1
        return cls(lines[1:-1], column * stride + y1[item], real[item].astype(np.int32), stride, width, height)

    def find(self, x: Ints, y: Ints) -> Ints:
        """Return the box of each point.

        A box holds the points with x0 < x <= x1 and y0 < y <= y1, and those on the left or lower edge of the rectangle that it touches: a
        point on a shared edge belongs to the box on its left or below, where a tree of boxes has the lower node.

        Parameters
        ----------
        x, y : ndarray of int64 with shape (n,)

        Returns
        -------
        ndarray of int64 with shape (n,)
            Index into the boxes that the locator was made of; -1 outside the rectangle.
        """
        key = np.searchsorted(self.edges, x, side="left") * self.stride + y
        # In ascending order a binary search stays in the processor's cache: sorting takes less time than it saves.
        order = np.argsort(key)
        at = np.searchsorted(self.tops, key[order], side="left")
        out = np.empty(len(key), np.int64)
        out[order] = self.boxes[np.minimum(at, len(self.boxes) - 1)]
        out[(x < 0) | (x > self.width) | (y < 0) | (y > self.height)] = -1
        return out
