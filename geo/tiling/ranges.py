"""Range answers: how much of each tile's road mass lies inside a polygon."""

from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from rtree.index import Index

from geo.tiling.shapes import check_polygon, on_plane
from geo.tiling.tiling import Tiling

__all__ = ["Ranges", "share_of_boxes"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Ranges:
    """Answers for one tiling; makes an R-tree of its tiles once.

    Parameters
    ----------
    tiling : Tiling
    """

    def __init__(self, tiling: Tiling) -> None:
        self.tiling = tiling
        self._corners = tiling.lattice.corners_m(tiling.box[tiling.tree.leaves])
        numbers = np.delete(np.arange(len(self._corners)), tiling.elsewhere)
        self._index = Index((int(leaf), tuple(self._corners[leaf].tolist()), None) for leaf in numbers)

    def coverage(self, polygon: Any) -> tuple[Ints, Floats]:
        """Return the share of each leaf's road mass that lies inside a polygon.

        A lattice cell counts by the share of its area that is inside. A leaf without road cells counts by the share of its own area.
        "Elsewhere" has no place and is never counted, also where the polygon reaches beyond the region. If leaf k holds ``count[k]``
        users, ``(fraction * count[leaf]).sum()`` is the estimate for the polygon.

        Parameters
        ----------
        polygon : shapely.Polygon or shapely.MultiPolygon
            In metres of the plane (`geo.tiling.shapes.on_plane`).

        Returns
        -------
        leaf : ndarray of int64 with shape (k,)
            Leaf numbers, ascending: those with a share above zero.
        fraction : ndarray of float64 with shape (k,)
            In (0, 1].

        Raises
        ------
        ValueError
            If `check_polygon` refuses it.
        """
        check_polygon(polygon)
        shapely.prepare(polygon)
        leaf = np.array(sorted(self._index.intersection(polygon.bounds)), np.int64)
        share = share_of_boxes(polygon, self._corners[leaf])
        # Where a tile is cut, its roads decide.
        tiling = self.tiling
        for at in np.flatnonzero((share > 0) & (share < 1)):
            cells = slice(tiling.cell_start[leaf[at]], tiling.cell_start[leaf[at] + 1])
            weight = tiling.cell_weight[cells]
            if len(weight):
                xy = tiling.cell_xy[cells]
                inside = share_of_boxes(polygon, tiling.lattice.corners_m(np.concatenate([xy, xy + 1], axis=1)))
                share[at] = min(1.0, float((inside * weight).sum() / weight.sum()))
        kept = share > 0
        return leaf[kept], share[kept]

    def coverage_of_degrees(self, polygon: Any) -> tuple[Ints, Floats]:
        """Return the same for a polygon in degrees; nothing where it misses the region.

        Parameters
        ----------
        polygon : shapely.Polygon or shapely.MultiPolygon
            x = longitude, y = latitude, as for `geo.tiling.shapes.on_plane`.

        Returns
        -------
        leaf : ndarray of int64 with shape (k,)
        fraction : ndarray of float64 with shape (k,)

        Raises
        ------
        ValueError
            If `on_plane` refuses it.
        """
        shape = on_plane(self.tiling.plane, polygon)
        return (np.zeros(0, np.int64), np.zeros(0)) if shape.is_empty else self.coverage(shape)


def share_of_boxes(polygon: Any, corners: Floats) -> Floats:
    """Return the share of each box's area that lies inside a polygon.

    Parameters
    ----------
    polygon : shapely.Polygon or shapely.MultiPolygon
        Valid.
    corners : ndarray of float64 with shape (n, 4)
        x0, y0, x1, y1.

    Returns
    -------
    ndarray of float64 with shape (n,)
        From 0 to 1.
    """
    boxes = shapely.box(*corners.T)
    share: Floats = shapely.contains(polygon, boxes).astype(np.float64)
    cut = np.flatnonzero(shapely.intersects(polygon, boxes) & (share == 0))
    share[cut] = np.minimum(shapely.area(shapely.intersection(polygon, boxes[cut])) / shapely.area(boxes[cut]), 1.0)
    return share
