"""Exact discrete Gaussian noise on the integers, drawn from uniform bits by integer comparison."""

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geo.privacy.thresholds import BITS, Thresholds

__all__ = ["MAX_SIGMA2", "MIN_SIGMA2", "DiscreteGaussian"]

MIN_SIGMA2 = Fraction(1, 100)
MAX_SIGMA2 = Fraction(1 << 27)

_TAIL_BITS = 100
_SUM_BITS = 200
_GUARD_BITS = 320
_DIGITS = 120
_ONE = 1 << _GUARD_BITS


class DiscreteGaussian:
    """The distribution P(Z = z) = exp(-z² / (2 σ²)) / Σ_k exp(-k² / (2 σ²)), for integers z.

    Guarantee: for true integers x and y that differ by at most D, the release of x + Z is (D² / (2 σ²))-zCDP: the Rényi divergence of
    order α between the two exact outputs is at most α D² / (2 σ²) for every α > 1. Independent Z_j with σ_j added to the entries of a
    vector add up to (½ Σ_j D_j² / σ_j²)-zCDP (Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
    Theorems 4 and 14; zCDP: Bun, Steinke, "Concentrated differential privacy", TCC 2016). The unit of privacy is one vector of integers;
    what neighbours are is up to the mechanism that adds the noise.

    A draw reads 128 uniform bits U and returns the smallest z with U < floor(2^128 P(Z <= z)), from a table of |z| <= J, where J is the
    least number with P(|Z| > J) < 2^-100. Mass beyond J is drawn as ±J. Thresholds come from a lower and an upper bound in integer
    arithmetic (96 digits) that must agree on the floor. No step of a draw uses a float.

    Parameters
    ----------
    sigma2 : Fraction
        σ², the variance of the continuous Gaussian, from 1/100 to 2^27. The table has about 24 σ entries.

    Attributes
    ----------
    sigma2 : Fraction
    reach : int
        J, the largest |z| that is ever drawn.
    delta : Fraction
        Upper bound of the total variation distance between one draw and the exact distribution, for uniform bits:
        (2 J + 1) / 2^129 + P(|Z| > J), about 2^-100.
    variance : float
        Var Z <= σ²; equal to it but for 1e-6 from σ² = 1 on.

    Raises
    ------
    ValueError
        If `sigma2` is outside its range.
    """

    draw_bytes = 16

    def __init__(self, sigma2: Fraction) -> None:
        if not MIN_SIGMA2 <= sigma2 <= MAX_SIGMA2:
            raise ValueError(f"`sigma2` should be from {MIN_SIGMA2} to {MAX_SIGMA2}: choose another ρ.")
        self.sigma2 = sigma2
        self.reach, self.delta, self._table = _table(sigma2)
        z = np.arange(-self.reach, self.reach + 1, dtype=np.float64)
        self._mass = np.exp(-(z**2) / (2.0 * float(sigma2)))
        self._mass /= self._mass.sum()
        self._below = np.concatenate([[0.0], np.cumsum(self._mass)])
        self.variance = float(np.sum(z**2 * self._mass))

    def __reduce__(self) -> tuple[Callable[[Fraction], "DiscreteGaussian"], tuple[Fraction]]:
        """Pickle as σ²."""
        return DiscreteGaussian, (self.sigma2,)

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

    def pmf(self, z: ArrayLike) -> NDArray[np.float64]:
        """Return P(Z = z) as floats with the shape of `z`; 0 beyond the reach."""
        k = np.asarray(z, dtype=np.int64)
        return np.asarray(np.where(np.abs(k) <= self.reach, self._mass[np.clip(k, -self.reach, self.reach) + self.reach], 0.0))

    def cdf(self, z: ArrayLike) -> NDArray[np.float64]:
        """Return P(Z <= z) as floats with the shape of `z`."""
        k = np.clip(np.floor(np.asarray(z, dtype=np.float64)), -self.reach - 1, self.reach).astype(np.int64)
        return np.asarray(self._below[k + self.reach + 1])

    @property
    def scale(self) -> float:
        """σ."""
        return math.sqrt(float(self.sigma2))


def _exp_bounds(numerator: int, denominator: int) -> tuple[int, int]:
    """Return 2^320 exp(-numerator / denominator) as a lower and an upper bound."""
    out = []
    for rounding in (ROUND_CEILING, ROUND_FLOOR):
        context = Context(prec=_DIGITS, rounding=rounding)
        nearest = context.exp(context.divide(Decimal(numerator), Decimal(denominator)).copy_negate())
        # Decimal's exp rounds to the nearest whatever the mode, so one step out makes it a bound.
        out.append(context.next_minus(nearest) if rounding == ROUND_CEILING else context.next_plus(nearest))
    return math.floor(Fraction(out[0]) * _ONE), math.ceil(Fraction(out[1]) * _ONE)


@lru_cache(maxsize=64)
def _table(sigma2: Fraction) -> tuple[int, Fraction, Thresholds]:
    # With q = exp(-1 / (2 σ²)): mass(z + 1) = mass(z) · q^(2 z + 1). Masses are relative to that of 0, in units of 2^-320.
    low_q, high_q = _exp_bounds(sigma2.denominator, 2 * sigma2.numerator)
    low_step, high_step = low_q, high_q
    low_q2, high_q2 = low_q * low_q >> _GUARD_BITS, (high_q * high_q >> _GUARD_BITS) + 1
    low, high = [_ONE], [_ONE]
    while high[-1] >= _ONE >> _SUM_BITS:
        low.append(low[-1] * low_step >> _GUARD_BITS)
        high.append((high[-1] * high_step >> _GUARD_BITS) + 1)
        low_step, high_step = low_step * low_q2 >> _GUARD_BITS, (high_step * high_q2 >> _GUARD_BITS) + 1
    # Beyond the last z each mass is at most `ratio` times the one before: a geometric tail.
    rest = high.pop() * _ONE // (_ONE - high_step) + 1
    low.pop()
    low_tails, high_tails = [0], [rest]
    for lower, upper in zip(reversed(low[1:]), reversed(high[1:]), strict=True):
        low_tails.append(low_tails[-1] + lower)
        high_tails.append(high_tails[-1] + upper)
    low_all, high_all = _ONE + 2 * low_tails[-1], _ONE + 2 * high_tails[-1]
    # Each tail P(Z >= k) = P(Z <= -k), for k = 1, 2, ..., as bounds in units of 2^-320.
    down: list[int] = []
    up: list[int] = []
    beyond = 0
    for lower, upper in zip(reversed(low_tails), reversed(high_tails), strict=True):
        low_t, high_t = lower * _ONE // high_all, upper * _ONE // low_all + 1
        if high_t < _ONE >> (_TAIL_BITS + 1) and down:
            beyond = high_t
            break
        down.append(_agreed(low_t, high_t))
        up.append(_agreed(_ONE - high_t, _ONE - low_t))
    delta = Fraction(2 * len(down) + 1, 1 << (BITS + 1)) + Fraction(2 * beyond, _ONE)
    return len(down), delta, Thresholds(down[::-1] + up)


def _agreed(low: int, high: int) -> int:
    value = low >> (_GUARD_BITS - BITS)
    if value != high >> (_GUARD_BITS - BITS):
        raise ArithmeticError("The bounds of a threshold do not agree: choose a σ² with other digits.")
    return value
