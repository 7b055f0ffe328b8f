"""Identifiers under which releases appear: different for each audience and epoch, keyed by the secret."""

import numpy as np
from numpy.typing import NDArray

from geo.privacy.prf import digests, subkey

__all__ = ["OPERATORS", "Pseudonyms"]

OPERATORS = ""
"""The audience of the operators' own topics; no other one has this name."""

PSEUDONYM_BYTES = 16


class Pseudonyms:
    """Keyed pseudonyms of one audience.

    They do not stop colluding audiences from linking a user by correlated releases or by presence; what they do is
    keep the user's identifier out of every output topic.
    """

    def __init__(self, secret: bytes, audience: str, epoch_ticks: int) -> None:
        self._key = subkey(secret, b"pseudonym", audience.encode())
        self._epoch_ticks = epoch_ticks

    def epoch(self, tick: int) -> int:
        """Return the epoch of a tick."""
        return tick // self._epoch_ticks

    def of(self, user: NDArray[np.uint64], tick: int | NDArray[np.int64]) -> list[str]:
        """Return the 32-digit hexadecimal pseudonyms of user ids, shape (n,), at one tick or at a tick each."""
        message = np.empty((len(user), 2), "<i8")
        message[:, 0], message[:, 1] = user.view(np.int64), tick // self._epoch_ticks
        text = digests(self._key, message.view(np.uint8), PSEUDONYM_BYTES).tobytes().hex()
        width = 2 * PSEUDONYM_BYTES
        return [text[i : i + width] for i in range(0, len(text), width)]
