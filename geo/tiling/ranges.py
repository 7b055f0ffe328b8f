"""Range answers: how much of what each tile holds lies inside a polygon."""

from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from rtree.index import Index

from geo.tiling.shapes import check_polygon, on_plane, overlap, region_on_plane, share_of_boxes
from geo.tiling.smoothing import Smoothing
from geo.tiling.tiling import Tiling

__all__ = ["Ranges"]

BLOCKS_PER_SIDE = 2
"""Blocks along each side of a tile, in which the off-road weight is even."""
BLOCKS_WITHOUT_ROADS = 4
"""The same where there are no roads: as fine as the smoothing."""
WHOLE = 1 - 1e-9
"""Shares above this are 1: sums of areas are rounded."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Ranges:
    """Answers for one tiling; indexes its tiles once.

    What a tile holds is taken to lie in pieces: its road cells, by their metres, and blocks of its area inside the region, by the share
    `Tiling.off_road` of all weight. Inside a piece it lies evenly.

    Parameters
    ----------
    tiling : Tiling
    """

    def __init__(self, tiling: Tiling) -> None:
        self.tiling = tiling
        self._corners = tiling.lattice.corners_m(tiling.box[tiling.tree.leaves])
        numbers = np.delete(np.arange(len(self._corners)), tiling.elsewhere)
        self._index = Index((int(leaf), tuple(self._corners[leaf].tolist()), None) for leaf in numbers)
        self._region = region_on_plane(tiling.plane)
        shapely.prepare(self._region)
        self._pieces, leaf, weight, self._part_in_region = _pieces(tiling, self._corners, self._region)
        self._piece_start = np.searchsorted(leaf, np.arange(len(self._corners) + 1))
        self._smoothing = Smoothing((self._pieces[:, :2] + self._pieces[:, 2:]) / 2, weight, leaf, len(self._corners))
        self._smoothed: tuple[bytes, Floats] = (b"", weight)

    def coverage(self, polygon: Any, count: NDArray[Any] | None = None) -> tuple[Ints, Floats]:
        """Return the share of what each leaf holds that lies inside a polygon.

        "Elsewhere" has no place and is never counted, nor is anything outside the region. If leaf k holds ``count[k]`` users,
        ``(fraction * count[leaf]).sum()`` is the estimate for the polygon. The fractions of polygons that partition the region sum to 1
        for each leaf, with and without `count`.

        Parameters
        ----------
        polygon : shapely.Polygon or shapely.MultiPolygon
            In metres of the plane (`geo.tiling.shapes.on_plane`).
        count : ndarray with shape (leaves,), optional
            Published counts of the leaves, not negative. With them, users inside a tile are taken to lie more towards fuller neighbours
            (`geo.tiling.smoothing`): post-processing, which costs nothing. The last counts are remembered, so ask for all ranges of a
            record together.

        Returns
        -------
        leaf : ndarray of int64 with shape (k,)
            Leaf numbers, ascending: those with a share above zero.
        fraction : ndarray of float64 with shape (k,)
            In (0, 1].

        Raises
        ------
        ValueError
            If `check_polygon` refuses it, or `count` is none of that.
        """
        check_polygon(polygon)
        shape, weight = overlap(polygon, self._region), self._weights(count)
        if shape.is_empty:
            return np.zeros(0, np.int64), np.zeros(0)
        shapely.prepare(shape)
        leaf = np.array(sorted(self._index.intersection(shape.bounds)), np.int64)
        boxes = shapely.box(*self._corners[leaf].T)
        share: Floats = shapely.contains(shape, boxes).astype(np.float64)
        cut = np.flatnonzero(shapely.intersects(shape, boxes) & (share == 0))
        # Where a tile is cut, its pieces decide.
        first, last = self._piece_start[leaf[cut]], self._piece_start[leaf[cut] + 1]
        of = np.repeat(np.arange(len(cut)), last - first)
        piece = np.arange(len(of)) + np.repeat(first - (np.cumsum(last - first) - (last - first)), last - first)
        near = shapely.intersection(shape, boxes[cut])[of]
        inside = np.minimum(share_of_boxes(shape, self._pieces[piece], near) / self._part_in_region[piece], 1.0)
        held = np.bincount(of, weight[piece], minlength=len(cut))
        part = np.bincount(of, weight[piece] * inside, minlength=len(cut)) / np.where(held > 0, held, 1.0)
        share[cut] = np.where(part > WHOLE, 1.0, part)
        kept = share > 0
        return leaf[kept], share[kept]

    def coverage_of_degrees(self, polygon: Any, count: NDArray[Any] | None = None) -> tuple[Ints, Floats]:
        """Return the same for a polygon in degrees; nothing where it misses the region.

        Parameters
        ----------
        polygon : shapely.Polygon or shapely.MultiPolygon
            x = longitude, y = latitude, as for `geo.tiling.shapes.on_plane`.
        count : ndarray with shape (leaves,), optional
            As for `coverage`.

        Returns
        -------
        leaf : ndarray of int64 with shape (k,)
        fraction : ndarray of float64 with shape (k,)

        Raises
        ------
        ValueError
            If `on_plane` or `coverage` refuses an argument.
        """
        shape = on_plane(self.tiling.plane, polygon)
        return (np.zeros(0, np.int64), np.zeros(0)) if shape.is_empty else self.coverage(shape, count)

    def _weights(self, count: NDArray[Any] | None) -> Floats:
        if count is None:
            return self._smoothing.weight
        key = np.asarray(count, np.float64).tobytes()
        known, weight = self._smoothed
        if known != key:
            weight = self._smoothing.weights(count)
            self._smoothed = key, weight
        return weight


def _pieces(tiling: Tiling, leaf_corners: Floats, region: Any) -> tuple[Floats, Ints, Floats, Floats]:
    """Return corners, leaf, weight, and the part inside the region, of the pieces with any weight, leaf by leaf."""
    real = np.delete(np.arange(len(leaf_corners)), tiling.elsewhere)
    per_side = BLOCKS_PER_SIDE if len(tiling.cell_weight) else BLOCKS_WITHOUT_ROADS
    low, step = leaf_corners[real, None, :2], (leaf_corners[real, None, 2:] - leaf_corners[real, None, :2]) / per_side
    place = np.stack(np.divmod(np.arange(per_side**2), per_side), axis=1)
    blocks = np.concatenate([low + step * place, low + step * (place + 1)], axis=2).reshape(-1, 4)
    cells = tiling.lattice.corners_m(np.concatenate([tiling.cell_xy, tiling.cell_xy + 1], axis=1))
    corners = np.concatenate([cells, blocks])
    leaf = np.concatenate([tiling.cell_leaf, np.repeat(real, per_side**2)])
    part = np.ones(len(leaf))
    at_edge = ~shapely.contains(region, shapely.box(*leaf_corners.T))
    part[at_edge[leaf]] = share_of_boxes(region, corners[at_edge[leaf]])
    area = np.prod(blocks[:, 2:] - blocks[:, :2], axis=1) * part[len(cells) :]
    road = float(tiling.cell_weight.sum())
    even = tiling.off_road / (1 - tiling.off_road) * road if road else 1.0
    weight = np.concatenate([tiling.cell_weight * (part[: len(cells)] > 0), area * (even / area.sum())])
    kept = np.flatnonzero(weight > 0)
    kept = kept[np.argsort(leaf[kept], kind="stable")]
    return corners[kept], leaf[kept], weight[kept], part[kept]
