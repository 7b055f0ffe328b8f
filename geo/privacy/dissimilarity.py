"""Mechanism Dissimilarity: a private answer to the question whether a tick differs enough from what was last published."""

import hashlib
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from geo.privacy.consistency import least_squares
from geo.privacy.discrete_laplace import WideDiscreteLaplace
from geo.privacy.prf import stream, subkey
from geo.privacy.tree_counts import Neighbours, TreeCounts, checked_counts
from geo.tree import Tree

__all__ = ["Dissimilarity", "error_factor"]

_SENSITIVITY = {"add-remove": 1, "replace-one": 2}
_MICRO = 10**6
_DIGITS = 1000


class Dissimilarity:
    """Compare the true counts of d public tiles with what was last published for them, under noise.

    Guarantee
        For any two neighbouring ticks and either answer, P(answer) <= exp(ε) · P'(answer) + delta · (1 + exp(ε)), ε = epsilon_micro / 10^6.
        The counts last published, the budgets and the tick are public.
    Unit of privacy
        One user in one tick, who is counted in exactly one leaf and so in exactly one tile.
    Neighbouring relation
        "add-remove": with and without one user, Δ = 1. "replace-one": one user is in another leaf, Δ = 2; the number of users is public.
    Formula
        D = Σ_j |last_j - c_j| over the tiles changes by at most Δ. The answer is whether (D + Z) / d > f · Δ / ε_publish, with
        P(Z = z) ∝ exp(-|z| · ε / Δ), in integers on both sides.
    Source
        Kellaris, Papadopoulos, Xiao, Papadias, "Differentially private event sequences over infinite streams", PVLDB 7(12), 2014, where
        f = 1: the error of a count published with the whole ε_publish. In a tree a tile's error is another multiple of it, which
        `error_factor` computes and a stream of trees should use: with f too small, the noise of the last publication alone makes every
        tick look changed.

    Parameters
    ----------
    tree : Tree
    level : int
        The tiles are the nodes of this level, and the leaves above it. An upper level: few tiles, each with more users than noise.
    neighbours : "add-remove" or "replace-one"
    factor : Fraction, default 1
        f, more than 0. Public.
    version : bytes, default b""
        What tells the tree's places from those of another of the same shape. Part of the key.

    Attributes
    ----------
    tiles : ndarray of int64 with shape (d,)
        The nodes that are compared, ascending.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    def __init__(self, tree: Tree, level: int, neighbours: Neighbours, factor: Fraction = Fraction(1), version: bytes = b"") -> None:
        if neighbours not in _SENSITIVITY:
            raise ValueError("`neighbours` should be add-remove or replace-one.")
        if not 0 <= level < len(tree.levels):
            raise ValueError("`level` should be a level of the tree.")
        if factor <= 0:
            raise ValueError("`factor` should be more than 0.")
        self.tree, self.factor, self.sensitivity = tree, factor, _SENSITIVITY[neighbours]
        self.tiles = np.flatnonzero((tree.level == level) | ((tree.level < level) & (tree.children == 0)))
        state = hashlib.blake2b(repr((level, neighbours, str(factor), len(version), len(tree))).encode() + version, digest_size=32)
        state.update(tree.parent.astype("<i8").tobytes())
        self._parameters = state.digest()

    def delta(self, epsilon_micro: int) -> Fraction:
        """Return the total variation distance between the noise of a test and the exact distribution."""
        return self._noise(epsilon_micro).delta

    def changed(
        self,
        secret: bytes,
        tick: int,
        leaf_counts: NDArray[np.int64],
        last: Sequence[int],
        epsilon_micro: int,
        publish_micro: int,
        context: bytes = b"",
    ) -> bool:
        """Return the noisy answer; it costs `epsilon_micro`, whatever it is.

        The noise is keyed by all leaf counts and everything else the answer depends on: the same question gets the same answer.

        Parameters
        ----------
        secret : bytes
            16 to 64 bytes.
        tick : int
            Number of the tick, a signed 64-bit integer.
        leaf_counts : ndarray of int64 with shape (leaves,)
        last : sequence of int with length d
            Whole counts last published for the tiles.
        epsilon_micro, publish_micro : int
            Budgets of the test and of the publication that it would lead to, millionths, at least 1.
        context : bytes, default b""
            Parameters and state of the schedule. Part of the key.

        Raises
        ------
        ValueError
            If an argument is outside its range.
        """
        if len(last) != len(self.tiles):
            raise ValueError("`last` should have one count per tile.")
        if publish_micro < 1:
            raise ValueError("`publish_micro` should be at least 1.")
        noise = self._noise(epsilon_micro)
        counts = checked_counts(self.tree, leaf_counts)
        now = self.tree.sums(counts)[self.tiles].tolist()
        distance = sum(abs(then - count) for then, count in zip(last, now, strict=True))
        public = repr((tick, tuple(last), epsilon_micro, publish_micro, len(context))).encode() + context
        key = subkey(secret, b"dissimilarity", self._parameters, public, counts.astype("<i8").tobytes())
        noisy = distance + int(noise.sample(stream(key, noise.draw_bytes).reshape(1, -1))[0])
        right = self.factor * len(self.tiles) * self.sensitivity * _MICRO
        return bool(noisy * publish_micro * right.denominator > right.numerator)

    def _noise(self, epsilon_micro: int) -> WideDiscreteLaplace:
        return WideDiscreteLaplace(Decimal(epsilon_micro).scaleb(-6) / self.sensitivity)


def error_factor(mechanism: TreeCounts, tiles: NDArray[np.int64]) -> Fraction:
    """Return the error of the tiles of a published tree as a multiple of Δ / ε, for `Dissimilarity`.

    The mean over the tiles of √(P / 2), the mean absolute error of a Laplace variable of variance P, P being the error variance after
    least squares. It depends on the tree and the division of the budget, hardly on its size.

    Parameters
    ----------
    mechanism : TreeCounts
        With "discrete-laplace" noise, and a budget of the size in use.
    tiles : ndarray of int64 with shape (d,)

    Returns
    -------
    Fraction
        At least 1/1000, in thousandths.
    """
    variance = least_squares(mechanism.tree, np.zeros(len(mechanism.tree)), mechanism.variance).variance[tiles]
    unit = _SENSITIVITY[mechanism.neighbours] * _MICRO / mechanism.loss
    return Fraction(max(1, math.ceil(float(np.mean(np.sqrt(variance / 2))) / unit * _DIGITS)), _DIGITS)
