"""The runtime of a policy: subjects, places and views by number, for whole shards at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geo.zones import Zones
from streaming.policy.calendars import Week, minute_of_week
from streaming.policy.deployment import Deployment
from streaming.policy.parts import ANY
from streaming.policy.parts_check import zone_shape
from streaming.policy.policy import Policy
from streaming.policy.preferences import Context
from streaming.policy.problems import PolicyError, Problem
from streaming.policy.resolution import View, for_audience, places_in, subject_classes, view_of, winner

__all__ = ["Resolver"]

CACHED_VIEWS = 1_000_000


class Resolver:
    """Who sees what, when.

    Guarantee
        `view` is defined for every instant, place and subject, and depends on nothing else. Whether it is None, and its `every`, do
        not depend on the place, and no view is finer than `finest_m`, which does not either: what is charged and when something is sent
        are functions of public data alone.

    Places are those of the last release to the audience in question; nothing here may be given a true position.

    Parameters
    ----------
    policy : Policy
    deployment : Deployment
        Its audiences are numbered in order.
    user_id : callable
        Gives the 8-byte identifier of a user's name, 1 to 2^64 - 1.

    Attributes
    ----------
    places_known : tuple of str
        What each place class is: `*`, then the zones by name, then the categories in the deployment's order.
    subjects : tuple of SubjectClass
        The classes of subjects; number 0 is `default`.

    Raises
    ------
    PolicyError
        If the policy does not fit the deployment, or two users that it names share an identifier.
    """

    def __init__(self, policy: Policy, deployment: Deployment, user_id: Callable[[str], int]) -> None:
        policy.require(deployment)
        self.policy, self.deployment = policy, deployment
        document = policy.document
        self._zones = Zones({name: zone_shape(parts) for name, parts in document.zones.items()})
        self._categories = len(deployment.categories or ())
        zones = [f"zone:{name}" for name in self._zones.names]
        self.places_known = (ANY, *zones, *(f"category:{name}" for name in deployment.categories or ()))
        self.subjects, users = subject_classes(document)
        ids = np.array([user_id(user) for user in users], np.uint64)
        order = np.argsort(ids)
        self._ids, self._class_of_id = ids[order], np.fromiter(users.values(), np.int32, len(users))[order]
        if np.any(self._ids[1:] == self._ids[:-1]):
            raise PolicyError([Problem((), "names two users who share an identifier: remove one of them, or use another secret")])
        self._week = Week(document.masks())
        self._rules: dict[tuple[int, int], tuple[int, ...]] = {}
        self._views: dict[tuple[int, int, int, int], View | None] = {}
        self._finest: dict[tuple[int, int, int], float | None] = {}

    def classes(self, user: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the subject class of each user, shape (n,); 0 for those whom the policy does not name."""
        if not len(self._ids):
            return np.zeros(len(user), np.int32)
        at = np.minimum(np.searchsorted(self._ids, user), len(self._ids) - 1)
        return np.where(self._ids[at] == user, self._class_of_id[at], 0).astype(np.int32)

    def places(self, lat_lon: NDArray[np.float64], category: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the place class of what was last released.

        A zone goes before a category, and of several zones the first by name counts; a zone holds its border.

        Parameters
        ----------
        lat_lon : ndarray of float64 with shape (n, 2)
            Released latitude and longitude, degrees; NaN where no position was released.
        category : ndarray of int32 with shape (n,)
            Number of the released category in the deployment's list; anything else where none was.

        Returns
        -------
        ndarray of int32 with shape (n,)
            0 for nowhere in particular.
        """
        zone = self._zones.first(lat_lon)
        known = (category >= 0) & (category < self._categories)
        return np.where(zone >= 0, zone + 1, np.where(known, category + len(self._zones.names) + 1, 0)).astype(np.int32)

    def view(self, subject: int, audience: int, start_ms: int, place: int = 0) -> View | None:
        """Return what an audience sees of a subject at the tick that starts at `start_ms`, or None for nothing.

        Parameters
        ----------
        subject : int
            Class from `classes`.
        audience : int
            Number in the deployment.
        start_ms : int
            Start of the tick, Unix time in milliseconds; calendars are read there, in the subject's time zone.
        place : int, default 0
            Class from `places`, of what was last released to this audience.

        Raises
        ------
        IndexError
            If a number is not known.
        """
        return self._view(subject, audience, self._calendars(subject, start_ms), place)

    def finest_m(self, subject: int, audience: int, start_ms: int) -> float | None:
        """Return the smallest protected radius that any place could choose at a tick, or None if nothing is released.

        It is what the ledger is charged for at the ticks at which the audience is due (see `View.every`); with the predictive mechanism,
        what has to be free before a look.
        """
        calendars = self._calendars(subject, start_ms)
        key = (subject, audience, calendars)
        if key not in self._finest:
            _make_room(self._finest)
            views = [self._view(subject, audience, calendars, place) for place in self.places_of(subject, audience)]
            self._finest[key] = min((view.radius_m for view in views if view), default=None)
        return self._finest[key]

    def places_of(self, subject: int, audience: int) -> tuple[int, ...]:
        """Return the place classes that matter for a subject and an audience: 0, and what their rules tell from it."""
        named = places_in(self.policy.document, self._rules_of(subject, audience))
        return (0, *(self.places_known.index(place) for place in named))

    def week(self, subject: int, audience: int) -> list[tuple[NDArray[np.bool_], tuple[View | None, ...]]]:
        """Return what holds when: the minutes of a week in the subject's wall time, and their views at each of `places_of`.

        Every minute is in exactly one mask of shape (WEEK_MINUTES,).
        """
        places = self.places_of(subject, audience)
        masks: dict[tuple[View | None, ...], NDArray[np.bool_]] = {}
        for calendars in range(len(self._week.sets)):
            views = tuple(self._view(subject, audience, calendars, place) for place in places)
            holds = self._week.set_of_minute == calendars
            masks[views] = masks.get(views, False) | holds
        return [(mask, views) for views, mask in masks.items()]

    def _calendars(self, subject: int, start_ms: int) -> int:
        return int(self._week.set_of_minute[minute_of_week(self.subjects[_index(subject)].time_zone, start_ms)])

    def _rules_of(self, subject: int, audience: int) -> tuple[int, ...]:
        key = (_index(subject), _index(audience))
        if key not in self._rules:
            _make_room(self._rules)
            who = self.deployment.audiences[audience]
            self._rules[key] = for_audience(self.policy.document, self.subjects[subject], who.role, who.usage)
        return self._rules[key]

    def _view(self, subject: int, audience: int, calendars: int, place: int) -> View | None:
        key = (subject, audience, calendars, place)
        if key not in self._views:
            _make_room(self._views)
            rules, who = self._rules_of(subject, audience), self.deployment.audiences[audience]
            context = Context(who.role, who.usage, self._week.sets[calendars], self.places_known[_index(place)])
            document = self.policy.document
            self._views[key] = view_of(document, winner(document, rules, context), context, self.deployment)
        return self._views[key]


def _index(number: int) -> int:
    if number < 0:
        raise IndexError("numbers of subjects, audiences and places start at 0")
    return number


def _make_room(cache: dict[Any, Any]) -> None:
    if len(cache) >= CACHED_VIEWS:
        cache.clear()
