"""The check that no place ever decides whether, or when, something is released.

Guarantee
    For every subject, audience, minute of the week and place: something is released iff it is released at no place in particular, and
    every so many ticks as there. So silence and rhythm are functions of public data alone; a place changes only precision, form and
    categories, and only through what was released to that audience before.
"""

from collections.abc import Callable, Iterator, Sequence

from streaming.policy.calendars import Week
from streaming.policy.document import Document
from streaming.policy.parts import ANY
from streaming.policy.preferences import Context
from streaming.policy.problems import Problem
from streaming.policy.resolution import every_of, for_audience, places_in, subject_classes, winner

__all__ = ["all_audiences", "check_soundness"]

MAX_CASES = 200_000
"""So many cases are looked at in about two seconds; a policy that comes live holds up the ticks while it is checked."""

_OTHER = "(any other)"


def all_audiences(document: Document) -> list[tuple[str, str]]:
    """Return (role, usage) for every pair that a document could tell apart, whatever audiences there are."""
    roles = {rule.audience for rule in document.rule}
    usages = {rule.usage for rule in document.rule}
    for preference in document.preferences.values():
        for _, factor, table in preference.keys():
            if factor == "role":
                roles.update(table)
            elif factor == "usage":
                usages.update(table)
    return [(role, usage) for role in sorted(roles - {ANY} | {_OTHER}) for usage in sorted(usages - {ANY} | {_OTHER})]


def check_soundness(document: Document, audiences: Sequence[tuple[str, str]], name: Callable[[int], str]) -> Iterator[Problem]:
    """Yield a problem for every rule that lets a place decide whether or when something is released.

    Parameters
    ----------
    document : Document
        Without any other problem.
    audiences : sequence of (role, usage)
    name : callable
        Gives what an error calls a rule.
    """
    week = Week(document.masks())
    told: set[tuple[int, int | None]] = set()
    classes = subject_classes(document)[0]
    each = len(week.sets) * sum(len(places_in(document, subject.rules)) for subject in classes) * len(set(audiences))
    if each > MAX_CASES:
        yield Problem((), f"has {each} cases of subject, audience, calendars and place, and {MAX_CASES} can be checked: use fewer of them")
        return
    for subject in classes:
        for role, usage in sorted(set(audiences)):
            rules = for_audience(document, subject, role, usage)
            places = places_in(document, rules)
            for calendars in week.sets if places else ():
                anywhere = Context(role, usage, calendars, ANY)
                free = winner(document, rules, anywhere)
                due = every_of(document, free, anywhere)
                for place in places:
                    context = anywhere._replace(place=place)
                    number = winner(document, rules, context)
                    every = every_of(document, number, context)
                    if every == due:
                        continue
                    # What has no rule releases nothing, so that one of the two exists.
                    number = free if number is None else number
                    assert number is not None
                    if (number, free) not in told:
                        told.add((number, free))
                        whom = f"{subject.label}, audience {role}, usage {usage}"
                        yield Problem(("rule", number), _reason(document, place, whom, every, due, number, free, name))


def _reason(
    document: Document, place: str, whom: str, every: int | None, due: int | None, number: int, free: int | None, name: Callable[[int], str]
) -> str:
    preference = document.rule[number].preference
    if number == free or every is None:
        lacks = place if every is None else "`*`"
        return (
            f"preference `{preference}` has no value at {lacks} ({whom}), so that silence would tell where the user is: give it one, or "
            "leave out every place that `*` does not cover"
        )
    if due is None:
        why = "there no rule decides" if free is None else f"there {name(free)} decides, and releases nothing"
        return (
            f"releases at {place} although nothing is released elsewhere ({whom}): being released would tell that the user is there; "
            f'{why}. Add a rule with place = "*" that releases too'
        )
    assert free is not None
    return (
        f"has every = {every} at {place}, and {name(free)} has every = {due} elsewhere ({whom}): the rhythm would tell where the user is; "
        f"write every = {due}"
    )
