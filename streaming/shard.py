"""The stateful step: the records of a shard's closed ticks -> releases, the public ledger, and every record's outcome."""

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from geo.anchors.index import AnchorIndex
from streaming.accounting import balance_of
from streaming.audiences import Audiences, Last
from streaming.charges import CHARGE, charge_lines
from streaming.earlier import EarlierSpends
from streaming.ledger import Ledger
from streaming.policy import Policy, PolicyError, parse_policy
from streaming.policy_log import Entry, Point, Timeline
from streaming.records import FIRST_POSITION_REASON, Kind
from streaming.release import Outputs, Summary, balance_line, summary_line
from streaming.settings import Settings
from streaming.ticks import TickGrid
from streaming.window import Windows, gather

__all__ = ["Protector", "ShardState", "tick_grid"]

STATE_VERSION = 2
FREE, ENROLLED, TOMBSTONE = 0, 1, 2
POINTS_KEPT = 16
"""Change points of the policy that are kept ready: shards that catch up one after the other need the same ones again."""

HEADER = np.dtype([("version", "<i8"), ("tick", "<i8"), ("started", "<i8"), ("audiences", "<i8"), ("policy", "<i8")])


def user_rows(count: int, audiences: int) -> NDArray[np.void]:
    """Return free rows of users."""
    fields = [
        ("user", "<u8"),
        ("last_seen", "<i8"),
        ("spent", "<i8"),
        ("last", "<i4", (2,)),
        ("has_last", "?"),
        ("stage", "u1"),
        ("place", "<u4", (audiences,)),
    ]
    return np.zeros(count, np.dtype(fields))


def tick_grid(settings: Settings) -> TickGrid:
    """Return the ticks that the settings define."""
    return TickGrid(settings.tick.length_s * 1000, settings.tick.lateness_s * 1000)


