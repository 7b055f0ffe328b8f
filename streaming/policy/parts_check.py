"""Checks of what rules refer to: time zones, groups, calendars, zones, preferences."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import shapely
from shapely.geometry.base import BaseGeometry

from geo.plane import Region
from geo.zones import box_shape, circle_shape, polygon_shape, region_shape
from streaming.policy.calendars import Week, is_time_zone
from streaming.policy.deployment import Deployment
from streaming.policy.document import Document, ZonePart
from streaming.policy.parts import ANY
from streaming.policy.preferences import FullTable
from streaming.policy.problems import Problem, unknown

__all__ = ["Declared", "category_problem", "check_parts", "place_problem", "zone_shape"]

Declared = dict[str, frozenset[str]]
"""Names that a document declares, by section, whether or not what they stand for is usable."""

WEIGHTS_SLACK = 1e-9


def check_parts(document: Document, declared: Declared, deployment: Deployment | None) -> Iterator[Problem]:
    """Yield every problem that no rule is needed for.

    Parameters
    ----------
    document : Document
    declared : Declared
    deployment : Deployment, optional
        None: names of roles, usages and categories are taken as they are.
    """
    for path, name in document.time_zones():
        if not is_time_zone(name):
            yield Problem(path, f"`{name}` is no time zone of the IANA database: write for instance `Europe/Helsinki`")
    yield from _groups(document)
    for name, intervals in document.calendars.items():
        for number, interval in enumerate(intervals):
            if interval.start == interval.end:
                yield Problem(("calendars", name, number), "is empty: for whole days write from = 00:00 and to = 24:00")
    for name, parts in document.zones.items():
        yield from _zone(name, parts, deployment.region if deployment else None)
    yield from _preferences(document, declared, deployment)


def zone_shape(parts: tuple[ZonePart, ...]) -> BaseGeometry:
    """Return the union of a zone's parts.

    Raises
    ------
    ValueError
        With the first problem of the shape.
    """
    return shapely.union_all([_part_shape(part) for part in parts])


def place_problem(place: str, declared: Declared, deployment: Deployment | None) -> str | None:
    """Return what is wrong with a place, or None."""
    kind, _, name = place.partition(":")
    if kind == "zone":
        return None if name in declared["zones"] else unknown("zone", name, declared["zones"])
    if kind == "category":
        return category_problem(name, deployment)
    return None if place == ANY else f"`{place}` should be zone:NAME, category:NAME or `*`"


def category_problem(name: str, deployment: Deployment | None) -> str | None:
    """Return what is wrong with a category, or None."""
    if deployment is None or name in (deployment.categories or ()):
        return None
    if deployment.categories is None:
        return f"the category `{name}` needs anchors, and the settings name none"
    return unknown("category", name, deployment.categories)


def _groups(document: Document) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for name, group in document.groups.items():
        for user in group.users:
            if first.setdefault(user, name) != name:
                yield Problem(("groups", name, "users"), f"user `{user}` is in group `{first[user]}` already: a user is in at most one")
        for user, times in Counter(group.users).items():
            if times > 1:
                yield Problem(("groups", name, "users"), f"user `{user}` is named twice")


def _part_shape(part: ZonePart) -> BaseGeometry:
    given = [shape for shape in (part.polygon, part.box, part.circle) if shape is not None]
    if len(given) != 1:
        raise ValueError("should have exactly one of polygon, box and circle")
    if part.polygon is not None:
        return polygon_shape(part.polygon)
    if part.box is not None:
        return box_shape(part.box.south, part.box.west, part.box.north, part.box.east)
    assert part.circle is not None
    return circle_shape(part.circle.lon, part.circle.lat, part.circle.radius_m)


def _zone(name: str, parts: tuple[ZonePart, ...], region: Region | None) -> Iterator[Problem]:
    for number, part in enumerate(parts):
        path = ("zones", name, number)
        try:
            shape = _part_shape(part)
        except ValueError as error:
            yield Problem(path, f"zone `{name}` {error}")
            continue
        if region is None or shapely.intersects(shape, region_shape(region)):
            continue
        turned = shapely.transform(shape, lambda points: points[:, ::-1])
        if shapely.intersects(turned, region_shape(region)):
            why = "and would lie inside with its axes swapped: a corner is [longitude, latitude]"
        else:
            why = "so that nothing is ever released there"
        yield Problem(path, f"zone `{name}` lies outside the region {region.name!r}, {why}")


def _preferences(document: Document, declared: Declared, deployment: Deployment | None) -> Iterator[Problem]:
    week = Week(document.masks())
    roles, usages = _roles_and_usages(deployment)
    for name, preference in document.preferences.items():
        root = ("preferences", name)
        if not isinstance(preference, FullTable):
            total = math.fsum(dict(preference.weights).values())
            if abs(total - 1) > WEIGHTS_SLACK:
                yield Problem((*root, "weights"), f"the weights should add up to 1, and add up to {total:.12g}")
        for path, factor, table in preference.keys():
            known = {"role": roles, "usage": usages, "time": declared["calendars"]}.get(factor)
            for key in table:
                if factor == "place":
                    problem = place_problem(key, declared, deployment)
                else:
                    kind = "calendar" if factor == "time" else factor
                    problem = None if known is None or key in {*known, ANY} else unknown(kind, key, known)
                if problem:
                    yield Problem((*root, *path, key), problem)
            if factor == "time":
                for one, other in combinations([key for key in table if key in document.calendars], 2):
                    if minute := week.overlap(one, other):
                        yield Problem((*root, *path), f"calendars `{one}` and `{other}` both hold on {minute}: no value would be the one")
    if deployment and document.preferences:
        ladder = deployment.ladder
        if not ladder[0] <= document.max_radius_m <= ladder[-1]:
            yield Problem(("max_radius_m",), f"should be from {ladder[0]:g}, the operator's finest radius, to {ladder[-1]:g} metres")


def _roles_and_usages(deployment: Deployment | None) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    if deployment is None:
        return None, None
    return frozenset(a.role for a in deployment.audiences), frozenset(a.usage for a in deployment.audiences)
