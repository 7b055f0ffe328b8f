"""Draws from a finite distribution by comparing uniform 128-bit integers with integer thresholds."""

import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = ["BITS", "DRAW_BYTES", "GUARD_BITS", "ONE", "Thresholds", "agreed", "exp_bounds"]

BITS = 128
DRAW_BYTES = 16
GUARD_BITS = 320
ONE = 1 << GUARD_BITS
"""Bounds of probabilities are integers in units of 2^-320."""

_WORD = 64
_DIGITS = 120


def exp_bounds(exponent: Decimal) -> tuple[int, int]:
    """Return 2^320 exp(-exponent) as a lower and an upper bound."""
    context = Context(prec=_DIGITS)
    # A minus sign would round to the 28 digits of the default context. Decimal's exp is rounded correctly, so its two neighbours
    # enclose the exact value.
    nearest = context.exp(exponent.copy_negate())
    return math.floor(Fraction(context.next_minus(nearest)) * ONE), math.ceil(Fraction(context.next_plus(nearest)) * ONE)


def agreed(low: int, high: int) -> int:
    """Return the first 128 of the 320 bits of a probability that lies between two bounds.

    Raises
    ------
    ArithmeticError
        If the bounds differ in them.
    """
    value = low >> (GUARD_BITS - BITS)
    if value != high >> (GUARD_BITS - BITS):
        raise ArithmeticError("The bounds of a threshold do not agree: choose an exponent with other digits.")
    return value


class Thresholds:
    """Ascending integers t_0 <= t_1 <= ... below 2^128, usually floor(2^128 P(X <= i)).

    Parameters
    ----------
    values : list of int
        Each from 0 to 2^128 - 1; may be empty.
    """

    def __init__(self, values: list[int]) -> None:
        data = np.frombuffer(b"".join(value.to_bytes(DRAW_BYTES, "little") for value in values), dtype="<u8").reshape(-1, 2)
        words = np.ascontiguousarray(data.T).astype(np.uint64)
        words.flags.writeable = False
        self._low, self._high = words

    def __len__(self) -> int:
        return len(self._high)

    def values(self) -> list[int]:
        """Return the thresholds."""
        return [(int(high) << _WORD) | int(low) for high, low in zip(self._high, self._low, strict=True)]

    def draw(self, bits: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the number of thresholds that are <= U, for each uniform U.

        Parameters
        ----------
        bits : ndarray of uint8 with shape (n, 16)
            Each row is one little-endian 128-bit integer.

        Returns
        -------
        ndarray of int64 with shape (n,)

        Raises
        ------
        ValueError
            If `bits` has another shape or type.
        """
        if bits.dtype != np.uint8 or bits.shape != (len(bits), DRAW_BYTES):
            raise ValueError("`bits` should be an array of uint8 with shape (n, 16).")
        if not len(self):
            return np.zeros(len(bits), np.int64)
        words = np.ascontiguousarray(bits).view("<u8").astype(np.uint64, copy=False)
        low, high = words[:, 0], words[:, 1]
        below = self._high.searchsorted(high)
        tied = self._high[np.minimum(below, len(self) - 1)] == high
        for row in tied.nonzero()[0]:
            start, stop = below[row], self._high.searchsorted(high[row], side="right")
            below[row] += self._low[start:stop].searchsorted(low[row], side="right")
        return np.asarray(below, np.int64)
