"""Exact discrete Laplace noise on the integers, drawn from uniform bits by integer comparison."""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geo.privacy.thresholds import BITS, GUARD_BITS, ONE, Thresholds, agreed, exp_bounds

__all__ = ["MAX_EXPONENT", "MIN_EXPONENT", "MIN_WIDE_EXPONENT", "DiscreteLaplace", "WideDiscreteLaplace"]

MIN_EXPONENT = Decimal("1e-4")
MIN_WIDE_EXPONENT = Decimal("1e-7")
MAX_EXPONENT = Decimal(50)

_TAIL_BITS = 100


class _TwoSidedGeometric:
    """P(Z = z) = (1 - a) / (1 + a) · a^|z|, a = exp(-exponent): its description in floats."""

    exponent: Decimal

    @property
    def _x(self) -> float:
        return float(self.exponent)

    def pmf(self, z: ArrayLike) -> NDArray[np.float64]:
        """Return P(Z = z) of the exact distribution as floats with the shape of `z`."""
        return np.asarray(math.tanh(self._x / 2) * np.exp(-self._x * np.abs(np.asarray(z, dtype=np.float64))))

    def cdf(self, z: ArrayLike) -> NDArray[np.float64]:
        """Return P(Z <= z) of the exact distribution as floats with the shape of `z`."""
        k = np.floor(np.asarray(z, dtype=np.float64))
        tail = np.exp(-self._x * np.where(k < 0, -k, k + 1)) / (1 + math.exp(-self._x))
        return np.asarray(np.where(k < 0, tail, 1 - tail))

    @property
    def scale(self) -> float:
        """1 / exponent: the scale of the continuous Laplace distribution that this one approaches."""
        return 1 / self._x

    @property
    def variance(self) -> float:
        """2 a / (1 - a)²."""
        return 2 * math.exp(-self._x) / math.expm1(-self._x) ** 2


