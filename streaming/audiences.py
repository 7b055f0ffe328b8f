"""What each audience learns at a tick: its view of every user, one look for all of them, and the rows that say it."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geo.anchors.index import AnchorIndex
from geo.plane import Plane
from geo.privacy.prf import subkey
from geo.privacy.refinement import Chain
from geo.privacy.window_mean import coarsest_radius_m
from streaming.decode import user_id
from streaming.mechanisms import Mechanisms
from streaming.policy import Audience, Deployment, Policy, Resolver, View, parse_policy
from streaming.pseudonyms import Pseudonyms
from streaming.release import Statement, budget_classes, trace_lines
from streaming.settings import Settings
from streaming.told import Teller

__all__ = ["NOBODY", "Audiences", "Last", "Looks", "Outcome", "Rows", "Views", "deployment_of"]

PLACES = 1 << 32
NOBODY = -1
"""Number of the view of an audience that gets no row."""


def deployment_of(settings: Settings, anchors: AnchorIndex | None, plane: Plane | None = None) -> Deployment:
    """Return what a policy has to fit; `plane` is that of the settings' region, if it is at hand."""
    region = settings.region.region()
    return Deployment(
        tuple(Audience(audience.name, audience.acts_as, audience.usage) for audience in settings.audiences),
        settings.privacy.finest_m,
        tuple(anchors.category_names) if anchors else None,
        region,
        coarsest_radius_m(plane or Plane(region), settings.privacy.step_m, settings.privacy.ratio),
    )


def _without_policy(settings: Settings, deployment: Deployment) -> tuple[Policy, Deployment]:
    """Return what holds where there is no policy: everything of everybody at the settings' radius; nothing where versions come live."""
    rule = {"subject": "default", "audience": "*", "level": "none" if settings.live_policies else "full"}
    return parse_policy({"version": 1, "rule": [rule]}), replace(deployment, full_radius_m=settings.privacy.radius_m)


@dataclass(frozen=True)
class Views:
    """What each audience may learn of m users at one tick.

    Attributes
    ----------
    kinds
        The distinct views.
    number
        For each user and audience the number of its view, or `NOBODY`; shape (m, audiences).
    charge_micro
        The most that a look at each user may cost, shape (m,), in micro-epsilon: that of the finest radius that any audience may get at
        the tick, wherever the user was last released. 0 for a user of whom no audience gets a row.
    bound_micro
        The same for what each audience may get, shape (m, audiences).
    """

    kinds: Sequence[View]
    number: NDArray[np.intp]
    charge_micro: NDArray[np.int64]
    bound_micro: NDArray[np.int64]


@dataclass(frozen=True)
class Looks:
    """One look at each of m users, as each audience gets it.

    Attributes
    ----------
    cells
        Noisy cells, shape (m, audiences, 2); zeros where there is nothing to get.
    look
        What tells each release from another one of the same user, tick and precision, shape (m, audiences).
    finest
        The same for the finest release of each user, shape (m,): it stands for the whole look.
    outcome
        One of `Outcome` for each user, shape (m,).
    charge_micro
        What each look has cost, shape (m,), in micro-epsilon; at most what the views say.
    """

    cells: NDArray[np.int64]
    look: NDArray[np.uint64]
    finest: NDArray[np.uint64]
    outcome: NDArray[np.uint8]
    charge_micro: NDArray[np.int64]


class Outcome(IntEnum):
    """How a release came about: new noise; with the predictive mechanism also the last one again, or new noise after a test."""

    NEW = 0
    AGAIN = 1
    TESTED = 2


class Last(NamedTuple):
    """What the predictive mechanism remembers of m users: noisy cell of the last new release, shape (m, 2), and whether there was one."""

    cells: NDArray[np.int64]
    known: NDArray[np.bool_]


