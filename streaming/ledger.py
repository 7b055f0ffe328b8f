"""The spend ledger: integer micro-epsilon, every sum over w consecutive ticks at or below the limit."""

from collections.abc import MutableMapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ledger"]


class Ledger:
    """Columnar w-event ledger of a shard's users.

    For every user and every tick i, the sum of the charges of ticks i-w+1 .. i is at most the limit. A charge is
    checked by `grants`, then spent by `record`, as a whole; at the limit it is refused. Only integers take part.

    The state has two parts: the running sums `spent`, and one slot for each of the last w ticks that holds, for each
    distinct charge of that tick, a bitmap of who paid it (one bit a user and tick where all pay alike).

    Parameters
    ----------
    window_ticks
        w >= 1.
    limit_micro
        Limit in micro-epsilon, >= 0.
    slots
        Mapping from slot number to bytes, kept by the caller (state of the stream, or a dict in tests).
    spent
        int64 of shape (users,), the sums over the window that ends at `tick`.
    tick
        The tick to which the ledger has advanced, or None if it never has.
    """

    def __init__(
        self, window_ticks: int, limit_micro: int, slots: MutableMapping[int, bytes], spent: NDArray[np.int64], tick: int | None
    ) -> None:
        self._w, self._limit, self._slots = window_ticks, limit_micro, slots
        self.spent, self.tick = spent, tick

    def grow(self, users: int) -> None:
        """Make room for `users` users; new ones have spent nothing."""
        self.spent = np.concatenate([self.spent, np.zeros(users - len(self.spent), np.int64)])

    def advance(self, tick: int) -> None:
        """Move to a tick; charges that leave the window are given back. Ticks never go back."""
        if self.tick is None:
            self.tick = tick
            return
        if tick < self.tick:
            raise ValueError(f"the ledger stands at tick {self.tick} and cannot go back to tick {tick}")
        for leaving in range(self.tick + 1 - self._w, min(tick, self.tick + self._w) + 1 - self._w):
            slot = self._slots.pop(leaving % self._w, None)
            if slot is not None:
                self.spent -= _unpack(slot, len(self.spent))
                if (self.spent < 0).any():
                    raise AssertionError("a charge left the window of a user who had not spent it")
        self.tick = tick

    def grants(
        self, index: NDArray[np.intp], charge_micro: NDArray[np.int64], ahead_micro: NDArray[np.int64] | int = 0
    ) -> NDArray[np.bool_]:
        """Check whether distinct users could be charged at the current tick; who is granted it has then to be charged by `record`.

        Parameters
        ----------
        index, charge_micro
            Arrays of shape (n,): the users' rows, and the most that each may come to be charged, >= 0.
        ahead_micro
            What each has spent already, in an earlier run, in the w - 1 ticks to come. It counts in full: some window that
            holds the current tick may hold all of it.

        Returns
        -------
        ndarray of bool with shape (n,)
            Who has enough left.
        """
        self._now()
        return np.asarray(self.spent[index] + ahead_micro + charge_micro <= self._limit)

    def record(self, tick: int, index: NDArray[np.intp], charge_micro: NDArray[np.int64]) -> None:
        """Enter charges of a tick in the window: what `grants` has allowed, or what an earlier run has already spent."""
        now = self._now()
        if not now - self._w < tick <= now:
            raise ValueError(f"tick {tick} is outside the window that ends at tick {now}")
        paid = charge_micro > 0
        if not paid.any():
            return
        slot = self._slots.get(tick % self._w)
        charges = _unpack(slot, len(self.spent)) if slot is not None else np.zeros(len(self.spent), np.int64)
        np.add.at(charges, index[paid], charge_micro[paid])
        np.add.at(self.spent, index[paid], charge_micro[paid])
        self._slots[tick % self._w] = _pack(charges)

    def left(self) -> NDArray[np.int64]:
        """Return what each user has left in the current window, in micro-epsilon (0 where overspent by earlier runs)."""
        return np.maximum(self._limit - self.spent, 0)

    def _now(self) -> int:
        if self.tick is None:
            raise ValueError("advance the ledger to a tick before charging it")
        return self.tick


def _pack(charges: NDArray[np.int64]) -> bytes:
    distinct = np.unique(charges[charges > 0])
    header = np.array([len(charges), len(distinct), *distinct], "<i8").tobytes()
    return header + b"".join(np.packbits(charges == charge).tobytes() for charge in distinct)


def _unpack(slot: bytes, users: int) -> NDArray[np.int64]:
    then, distinct = np.frombuffer(slot, "<i8", 2).tolist()
    amounts = np.frombuffer(slot, "<i8", distinct, offset=16)
    bitmaps = np.frombuffer(slot, np.uint8, offset=16 + 8 * distinct).reshape(distinct, -1)
    charges = np.zeros(users, np.int64)
    for amount, bitmap in zip(amounts, bitmaps, strict=True):
        charges[:then] += amount * np.unpackbits(bitmap, count=then).astype(np.int64)
    return charges
