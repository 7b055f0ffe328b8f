"""From a context to a view: total, default-deny, and the same whatever order the rules stand in.

Of the rules that match a context, the most specific one decides, compared in this order:

1. subject: a user before their group, a group before `default`;
2. audience: a named role before `*`;
3. usage: a named one before `*`;
4. time: a calendar before `*`;
5. place: a zone or category before `*`.

Two rules that could both match and are equally specific are refused when a policy is read, so that one rule decides or none. Where none
matches, where it says `none`, and where its preference has no value, nothing is released: not even that there is nothing.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from streaming.policy.deployment import Deployment
from streaming.policy.document import ANCHORED_FORMS, DEFAULT_CANDIDATES, REST, Document, Rule
from streaming.policy.parts import ANY
from streaming.policy.preferences import Context
from streaming.policy.radii import blur_m, rung_m

__all__ = ["SubjectClass", "View", "every_of", "for_audience", "places_in", "subject_classes", "view_of", "winner"]


@dataclass(frozen=True)
class View:
    """What an audience gets of a user at a tick.

    Parameters
    ----------
    radius_m : float
        Protected radius in ground metres, a rung of the ladder (`streaming.policy.radii`).
    every : int
        Every so many base ticks; at the others the audience gets nothing.
    form : "point", "anchor", "category" or "candidates"
        What is told.
    candidates : int
        How many anchors are offered: 1 unless `form` is candidates.
    levels : tuple of (category, level)
        For anchored forms `default`, then the categories that differ from it, sorted; else empty.
    """

    radius_m: float
    every: int
    form: str
    candidates: int
    levels: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SubjectClass:
    """Users for whom everything is decided alike.

    Parameters
    ----------
    label : str
        One of its subjects: `default`, `group:NAME` or `user:NAME`.
    time_zone : str
        Where its calendars are read.
    rules : tuple of int
        Numbers of the rules about it, the most specific first.
    """

    label: str
    time_zone: str
    rules: tuple[int, ...]


def subject_classes(document: Document) -> tuple[tuple[SubjectClass, ...], dict[str, int]]:
    """Return the classes of subjects, number 0 being `default`, and the class of every user that the document names."""
    by_subject: defaultdict[str, list[int]] = defaultdict(list)
    for number, rule in enumerate(document.rule):
        by_subject[rule.subject].append(number)
    group_of = document.group_of()
    known: dict[tuple[str | None, str, frozenset[bytes]], int] = {}
    classes: list[SubjectClass] = []

    def class_of(user: str | None, group: str | None) -> int:
        own = by_subject.get(f"user:{user}", []) if user is not None else []
        shared = by_subject.get(f"group:{group}", []) if group is not None else []
        zone = document.zone_of(user, group)
        key = (group if shared else None, zone, frozenset(_content(document.rule[number]) for number in own))
        if key not in known:
            known[key] = len(classes)
            rules = sorted([*own, *shared, *by_subject.get("default", [])], key=lambda number: document.rule[number].specificity())
            label = f"user:{user}" if user is not None else f"group:{group}" if group is not None else "default"
            classes.append(SubjectClass(label, zone, tuple(reversed(rules))))
        return known[key]

    class_of(None, None)
    for group in document.groups:
        class_of(None, group)
    named = {rule.user for rule in document.rule if rule.user is not None}
    users = {user: class_of(user, group_of.get(user)) for user in sorted(named | set(document.users) | set(group_of))}
    return tuple(classes), users


def for_audience(document: Document, subject: SubjectClass, role: str, usage: str) -> tuple[int, ...]:
    """Return the numbers of the rules about a subject and an audience, the most specific first."""
    rules = ((number, document.rule[number]) for number in subject.rules)
    return tuple(number for number, rule in rules if rule.audience in {role, ANY} and rule.usage in {usage, ANY})


def places_in(document: Document, rules: Sequence[int]) -> tuple[str, ...]:
    """Return the places that some rules, or the preferences that they use, tell from `*`; sorted."""
    places = {document.rule[number].place for number in rules}
    for name in {document.rule[number].preference for number in rules} - {None}:
        places.update(key for _, factor, table in document.preferences[str(name)].keys() if factor == "place" for key in table)
    return tuple(sorted(places - {ANY}))


def winner(document: Document, rules: Sequence[int], context: Context) -> int | None:
    """Return the number of the rule that decides, given those about the subject and audience, the most specific first."""
    for number in rules:
        rule = document.rule[number]
        if (rule.time == ANY or rule.time in context.calendars) and rule.place in {context.place, ANY}:
            return number
    return None


def every_of(document: Document, number: int | None, context: Context) -> int | None:
    """Return every how many ticks a rule releases in a context that it decides; None if it does not."""
    rule = None if number is None else document.rule[number]
    if rule is None or rule.level == "none":
        return None
    if rule.preference is not None and document.preferences[rule.preference].value(context) is None:
        return None
    return rule.every


def view_of(document: Document, number: int | None, context: Context, deployment: Deployment) -> View | None:
    """Return the view that a rule gives in a context that it decides."""
    every = every_of(document, number, context)
    if number is None or every is None:
        return None
    rule = document.rule[number]
    radius_m = deployment.full_radius_m
    if rule.radius_m is not None:
        radius_m = rule.radius_m
    elif rule.preference is not None:
        preference = document.preferences[rule.preference].value(context)
        assert preference is not None
        radius_m = blur_m(preference, deployment.full_radius_m, document.max_radius_m)
    candidates = (rule.candidates or DEFAULT_CANDIDATES) if rule.form == "candidates" else 1
    return View(rung_m(radius_m, deployment.ladder), every, rule.form, candidates, _levels(rule))


def _levels(rule: Rule) -> tuple[tuple[str, str], ...]:
    if rule.form not in ANCHORED_FORMS:
        return ()
    levels = dict(rule.categories or {REST: "full"})
    rest = levels.pop(REST)
    return ((REST, rest), *sorted((name, level) for name, level in levels.items() if level != rest))


def _content(rule: Rule) -> bytes:
    return orjson.dumps(rule.model_dump(exclude={"subject"}), option=orjson.OPT_SORT_KEYS)
