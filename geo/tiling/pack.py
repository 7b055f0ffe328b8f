"""First step of a tiling: cut a lattice of weighted cells into a tree of disjoint boxes (sort-tile-recursive packing)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geo.privacy.tree_counts import Neighbours
from geo.tree import Tree

__all__ = ["MAX_LEAVES", "Packing", "merge_cells", "pack", "shape_for"]

MAX_LEAVES = 100_000
USERS_EPSILON_PER_LEAF = 8.0
"""Expected users times ε for each leaf, where noise and lost detail balance; the form is that of Qardaji, Yang, Li, ICDE 2013."""
MAX_LEAVES_OF_LEVELS = (16, 500)
"""Most leaves of a tree with one level, and with two levels, below the root."""

_PATHS: dict[Neighbours, int] = {"add-remove": 1, "replace-one": 2}

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Box = tuple[int, int, int, int]


@dataclass(frozen=True, eq=False)
class Packing:
    """Disjoint boxes of lattice cells, and the tree that they form.

    Attributes
    ----------
    tree : Tree
        Node 0 is the root. Its last child is the leaf "elsewhere", for all that lies outside the lattice.
    box : ndarray of int64 with shape (n, 4)
        x0, y0, x1, y1 of each node: the cells (x, y) with x0 <= x < x1 and y0 <= y < y1. The children of a node cover its box and share no
        cell; the root's box is the whole lattice; the box of "elsewhere" is 0, 0, 0, 0.
    """

    tree: Tree
    box: Ints


def shape_for(expected_users: float, epsilon: float, neighbours: Neighbours = "replace-one") -> tuple[int, ...]:
    """Choose the fan-outs of a tree from public numbers alone.

    leaves = expected_users · ε / (8 · paths), from 1 to `MAX_LEAVES`, over one to three levels of equal fan-out; paths is how many
    root–leaf paths a change touches, and so by how much the noise grows: 1 for add-remove, 2 for replace-one.

    Parameters
    ----------
    expected_users : float
        Users expected per tick, above zero; a public figure (fleet size, subscribers), never counted from the stream itself.
    epsilon : float
        ε of one published tree, above zero.
    neighbours : "replace-one" or "add-remove"
        What ε protects.

    Returns
    -------
    tuple of int
        Fan-outs for `pack`, root first.

    Raises
    ------
    ValueError
        If a number is not finite and above zero, or `neighbours` is another word.
    """
    if neighbours not in _PATHS:
        raise ValueError("`neighbours` should be replace-one or add-remove.")
    for name, value in (("expected_users", expected_users), ("epsilon", epsilon)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"`{name}` should be a finite number above zero.")
    leaves = round(min(max(expected_users * epsilon / (USERS_EPSILON_PER_LEAF * _PATHS[neighbours]), 1.0), MAX_LEAVES))
    depth = 1 + sum(leaves > most for most in MAX_LEAVES_OF_LEVELS)
    fanouts: list[int] = []
    for left in range(depth, 0, -1):
        fanouts.append(max(1, round((leaves / math.prod(fanouts)) ** (1 / left))))
    return tuple(fanouts)


def pack(cell_xy: ArrayLike, weight: ArrayLike, shape: tuple[int, int], fanouts: Sequence[int]) -> Packing:
    """Cut the lattice [0, nx) × [0, ny) into a tree of boxes that share the weight evenly.

    A node at level l with f = ``fanouts[l]`` is cut across its longer side into k slabs, and each slab across the other side into
    ⌊f/k⌋ or ⌈f/k⌉ pieces, f together; k is √(f · longer / shorter side), so that pieces are about square. The shorter side comes first
    where that gives more pieces. Sides are those of the weighted cells in the node, not of its box, which may reach far into empty land.
    Each slab and piece takes the share of the weight that its number of pieces asks for, as nearly as cuts on lattice lines can; a cut
    through land without weight lies in its middle.

    Every box holds weight: a node with fewer distinct lines than pieces gets fewer children, and one that cannot be cut is a leaf early, so
    leaves may differ in depth. The result depends on the arguments alone; of two equally good cuts the lower coordinate is taken, and
    siblings are numbered slab by slab towards growing coordinates.

    The method is that of S. T. Leutenegger, M. A. Lopez, J. Edgington, "STR: a simple and efficient algorithm for R-tree packing",
    ICDE 1997, from the root down and with cut lines in place of bounding boxes, so that boxes do not overlap.

    Parameters
    ----------
    cell_xy : array_like of int with shape (m, 2)
        Cells, inside the lattice; a cell may come more than once.
    weight : array_like of float with shape (m,)
        Finite, not negative, not all zero; road metres, for instance. Cells without weight are ignored.
    shape : tuple of int
        nx, ny.
    fanouts : sequence of int
        Most children of a node at each level, root first ("elsewhere" not counted); at least one, each at least 1.

    Returns
    -------
    Packing
        With at most ``prod(fanouts)`` leaves, and "elsewhere".

    Raises
    ------
    ValueError
        If an argument is none of that.
    """
    xy, mass = merge_cells(cell_xy, weight, shape)
    if not mass.size:
        raise ValueError("`weight` should not be all zero.")
    if not fanouts or min(fanouts) < 1:
        raise ValueError("`fanouts` should hold at least one number, each at least 1.")
    parent: list[int] = [-1]
    box: list[Box] = [(0, 0, shape[0], shape[1])]
    # The nodes of the present level: number, and the cells inside.
    level = [(0, np.arange(len(xy)))]
    for depth, fanout in enumerate(fanouts):
        below: list[tuple[int, Ints]] = []
        for node, cells in level:
            parts = _split(xy[cells], mass[cells], box[node], fanout)
            # A single part is the same place again: only the root keeps it, since "elsewhere" needs a sibling.
            if len(parts) > 1 or depth == 0:
                for part, inside in parts:
                    below.append((len(parent), cells[inside]))
                    parent.append(node)
                    box.append(part)
        if depth == 0:
            parent.append(0)
            box.append((0, 0, 0, 0))
        level = below
    return Packing(Tree(np.array(parent, np.int64)), np.array(box, np.int64))


def merge_cells(cell_xy: ArrayLike, weight: ArrayLike, shape: tuple[int, int]) -> tuple[Ints, Floats]:
    """Add up the weights of equal cells.

    Parameters
    ----------
    cell_xy, weight, shape
        As for `pack`; the weights may all be zero.

    Returns
    -------
    cells : ndarray of int64 with shape (k, 2)
        Each cell with weight once, ascending.
    weight : ndarray of float64 with shape (k,)

    Raises
    ------
    ValueError
        If an argument is none of that.
    """
    xy, mass = np.asarray(cell_xy), np.asarray(weight, np.float64)
    if min(shape) < 1:
        raise ValueError("`shape` should hold two numbers of at least 1.")
    if xy.ndim != 2 or xy.shape[1] != 2 or xy.dtype.kind not in "iu" or mass.shape != xy.shape[:1]:  # noqa: PLR2004
        raise ValueError("`cell_xy` should be integers with shape (m, 2), and `weight` numbers with shape (m,).")
    if len(xy) and ((xy < 0).any() or (xy >= np.array(shape)).any()):
        raise ValueError("`cell_xy` should lie inside the lattice: from 0 to `shape` less 1.")
    if not (np.isfinite(mass).all() and (mass >= 0).all()):
        raise ValueError("`weight` should be finite and not negative.")
    kept = mass > 0
    number, place = np.unique(xy[kept, 0].astype(np.int64) * shape[1] + xy[kept, 1], return_inverse=True)
    total: Floats = np.bincount(place, mass[kept], minlength=len(number)).astype(np.float64)
    return np.stack(np.divmod(number, shape[1]), axis=1), total


def _split(xy: Ints, mass: Floats, box: Box, fanout: int) -> list[tuple[Box, Ints]]:
    """Return the boxes of the children, and which of the node's cells are in each."""
    side = np.ptp(xy, axis=0) + 1
    longer = 0 if side[0] >= side[1] else 1
    parts = _slabs(xy, mass, box, fanout, longer)
    if len(parts) == fanout:
        return parts
    turned = _slabs(xy, mass, box, fanout, 1 - longer)
    return turned if len(turned) > len(parts) else parts


