"""Checks of the rules: what each says, what it refers to, and that no two could both decide."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from streaming.policy.calendars import WEEK_MINUTES, minute_words
from streaming.policy.deployment import Deployment
from streaming.policy.document import ANCHORED_FORMS, REST, Document, Rule
from streaming.policy.parts import ANY
from streaming.policy.parts_check import Declared, category_problem, place_problem
from streaming.policy.problems import Problem, unknown

__all__ = ["check_rules"]


def check_rules(
    rules: Mapping[int, Rule], document: Document, declared: Declared, deployment: Deployment | None, name: Callable[[int], str]
) -> Iterator[Problem]:
    """Yield every problem of the rules by themselves and in pairs.

    Parameters
    ----------
    rules : mapping of int to Rule
        By their number in the document.
    document : Document
        For its calendars; its own rules are not read.
    declared : Declared
    deployment : Deployment, optional
        None: names of roles, usages and categories are taken as they are.
    name : callable
        Gives what an error calls a rule.
    """
    for number, rule in rules.items():
        for key, text in (*_said(rule), *_referred(rule, declared, deployment), *_fitting(rule, deployment)):
            yield Problem(("rule", number, key), text)
    yield from _overlaps(rules, document, name)


def _said(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield (key, text) for keys that do not go together."""
    if rule.level == "none":
        for key, field in Rule.model_fields.items():
            if key not in {"subject", "audience", "usage", "time", "place", "level"} and getattr(rule, key) != field.default:
                yield key, "says how to release, and level = none releases nothing: leave it out"
        if rule.place != ANY:
            yield (
                "place",
                "level = none at a place would tell by silence that the user is there: release coarser there instead (perturbed with a "
                "larger radius, or categories), or release nothing at any place",
            )
    elif rule.level == "full":
        for key in ("radius_m", "preference"):
            if getattr(rule, key) is not None:
                yield key, "does not go with level = full, which is the operator's finest radius: leave it out, or write level = perturbed"
    elif (rule.radius_m is None) == (rule.preference is None):
        yield "level", "level = perturbed needs exactly one of radius_m and preference"
    if rule.candidates is not None and rule.form != "candidates":
        yield "candidates", "goes only with form = candidates"
    if rule.categories is not None:
        if rule.form not in ANCHORED_FORMS:
            yield "categories", f"goes only with the forms {', '.join(ANCHORED_FORMS)}"
        if REST not in rule.categories:
            yield "categories", f"should say what holds for all other categories: add `{REST}`"


def _referred(rule: Rule, declared: Declared, deployment: Deployment | None) -> Iterator[tuple[str, str]]:
    if rule.group is not None and rule.group not in declared["groups"]:
        yield "subject", unknown("group", rule.group, declared["groups"])
    if rule.time != ANY and rule.time not in declared["calendars"]:
        yield "time", unknown("calendar", rule.time, declared["calendars"])
    if rule.preference is not None and rule.preference not in declared["preferences"]:
        yield "preference", unknown("preference", rule.preference, declared["preferences"])
    if problem := place_problem(rule.place, declared, deployment):
        yield "place", problem
    for category in sorted(set(rule.categories or ()) - {REST}):
        if problem := category_problem(category, deployment):
            yield "categories", problem


def _fitting(rule: Rule, deployment: Deployment | None) -> Iterator[tuple[str, str]]:
    if deployment is None:
        return
    roles = {audience.role for audience in deployment.audiences}
    usages = {audience.usage for audience in deployment.audiences}
    if rule.audience not in {*roles, ANY}:
        yield "audience", unknown("role", rule.audience, roles)
    if rule.usage not in {*usages, ANY}:
        yield "usage", unknown("usage", rule.usage, usages)
    if rule.form in ANCHORED_FORMS and not deployment.categories:
        yield "form", f"form = {rule.form} needs anchors, and the settings name none"
    ladder = deployment.ladder
    if rule.radius_m is not None and not ladder[0] <= rule.radius_m <= ladder[-1]:
        yield "radius_m", f"should be from {ladder[0]:g}, the operator's finest radius, to {ladder[-1]:g} metres"


def _overlaps(rules: Mapping[int, Rule], document: Document, name: Callable[[int], str]) -> Iterator[Problem]:
    """Yield a problem for every rule that could decide at a minute at which an equally specific one before it could."""
    masks = {ANY: np.ones(WEEK_MINUTES, np.bool_), **document.masks()}
    alike: defaultdict[tuple[str | bool, ...], list[int]] = defaultdict(list)
    for number, rule in rules.items():
        if rule.time in masks:
            alike[rule.subject, rule.audience, rule.usage, rule.place, rule.time == ANY].append(number)
    for numbers in alike.values():
        if len(numbers) == 1:
            continue
        decides = np.full(WEEK_MINUTES, -1)
        for number in numbers:
            mask = masks[rules[number].time]
            both = np.flatnonzero(mask & (decides >= 0))
            decides[mask & (decides < 0)] = number
            if len(both):
                when = "" if rules[number].time == ANY else f" on {minute_words(int(both[0]))}"
                yield Problem(
                    ("rule", number),
                    f"overlaps with {name(int(decides[both[0]]))}: both could decide{when}, and neither is more specific; merge them, or "
                    "make their times disjoint",
                )