class DiscreteLaplace(_TwoSidedGeometric):
    """The distribution P(Z = z) = (1 - a) / (1 + a) · a^|z|, a = exp(-exponent), for integers z.

    Guarantee: for a true integer x, x + Z and y + Z have exact probabilities within a factor exp(exponent · |x - y|) of each other
    (Ghosh, Roughgarden, Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009; Canonne, Kamath, Steinke, "The
    discrete Gaussian for differential privacy", NeurIPS 2020). The unit of privacy is one integer, neighbours are any two integers;
    what they mean is up to the mechanism that adds the noise.

    A draw reads 128 uniform bits U and returns the smallest z with U < floor(2^128 P(Z <= z)), from a table of |z| <= J, where J is the
    least number with P(|Z| > J) < 2^-100. Mass beyond J is drawn as ±J. Thresholds come from a lower and an upper bound in integer
    arithmetic (96 digits) that must agree on the floor. No step of a draw uses a float.

    Parameters
    ----------
    exponent : Decimal
        ε · step / sensitivity, dimensionless, 1e-4 to 50.

    Attributes
    ----------
    exponent : Decimal
    reach : int
        J, the largest |z| that is ever drawn.
    delta : Fraction
        Upper bound of the total variation distance between one draw and the exact distribution, for uniform bits:
        (2 J + 1) / 2^129 + P(|Z| > J), about 2^-100.

    Raises
    ------
    ValueError
        If `exponent` is outside its range.

    Notes
    -----
    Why not a library's sampler: those that are exact (rejection from fair coins) consume an unknown number of bits one by one, from the
    system's generator. Releases need noise that is a function of a keyed digest of fixed size, for a whole batch at once, and an
    error that can be stated.

    How far `delta` means something: two inputs that differ by d have outputs within exp(exponent · d) and an additive
    delta · (1 + exp(exponent · d)). That term is below 2^-40 while exponent · d < 41, and says nothing from about exponent · d = 69 on:
    so far apart, two inputs can be told apart anyway (an output further than J from an input excludes it).
    """

    def __init__(self, exponent: Decimal) -> None:
        if not (exponent.is_finite() and MIN_EXPONENT <= exponent <= MAX_EXPONENT):
            raise ValueError(f"`exponent` should be from {MIN_EXPONENT} to {MAX_EXPONENT}: choose another grid step or ε.")
        self.exponent = exponent
        self.reach, self.delta, self._table = _table(exponent)

    def __reduce__(self) -> tuple[Callable[[Decimal], "DiscreteLaplace"], tuple[Decimal]]:
        """Pickle as the exponent."""
        return DiscreteLaplace, (self.exponent,)

    def sample(self, bits: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Turn uniform bits into draws.

        Parameters
        ----------
        bits : ndarray of uint8 with shape (n, 16)
            Each row is one little-endian 128-bit integer.

        Returns
        -------
        ndarray of int64 with shape (n,)
            Integers from -reach to reach.

        Raises
        ------
        ValueError
            If `bits` has another shape or type.
        """
        return self._table.draw(bits) - self.reach

    def thresholds(self) -> list[int]:
        """Return floor(2^128 P(Z <= z)) for z = -reach .. reach - 1."""
        return self._table.values()


class WideDiscreteLaplace(_TwoSidedGeometric):
    """The same distribution down to tiny exponents, from two small tables instead of one long one.

    Guarantee, unit, neighbours and source are those of `DiscreteLaplace`.

    Z falls in a block of m = 2^h integers, and its place in the block is independent of the block: with k = Z for Z >= 0, k = -1 - Z
    otherwise, k is geometric, and so k = q m + r with independent q, P(q) = (1 - a^m) a^(m q), and r, P(r) = (1 - a) a^r / (1 - a^m).
    The signed block C (q, or -1 - q for negative Z) and r are each drawn from 128 uniform bits by integer thresholds, as in
    `DiscreteLaplace`. m is about √(2^7 / exponent): for an exponent of 1e-6 two tables of 20,000 numbers do what one of 140,000,000 would.

    Parameters
    ----------
    exponent : Decimal
        ε / sensitivity, dimensionless, 1e-7 to 50.

    Attributes
    ----------
    exponent : Decimal
    block : int
        m.
    reach : int
        The largest |z| that is ever drawn, (Q + 1) m with the least Q that has P(q > Q) < 2^-100. Mass beyond block Q is drawn in it.
    delta : Fraction
        Upper bound of the total variation distance between one draw and the exact distribution, for uniform bits:
        (2 Q + 2 + m) / 2^129 + P(q > Q), about 2^-100.

    Raises
    ------
    ValueError
        If `exponent` is outside its range.
    """

    draw_bytes = 32

    def __init__(self, exponent: Decimal) -> None:
        if not (exponent.is_finite() and MIN_WIDE_EXPONENT <= exponent <= MAX_EXPONENT):
            raise ValueError(f"`exponent` should be from {MIN_WIDE_EXPONENT} to {MAX_EXPONENT}: choose another ε.")
        self.exponent = exponent
        self.block, self.delta, self.coarse, self.fine = _two_tables(exponent)
        self._blocks = (len(self.coarse) + 1) // 2
        self.reach = self._blocks * self.block

    def __reduce__(self) -> tuple[Callable[[Decimal], "WideDiscreteLaplace"], tuple[Decimal]]:
        """Pickle as the exponent."""
        return WideDiscreteLaplace, (self.exponent,)

    def sample(self, bits: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Turn uniform bits into draws.

        Parameters
        ----------
        bits : ndarray of uint8 with shape (n, 32)
            Each row is two little-endian 128-bit integers.

        Returns
        -------
        ndarray of int64 with shape (n,)
            Integers from -reach to reach - 1.

        Raises
        ------
        ValueError
            If `bits` has another shape or type.
        """
        if bits.dtype != np.uint8 or bits.shape != (len(bits), self.draw_bytes):
            raise ValueError("`bits` should be an array of uint8 with shape (n, 32).")
        half = self.draw_bytes // 2
        block, place = self.coarse.draw(bits[:, :half]) - self._blocks, self.fine.draw(bits[:, half:])
        return np.where(block >= 0, block * self.block + place, (block + 1) * self.block - 1 - place)


@lru_cache(maxsize=32)
def _table(exponent: Decimal) -> tuple[int, Fraction, Thresholds]:
    low_a, high_a = exp_bounds(exponent)
    # P(Z >= k) = P(Z <= -k) = a^k / (1 + a): bounds for k = 1, 2, ... until the tail beyond k - 1 is negligible.
    low, high = ONE * ONE // (ONE + high_a), ONE * ONE // (ONE + low_a) + 1
    tails: list[int] = []
    limit = ONE >> (_TAIL_BITS + 1)
    while True:
        low, high = low * low_a >> GUARD_BITS, (high * high_a >> GUARD_BITS) + 1
        if high < limit and tails:
            break
        tails.append(agreed(low, high))
    reach = len(tails)
    # exp of a non-zero rational is irrational, so floor(2^128 (1 - t)) = 2^128 - 1 - floor(2^128 t).
    table = tails[::-1] + [(1 << BITS) - 1 - tail for tail in tails]
    delta = Fraction(2 * reach + 1, 1 << (BITS + 1)) + Fraction(2 * high, ONE)
    return reach, delta, Thresholds(table)


@lru_cache(maxsize=128)
def _two_tables(exponent: Decimal) -> tuple[int, Fraction, Thresholds, Thresholds]:
    block = 1 << (int(Decimal(1 << 7) / exponent).bit_length() // 2)
    low_a, high_a = exp_bounds(exponent)
    # a^r for r = 0 .. block.
    low, high = [ONE], [ONE]
    for _ in range(block):
        low.append(low[-1] * low_a >> GUARD_BITS)
        high.append((high[-1] * high_a >> GUARD_BITS) + 1)
    # P(place <= r) = (1 - a^(r + 1)) / (1 - a^block).
    low_all, high_all = ONE - high[block], ONE - low[block]
    fine = [agreed((ONE - high[r]) * ONE // high_all, (ONE - low[r]) * ONE // low_all + 1) for r in range(1, block)]
    # P(Z >= q block) = a^(q block) / (1 + a) and P(Z < -q block) = a · a^(q block) / (1 + a), for q = 0, 1, ...
    low_step, high_step = low[block], high[block]
    low_tail, high_tail = ONE, ONE
    positive: list[int] = []
    negative: list[int] = []
    while not negative or high_tail >= ONE >> _TAIL_BITS:
        low_t, high_t = low_tail * ONE // (ONE + high_a), high_tail * ONE // (ONE + low_a) + 1
        positive.append(agreed(ONE - high_t, ONE - low_t))
        negative.append(agreed(low_t * low_a >> GUARD_BITS, (high_t * high_a >> GUARD_BITS) + 1))
        low_tail, high_tail = low_tail * low_step >> GUARD_BITS, (high_tail * high_step >> GUARD_BITS) + 1
    # P(C <= -1 - q) for q from the last block to 0; the last of these is also P(C < 0) = 1 - P(Z >= 0).
    coarse = negative[::-1] + positive[1:]
    delta = Fraction(2 * len(negative) + block, 1 << (BITS + 1)) + Fraction(high_tail, ONE)
    return block, delta, Thresholds(coarse), Thresholds(fine)
