"""How the privacy budget of one release is divided over the levels and nodes of a counting tree: whole units, nothing lost."""

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from geo.tree import Tree

__all__ = ["Rule", "boundary_nodes", "epsilon_micro", "level_budgets", "node_budgets", "path_sums"]

Rule = Literal["cube-root", "square-root", "uniform"]
_POWERS: dict[Rule, float] = {"cube-root": 1 / 3, "square-root": 1 / 2, "uniform": 0.0}
_MAX_TOTAL = 1 << 53


def epsilon_micro(epsilon: float) -> int:
    """Return a privacy budget in whole millionths, rounded down.

    Parameters
    ----------
    epsilon : float
        As a person writes it: 0.1 is 100000.

    Raises
    ------
    ValueError
        If `epsilon` is not finite or below 1e-6.
    """
    micro = math.floor(Decimal(repr(float(epsilon))).scaleb(6)) if math.isfinite(epsilon) else 0
    if micro < 1:
        raise ValueError("`epsilon` should be a finite number of at least 1e-6.")
    return micro


def boundary_nodes(tree: Tree) -> list[float]:
    """Return how many nodes of each level a range query uses, up to a common factor.

    A range is covered by the largest nodes inside it, so those used of a level lie along its boundary: as many as the square root of the
    level's nodes, if nodes are about as wide as long. For a quadtree these are the 8 · 2^l of Cormode et al., "Differentially private
    spatial decompositions", ICDE 2012.
    """
    return [math.sqrt(part.stop - part.start) for part in tree.levels]


def level_budgets(
    tree: Tree, total: int, rule: Rule = "cube-root", workload: Sequence[float] | None = None, exact_root: bool = False
) -> NDArray[np.int64]:
    """Divide a budget over the levels of a tree.

    The parts are proportional to n_l^p, n_l the number of nodes of level l that the workload uses. With noise of variance 2 / ε_l²
    (Laplace) the error Σ_l n_l · 2 / ε_l² under Σ_l ε_l = ε is least for p = 1/3, "cube-root"; with variance 1 / (2 ρ_l) (Gaussian) the
    error under Σ_l ρ_l = ρ is least for p = 1/2, "square-root". Both generalise the geometric budgets of Cormode et al. (ICDE 2012).
    "uniform" is p = 0 for each level that is used at all.

    Parameters
    ----------
    tree : Tree
    total : int
        Units to divide, 1 to 2^53: millionths of ε, or 1e-9 of ρ.
    rule : "cube-root", "square-root" or "uniform"
    workload : sequence of float, optional
        n_l for each level, root first; 0 leaves a level unmeasured. The default is `boundary_nodes`. It has to be public.
    exact_root : bool, default False
        Whether the total is public and the root needs no budget.

    Returns
    -------
    ndarray of int64 with shape (levels,)
        Parts that sum to `total`: rounded down, the rest to the largest fractions, ties to the upper level.

    Raises
    ------
    ValueError
        If an argument is outside its range, or no level is left to measure.
    """
    if not isinstance(total, int | np.integer) or not 1 <= total <= _MAX_TOTAL:
        raise ValueError("`total` should be a whole number of units from 1 to 2^53.")
    if rule not in _POWERS:
        raise ValueError(f"`rule` should be one of {', '.join(_POWERS)}.")
    used = list(boundary_nodes(tree) if workload is None else workload)
    if len(used) != len(tree.levels) or not all(math.isfinite(n) and n >= 0 for n in used):
        raise ValueError("`workload` should have a finite number of at least 0 for each level of the tree.")
    if exact_root:
        used[0] = 0.0
    weights = [Fraction(n ** _POWERS[rule]) if n > 0 else Fraction(0) for n in used]
    if not any(weights):
        raise ValueError("`workload` should use at least one level that is to be measured.")
    parts = [total * weight / sum(weights) for weight in weights]
    budgets = [math.floor(part) for part in parts]
    largest = sorted(range(len(parts)), key=lambda level: budgets[level] - parts[level])
    for level in largest[: total - sum(budgets)]:
        budgets[level] += 1
    return np.array(budgets, np.int64)


def node_budgets(tree: Tree, levels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the budget of each node, so that every path from the root to a leaf spends the whole budget.

    A node gets the budget of its level. A leaf above the last level gets what the rest of its path does not need.

    Parameters
    ----------
    tree : Tree
    levels : ndarray of int64 with shape (levels,)
        From `level_budgets`.

    Returns
    -------
    ndarray of int64 with shape (n,)

    Raises
    ------
    ValueError
        If `levels` has another shape, or a negative number.
    """
    levels = np.asarray(levels, np.int64)
    if levels.shape != (len(tree.levels),) or (levels < 0).any():
        raise ValueError("`levels` should have one budget of at least 0 for each level of the tree.")
    from_here_down = np.cumsum(levels[::-1])[::-1]
    return np.where(tree.children == 0, from_here_down[tree.level], levels[tree.level])


def path_sums(tree: Tree, budgets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what the nodes from the root to each node spend together.

    Parameters
    ----------
    tree : Tree
    budgets : ndarray of int64 with shape (n,)

    Returns
    -------
    ndarray of int64 with shape (n,)
    """
    sums = np.array(budgets, np.int64)
    for part in tree.levels[1:]:
        sums[part] += sums[tree.parent[part]]
    return sums
