"""Schedules of a density stream: which tick publishes, and with what budget, so that no window of w ticks spends more than its limit."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geo.privacy.density_ledger import DensityLedger
from geo.privacy.dissimilarity import Dissimilarity

__all__ = [
    "BudgetAbsorption",
    "BudgetDistribution",
    "Decision",
    "Offer",
    "Sample",
    "Schedule",
    "StreamState",
    "Uniform",
    "advance",
    "decide",
]


class Offer(NamedTuple):
    """What a schedule would spend on a tick: units on the test (0: publish without one), and on the publication (0: none)."""

    test: int
    publish: int


@dataclass(frozen=True)
class Decision:
    """The public record of one tick.

    Attributes
    ----------
    tick : int
    action : "publish", "republish" or "withhold"
        A new tree; the tree of tick `stands` again; nothing, because nothing was ever published.
    test, publish : int
        Units charged for the test, whatever its answer was, and for the publication. 0 if there was none.
    stands : int or None
        The tick whose counts stand after this one.
    """

    tick: int
    action: Literal["publish", "republish", "withhold"]
    test: int
    publish: int
    stands: int | None


@dataclass(frozen=True)
class StreamState:
    """All that a stream remembers: public numbers only.

    Attributes
    ----------
    ledger : DensityLedger
    publications : tuple of (int, int)
        Tick and units of the publications in the window.
    last_tick : int or None
        Tick of the last publication.
    last_units : int
        What it cost.
    last_tiles : tuple of int
        Its whole counts of the test's tiles.
    """

    ledger: DensityLedger
    publications: tuple[tuple[int, int], ...] = ()
    last_tick: int | None = None
    last_units: int = 0
    last_tiles: tuple[int, ...] = ()

    def dump(self) -> bytes:
        """Return the state as JSON; equal states give equal bytes."""
        ledger = self.ledger
        fields = (
            ledger.limit,
            ledger.window_ticks,
            ledger.tick,
            ledger.spends,
            self.publications,
            self.last_tick,
            self.last_units,
            self.last_tiles,
        )
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def load(cls, data: bytes) -> "StreamState":
        """Return the state that `dump` wrote."""
        limit, window_ticks, tick, spends, publications, last_tick, last_units, last_tiles = json.loads(data)
        ledger = DensityLedger(limit, window_ticks, tick, tuple((then, units) for then, units in spends))
        return cls(ledger, tuple((then, units) for then, units in publications), last_tick, last_units, tuple(last_tiles))


@dataclass(frozen=True)
class Schedule(ABC):
    """What each tick may spend, from public numbers only.

    Guarantee
        Any w consecutive ticks together have a loss of at most `limit`, whatever the data and the answers of the tests are: w-event
        privacy (Kellaris et al., PVLDB 7(12), 2014). A tick's loss is that of its test, if it has one, plus that of its publication,
        if it has one; both are charged in whole units before anything is published, and the ledger refuses what would pass the limit.
    Unit of privacy
        All that one user does in any w consecutive ticks.
    Neighbouring relation
        Two streams that differ within w consecutive ticks, in each of them by one user as the mechanism's relation says ("add-remove" or
        "replace-one"; with the latter the number of users present at each tick is public, and so is every function of it).

    Parameters
    ----------
    limit : int
        Units a window may spend: millionths of ε; for `Uniform` and `Sample` also 1e-9 of ρ, since zCDP adds up in the same way.
    window_ticks : int
        w, at least 1.

    Attributes
    ----------
    name : str
        What a release states as its schedule.
    pure : bool
        Whether units have to be millionths of ε.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the limit is too small to be divided over the window.
    """

    limit: int
    window_ticks: int
    name: ClassVar[str]
    pure: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.window_ticks < 1:
            raise ValueError("`window_ticks` should be at least 1.")
        if self.limit < self._least():
            raise ValueError(f"`limit` should be at least {self._least()} units for {self.window_ticks} ticks.")

    def start(self, earlier: Mapping[int, int] | None = None) -> StreamState:
        """Return the state before the first tick; `earlier` holds by tick what earlier runs spent on the same users."""
        return StreamState(DensityLedger.start(self.limit, self.window_ticks, earlier))

    @abstractmethod
    def offer(self, state: StreamState, tick: int) -> Offer:
        """Return what the schedule would spend on a tick."""

    @property
    @abstractmethod
    def largest(self) -> Offer:
        """The most that any tick may be offered, for the test and for the publication."""

    def _least(self) -> int:
        return self.window_ticks


class Uniform(Schedule):
    """Every tick publishes with limit / w, rounded down. No tests."""

    name = "uniform"

    def offer(self, state: StreamState, tick: int) -> Offer:
        """Return the same for each tick."""
        return self.largest

    @property
    def largest(self) -> Offer:
        """A tick's even share."""
        return Offer(0, self.limit // self.window_ticks)


class Sample(Schedule):
    """One tick publishes with the whole limit, and the next w - 1 repeat it. No tests."""

    name = "sample"

    def offer(self, state: StreamState, tick: int) -> Offer:
        """Return the limit, w ticks after the last publication."""
        due = state.last_tick is None or tick - state.last_tick >= self.window_ticks
        return Offer(0, self.limit if due else 0)

    @property
    def largest(self) -> Offer:
        """The whole limit."""
        return Offer(0, self.limit)

    def _least(self) -> int:
        return 1


class _Tested(Schedule):
    """Half of the limit for tests, limit / (2 w) rounded down for each, and the rest for publications."""

    pure = True

    @property
    def test(self) -> int:
        """Units of one test."""
        return self.limit // (2 * self.window_ticks)

    @property
    def for_publications(self) -> int:
        """Units for all publications of a window."""
        return self.limit - self.window_ticks * self.test

    def _least(self) -> int:
        return 2 * self.window_ticks

    def _with_test(self, state: StreamState, publish: int) -> Offer:
        # The first publication has nothing to be compared with.
        return Offer(self.test if publish and state.last_tick is not None else 0, publish)


class BudgetDistribution(_Tested):
    """BD: a changed tick publishes with half of what publications have left in the window.

    The test is charged at every tick that has anything left to publish with, the publication only if it happens.
    """

    name = "budget-distribution"

    def offer(self, state: StreamState, tick: int) -> Offer:
        """Return half of what is left."""
        spent = sum(units for then, units in state.publications if tick - then < self.window_ticks)
        return self._with_test(state, (self.for_publications - spent) // 2)

    @property
    def largest(self) -> Offer:
        """Half of what all publications have."""
        return Offer(self.test, self.for_publications // 2)


class BudgetAbsorption(_Tested):
    """BA: a changed tick publishes with its own share and those of the quiet ticks before it, and as many ticks after it pay for that.

    With u = publications' units / w rounded down, a publication at tick l with k u units is followed by k - 1 nullified ticks, which
    republish without a test and are charged nothing. After them, tick i may publish with u · min(i - (l + k - 1), w) units. The test
    is charged at each tick that is not nullified, the publication only if it happens.
    """

    name = "budget-absorption"

    def offer(self, state: StreamState, tick: int) -> Offer:
        """Return the tick's own share and what it absorbs."""
        unit = self.for_publications // self.window_ticks
        if state.last_tick is None:
            return self._with_test(state, unit)
        free = tick - (state.last_tick + state.last_units // unit - 1)
        return self._with_test(state, unit * min(max(free, 0), self.window_ticks))

    @property
    def largest(self) -> Offer:
        """The shares of a whole window."""
        return Offer(self.test, self.for_publications // self.window_ticks * self.window_ticks)


def decide(
    schedule: Schedule,
    dissimilarity: Dissimilarity,
    secret: bytes,
    state: StreamState,
    tick: int,
    leaf_counts: NDArray[np.int64],
    context: bytes = b"",
) -> Decision:
    """Return what to do at a tick: a function of its arguments alone.

    Where earlier runs have left less room than the schedule asks for, the tick is not tested and not published: that too is public.

    Parameters
    ----------
    schedule : Schedule
    dissimilarity : Dissimilarity
    secret : bytes
        16 to 64 bytes.
    state : StreamState
        After the last tick. Ticks that were left out since then have spent nothing.
    tick : int
        After the state's.
    leaf_counts : ndarray of int64 with shape (leaves,)
        True counts of the tick, zeros where nobody is.
    context : bytes, default b""
        Whatever else belongs to this stream. Part of the noise's key.

    Raises
    ------
    ValueError
        If the tick is not after the state's, or an argument is outside its range.
    """
    if state.ledger.tick is not None and tick <= state.ledger.tick:
        raise ValueError(f"`tick` should be after {state.ledger.tick}, the last tick of the state.")
    test, publish = schedule.offer(state, tick)
    if not publish or test + publish > state.ledger.room(tick):
        return Decision(tick, "withhold" if state.last_tick is None else "republish", 0, 0, state.last_tick)
    if test:
        key = b"\0".join([schedule.name.encode(), state.dump(), context])
        if not dissimilarity.changed(secret, tick, leaf_counts, state.last_tiles, test, publish, key):
            return Decision(tick, "republish", test, 0, state.last_tick)
    return Decision(tick, "publish", test, publish, tick)


def advance(state: StreamState, decision: Decision, tiles: NDArray[np.int64] | None = None) -> StreamState:
    """Return the state after a tick.

    Parameters
    ----------
    state : StreamState
        The one that was decided on.
    decision : Decision
    tiles : ndarray of int64 with shape (d,), optional
        Whole counts of the dissimilarity's tiles in the tree just published; needed if the decision was to publish.

    Raises
    ------
    ValueError
        If a window would pass the limit, the tick is not after the state's, or `tiles` is missing.
    """
    ledger = state.ledger.spend(decision.tick, decision.test + decision.publish)
    kept = tuple((then, units) for then, units in state.publications if then > decision.tick - ledger.window_ticks)
    if decision.action != "publish":
        return StreamState(ledger, kept, state.last_tick, state.last_units, state.last_tiles)
    if tiles is None:
        raise ValueError("`tiles` should hold the counts just published.")
    last = tuple(int(count) for count in tiles)
    return StreamState(ledger, (*kept, (decision.tick, decision.publish)), decision.tick, decision.publish, last)
