"""The ledger of a density stream: what its ticks spent, and the refusal of more than the limit in any window."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["DensityLedger"]


@dataclass(frozen=True)
class DensityLedger:
    """Whole units spent by tick; over any `window_ticks` consecutive ticks they sum to at most `limit`.

    Check, then spend: a charge that would pass the limit is refused and nothing changes. One ledger serves all users, because each tick's
    release is one query over all of them: budgets of different places in a tick do not compose in parallel over a window, since a
    user may be in one place at one tick and in the other at the next.

    Parameters
    ----------
    limit : int
        Units a window may spend, at least 1: millionths of ε, or 1e-9 of ρ.
    window_ticks : int
        w, at least 1.
    tick : int, optional
        The last tick that was closed.
    spends : tuple of (int, int)
        Tick and units, ascending, at most one for each tick: those that some window with a later tick can hold. Ticks after `tick` were
        spent by an earlier run over the same ticks, and count in full.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    limit: int
    window_ticks: int
    tick: int | None = None
    spends: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.limit < 1 or self.window_ticks < 1:
            raise ValueError("`limit` and `window_ticks` should be at least 1.")
        if any(units < 0 for _, units in self.spends):
            raise ValueError("`spends` should hold no negative number of units.")

    @classmethod
    def start(cls, limit: int, window_ticks: int, earlier: Mapping[int, int] | None = None) -> "DensityLedger":
        """Return a ledger before its first tick; `earlier` holds by tick what earlier runs spent on the same users."""
        return cls(limit, window_ticks, None, tuple(sorted((earlier or {}).items())))

    def room(self, tick: int) -> int:
        """Return how many units tick `tick` may spend: the limit less all within w - 1 ticks of it, and at least 0."""
        return max(0, self.limit - sum(units for then, units in self.spends if abs(tick - then) < self.window_ticks))

    def spend(self, tick: int, units: int) -> "DensityLedger":
        """Return the ledger after a tick that spent some units; ticks in between spent nothing.

        Raises
        ------
        ValueError
            If the tick is not after the last one, `units` is negative, or a window would pass the limit.
        """
        if self.tick is not None and tick <= self.tick:
            raise ValueError(f"`tick` should be after {self.tick}, the last tick of the ledger.")
        if units < 0:
            raise ValueError("`units` should be at least 0.")
        if units > self.room(tick):
            raise ValueError(f"`units` should be at most {self.room(tick)}: {units} would pass the limit of {self.window_ticks} ticks.")
        kept = {then: paid for then, paid in self.spends if then > tick - self.window_ticks}
        if units:
            kept[tick] = kept.get(tick, 0) + units
        return DensityLedger(self.limit, self.window_ticks, tick, tuple(sorted(kept.items())))
