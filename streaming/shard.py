"""The stateful step: the records of a shard's closed ticks -> releases, the public ledger, and every record's outcome."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from geo.plane import Plane
from geo.privacy.window_mean import WindowMean, nano_epsilon_per_m
from streaming.accounting import balance_of
from streaming.earlier import EarlierSpends
from streaming.ledger import Ledger
from streaming.pseudonyms import Pseudonyms
from streaming.records import FIRST_POSITION_REASON, Kind
from streaming.release import Outputs, Promise, Summary, balance_line, summary_line, trace_lines
from streaming.settings import Settings
from streaming.ticks import TickGrid
from streaming.window import Windows, gather

__all__ = ["Protector", "ShardState", "tick_grid"]

STATE_VERSION = 1
FREE, ENROLLED, TOMBSTONE = 0, 1, 2
USER = np.dtype([("user", "<u8"), ("last_seen", "<i8"), ("spent", "<i8"), ("stage", "u1")])
HEADER = np.dtype([("version", "<i8"), ("tick", "<i8"), ("started", "<i8")])


def tick_grid(settings: Settings) -> TickGrid:
    """Return the ticks that the settings define."""
    return TickGrid(settings.tick.length_s * 1000, settings.tick.lateness_s * 1000)


@dataclass
class ShardState:
    """All that a shard remembers between ticks.

    Attributes
    ----------
    users
        One row a known user: id, last tick with a fix, spent in the window, and stage (free, enrolled, tombstone). A row's
        number stays a user's own until the tombstone has lasted one whole window.
    slots
        The ledger's slots (see `Ledger`), kept by the caller.
    tick
        Last closed tick, or None.
    """

    users: NDArray[np.void]
    slots: MutableMapping[int, bytes]
    tick: int | None = None

    @classmethod
    def empty(cls, slots: MutableMapping[int, bytes]) -> "ShardState":
        """Return the state of a shard that has seen nobody."""
        return cls(np.zeros(0, USER), slots)

    @classmethod
    def load(cls, data: bytes | None, slots: MutableMapping[int, bytes]) -> "ShardState":
        """Restore from `dump`; a state of another version is refused."""
        if data is None:
            return cls.empty(slots)
        header = np.frombuffer(data, HEADER, 1)[0]
        if header["version"] != STATE_VERSION:
            raise ValueError(
                f"the state has version {header['version']} and this release reads {STATE_VERSION}; use the release that wrote it"
            )
        users = np.frombuffer(data, USER, offset=HEADER.itemsize).copy()
        return cls(users, slots, int(header["tick"]) if header["started"] else None)

    def dump(self) -> bytes:
        """Return the users and the tick as bytes; the slots are kept by the caller."""
        header = np.array([(STATE_VERSION, self.tick or 0, self.tick is not None)], HEADER)
        return header.tobytes() + self.users.tobytes()

    @property
    def active(self) -> bool:
        """Whether anybody is enrolled, so that the next tick has something to say without any input."""
        return bool((self.users["stage"] == ENROLLED).any())

    def next_expiry(self, window_ticks: int, silent_ticks: int) -> int | None:
        """Return the tick at which the last tombstone can go, or None if there is none."""
        held = self.users["last_seen"][self.users["stage"] == TOMBSTONE]
        if not len(held):
            return None
        expiry = int(held.max()) + silent_ticks + window_ticks
        return expiry if self.tick is None else max(expiry, self.tick + 1)


@dataclass
class Protector:
    """Close ticks of a shard: windows, ledger, mechanism W, releases and balance.

    Guarantee (traces). Unit: where one enrolled user was in one tick; presence is public. For any two windows of a user whose means
    are D ground metres apart, the laws of the release differ by at most a factor exp(eps_m (D + √2 step)) and an additive delta
    below 2^-60 times (1 + that factor); the charge in the ledger is this loss at D = `radius_m`. Over any w ticks the charges of a
    user add up to at most the limit, decided by the ledger alone. Status, keys, emission and charges are functions of presence and
    of earlier charges, never of positions.

    Source: Assam, Hassani, Seidl (IWGS 2012) for the window mean; Andrés et al. (CCS 2013) for metric privacy; Kellaris et al.
    (PVLDB 7(12), 2014) for w-event sums. The in-parallel composition over windows that the first claims is not used: windows of one
    user compose sequentially.
    """

    settings: Settings
    secret: bytes
    earlier: EarlierSpends = field(default_factory=EarlierSpends.none)

    def __post_init__(self) -> None:
        """Build what is constant in a run."""
        privacy = self.settings.privacy
        self.grid = tick_grid(self.settings)
        self.plane = Plane(self.settings.region.region())
        self.mechanism = WindowMean(self.plane, privacy.step_m, nano_epsilon_per_m(privacy.ratio, privacy.radius_m))
        self.pseudonyms = Pseudonyms(self.secret, privacy.audience, privacy.epoch_ticks)
        charge = self.mechanism.charge_micro(privacy.radius_m)
        self.promise = Promise(
            self.mechanism.name,
            self.mechanism.radius_m(0.5),
            self.mechanism.radius_m(0.95),
            charge,
            privacy.radius_m,
            charge * privacy.releases_per_window,
            privacy.policy_version,
        )

    def close(self, state: ShardState, shard: int, tick: int, rows: NDArray[np.void]) -> Outputs:
        """Close one tick: change `state` and return lines for each topic.

        Parameters
        ----------
        state
            The shard's state; its ticks never go back.
        shard, tick
            Which.
        rows
            All packed records accounted for at this tick, in any order.
        """
        names = self.settings.topics
        kind = rows["kind"]
        fixes = rows[kind == Kind.FIX]
        windows = gather(fixes, self.plane, self.settings.tick.max_fixes, self.settings.tick.max_speed_mps)
        present = np.union1d(windows.user, rows["user"][kind >= FIRST_POSITION_REASON])
        seen = np.union1d(present, rows["user"][kind == Kind.ENROLMENT])

        before_window = tick - self.settings.privacy.window_ticks
        past = before_window if state.tick is None else max(before_window, state.tick)
        ledger = self._ledger(state, tick)
        index = self._enrol(state, ledger, tick, seen, past)
        held = np.flatnonzero(state.users["stage"] != FREE)
        self.earlier.enter(ledger, self.pseudonyms, past, tick, held, state.users["user"][held])
        enrolled = np.flatnonzero(state.users["stage"] == ENROLLED)
        here = index[np.isin(seen, present, assume_unique=True)]
        ahead = self.earlier.between(self.pseudonyms, tick, tick + self.settings.privacy.window_ticks - 1, state.users["user"][here])
        granted = ledger.spend(here, np.full(len(here), self.promise.charge_micro), ahead)
        state.users["spent"] = ledger.spent

        lines = self._releases(state, ledger, tick, enrolled, present, here, granted, windows)
        released = int(granted.sum())
        summary = Summary(
            tick=tick,
            shard=shard,
            enrolled=len(enrolled),
            released=released,
            absent=len(enrolled) - len(here),
            withheld=len(here) - released,
            epsilon_micro=released * self.promise.charge_micro,
        )
        withheld_fixes = int(windows.kept[np.isin(windows.user, present[~granted])].sum())
        out: Outputs = {}
        if len(enrolled):
            out[names.traces] = lines
            out[names.releases] = [summary_line(summary)]
        if len(rows):
            balance = balance_of(
                "traces",
                tick,
                shard,
                rows,
                used=int(windows.kept.sum()) - withheld_fixes,
                merged=windows.merged,
                duplicate=windows.duplicate,
                withheld=withheld_fixes,
                unclosed=0,
            )
            out[names.balance] = [balance_line(balance)]
        self._expire(state, tick)
        return out

    def unclosed(self, shard: int, tick: int, rows: NDArray[np.void]) -> Outputs:
        """Account for records whose tick was still open when a bounded input ended: nothing is released from them."""
        held = int((rows["kind"] == Kind.FIX).sum())
        balance = balance_of("traces", tick, shard, rows, used=0, merged=0, duplicate=0, withheld=held, unclosed=held)
        return {self.settings.topics.balance: [balance_line(balance)]}

    def _ledger(self, state: ShardState, tick: int) -> Ledger:
        ledger = Ledger(self.settings.privacy.window_ticks, self.promise.limit_micro, state.slots, state.users["spent"].copy(), state.tick)
        ledger.advance(tick)
        state.tick = tick
        state.users["spent"] = ledger.spent
        return ledger

    def _enrol(self, state: ShardState, ledger: Ledger, tick: int, seen: NDArray[np.uint64], past: int) -> NDArray[np.intp]:
        """Return the rows of the users in `seen` (ascending ids), making new ones, with their spends up to tick `past`, for the rest."""
        by_id = np.argsort(state.users["user"], kind="stable")
        sorted_ids = state.users["user"][by_id]
        place = np.searchsorted(sorted_ids, seen)
        known = np.zeros(len(seen), bool)
        inside = place < len(sorted_ids)
        known[inside] = sorted_ids[place[inside]] == seen[inside]
        index = np.empty(len(seen), np.intp)
        index[known] = by_id[place[known]]
        new = int((~known).sum())
        free = np.flatnonzero(state.users["stage"] == FREE)[:new]
        grown = np.arange(len(state.users), len(state.users) + new - len(free))
        state.users = np.concatenate([state.users, np.zeros(len(grown), USER)])
        ledger.grow(len(state.users))
        fresh = np.concatenate([free, grown])
        index[~known] = fresh
        state.users["user"][fresh] = seen[~known]
        state.users["last_seen"][index] = tick
        state.users["stage"][index] = ENROLLED
        self.earlier.enter(ledger, self.pseudonyms, tick - self.settings.privacy.window_ticks, past, fresh, seen[~known])
        return index

    def _releases(
        self,
        state: ShardState,
        ledger: Ledger,
        tick: int,
        enrolled: NDArray[np.intp],
        present: NDArray[np.uint64],
        here: NDArray[np.intp],
        granted: NDArray[np.bool_],
        windows: Windows,
    ) -> list[str]:
        place = np.searchsorted(present, windows.user)
        sums, kept = np.zeros((len(present), 2), np.int64), np.zeros(len(present), np.int64)
        sums[place], kept[place] = windows.sum_mm, windows.kept
        cells = self.mechanism.cells(sums[granted], kept[granted])
        noisy, look = self.mechanism.perturb(self.secret, present[granted], tick, cells)
        position, looks = np.zeros((len(state.users), 2)), np.zeros(len(state.users), np.uint64)
        position[here[granted]], looks[here[granted]] = self.mechanism.publish(noisy), look
        released, withheld = np.zeros(len(state.users), bool), np.zeros(len(state.users), bool)
        released[here[granted]] = True
        withheld[here[~granted]] = True
        out = released[enrolled]
        return trace_lines(
            self.promise,
            tick,
            self.grid.start_ms(tick),
            self.pseudonyms.of(state.users["user"][enrolled], tick),
            out,
            withheld[enrolled],
            position[enrolled[out]],
            looks[enrolled[out]],
            self.promise.budget_classes(ledger.left()[enrolled]),
        )

    def _expire(self, state: ShardState, tick: int) -> None:
        silent = tick - state.users["last_seen"]
        end, window = self.settings.tick.silent_ticks, self.settings.privacy.window_ticks
        state.users["stage"][(state.users["stage"] == ENROLLED) & (silent >= end)] = TOMBSTONE
        # Earlier runs may have spent after the last fix that this run has seen: a row is given on only when nothing of it is left.
        gone = (state.users["stage"] == TOMBSTONE) & (silent >= end + window) & (state.users["spent"] == 0)
        state.users[gone] = np.zeros(1, USER)
        if gone.any() and (state.users["stage"] == FREE).all():
            state.users = np.zeros(0, USER)
            state.slots.clear()
