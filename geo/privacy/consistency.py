"""From independent noisy counts of a tree's nodes to counts that add up, are not negative and whole: post-processing, free of budget."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geo.tree import Tree

__all__ = ["Estimate", "LeastSquares", "estimate", "least_squares", "nonnegative", "variance_of_sum", "whole"]

_UNMEASURED = 1e9
"""Variance of an unmeasured node in a projection, relative to the largest of its siblings: it takes up nearly all of a correction."""
_SLACK = 2.0**-40
"""Part of the total that sums of floats may be off by."""

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]


class LeastSquares(NamedTuple):
    """What `least_squares` returns; each field has shape (n,).

    Attributes
    ----------
    subtree_variance : ndarray of float64
        Error variance s of each node's best estimate from its own subtree alone: the weights that `nonnegative` needs.
    value : ndarray of float64
        Unbiased estimates of minimum variance, adding up at every node.
    variance : ndarray of float64
        Error variance P of `value`. Infinite where the measurements do not determine a node.
    """

    subtree_variance: Reals
    value: Reals
    variance: Reals


@dataclass(frozen=True, eq=False)
class Estimate:
    """What may be published of a tree; each field has shape (n,).

    Attributes
    ----------
    count : ndarray of int64
        Whole, at least 0, and at every node the sum over its children.
    unbiased : ndarray of float64
        Least-squares estimate: may be negative, but sums and means of many have no bias. `count` is a little high where few users
        are, and low where many are.
    standard_error : ndarray of float64
        Standard deviation of the error of `unbiased`, users.
    """

    count: Integers
    unbiased: Reals
    standard_error: Reals


def estimate(tree: Tree, noisy: Integers | Reals, variance: Reals) -> Estimate:
    """Return the best counts that noisy counts allow: least squares, then non-negative, then whole.

    A function of noisy counts and public values only, so it keeps whatever privacy guarantee the noisy counts have.

    Parameters
    ----------
    tree : Tree
    noisy : ndarray with shape (n,)
        Noisy count of each node, independent of each other; ignored where `variance` is infinite.
    variance : ndarray of float64 with shape (n,)
        Noise variance: 0 is an exact count, infinite is no measurement.

    Returns
    -------
    Estimate

    Raises
    ------
    ValueError
        If an argument is outside its range, or exact counts contradict each other.
    """
    squares = least_squares(tree, noisy, variance)
    count = whole(tree, nonnegative(tree, squares.value, squares.subtree_variance))
    return Estimate(count, squares.value, np.sqrt(squares.variance))


def least_squares(tree: Tree, noisy: Integers | Reals, variance: Reals) -> LeastSquares:
    """Return the weighted least-squares estimate of all counts under the condition that they add up.

    Minimises Σ (x_v - noisy_v)² / variance_v over all x with x_v = Σ x_c at every inner node. Upwards, a node's own measurement y
    and the sum S of its children's estimates, with variances r and V, combine to z = (y V + S r) / (V + r), s = V r / (V + r). Downwards,
    a child takes the share g = s_c / V of what its siblings lack: x_c = z_c + g (x_v - S), P_c = g (V - s_c) + g² P_v.
    Generalises Hay et al., "Boosting the accuracy of differentially private histograms through consistency", PVLDB 3 (2010), to any
    fan-out and any variances; equal to generalised least squares.

    Parameters
    ----------
    tree : Tree
    noisy : ndarray with shape (n,)
        Independent measurements; ignored where `variance` is infinite.
    variance : ndarray of float64 with shape (n,)
        Their variances: 0 is exact, infinite is no measurement. Siblings that no measurement tells apart share equally what is left.

    Returns
    -------
    LeastSquares

    Raises
    ------
    ValueError
        If a shape differs from the tree's, a variance is negative or NaN, a measurement is not finite, or an exact count differs
        from the sum of its children that are all exact.
    """
    r = np.asarray(variance, np.float64)
    z = np.asarray(noisy, np.float64).copy()
    if z.shape != (len(tree),) or r.shape != z.shape:
        raise ValueError("`noisy` and `variance` should have one value per node of the tree.")
    if not (r >= 0).all():
        raise ValueError("`variance` should hold no negative number and no NaN.")
    z[np.isinf(r)] = 0.0
    if not np.isfinite(z).all():
        raise ValueError("`noisy` should be finite wherever `variance` is.")
    s = r.copy()
    # Sum and variance of each node's children, as their subtrees estimate them.
    total, spread = np.zeros_like(z), np.zeros_like(z)
    groups = list(_groups(tree))
    for parents, part, starts, _ in reversed(groups):
        total[parents] = below = np.add.reduceat(z[part], starts)
        spread[parents] = loose = np.add.reduceat(s[part], starts)
        own = s[parents]
        if ((own == 0) & (loose == 0) & (z[parents] != below)).any():
            raise ValueError("`noisy` should hold exact counts that add up.")
        # Weight of the children's sum: 0 if they tell nothing, 1 if the node itself does.
        both = np.maximum(own + loose, np.finfo(float).tiny)
        with np.errstate(invalid="ignore"):
            weight = np.where(np.isinf(own), 1.0, np.where(np.isinf(loose), 0.0, own / both))
            s[parents] = np.where(np.isinf(both), np.minimum(own, loose), own / both * loose)
        # Exact children: weight 1 leaves their sum, variance 0.
        z[parents] += weight * (below - z[parents])
    value, error = z.copy(), s.copy()
    for parents, part, starts, sizes in groups:
        v = np.repeat(parents, sizes)
        own, loose = s[part], spread[v]
        open_ = np.isinf(own)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(loose > 0, own / loose, 0.0)
            rest = loose - own
        if open_.any():
            unknown = np.repeat(np.add.reduceat(open_.astype(np.float64), starts), sizes)
            known = np.repeat(np.add.reduceat(np.where(open_, 0.0, own), starts), sizes)
            share = np.where(unknown > 0, np.where(open_, 1.0 / np.maximum(unknown, 1.0), 0.0), share)
            rest = np.where(open_, np.where(unknown > 1, np.inf, known), rest)
        value[part] = z[part] + share * (value[v] - total[v])
        with np.errstate(invalid="ignore"):
            error[part] = np.where(np.isinf(loose) & ~open_, own, share * rest + share**2 * error[v])
    return LeastSquares(s, value, error)


def variance_of_sum(tree: Tree, variance: Reals, weights: Reals) -> float:
    """Return the error variance of a weighted sum of least-squares estimates, whose errors depend on each other.

    Write the part of the sum below node v as A_v e_v + ν_v, e_v the error of v's own estimate and ν_v independent of everything
    outside its subtree. Since e_c = g_c e_v + (ε_c - g_c Σ ε), g_c = s_c / Σ s (see `least_squares`), A_v = w_v + Σ g_c A_c and
    Var ν_v = Σ Var ν_c + Σ s_c (A_c - Σ g_c A_c)². At the root, the variance is A² P + Var ν.

    Parameters
    ----------
    tree : Tree
    variance : ndarray of float64 with shape (n,)
        Noise variance of each node, as for `least_squares`.
    weights : ndarray of float64 with shape (n,)
        Weight of each node in the sum.

    Returns
    -------
    float
        Infinite where the measurements do not determine the sum.

    Raises
    ------
    ValueError
        If a shape differs from the tree's.
    """
    squares = least_squares(tree, np.zeros(len(tree)), variance)
    if weights.shape != (len(tree),):
        raise ValueError("`weights` should have one value per node of the tree.")
    s, a, spread = squares.subtree_variance, np.array(weights, np.float64), np.zeros(len(tree))
    for parents, part, starts, sizes in reversed(list(_groups(tree))):
        # Unmeasured children take equal shares of what is left, measured ones beside them none.
        open_ = np.isinf(s[part])
        unknown = np.repeat(np.add.reduceat(open_.astype(np.float64), starts), sizes)
        weight = np.where(unknown > 0, open_, np.where(open_, 0.0, s[part]))
        total = np.repeat(np.add.reduceat(weight, starts), sizes)
        share = weight / np.where(total > 0, total, 1.0)
        mean = np.add.reduceat(share * a[part], starts)
        apart = (a[part] - np.repeat(mean, sizes)) ** 2
        loose = np.where(open_, np.where(np.isclose(apart, 0.0, atol=1e-18), 0.0, np.inf), np.where(open_, 0.0, s[part]) * apart)
        spread[parents] = np.add.reduceat(spread[part] + loose, starts)
        a[parents] += mean
    return float((a[0] ** 2 * squares.variance[0] if a[0] else 0.0) + spread[0])


def nonnegative(tree: Tree, value: Reals, subtree_variance: Reals) -> Reals:
    """Return values that add up and are at least 0, from the root down.

    The root becomes max(0, value). At each node with X to share, the children become the nearest point to their own estimates:
    the minimum of Σ (x_c - value_c)² / s_c under Σ x_c = X, x_c >= 0, which is x_c = max(0, value_c - t s_c) with one t per node. t is
    found by dropping what would be negative until nothing is (Michelot, "A finite algorithm for finding the projection of a point onto
    the canonical simplex", JOTA 50, 1986; as many steps as nodes at worst, a handful in practice). From the root down as in the 2020
    Census (Abowd et al., "The 2020 Census disclosure avoidance system TopDown algorithm", HDSR 2022). Exact nodes keep their value.

    Parameters
    ----------
    tree : Tree
    value : ndarray of float64 with shape (n,)
        Values that add up, usually `LeastSquares.value`: projecting those gives the same as projecting the subtrees' own estimates.
    subtree_variance : ndarray of float64 with shape (n,)
        `LeastSquares.subtree_variance`; 0 is exact.

    Returns
    -------
    ndarray of float64 with shape (n,)

    Raises
    ------
    ValueError
        If exact values are negative or exceed what their parent has.
    """
    groups = list(_groups(tree))
    # The least that a node can be: what is exact in it or below it.
    exact = subtree_variance == 0
    least = np.where(exact, value, 0.0)
    for parents, part, starts, _ in reversed(groups):
        least[parents] = np.where(exact[parents], least[parents], np.add.reduceat(least[part], starts))
    if (least < 0).any():
        raise ValueError("`value` should hold no negative exact count.")
    out = np.empty_like(value)
    out[0] = max(value[0], least[0])
    for parents, part, starts, sizes in groups:
        share = out[parents] - np.add.reduceat(least[part], starts)
        if (share < -_SLACK * (1.0 + out[0])).any():
            raise ValueError("`value` should hold no exact counts that exceed the exact count of their parent.")
        weight = subtree_variance[part]
        if np.isinf(weight).any():
            largest = np.maximum.reduceat(np.where(np.isinf(weight), 0.0, weight), starts)
            weight = np.where(np.isinf(weight), np.repeat(np.where(largest > 0, _UNMEASURED * largest, 1.0), sizes), weight)
        out[part] = least[part] + _project(value[part] - least[part], weight, np.maximum(share, 0.0), starts, sizes)
    return out


def _project(value: Reals, weight: Reals, share: Reals, starts: Integers, sizes: Integers) -> Reals:
    """Project each group of siblings on the simplex of size `share`, in the norm Σ x² / weight."""
    active = (weight > 0) & np.repeat(share > 0, sizes)
    while True:
        held, spread = np.add.reduceat(np.where(active, value, 0.0), starts), np.add.reduceat(np.where(active, weight, 0.0), starts)
        shift = (held - share) / np.where(spread > 0, spread, 1.0)
        moved = np.where(active, value - np.repeat(shift, sizes) * weight, 0.0)
        if not (moved < 0).any():
            break
        active &= moved > 0
    # A last correction of rounding, so that the sums are right to the last digits whatever the size of the noise was.
    held = np.add.reduceat(moved, starts)
    return np.asarray(moved * np.repeat(np.where(held > 0, share / np.where(held > 0, held, 1.0), 0.0), sizes))


def whole(tree: Tree, value: Reals) -> Integers:
    """Return whole numbers that add up at every node, each from the integer below to the integer above its value.

    The root is rounded to the nearest integer, halves up. At each node the children get the integers below their values, and what
    is left of the node's whole number goes to the largest fractional parts, one each, ties to the lowest node.

    Parameters
    ----------
    tree : Tree
    value : ndarray of float64 with shape (n,)
        Values that add up, at least 0 and below 2^53. From a total of 2^40 on, rounding errors may move a value by more than 1, but
        not by more than 2^-40 of the total.

    Returns
    -------
    ndarray of int64 with shape (n,)

    Raises
    ------
    ValueError
        If a value is outside its range.
    """
    if value.shape != (len(tree),) or not ((value >= 0) & (value < 2.0**53)).all():
        raise ValueError("`value` should hold numbers from 0 to below 2^53, one per node.")
    slack = _SLACK * max(1.0, float(value[0]))
    # The integer strictly below each value: an integer itself counts as the one before plus a whole unit, so that rounding errors
    # around integers cannot make the sum of the parts exceed the node's own number.
    floor = np.maximum(np.ceil(value - slack) - 1.0, 0.0)
    fraction = value - floor
    out = floor.astype(np.int64)
    out[0] = int(np.floor(value[0] + 0.5))
    for parents, part, starts, sizes in _groups(tree):
        left = out[parents] - np.add.reduceat(out[part], starts)
        group = np.repeat(np.arange(len(starts)), sizes)
        order = np.argsort(4.0 * group - np.clip(fraction[part], 0.0, 2.0), kind="stable")
        rank = np.arange(len(order)) - np.repeat(starts, sizes)
        # More units than children can only come from rounding errors: they are dealt in rounds.
        units = left // sizes
        extra = np.empty_like(rank)
        extra[order] = (rank < np.repeat(left - units * sizes, sizes)).astype(np.int64)
        out[part] += extra + np.repeat(units, sizes)
    return np.asarray(out, np.int64)


def _groups(tree: Tree) -> Iterator[tuple[Integers, slice, Integers, Integers]]:
    """Yield for each level below the root: its parents, its slice, where each parent's children start in it, and how many they are."""
    for above, part in zip(tree.levels, tree.levels[1:], strict=False):
        parents = above.start + np.flatnonzero(tree.children[above])
        yield parents, part, tree.first_child[parents] - part.start, tree.children[parents]
