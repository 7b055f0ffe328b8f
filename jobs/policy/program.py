"""The programs behind `wayveil policy`: tell whether a policy can be used, and what it lets an audience learn."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from geo.zones import Zones
from jobs.errors import UserError
from jobs.policy.words import Precision, belief_words, view_words, week_words
from streaming.decode import user_id
from streaming.policy import Deployment, Policy, PolicyError, Resolver, View, load_policy
from streaming.policy.calendars import local_time
from streaming.policy.parts_check import zone_shape
from streaming.policy.problems import unknown

__all__ = ["check_policy", "explain_policy", "read_policy_file"]

UNKEYED = b""
"""A job takes keyed identifiers, but which users are alike does not depend on the key."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_policy_file(path: Path, deployment: Deployment | None) -> Policy:
    """Read and check a policy.

    Raises
    ------
    UserError
        With every problem.
    """
    try:
        return load_policy(path, deployment)
    except PolicyError as error:
        raise UserError(str(error)) from error


def check_policy(path: Path, deployment: Deployment | None, say: Callable[[str], None]) -> None:
    """Check a policy and describe it in a few lines.

    Parameters
    ----------
    path : Path
        TOML, or JSON if it ends in `.json`.
    deployment : Deployment, optional
        What it has to fit. None: names of roles, usages and categories, radii and the region are not checked.
    say : callable
        Takes one line of text at a time.

    Raises
    ------
    UserError
        With every problem.
    """
    policy = read_policy_file(path, deployment)
    document = policy.document
    counts = [(len(document.rule), "rules")] + [
        (len(entries), name)
        for name, entries in (
            ("groups", document.groups),
            ("calendars", document.calendars),
            ("zones", document.zones),
            ("preferences", document.preferences),
        )
        if entries
    ]
    say(f"ok: version {policy.version}, {', '.join(f'{count} {name}' for count, name in counts)}; digest {policy.digest}")
    if deployment is None:
        say("  note: without --settings, roles, usages, categories, radii and the region are not checked")
    for one, other in Zones({name: zone_shape(parts) for name, parts in document.zones.items()}).overlaps():
        say(f"  note: zones {one} and {other} overlap; where both hold, {one} counts, the first by name")
    if not any(rule.subject == "default" and rule.level != "none" for rule in document.rule):
        say("  note: nothing is released of users whom the policy does not name")


def explain_policy(
    policy: Policy,
    deployment: Deployment,
    precision: Precision,
    audience: str,
    user: str | None,
    at: str | None,
    say: Callable[[str], None],
) -> None:
    """Tell in plain words what an audience sees.

    Parameters
    ----------
    policy, deployment, precision
        What is promised.
    audience : str
        Its name.
    user : str, optional
        Of whom; None: of everybody whom the policy does not name.
    at : str, optional
        When, as ISO date and time; without an offset it is wall time where the user is. None: at any time.
    say : callable
        Takes one line of text at a time.

    Raises
    ------
    UserError
        If the audience is not known, or `at` is no time.
    """
    names = [one.name for one in deployment.audiences]
    if audience not in names:
        raise UserError(unknown("audience", audience, names) + ".")
    resolver = Resolver(policy, deployment, partial(user_id, UNKEYED))
    number = names.index(audience)
    subject = 0 if user is None else int(resolver.classes(np.array([user_id(UNKEYED, user)], np.uint64))[0])
    who, zone = deployment.audiences[number], resolver.subjects[subject].time_zone
    group = policy.document.group_of().get(user) if user is not None else None
    whom = "everybody whom the policy does not name" if user is None else f"user {user}" + (f" (group {group})" if group else "")
    say(f"policy version {policy.version}: what audience {audience} (role {who.role}, usage {who.usage}) sees of {whom}; times of {zone}")
    places = resolver.places_of(subject, number)
    views: list[View | None]
    if at is not None:
        t_ms, told = _instant(at, zone)
        views = [resolver.view(subject, number, t_ms, place) for place in places]
        for line in _sight(told, views, places, resolver, audience, precision):
            say(line)
    else:
        week = resolver.week(subject, number)
        for mask, held in week:
            for line in _sight(week_words(mask), list(held), places, resolver, audience, precision):
                say(line)
        views = [view for _, held in week for view in held]
    radii: dict[tuple[float, int], View] = {(view.radius_m, view.every): view for view in views if view is not None}
    for _, view in sorted(radii.items()):
        say(f"belief at {view.radius_m:.0f} m: {belief_words(view, precision)}")
    if radii:
        say("every release tells a little more: whoever stays put is protected by the ledger's limit, not by one release")


def _sight(
    when: str, views: list[View | None], places: tuple[int, ...], resolver: Resolver, audience: str, precision: Precision
) -> Iterator[str]:
    yield f"{when}: {view_words(views[0], precision)}"
    for place, view in zip(places[1:], views[1:], strict=True):
        if view != views[0]:
            kind, _, name = resolver.places_known[place].partition(":")
            yield f"  after a release to {audience} in {kind} {name}: {view_words(view, precision)}"


def _instant(at: str, zone: str) -> tuple[int, str]:
    """Return the instant in milliseconds and what it is, in words."""
    try:
        when = datetime.fromisoformat(at)
    except ValueError:
        raise UserError(f"`{at}` is no date and time: write for instance 2026-03-29T03:30, or 2026-03-29T00:30Z.") from None
    zoned = when if when.tzinfo else when.replace(tzinfo=ZoneInfo(zone))
    try:
        t_ms = (zoned - EPOCH) // timedelta(milliseconds=1)
    except OverflowError:
        raise UserError(f"`{at}` is outside the calendar: take a time between the years 2 and 9998.") from None
    wall = local_time(zone, t_ms)
    note = ""
    if when.tzinfo is None and wall.replace(tzinfo=None) != when:
        note = f" (clocks skip {when:%H:%M} on that day)"
    elif when.tzinfo is None and zoned.utcoffset() != zoned.replace(fold=1).utcoffset():
        note = " (clocks show it twice on that day; this is the first time)"
    return t_ms, f"at {wall:%a %Y-%m-%d %H:%M} {wall.tzname()}{note}"