@dataclass
class ShardState:
    """All that a shard remembers between ticks.

    Attributes
    ----------
    users
        One row a known user: id, last tick with a fix, spent in the window, noisy cell of the last new release (see `Last`), stage (free,
        enrolled, tombstone), and for each audience the place class of what it was last sent. A row's number stays a user's own until the
        tombstone has lasted one whole window.
    slots
        The ledger's slots (see `Ledger`), kept by the caller.
    tick
        Last closed tick, or None.
    policy
        Version of the policy by which places are classed.
    """

    users: NDArray[np.void]
    slots: MutableMapping[int, bytes]
    tick: int | None = None
    policy: int = 0

    @classmethod
    def empty(cls, slots: MutableMapping[int, bytes], audiences: int = 1) -> "ShardState":
        """Return the state of a shard that has seen nobody."""
        return cls(user_rows(0, audiences), slots)

    @classmethod
    def load(cls, data: bytes | None, slots: MutableMapping[int, bytes], audiences: int = 1) -> "ShardState":
        """Restore from `dump`, or start with nobody; a state of another version is refused."""
        if data is None:
            return cls.empty(slots, audiences)
        header = np.frombuffer(data, HEADER, 1)[0]
        if header["version"] != STATE_VERSION:
            raise ValueError(
                f"the state has version {header['version']} and this release reads {STATE_VERSION}; use the release that wrote it"
            )
        row = user_rows(0, int(header["audiences"])).dtype
        users = np.frombuffer(data, row, offset=HEADER.itemsize).copy()
        return cls(users, slots, int(header["tick"]) if header["started"] else None, int(header["policy"]))

    def dump(self) -> bytes:
        """Return the users and the tick as bytes; the slots are kept by the caller."""
        audiences = self.users["place"].shape[1]
        header = np.array([(STATE_VERSION, self.tick or 0, self.tick is not None, audiences, self.policy)], HEADER)
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
    are D ground metres apart, the laws of all releases of the tick together differ by at most a factor exp(eps_m (D + √2 step)), eps_m
    the finest that any audience gets, and an additive delta below 2^-60 times (1 + that factor); the charge in the ledger is at least
    this loss at D = `radius_m`. Over any w ticks the charges of a user add up to at most the limit, decided by the ledger alone. Status,
    keys, emission and charges are functions of the policy, presence and earlier charges, never of positions. With the predictive
    mechanism the factor is that of `Predictive`, and charges and refusals follow the outcomes that its one audience is sent.

    Source: Assam, Hassani, Seidl (IWGS 2012) for the window mean; Andrés et al. (CCS 2013) for metric privacy; Kellaris et al.
    (PVLDB 7(12), 2014) for w-event sums. The in-parallel composition over windows that the first claims is not used: windows of one
    user compose sequentially.
    """

    settings: Settings
    secret: bytes
    earlier: EarlierSpends = field(default_factory=EarlierSpends.none)
    policy: Policy | None = None
    anchors: AnchorIndex | None = None

    def __post_init__(self) -> None:
        """Build what is constant in a run."""
        self.grid = tick_grid(self.settings)
        self._first = Audiences(self.settings, self.secret, self.policy, self.anchors)
        self._timeline = Timeline(self.policy, self._first.deployment)
        self._built = {self._timeline.point(0): self._first}
        self.plane = self._first.plane

    def enforce(self, admitted: Mapping[str, Iterable[Entry]]) -> None:
        """Take over what has been admitted by the topic `policies` and can still hold, by scope, beside the policy that holds at first."""
        self._timeline.enforce(admitted)

    def audiences(self, tick: int) -> Audiences:
        """Return the audiences under the policy that holds in a tick."""
        point = self._timeline.point(tick)
        found = self._built[point] = self._built.pop(point) if point in self._built else self._build(tick, point)
        if len(self._built) > POINTS_KEPT:
            del self._built[next(iter(self._built))]
        return found

    def _build(self, tick: int, point: Point) -> Audiences:
        try:
            return self._first.under(self._timeline.policy(tick))
        except PolicyError:
            # By chance two of its users share an identifier, which nobody knew when it was admitted: nothing is released to anybody.
            return self._first.under(parse_policy({"version": point.version}))

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
        names, start_ms, audiences = self.settings.topics, self.grid.start_ms(tick), self.audiences(tick)
        if state.policy != audiences.version:
            # The classes of places are those of a policy.
            state.policy, state.users["place"] = audiences.version, 0
        kind = rows["kind"]
        fixes = rows[kind == Kind.FIX]
        windows = gather(fixes, self.plane, self.settings.tick.max_fixes, self.settings.tick.max_speed_mps)
        present = np.union1d(windows.user, rows["user"][kind >= FIRST_POSITION_REASON])
        seen = np.union1d(present, rows["user"][kind == Kind.ENROLMENT])

        before_window = tick - self.settings.privacy.window_ticks
        past = before_window if state.tick is None else max(before_window, state.tick)
        ledger = self._ledger(state, tick)
        self._enrol(state, ledger, tick, seen, past)
        held = np.flatnonzero(state.users["stage"] != FREE)
        self.earlier.enter(ledger, past, tick, held, state.users["user"][held])

        enrolled = np.flatnonzero(state.users["stage"] == ENROLLED)
        user = np.ascontiguousarray(state.users["user"][enrolled])
        is_here = np.isin(user, present)
        views = audiences.views(tick, start_ms, user, state.users["place"][enrolled])
        granted = self._granted(ledger, tick, enrolled, user, is_here, views.charge_micro)
        seen_now = enrolled[granted]
        last = Last(state.users["last"][seen_now].astype(np.int64), state.users["has_last"][seen_now])
        looks = audiences.look(
            tick,
            user[granted],
            views.number[granted],
            views.kinds,
            views.charge_micro[granted],
            self._cells(windows, user[granted]),
            last,
        )
        state.users["last"][seen_now], state.users["has_last"][seen_now] = last
        ledger.record(tick, seen_now, looks.charge_micro)
        state.users["spent"] = ledger.spent
        left, place = ledger.left()[enrolled], state.users["place"][enrolled]
        out: Outputs = {}
        for audience, (name, topic) in enumerate(zip(audiences.names, audiences.topics, strict=True)):
            sent = audiences.rows(audience, tick, start_ms, views, user, is_here, granted, left, looks, place[:, audience])
            if sent.enrolled:
                absent = sent.enrolled - sent.released - sent.withheld
                summary = Summary(tick, shard, name, sent.enrolled, sent.released, absent, sent.withheld, sent.epsilon_micro)
                out[topic] = sent.lines
                out.setdefault(names.releases, []).append(summary_line(summary))
        state.users["place"][enrolled] = place
        if granted.any():
            charges = np.zeros(int(granted.sum()), CHARGE)
            charges["user"], charges["tick"] = user[granted], tick
            charges["look"], charges["charge_micro"] = looks.finest, looks.charge_micro
            out[names.charges] = charge_lines(shard, charges)
        if len(rows):
            withheld_fixes = int(windows.kept[~np.isin(windows.user, user[granted])].sum())
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
        ledger = Ledger(self.settings.privacy.window_ticks, self._first.limit_micro, state.slots, state.users["spent"].copy(), state.tick)
        ledger.advance(tick)
        state.tick = tick
        state.users["spent"] = ledger.spent
        return ledger

    def _enrol(self, state: ShardState, ledger: Ledger, tick: int, seen: NDArray[np.uint64], past: int) -> None:
        """Enrol the users in `seen` (ascending ids); new ones get a row, with their spends up to tick `past`."""
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
        state.users = np.concatenate([state.users, user_rows(len(grown), len(self._first))])
        ledger.grow(len(state.users))
        fresh = np.concatenate([free, grown])
        index[~known] = fresh
        state.users["user"][fresh] = seen[~known]
        state.users["last_seen"][index] = tick
        state.users["stage"][index] = ENROLLED
        self.earlier.enter(ledger, tick - self.settings.privacy.window_ticks, past, fresh, seen[~known])

    def _granted(
        self,
        ledger: Ledger,
        tick: int,
        enrolled: NDArray[np.intp],
        user: NDArray[np.uint64],
        present: NDArray[np.bool_],
        charge_micro: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Return who of the enrolled is present, has an audience, and has enough left."""
        asked = np.flatnonzero(present & (charge_micro > 0))
        ahead = self.earlier.between(tick, tick + self.settings.privacy.window_ticks - 1, user[asked])
        granted = np.zeros(len(enrolled), bool)
        granted[asked] = ledger.grants(enrolled[asked], charge_micro[asked], ahead)
        return granted

    def _cells(self, windows: Windows, user: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the true cells of users, in any order; a user without a usable position has the public fallback."""
        place = np.minimum(np.searchsorted(windows.user, user), max(0, len(windows.user) - 1))
        usable = np.zeros(len(user), bool) if not len(windows.user) else windows.user[place] == user
        sums, kept = np.zeros((len(user), 2), np.int64), np.zeros(len(user), np.int64)
        sums[usable], kept[usable] = windows.sum_mm[place[usable]], windows.kept[place[usable]]
        return self._first.base.cells(sums, kept)

    def _expire(self, state: ShardState, tick: int) -> None:
        silent = tick - state.users["last_seen"]
        end, window = self.settings.tick.silent_ticks, self.settings.privacy.window_ticks
        state.users["stage"][(state.users["stage"] == ENROLLED) & (silent >= end)] = TOMBSTONE
        # Earlier runs may have spent after the last fix that this run has seen: a row is given on only when nothing of it is left.
        gone = (state.users["stage"] == TOMBSTONE) & (silent >= end + window) & (state.users["spent"] == 0)
        state.users[gone] = user_rows(1, len(self._first))
        if gone.any() and (state.users["stage"] == FREE).all():
            state.users = user_rows(0, len(self._first))
            state.slots.clear()
