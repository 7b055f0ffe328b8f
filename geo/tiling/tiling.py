"""The tiling: public tiles of a region, the tree above them, and the road cells inside them."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geo.plane import Plane
from geo.tiling.lattice import Lattice
from geo.tiling.locate import Locator
from geo.tiling.pack import pack
from geo.tiling.rasterise import spread_around
from geo.tree import Tree

__all__ = ["OFF_ROAD", "REACH_CELLS", "Tiling", "tile"]

OFF_ROAD = 0.05
"""Share of all weight that lies evenly on the region: roads that the map lacks, yards, car parks."""
REACH_CELLS = 1
"""How far roads are spread, for positions that are not exact."""

UNIFORM_LINES = 512
"""Lines along the longer side of the coarse lattice that stands for a uniform spread."""
VERSION_DIGITS = 16

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tiling:
    """Disjoint tiles that cover a region, as the leaves of a tree, and the leaf "elsewhere" for all that lies outside.

    Everything in it is public: it is made from roads, places and settings, never from anybody's positions. Leaf number k is node
    ``tree.leaves[k]``. Use `tile` to make one.

    Parameters
    ----------
    plane : Plane
        Of the region; the lattice of cells begins at the lower left corner of its bounds.
    cell_m : int
        Side of a lattice cell in metres.
    tree : Tree
        The last child of the root is "elsewhere"; it has no children.
    box : ndarray of int64 with shape (n, 4)
        x0, y0, x1, y1 of each node in cells, half open; 0, 0, 0, 0 for "elsewhere".
    cell_xy : ndarray of int64 with shape (m, 2)
        The cells that hold roads, or lie beside them, leaf by leaf, within a leaf by (x, y).
    cell_weight : ndarray of float64 with shape (m,)
        Metres of road in each, above zero.
    cell_start : ndarray of int64 with shape (leaves + 1,)
        The cells of leaf number k are those from ``cell_start[k]`` to ``cell_start[k + 1]``.
    off_road : float
        Share of all weight that lies evenly on the region, whatever the roads: from 0 to less than 1, or 1 if there are none.

    Raises
    ------
    ValueError
        If the boxes do not tile the lattice, children do not tile their parent, a cell is not in its leaf, or a number is out of range.
    """

    plane: Plane
    cell_m: int
    tree: Tree
    box: Ints
    cell_xy: Ints
    cell_weight: Floats
    cell_start: Ints
    off_road: float

    def __post_init__(self) -> None:
        """Check the parts against each other, and lock the arrays."""
        tree, leaves = self.tree, len(self.tree.leaves)
        counts = (self.box.shape, self.cell_xy.shape, self.cell_weight.shape, self.cell_start.shape)
        m = len(self.cell_weight)
        if counts != ((len(tree), 4), (m, 2), (m,), (leaves + 1,)) or leaves < 2:  # noqa: PLR2004
            raise ValueError("The arrays of a tiling should have the shapes that its tree asks for.")
        if (self.box[tree.leaves[self.elsewhere]] != 0).any() or tree.children[tree.children[0]] != 0:
            raise ValueError("The last child of the root should be the leaf `elsewhere`, with an empty box.")
        self._check_boxes()
        if self.cell_start[0] != 0 or self.cell_start[-1] != m or (np.diff(self.cell_start) < 0).any():
            raise ValueError("`cell_start` should ascend from 0 to the number of cells.")
        if not (np.isfinite(self.cell_weight).all() and (self.cell_weight > 0).all()):
            raise ValueError("`cell_weight` should be finite and above zero.")
        if not (0 <= self.off_road < 1 if m else self.off_road == 1):
            raise ValueError("`off_road` should be from 0 to less than 1, and 1 for a tiling without roads.")
        if (self.leaf_of_cells(self.cell_xy) != self.cell_leaf).any():
            raise ValueError("Every road cell should lie in the box of its leaf.")
        for array in (self.box, self.cell_xy, self.cell_weight, self.cell_start):
            array.flags.writeable = False

    def __reduce__(self) -> tuple[Callable[..., "Tiling"], tuple[Any, ...]]:
        """Pickle without what is derived."""
        arrays = (self.box, self.cell_xy, self.cell_weight, self.cell_start)
        return _rebuilt, (self.plane, self.cell_m, self.tree.parent, *arrays, self.off_road)

    @cached_property
    def lattice(self) -> Lattice:
        """The cells under the tiles."""
        return Lattice(self.plane, self.cell_m)

    @cached_property
    def elsewhere(self) -> int:
        """Leaf number of all that lies outside."""
        return int(np.searchsorted(self.tree.leaves, self.tree.children[0]))

    @cached_property
    def cell_leaf(self) -> Ints:
        """Leaf number of each road cell, shape (m,)."""
        return np.repeat(np.arange(len(self.tree.leaves)), np.diff(self.cell_start))

    @cached_property
    def leaf_weight(self) -> Floats:
        """Metres of road in each leaf, shape (leaves,)."""
        weight: Floats = np.bincount(self.cell_leaf, self.cell_weight, minlength=len(self.tree.leaves)).astype(np.float64)
        return weight

    @property
    def version(self) -> str:
        """First 16 hexadecimal digits of `digest`."""
        return self.digest[:VERSION_DIGITS]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all content, in hexadecimal digits: region, cell size, tree, boxes, and all weights."""
        head = {
            "region": [self.plane.region.name, *self.plane.region.bounds],
            "cell_m": int(self.cell_m),
            "off_road": float(self.off_road),
            "nodes": len(self.tree),
            "cells": len(self.cell_weight),
        }
        digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
        for array, kind in ((self.tree.parent, "<i8"), (self.box, "<i8"), (self.cell_start, "<i8"), (self.cell_xy, "<i8")):
            digest.update(np.ascontiguousarray(array, kind).tobytes())
        digest.update(np.ascontiguousarray(self.cell_weight, "<f8").tobytes())
        return digest.hexdigest()

    def leaf_of(self, xy_mm: Ints) -> Ints:
        """Find the leaf of points of the plane.

        Every point has exactly one leaf. Ties go to the lowest id, from the root down: among the children whose closed boxes hold the
        point, the first; that is, a point on a shared edge belongs to the tile west or south of it, and the outer edge of the lattice
        belongs to the tiles that touch it.

        Parameters
        ----------
        xy_mm : ndarray of int64 with shape (n, 2)
            As `Plane.to_mm` gives them. It clips what lies outside the region to the region's edge: use `leaf_of_degrees` to count such
            positions as "elsewhere".

        Returns
        -------
        ndarray of int64 with shape (n,)
            Leaf numbers; outside the lattice that of "elsewhere".
        """
        x0, y0 = self.lattice.origin_mm
        leaf = self._locator.find(xy_mm[:, 0] - x0, xy_mm[:, 1] - y0)
        leaf[leaf < 0] = self.elsewhere
        return leaf

    def leaf_of_degrees(self, lat_e7: NDArray[np.integer[Any]], lon_e7: NDArray[np.integer[Any]]) -> Ints:
        """Find the leaf of positions; those outside the region are "elsewhere".

        Parameters
        ----------
        lat_e7, lon_e7 : ndarray of int with shape (n,)
            1e-7 degrees; longitudes are taken modulo 360 degrees.

        Returns
        -------
        ndarray of int64 with shape (n,)
            Leaf numbers.
        """
        leaf = self.leaf_of(self.plane.to_mm(lat_e7, lon_e7))
        leaf[~self.lattice.contains_degrees(lat_e7, lon_e7)] = self.elsewhere
        return leaf

    def leaf_of_cells(self, cell_xy: Ints) -> Ints:
        """Find the leaf of lattice cells, shape (n, 2); outside the lattice that of "elsewhere"."""
        # A tile holds the upper right corners of its cells (`Locator.find`).
        xy = np.asarray(cell_xy, np.int64)
        corner = np.where(xy < 0, -1, (xy + 1) * self.lattice.cell_mm)
        leaf = self._locator.find(corner[:, 0], corner[:, 1])
        leaf[leaf < 0] = self.elsewhere
        return leaf

    @cached_property
    def _locator(self) -> Locator:
        nx, ny = self.lattice.shape
        side = self.lattice.cell_mm
        return Locator.of(self.box[self.tree.leaves] * side, nx * side, ny * side)

    def _check_boxes(self) -> None:
        """Leaves must tile the lattice, and every inner node must be the bounding box, without a hole, of its children."""
        if (self.box[0] != (0, 0, *self.lattice.shape)).any():
            raise ValueError("The root's box should be the whole lattice.")
        _ = self._locator
        real = np.flatnonzero((self.box[:, :2] < self.box[:, 2:]).all(axis=1))[1:]
        parent = self.tree.parent[real]
        within = (self.box[real, :2] >= self.box[parent, :2]).all() and (self.box[real, 2:] <= self.box[parent, 2:]).all()
        area = np.prod(self.box[:, 2:] - self.box[:, :2], axis=1)
        covered = np.zeros(len(self.tree), np.int64)
        np.add.at(covered, parent, area[real])
        if not within or len(real) != len(self.tree) - 2 or (covered != area)[self.tree.children > 0].any():
            raise ValueError("The boxes of siblings should tile the box of their parent.")