def _slabs(xy: Ints, mass: Floats, box: Box, fanout: int, first: int) -> list[tuple[Box, Ints]]:
    """Cut into slabs across axis `first`, and each slab into pieces."""
    second = 1 - first
    side = np.ptp(xy, axis=0) + 1
    lines_first, lines_second = (len(np.unique(xy[:, axis])) for axis in (first, second))
    slabs = round(math.sqrt(fanout * side[first] / side[second]))
    slabs = min(max(slabs, math.ceil(fanout / lines_second)), fanout, lines_first)
    pieces = [fanout // slabs + (slab < fanout % slabs) for slab in range(slabs)]
    parts = []
    for count, (low, high, inside) in zip(pieces, _cut(xy[:, first], mass, box[first], box[first + 2], pieces), strict=True):
        across = min(count, len(np.unique(xy[inside, second])))
        for start, stop, within in _cut(xy[inside, second], mass[inside], box[second], box[second + 2], [1] * across):
            part = (low, start, high, stop) if first == 0 else (start, low, stop, high)
            parts.append((part, inside[within]))
    return parts


def _cut(line: Ints, mass: Floats, low: int, high: int, shares: Sequence[int]) -> list[tuple[int, int, Ints]]:
    """Cut low .. high into one interval for each share; return both ends and the indices of the cells inside."""
    lines, place = np.unique(line, return_inverse=True)
    total = np.cumsum(np.bincount(place, mass))
    edges, begin, done = [low], 0, 0.0
    for part in range(len(shares) - 1):
        target = done + (total[-1] - done) * shares[part] / sum(shares[part:])
        # Each later part needs a line of its own.
        last = begin + int(np.argmin(np.abs(total[begin : len(lines) - (len(shares) - 1 - part)] - target)))
        edges.append(int(lines[last] + 1 + lines[last + 1]) // 2)
        begin, done = last + 1, float(total[last])
    edges.append(high)
    part_of = np.searchsorted(edges[1:-1], line, side="right")
    return [(edges[part], edges[part + 1], np.flatnonzero(part_of == part)) for part in range(len(shares))]
