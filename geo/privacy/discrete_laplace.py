"""Exact discrete Laplace noise on the integers, drawn from uniform bits by integer comparison."""

import math
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MAX_EXPONENT", "MIN_EXPONENT", "DiscreteLaplace"]

MIN_EXPONENT = Decimal("1e-4")
MAX_EXPONENT = Decimal(50)

_BITS = 128
_TAIL_BITS = 100
_GUARD_BITS = 320
_DIGITS = 120


class DiscreteLaplace:
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
        self._x = float(exponent)
        self.reach, self.delta, self._high, self._low = _table(exponent)

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
        if bits.dtype != np.uint8 or bits.shape != (len(bits), _BITS // 8):
            raise ValueError("`bits` should be an array of uint8 with shape (n, 16).")
        words = np.ascontiguousarray(bits).view("<u8").astype(np.uint64, copy=False)
        low, high = words[:, 0], words[:, 1]
        # The result is the number of thresholds that are <= U, less reach.
        below = np.searchsorted(self._high, high, side="left")
        tied = np.flatnonzero(self._high[np.minimum(below, len(self._high) - 1)] == high)
        for row in tied:
            start = below[row]
            stop = np.searchsorted(self._high, high[row], side="right")
            below[row] += np.searchsorted(self._low[start:stop], low[row], side="right")
        return below.astype(np.int64) - self.reach

    def thresholds(self) -> list[int]:
        """Return floor(2^128 P(Z <= z)) for z = -reach .. reach - 1."""
        return [(int(high) << 64) | int(low) for high, low in zip(self._high, self._low, strict=True)]

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


@lru_cache(maxsize=32)
def _table(exponent: Decimal) -> tuple[int, Fraction, NDArray[np.uint64], NDArray[np.uint64]]:
    one = 1 << _GUARD_BITS
    context = Context(prec=_DIGITS)
    # Decimal's exp is rounded correctly, so its two neighbours enclose the exact value.
    nearest = context.exp(-exponent)
    low_a = math.floor(Fraction(context.next_minus(nearest)) * one)
    high_a = math.ceil(Fraction(context.next_plus(nearest)) * one)
    # P(Z >= k) = P(Z <= -k) = a^k / (1 + a): bounds for k = 1, 2, ... until the tail beyond k - 1 is negligible.
    low, high = one * one // (one + high_a), one * one // (one + low_a) + 1
    tails: list[int] = []
    limit = one >> (_TAIL_BITS + 1)
    while True:
        low, high = low * low_a >> _GUARD_BITS, (high * high_a >> _GUARD_BITS) + 1
        if high < limit and tails:
            break
        tail = low >> (_GUARD_BITS - _BITS)
        if tail != high >> (_GUARD_BITS - _BITS):
            raise ArithmeticError("The bounds of a threshold do not agree: choose an exponent with other digits.")
        tails.append(tail)
    reach = len(tails)
    # exp of a non-zero rational is irrational, so floor(2^128 (1 - t)) = 2^128 - 1 - floor(2^128 t).
    table = tails[::-1] + [(1 << _BITS) - 1 - tail for tail in tails]
    data = np.frombuffer(b"".join(value.to_bytes(16, "little") for value in table), dtype="<u8").reshape(-1, 2)
    words = np.ascontiguousarray(data.T).astype(np.uint64)
    words.flags.writeable = False
    delta = Fraction(2 * reach + 1, 1 << (_BITS + 1)) + Fraction(2 * high, one)
    return reach, delta, words[1], words[0]