def tile(
    plane: Plane,
    cell_m: int,
    fanouts: Sequence[int],
    cell_xy: ArrayLike = (),
    weight: ArrayLike = (),
    reach: int = REACH_CELLS,
    off_road: float = OFF_ROAD,
) -> Tiling:
    """Make a tiling of a region from its road cells.

    The tiles share the weight evenly, which is where users are expected: on the roads, near them (`reach`), and anywhere (`off_road`).

    Parameters
    ----------
    plane : Plane
        Of the region.
    cell_m : int
        Side of a lattice cell in metres.
    fanouts : sequence of int
        Most children of a node at each level (`geo.tiling.pack.shape_for`).
    cell_xy : array_like of int with shape (m, 2)
        Cells with roads; a cell may come more than once. None at all: the tiles share the region's area evenly.
    weight : array_like of float with shape (m,)
        Metres of road in each, not negative.
    reach : int, default 1
        Each cell's metres are spread over the (2 · `reach` + 1)² cells around it, and then rounded to millimetres.
    off_road : float, default 0.05
        Share of all weight that lies evenly on the region, from 0 to less than 1.

    Returns
    -------
    Tiling

    Raises
    ------
    ValueError
        If an argument does not fit, or no cell has weight.
    """
    if not 0 <= off_road < 1:
        raise ValueError("`off_road` should be from 0 to less than 1.")
    lattice = Lattice(plane, cell_m)
    anywhere = _evenly(lattice)
    if not len(np.asarray(cell_xy)):
        packing = pack(anywhere, np.ones(len(anywhere)), lattice.shape, fanouts)
        start = np.zeros(len(packing.tree.leaves) + 1, np.int64)
        return Tiling(plane, lattice.cell_m, packing.tree, packing.box, np.zeros((0, 2), np.int64), np.zeros(0), start, 1.0)
    cells, metres = spread_around(np.asarray(cell_xy), np.asarray(weight, np.float64), lattice.shape, reach)
    metres = np.round(metres, 3)
    cells, metres = cells[metres > 0], metres[metres > 0]
    even = np.full(len(anywhere), off_road / (1 - off_road) * metres.sum() / len(anywhere))
    packing = pack(np.concatenate([cells, anywhere]), np.concatenate([metres, even]), lattice.shape, fanouts)
    boxes = packing.box[packing.tree.leaves]
    # A locator's boxes are closed above: cell (x, y) ends at (x + 1, y + 1).
    leaf = Locator.of(boxes, *lattice.shape).find(*(cells.T + 1))
    order = np.argsort(leaf, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(leaf, minlength=len(boxes)))])
    return Tiling(plane, lattice.cell_m, packing.tree, packing.box, cells[order], metres[order], start, float(off_road))


def _evenly(lattice: Lattice) -> Ints:
    """Return the cells of a coarse lattice inside the region, which stand for a uniform spread."""
    step = -(-max(lattice.shape) // UNIFORM_LINES)
    x, y = (np.arange((side % step or step) // 2, side, step) for side in lattice.shape)
    xy = np.stack([axis.ravel() for axis in np.meshgrid(x, y, indexing="ij")], axis=1)
    degrees = lattice.plane.to_degrees(xy * lattice.cell_mm + lattice.cell_mm // 2 + lattice.origin_mm)
    inside = lattice.contains_degrees(*np.rint(degrees.T * 1e7).astype(np.int64))
    kept: Ints = xy[inside] if inside.any() else xy
    return kept


def _rebuilt(plane: Plane, cell_m: int, parent: Ints, *rest: Any) -> Tiling:
    return Tiling(plane, cell_m, Tree(parent), *rest)
