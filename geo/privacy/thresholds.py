"""Draws from a finite distribution by comparing uniform 128-bit integers with integer thresholds."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["BITS", "DRAW_BYTES", "Thresholds"]

BITS = 128
DRAW_BYTES = 16
_WORD = 64


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
