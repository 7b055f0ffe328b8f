"""Mechanism TreeCounts: noisy counts of all nodes of a public tree, for one tick."""

import hashlib
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from geo.privacy.budgets import path_sums
from geo.privacy.discrete_gaussian import DiscreteGaussian
from geo.privacy.discrete_laplace import WideDiscreteLaplace
from geo.privacy.prf import stream, subkey
from geo.tree import Tree

__all__ = ["MAX_USERS", "Neighbours", "Noise", "TreeCounts"]

Neighbours = Literal["add-remove", "replace-one"]
Noise = Literal["discrete-laplace", "discrete-gaussian"]

MAX_USERS = 1 << 52
_PATHS = {"add-remove": 1, "replace-one": 2}
_NANO = 10**9
_ROW_BYTES = 32
_MAX_BUDGET = 1 << 53


class TreeCounts:
    """Number of users below each node of a tree, plus independent integer noise on each measured node.

    Guarantee
        With noise "discrete-laplace": for any two neighbouring ticks, any set S of outputs and any other inputs,
        P(output in S) <= exp(ε) · P'(output in S) + delta · (1 + exp(ε)), ε = `loss` / 10^6.
        With noise "discrete-gaussian": up to a total variation distance of `delta`, the output is ρ-zCDP, ρ = `loss` / 10^9;
        `geo.privacy.zcdp` says which (ε, δ) that is.
    Unit of privacy
        One user in one tick, who is counted in exactly one leaf. Releases of several ticks add their losses.
    Neighbouring relation
        "add-remove": the tick with and without one user. Presence and place are both protected.
        "replace-one": one user is in another leaf. Only the place is protected: the number of present users N is the same for neighbours
        and is published exactly, as the count of the root. Who knows about all users but one whether they are present learns from N
        whether that one is. This is the relation to use where traces or exact counts of the same users are published.
    Formula
        output_v = (users below v) + Z_v for each node with a budget b_v > 0. A path from the root to a leaf changes by 1 ("add-remove"), or
        two paths below their lowest common node do ("replace-one"); k = 1 or 2 of them. "discrete-laplace": P(Z_v = z) ∝ exp(-|z| · b_v /
        (10^6 k)), loss Σ over the changed nodes of b_v / (10^6 k). "discrete-gaussian": P(Z_v = z) ∝ exp(-z² / (2 σ_v²)), σ_v² = 10^9 k /
        (2 b_v), loss Σ over the changed nodes of 1 / (2 σ_v²). Either is at most the largest sum of b over a path, `loss`.
    Source
        Cormode et al., "Differentially private spatial decompositions", ICDE 2012, on a public tree, with the discrete distributions of
        Ghosh, Roughgarden, Sundararajan (STOC 2009) and Canonne, Kamath, Steinke (NeurIPS 2020).

    All noise of a tick comes from one key over (secret, tick, tree, parameters, context, all leaf counts). The same input gives the same
    output, so that repeating a run reveals nothing more and cannot be averaged; any change of any count redraws the noise of every
    node. (A key per node's own count would leave all but the changed path as it was, and so show which leaf changed.) The guarantee is
    over the secret, and assumes that keyed BLAKE2b and SHAKE-256 are pseudo-random functions. Equal outputs of two runs show equal
    inputs: a run over changed input is another release, and has to be charged.

    Parameters
    ----------
    tree : Tree
        Public: built without any user's data.
    budgets : ndarray of int64 with shape (n,)
        b_v, from `geo.privacy.budgets.node_budgets`: millionths of ε ("discrete-laplace"), or 1e-9 of ρ ("discrete-gaussian"). 0 is not
        measured. For "replace-one" the root's has to be 0.
    neighbours : "add-remove" or "replace-one", default "replace-one"
    noise : "discrete-laplace" or "discrete-gaussian", default "discrete-laplace"
    version : bytes, default b""
        What tells this tree's places from those of another of the same shape, such as its file's checksum. Part of the key.

    Attributes
    ----------
    name : str
        What a release states as its mechanism.
    loss : int
        The largest sum of budgets from the root to a leaf, in units of `budgets`.
    variance : ndarray of float64 with shape (n,)
        Noise variance of each node: infinite if it is not measured, 0 for the exact root of "replace-one".
    delta : Fraction
        Upper bound of the total variation distance between the noise of all nodes together and the exact distributions.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    def __init__(
        self,
        tree: Tree,
        budgets: NDArray[np.int64],
        neighbours: Neighbours = "replace-one",
        noise: Noise = "discrete-laplace",
        version: bytes = b"",
    ) -> None:
        if neighbours not in _PATHS:
            raise ValueError("`neighbours` should be add-remove or replace-one.")
        if noise not in ("discrete-laplace", "discrete-gaussian"):
            raise ValueError("`noise` should be discrete-laplace or discrete-gaussian.")
        budgets = np.asarray(budgets)
        if budgets.shape != (len(tree),) or budgets.dtype.kind not in "iu":
            raise ValueError("`budgets` should be an array with one whole number per node of the tree.")
        if (budgets < 0).any() or (budgets > _MAX_BUDGET // len(tree)).any():
            raise ValueError("`budgets` should hold numbers from 0 to 2^53 over the number of nodes.")
        if neighbours == "replace-one" and budgets[0]:
            raise ValueError("`budgets` should leave nothing to the root for replace-one, where the total is public.")
        if not budgets.any():
            raise ValueError("`budgets` should measure at least one node.")
        self.tree, self.neighbours, self.noise = tree, neighbours, noise
        self.name = f"tree-counts/{noise}/{neighbours}"
        self.budgets: NDArray[np.int64] = budgets.astype(np.int64)
        self.loss = int(path_sums(tree, self.budgets)[tree.leaves].max())
        self.variance = np.full(len(tree), np.inf)
        if neighbours == "replace-one":
            self.variance[0] = 0.0
        self.delta = Fraction(0)
        self._measured = np.flatnonzero(self.budgets)
        self._groups: list[tuple[NDArray[np.int64], WideDiscreteLaplace | DiscreteGaussian]] = []
        for budget in np.unique(self.budgets[self._measured]):
            rows = np.flatnonzero(self.budgets[self._measured] == budget)
            distribution = _distribution(noise, int(budget), _PATHS[neighbours])
            self._groups.append((rows, distribution))
            self.variance[self._measured[rows]] = distribution.variance
            self.delta += len(rows) * distribution.delta
        for shared in (self.budgets, self.variance):
            shared.flags.writeable = False
        state = hashlib.blake2b(repr((self.name, len(version), len(tree))).encode() + version, digest_size=32)
        state.update(tree.parent.astype("<i8").tobytes() + self.budgets.astype("<i8").tobytes())
        self._parameters = state.digest()

    def release(self, secret: bytes, tick: int, leaf_counts: NDArray[np.int64], context: bytes = b"") -> NDArray[np.int64]:
        """Return the noisy counts of a tick.

        Parameters
        ----------
        secret : bytes
            16 to 64 bytes.
        tick : int
            Number of the tick, a signed 64-bit integer.
        leaf_counts : ndarray of int64 with shape (leaves,)
            Users in each leaf, in the order of `tree.leaves`; at least 0, together at most 2^52.
        context : bytes, default b""
            Everything else that decided about this release, such as the schedule's parameters and state. Part of the key.

        Returns
        -------
        ndarray of int64 with shape (n,)
            0 for nodes that are not measured. What follows is post-processing.

        Raises
        ------
        ValueError
            If an argument is outside its range.
        """
        counts = checked_counts(self.tree, leaf_counts)
        out = np.zeros(len(self.tree), np.int64)
        if self.neighbours == "replace-one":
            out[0] = counts.sum()
        key = subkey(
            secret, b"tree-counts", self._parameters, tick.to_bytes(8, "little", signed=True), context, counts.astype("<i8").tobytes()
        )
        rows = stream(key, _ROW_BYTES * len(self._measured)).reshape(-1, _ROW_BYTES)
        noise = np.empty(len(self._measured), np.int64)
        for group, distribution in self._groups:
            noise[group] = distribution.sample(rows[group, : distribution.draw_bytes])
        out[self._measured] = self.tree.sums(counts)[self._measured] + noise
        return out


def checked_counts(tree: Tree, leaf_counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return leaf counts as they are, or refuse them.

    Raises
    ------
    ValueError
        If there is not one whole number of at least 0 per leaf, or they sum to more than 2^52.
    """
    if leaf_counts.dtype != np.int64 or leaf_counts.shape != (len(tree.leaves),) or (leaf_counts < 0).any():
        raise ValueError("`leaf_counts` should be an array of int64 with one number of at least 0 per leaf.")
    if leaf_counts.sum(dtype=np.float64) > MAX_USERS:
        raise ValueError("`leaf_counts` should sum to at most 2^52.")
    return leaf_counts


def _distribution(noise: Noise, budget: int, paths: int) -> WideDiscreteLaplace | DiscreteGaussian:
    try:
        if noise == "discrete-laplace":
            return WideDiscreteLaplace(Decimal(budget).scaleb(-6) / paths)
        return DiscreteGaussian(Fraction(_NANO * paths, 2 * budget))
    except ValueError as error:
        raise ValueError(f"`budgets` should not hold {budget}: noise of that size cannot be drawn exactly.") from error