@dataclass
class Rows:
    """Rows of one audience at one tick, and what the public ledger says of them.

    Attributes
    ----------
    lines
        Key and JSON of each row, in the order of the pseudonyms, so that the order tells nothing.
    enrolled, released, withheld
        How many rows, and how many of them release or withhold.
    epsilon_micro
        The most that the releases together may have cost: what they did cost could tell of a single user where the view or the outcome
        depends on what the user was last sent.
    """

    lines: list[str]
    enrolled: int = 0
    released: int = 0
    withheld: int = 0
    epsilon_micro: int = 0


class Audiences:
    """All audiences of a deployment.

    Guarantee
        All audiences together learn of a user and tick no more than the finest `WindowMean` that one of them gets, since the others get
        that with independent noise added (`Chain`); the ledger is charged for it once. Which rows there are, their keys, status and charge
        are functions of the policy, of time, of presence and of earlier charges. The view of a row may also depend on the place class of
        what the same audience was last sent, and on nothing else. With the predictive mechanism, which serves one audience, outcome and
        charge depend on the position as `Predictive` says, and so do later refusals.

    Parameters
    ----------
    settings, secret
        What is promised, and the key of all that is keyed.
    policy
        What each audience may learn of whom. None: everything of everybody at the settings' radius, or nothing if versions come live.
    anchors
        Public places; needed by policies that speak of them.
    """

    def __init__(self, settings: Settings, secret: bytes, policy: Policy | None = None, anchors: AnchorIndex | None = None) -> None:
        privacy = settings.privacy
        self._secret, self._settings = secret, settings
        self.plane = Plane(settings.region.region())
        self.names, self.topics = [audience.name for audience in settings.audiences], settings.trace_topics
        self.deployment = deployment_of(settings, anchors, self.plane)
        self._teller = Teller(anchors)
        tests_first = privacy.mechanism == "predictive"
        self._mechanisms = Mechanisms(self.plane, privacy.step_m, privacy.ratio, tests_first=tests_first)
        self.statement, self.most_micro, self._chain = cache(self._statement), cache(self._most_micro), cache(self._build_chain)
        self._pseudonyms = [Pseudonyms(secret, name, privacy.epoch_ticks) for name in self.names]
        self.base = self._mechanisms.window_mean(privacy.radius_m)
        self.limit_micro = self.statement(privacy.radius_m).epsilon_micro * privacy.releases_per_window
        self._take(policy)

    def __len__(self) -> int:
        return len(self.names)

    def under(self, policy: Policy | None) -> "Audiences":
        """Return the same audiences under another policy; only what depends on it is made anew.

        Raises
        ------
        PolicyError
            If the policy does not fit the deployment, or two users that it names share an identifier.
        """
        other = copy(self)
        other._take(policy)
        return other

    def _take(self, policy: Policy | None) -> None:
        key = subkey(self._secret, b"user-id")
        rules = (policy, self.deployment) if policy else _without_policy(self._settings, self.deployment)
        self._resolver = Resolver(*rules, lambda user: user_id(key, user))
        self.version = policy.version if policy else 0

    def is_stated(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a release's mechanism, radius and loss belong together under these settings."""
        try:
            stated = [self.statement(row["radius_m"], outcome) for outcome in Outcome]
        except ValueError:
            return False
        return any((row["mechanism"], row["epsilon_micro"]) == (one.mechanism, one.epsilon_micro) for one in stated)

    def views(self, tick: int, start_ms: int, user: NDArray[np.uint64], place: NDArray[np.uint32]) -> Views:
        """Return the views of m users at a tick.

        Parameters
        ----------
        tick, start_ms
            The tick, and when it starts.
        user
            Ids, shape (m,).
        place
            Place class of what each audience was last sent, shape (m, audiences); see `tell`.
        """
        subject = self._resolver.classes(user)
        kinds: dict[View, int] = {}
        number, bound = np.empty(place.shape, np.intp), np.empty(place.shape, np.int64)
        for audience in range(len(self)):
            pairs, pair_of = np.unique(subject.astype(np.int64) * PLACES + place[:, audience], return_inverse=True)
            numbers, charges = np.empty(len(pairs), np.intp), np.empty(len(pairs), np.int64)
            for i, (whom, where) in enumerate(divmod(pair, PLACES) for pair in pairs.tolist()):
                view = self._resolver.view(whom, audience, start_ms, where)
                finest_m = self._resolver.finest_m(whom, audience, start_ms)
                due = view is not None and finest_m is not None and tick % view.every == 0
                numbers[i] = kinds.setdefault(view, len(kinds)) if due and view else NOBODY
                charges[i] = self.most_micro(finest_m) if due and finest_m else 0
            number[:, audience], bound[:, audience] = numbers[pair_of], charges[pair_of]
        return Views(list(kinds), number, bound.max(axis=1, initial=0), bound)

    def look(
        self,
        tick: int,
        user: NDArray[np.uint64],
        number: NDArray[np.intp],
        kinds: Sequence[View],
        charge_micro: NDArray[np.int64],
        cells: NDArray[np.int64],
        last: Last,
    ) -> Looks:
        """Look once at the true cells of m users, for all audiences.

        Parameters
        ----------
        tick
            Which.
        user, cells
            Ids of shape (m,), and true cells of shape (m, 2).
        number, kinds, charge_micro
            The users' views, and the most that each look may cost.
        last
            What is remembered of the users; new releases are entered.
        """
        if self._mechanisms.tests_first:
            return self._test_and_look(tick, user, number[:, 0], kinds, cells, last)
        radii = sorted({view.radius_m for view in kinds})
        level_of = np.array([*(radii.index(view.radius_m) for view in kinds), NOBODY], np.intp)
        looks = _no_looks(number.shape)
        for wanted, index in _groups(level_of[number], len(radii)):
            used = [level for level in range(len(radii)) if level in wanted]
            draws = self._chain(tuple(radii[level] for level in used)).perturb(self._secret, user[index], tick, cells[index])
            looks.finest[index] = draws[0].look
            for audience, level in enumerate(wanted):
                if level != NOBODY:
                    looks.cells[index, audience], looks.look[index, audience] = draws[used.index(level)]
        looks.charge_micro[:] = charge_micro
        return looks

    def _test_and_look(
        self,
        tick: int,
        user: NDArray[np.uint64],
        number: NDArray[np.intp],
        kinds: Sequence[View],
        cells: NDArray[np.int64],
        last: Last,
    ) -> Looks:
        looks = _no_looks((len(user), 1))
        for kind, view in enumerate(kinds):
            index = np.flatnonzero(number == kind)
            released, easy, look = self._mechanisms.predictive(view.radius_m).release(
                self._secret, user[index], tick, cells[index], last.cells[index], last.known[index]
            )
            looks.cells[index, 0], looks.look[index, 0], looks.finest[index] = released, look, look
            looks.outcome[index] = np.where(easy, Outcome.AGAIN, np.where(last.known[index], Outcome.TESTED, Outcome.NEW))
            costs = np.array([self.statement(view.radius_m, outcome).epsilon_micro for outcome in Outcome], np.int64)
            looks.charge_micro[index] = costs[looks.outcome[index]]
            last.cells[index], last.known[index] = released, True
        return looks

    def rows(
        self,
        audience: int,
        tick: int,
        start_ms: int,
        views: Views,
        user: NDArray[np.uint64],
        present: NDArray[np.bool_],
        granted: NDArray[np.bool_],
        left_micro: NDArray[np.int64],
        looks: Looks,
        place: NDArray[np.uint32],
    ) -> Rows:
        """Return an audience's rows of a tick, and enter in `place` what it is sent now.

        Parameters
        ----------
        audience, tick, start_ms
            Which.
        views, user, present, granted, left_micro
            Of m enrolled users: their views, ids, who sent a fix, to whom the ledger granted a look, and what the ledger has left for each.
        looks
            Of the granted users, in their order.
        place
            Place class of what each user's last release to this audience was, shape (m,); changed for those released now.
        """
        order = np.cumsum(granted) - 1
        number = views.number[:, audience]
        out = Rows([])
        outcome = np.zeros(len(user), np.uint8)
        outcome[granted] = looks.outcome
        kind_and_outcome = np.where(number != NOBODY, number * len(Outcome) + outcome, NOBODY)
        for which in np.unique(kind_and_outcome[number != NOBODY]).tolist():
            view, index = views.kinds[which // len(Outcome)], np.flatnonzero(kind_and_outcome == which)
            statement = self.statement(view.radius_m, Outcome(which % len(Outcome)))
            released, withheld = granted[index], present[index] & ~granted[index]
            sent = order[index[released]]
            mechanism = self._mechanisms.window_mean(view.radius_m)
            position = mechanism.publish(looks.cells[sent, audience])
            told = self._teller.tell(view, position, 1e-9 * mechanism.nano_epsilon_per_m, statement.r95_m)
            place[index[released]] = self._resolver.places(told.position, told.category)
            out.lines += trace_lines(
                tick,
                start_ms,
                self.version,
                statement,
                self._pseudonyms[audience].of(np.ascontiguousarray(user[index]), tick),
                budget_classes(left_micro[index], views.charge_micro[index], self.limit_micro),
                withheld,
                released,
                told.members,
                looks.look[sent, audience],
            )
            out.enrolled += len(index)
            out.released += len(sent)
            out.withheld += int(withheld.sum())
            out.epsilon_micro += int(views.bound_micro[index[released], audience].sum())
        out.lines.sort()
        return out

    def _statement(self, radius_m: float, outcome: Outcome = Outcome.NEW) -> Statement:
        """Return what a release with a protected radius states of its noise; its loss is that at the settings' radius."""
        mechanism, ledger_m = self._mechanisms.window_mean(radius_m), self._settings.privacy.radius_m
        radii = mechanism.radius_m(0.5), mechanism.radius_m(0.95)
        if outcome == Outcome.NEW:
            return Statement(mechanism.name, *radii, mechanism.charge_micro(ledger_m), radius_m)
        predictive = self._mechanisms.predictive(radius_m)
        test, noise = predictive.charge_micro(ledger_m)
        if outcome == Outcome.AGAIN:
            return Statement(predictive.name, predictive.easy_radius_m(0.5), predictive.easy_radius_m(0.95), test, radius_m)
        return Statement(predictive.name, *radii, test + noise, radius_m)

    def _most_micro(self, radius_m: float) -> int:
        """Return the most that a release with a protected radius may cost."""
        return self._mechanisms.most_micro(radius_m, self._settings.privacy.radius_m)

    def _build_chain(self, radii: tuple[float, ...]) -> Chain:
        return Chain([self._mechanisms.window_mean(radius_m) for radius_m in radii])


def _no_looks(shape: tuple[int, ...]) -> Looks:
    """Return looks at users, shape (m, audiences), that tell nothing."""
    users = shape[0]
    cells, look, finest = np.zeros((*shape, 2), np.int64), np.zeros(shape, np.uint64), np.zeros(users, np.uint64)
    return Looks(cells, look, finest, np.full(users, Outcome.NEW, np.uint8), np.zeros(users, np.int64))


def _groups(levels: NDArray[np.intp], count: int) -> list[tuple[list[int], NDArray[np.intp]]]:
    """Return the distinct rows of levels below `count`, shape (m, k), each with where it stands; rows of `NOBODY` alone are left out."""
    code = np.zeros(len(levels), np.int64)
    for column in levels.T:
        _, code = np.unique(code * (count + 1) + column + 1, return_inverse=True)
    order = np.argsort(code, kind="stable")
    found = [(levels[index[0]].tolist(), index) for index in np.split(order, np.flatnonzero(np.diff(code[order])) + 1) if len(index)]
    return [(row, index) for row, index in found if any(level != NOBODY for level in row)]
