"""The contenders of the density bench: uniform and adaptive grid, quadtree with geometric budgets, PrivTree, as their papers state them.

All protect one user's presence in a snapshot (add or remove, sensitivity 1), know the same public number of expected users, and are
given what helps them: edges on lattice lines, least squares where their papers have it, and a non-negative form beside the unbiased one.
Their noise is numpy's: it releases nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jobs.bench.density.protocol import SummedArea

__all__ = [
    "CONTENDERS",
    "Pieces",
    "adaptive_grid",
    "adaptive_grid_size",
    "even_edges",
    "fit_quadtree",
    "infer_block",
    "priv_tree",
    "project",
    "quadtree",
    "quadtree_budgets",
    "quadtree_height",
    "second_level_size",
    "spread",
    "uniform_grid",
    "uniform_grid_size",
]

GRID_CONSTANT = 10.0
"""c of the uniform grid; the adaptive grid's second level has c / 2."""
FIRST_LEVEL_SHARE = 0.5
"""α, the adaptive grid's share of ε for the first level."""
MIN_FIRST_LEVEL = 10
"""Smallest side of the adaptive grid's first level."""
QUADTREE_CONSTANT = 2.0
"""Expected users times ε for each leaf of the quadtree: of 2, 10 and 30 the best, since its levels above help to tell empty land."""
FANOUT = 4
TREE_SHARE = 0.5
"""PrivTree's share of ε for its splits; the rest is for the counts of its leaves."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Contender = Callable[[NDArray[np.int64], int, float, np.random.Generator], "Pieces"]


@dataclass(frozen=True, eq=False)
class Pieces:
    """A private histogram: disjoint pieces that cover the lattice.

    Parameters
    ----------
    piece : ndarray of int64 with shape (nx, ny)
        The piece of each cell, 0 to k - 1.
    count : ndarray of float64 with shape (k,)
        Unbiased estimate for each piece.
    nonnegative : ndarray of float64 with shape (k,)
        The same, at least 0 and keeping the estimated total.
    """

    piece: Integers
    count: Floats
    nonnegative: Floats


def uniform_grid(counts: Integers, users: int, epsilon: float, rng: np.random.Generator) -> Pieces:
    """Count on a uniform grid (UG: Qardaji, Yang, Li, "Differentially private grids for geospatial data", ICDE 2013).

    m × m blocks, m = √(N ε / 10), each with noise Lap(1 / ε).

    Parameters
    ----------
    counts : ndarray of int64 with shape (nx, ny)
        True counts of a snapshot.
    users : int
        N, the public number of expected users.
    epsilon : float
        Budget of the snapshot.
    rng : Generator
        Source of the noise.

    Returns
    -------
    Pieces
    """
    size = uniform_grid_size(users, epsilon, min(counts.shape))
    x_edges, y_edges = (even_edges(length, size) for length in counts.shape)
    noisy = SummedArea(counts).blocks(x_edges, y_edges) + rng.laplace(0.0, 1 / epsilon, (size, size))
    piece = np.repeat(np.arange(size), np.diff(x_edges))[:, None] * size + np.repeat(np.arange(size), np.diff(y_edges))
    return Pieces(piece, noisy.ravel(), project(noisy.ravel(), noisy.sum()))


def uniform_grid_size(users: int, epsilon: float, most: int) -> int:
    """Return the side of the uniform grid: √(N ε / 10), rounded, from 1 to `most`."""
    return max(1, min(round(math.sqrt(users * epsilon / GRID_CONSTANT)), most))


def adaptive_grid(counts: Integers, users: int, epsilon: float, rng: np.random.Generator) -> Pieces:
    """Count on a grid whose blocks are cut as finely as their own noisy counts allow (AG: Qardaji, Yang, Li, ICDE 2013).

    A first grid of m₁ × m₁ blocks has noise Lap(1 / (α ε)); a block with noisy count v is cut into m₂ × m₂, each with noise
    Lap(1 / ((1 - α) ε)) and count u. Inference: v' = (α² m₂² v + (1 - α)² Σu) / ((1 - α)² + α² m₂²), u' = u + (v' - Σu) / m₂².
    The non-negative form projects the v' on their sum, and each block's u' on its v'.

    Parameters
    ----------
    counts, users, epsilon, rng
        As for `uniform_grid`.

    Returns
    -------
    Pieces
    """
    alpha = FIRST_LEVEL_SHARE
    size = adaptive_grid_size(users, epsilon, min(counts.shape))
    edges = [even_edges(length, size) for length in counts.shape]
    table = SummedArea(counts)
    first = table.blocks(*edges) + rng.laplace(0.0, 1 / (alpha * epsilon), (size, size))
    piece = np.empty(counts.shape, np.int64)
    inferred, unbiased = np.empty((size, size)), []
    begin = 0
    for i in range(size):
        for j in range(size):
            (x0, x1), (y0, y1) = edges[0][i : i + 2], edges[1][j : j + 2]
            cuts = min(second_level_size(first[i, j], epsilon), x1 - x0, y1 - y0)
            x_edges, y_edges = even_edges(x1 - x0, cuts), even_edges(y1 - y0, cuts)
            second = table.blocks(x0 + x_edges, y0 + y_edges).ravel() + rng.laplace(0.0, 1 / ((1 - alpha) * epsilon), cuts * cuts)
            inferred[i, j], fitted = infer_block(first[i, j], second)
            rows, columns = np.repeat(np.arange(cuts), np.diff(x_edges)), np.repeat(np.arange(cuts), np.diff(y_edges))
            piece[x0:x1, y0:y1] = begin + rows[:, None] * cuts + columns
            unbiased.append(fitted)
            begin += cuts * cuts
    totals = project(inferred.ravel(), inferred.sum())
    free = [project(fitted, total) for fitted, total in zip(unbiased, totals, strict=True)]
    return Pieces(piece, np.concatenate(unbiased), np.concatenate(free))


def adaptive_grid_size(users: int, epsilon: float, most: int) -> int:
    """Return the side of the adaptive grid's first level: max(10, ⌈⌈√(N ε / 10)⌉ / 4⌉), at most `most`."""
    return min(max(MIN_FIRST_LEVEL, math.ceil(math.ceil(math.sqrt(users * epsilon / GRID_CONSTANT)) / 4)), most)


def second_level_size(noisy: float, epsilon: float) -> int:
    """Return the side of the adaptive grid's second level in a block: ⌈√(v (1 - α) ε / 5)⌉, at least 1."""
    return max(1, math.ceil(math.sqrt(max(noisy, 0.0) * (1 - FIRST_LEVEL_SHARE) * epsilon / (GRID_CONSTANT / 2))))


def infer_block(first: float, second: Floats) -> tuple[float, Floats]:
    """Combine a block's own noisy count with those of its parts.

    Parameters
    ----------
    first : float
        v.
    second : ndarray of float64 with shape (m₂²,)
        u.

    Returns
    -------
    tuple of (float, ndarray of float64)
        v' and u'.
    """
    own, parts = FIRST_LEVEL_SHARE**2 * len(second), (1 - FIRST_LEVEL_SHARE) ** 2
    total = (own * first + parts * second.sum()) / (parts + own)
    return float(total), second + (total - second.sum()) / len(second)


def quadtree(counts: Integers, users: int, epsilon: float, rng: np.random.Generator) -> Pieces:
    """Count on a quadtree with geometric budgets (Cormode et al., "Differentially private spatial decompositions", ICDE 2012).

    Every node of a complete quadtree of height h is counted with the budget of its level, and least squares makes the counts
    add up. The paper fixes h and prunes; here 4^h is about N ε / 2, since a full depth is hopeless with few users.
    The non-negative form projects each node's four children on the node's own count, from the root down.

    Parameters
    ----------
    counts, users, epsilon, rng
        As for `uniform_grid`; both sides of the lattice are the same power of two.

    Returns
    -------
    Pieces
    """
    side = counts.shape[0]
    height = quadtree_height(users, epsilon, side)
    budgets = quadtree_budgets(height, epsilon)
    table = SummedArea(counts)
    levels = []
    for level, budget in enumerate(budgets):
        lines = np.arange(2**level + 1) * (side >> level)
        levels.append(table.blocks(lines, lines) + rng.laplace(0.0, 1 / budget, (2**level, 2**level)))
    fitted = fit_quadtree(levels, 2 / budgets**2)
    free = np.maximum(fitted[0], 0.0)
    for below in fitted[1:]:
        free = _blocks_back(np.array([project(four, total) for four, total in zip(_fours(below), free.ravel(), strict=True)]))
    cells = np.arange(side) >> (int(math.log2(side)) - height)
    return Pieces(cells[:, None] * 2**height + cells, fitted[-1].ravel(), free.ravel())


def quadtree_height(users: int, epsilon: float, side: int) -> int:
    """Return the height h: the nearest to log₄(N ε / 2), from 1 to log₂ of the lattice's side."""
    wanted = math.log(max(users * epsilon / QUADTREE_CONSTANT, 1.0), FANOUT)
    return min(max(1, round(wanted)), int(math.log2(side)))


def quadtree_budgets(height: int, epsilon: float) -> Floats:
    """Return the budgets of levels 0 (root) to h: ε 2^(l / 3) (2^(1/3) - 1) / (2^((h + 1) / 3) - 1), in sum ε."""
    growth = 2.0 ** (1 / 3)
    return np.asarray(epsilon * growth ** np.arange(height + 1) * (growth - 1) / (growth ** (height + 1) - 1))


def fit_quadtree(levels: list[Floats], variance: Floats) -> list[Floats]:
    """Return the least-squares estimates of a complete quadtree's counts (Hay et al., PVLDB 3, 2010, with a variance for each level).

    Parameters
    ----------
    levels : list of ndarray of float64 with shape (2^l, 2^l)
        Noisy counts, root first.
    variance : ndarray of float64 with shape (levels,)
        Of the noise of each level.

    Returns
    -------
    list of ndarray of float64
        As `levels`.
    """
    best, below = [levels[-1]], float(variance[-1])
    for noisy, noise in zip(levels[-2::-1], variance[-2::-1], strict=True):
        below *= FANOUT
        best.insert(0, (noisy * below + _fours(best[0]).sum(axis=1).reshape(noisy.shape) * noise) / (noise + below))
        below = noise * below / (noise + below)
    out = [best[0]]
    for upward in best[1:]:
        fours = _fours(upward)
        lacking = out[-1].ravel() - fours.sum(axis=1)
        out.append(_blocks_back(fours + lacking[:, None] / FANOUT))
    return out


def _fours(grid: Floats) -> Floats:
    """Return the four children of each block, shape (blocks, 4)."""
    half = len(grid) // 2
    return grid.reshape(half, 2, half, 2).transpose(0, 2, 1, 3).reshape(-1, FANOUT)


def _blocks_back(fours: Floats) -> Floats:
    half = math.isqrt(len(fours))
    return fours.reshape(half, half, 2, 2).transpose(0, 2, 1, 3).reshape(2 * half, 2 * half)


def priv_tree(counts: Integers, users: int, epsilon: float, rng: np.random.Generator) -> Pieces:
    """Count on a quadtree whose splits are private (Zhang, Xiao, Xie, "PrivTree", SIGMOD 2016, algorithm 2).

    A node at depth d with count c has b = max(θ - δ, c - d δ) and is split if b + Lap(λ) > θ, where θ = 0,
    λ = (2 β - 1) / (β - 1) / (ε / 2), δ = λ ln β, β = 4; each leaf is counted with noise Lap(2 / ε). A cell is not split.
    The non-negative form projects all leaves on their sum.

    Parameters
    ----------
    counts, users, epsilon, rng
        As for `quadtree`; `users` is not needed.

    Returns
    -------
    Pieces
    """
    tree_epsilon = TREE_SHARE * epsilon
    scale = (2 * FANOUT - 1) / (FANOUT - 1) / tree_epsilon
    decay = scale * math.log(FANOUT)
    table = SummedArea(counts)
    corner, side, depth = np.zeros((1, 2), np.int64), counts.shape[0], 0
    corners, sides = [], []
    while len(corner):
        inside = table.over(np.concatenate([corner, corner + side], axis=1))
        biased = np.maximum(-decay, inside - depth * decay)
        split = (biased + rng.laplace(0.0, scale, len(corner)) > 0) & (side > 1)
        corners.append(corner[~split])
        sides.append(np.full(len(corners[-1]), side))
        side, depth = side // 2, depth + 1
        shifts = side * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        corner = (corner[split][:, None] + shifts).reshape(-1, 2)
    low, length = np.concatenate(corners), np.concatenate(sides)
    noisy = table.over(np.concatenate([low, low + length[:, None]], axis=1)) + rng.laplace(0.0, 1 / (epsilon - tree_epsilon), len(low))
    piece = np.empty(counts.shape, np.int64)
    for number, ((x, y), cells) in enumerate(zip(low.tolist(), length.tolist(), strict=True)):
        piece[x : x + cells, y : y + cells] = number
    return Pieces(piece, noisy, project(noisy, noisy.sum()))


CONTENDERS: dict[str, Contender] = {"UG": uniform_grid, "AG": adaptive_grid, "quadtree": quadtree, "PrivTree": priv_tree}


def even_edges(length: int, parts: int) -> Integers:
    """Return the lines that cut a side into about equal parts, on lattice lines.

    Parameters
    ----------
    length : int
        Cells of the side.
    parts : int
        Number of parts, 1 to `length`.

    Returns
    -------
    ndarray of int64 with shape (parts + 1,)
        Strictly ascending from 0 to `length`.
    """
    return np.asarray(np.rint(np.arange(parts + 1) * length / parts), np.int64)


def project(values: Floats, total: float) -> Floats:
    """Return the nearest values that are at least 0 and have a given sum: max(0, value - t) with one t.

    Parameters
    ----------
    values : ndarray of float64 with shape (n,)
    total : float
        Their sum; all are 0 where it is not above zero.

    Returns
    -------
    ndarray of float64 with shape (n,)
    """
    if total <= 0:
        return np.zeros_like(values)
    ordered = np.sort(values)[::-1]
    shift = (np.cumsum(ordered) - total) / np.arange(1, len(values) + 1)
    return np.asarray(np.maximum(values - shift[np.flatnonzero(ordered > shift)[-1]], 0.0))


def spread(piece: Integers, count: Floats, weight: NDArray[np.float64]) -> Floats:
    """Return the density on the lattice: each piece's count over its cells, in proportion to weight.

    Parameters
    ----------
    piece : ndarray of int64 with shape (nx, ny)
    count : ndarray of float64 with shape (k,)
    weight : ndarray of float64 with shape (nx, ny)
        Not negative; all ones spreads evenly. A piece without weight is spread evenly.

    Returns
    -------
    ndarray of float64 with shape (nx, ny)
    """
    held = np.bincount(piece.ravel(), weight.ravel(), minlength=len(count))
    cells = np.bincount(piece.ravel(), minlength=len(count))
    empty = held == 0
    used = np.where(empty[piece], 1.0, weight)
    return np.asarray((count / np.where(empty, np.maximum(cells, 1), held))[piece] * used)
