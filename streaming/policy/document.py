"""The shape of a policy document: its tables and keys, with their ranges. What they mean together is for `check` and `resolution`.

A document is TOML, or JSON with the same shape::

    version = 3                          # grows with every change
    time_zone = "Europe/Helsinki"        # of all users without their own or their group's; UTC if left out
    max_radius_m = 5000                  # the radius of preference 0
    user_edits = true                    # users may replace the rules about them (`streaming.policy.edits`); false if left out

    [groups.drivers]                     # a user is in at most one group
    users = ["cab-1", "cab-2"]
    time_zone = "Europe/Tallinn"

    [users.ann]
    time_zone = "Europe/Lisbon"

    [calendars.working-hours]            # local wall time of each user; may cross midnight; several: [[calendars.working-hours]]
    days = ["mon", "tue", "wed", "thu", "fri"]
    from = "08:00"
    to = "16:00"

    [zones.hospital]                     # exactly one of polygon, box and circle; several parts: [[zones.hospital]]
    polygon = [[24.90, 60.18], [24.92, 60.18], [24.91, 60.20]]

    [preferences.close]                  # see `streaming.policy.preferences`
    model = "weighted"
    weights = { role = 0.5, time = 0.5 }
    role = { friends = 1.0, "*" = 0.2 }
    time = { working-hours = 0.0, "*" = 1.0 }

    [[rule]]
    subject = "group:drivers"            # default, group:NAME or user:NAME
    audience = "friends"                 # a role, or * for every audience
    usage = "*"                          # what the audience declared to use it for
    time = "working-hours"               # a calendar
    place = "*"                          # zone:NAME or category:NAME of what was last released to that audience
    level = "perturbed"                  # none, perturbed or full
    radius_m = 500                       # or: preference = "close"
    every = 2                            # every second base tick
    form = "candidates"                  # point, anchor, category or candidates
    candidates = 3

    [rule.categories]                    # only where the form is not point
    default = "full"                     # the anchor itself; perturbed: only its category; none: never offered
    health = "none"
"""

from collections.abc import Iterator
from datetime import time
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from streaming.policy.calendars import DAYS, week_mask
from streaming.policy.parts import ANY, NAME, PART_SAYS, Name, NameOrAny, Part
from streaming.policy.preferences import Preference

__all__ = [
    "ANCHORED_FORMS",
    "MAX_CANDIDATES",
    "REST",
    "SAYS",
    "Document",
    "Form",
    "Group",
    "Interval",
    "Level",
    "Rule",
    "User",
    "ZonePart",
]

Form = Literal["point", "anchor", "category", "candidates"]
Level = Literal["none", "perturbed", "full"]
ANCHORED_FORMS: tuple[Form, ...] = ("anchor", "category", "candidates")
MAX_CANDIDATES = 20
DEFAULT_CANDIDATES = 3
REST = "default"
"""The key of all other categories."""

MAX_USER_LENGTH = 4096

_DAY = f"^({'|'.join(DAYS)})$"
_START = r"^([01]\d|2[0-3]):[0-5]\d$"
_END = r"^(([01]\d|2[0-3]):[0-5]\d|24:00)$"
_SUBJECT = rf"^(default|group:{NAME}|user:(?s:.)+)$"
_PLACE = rf"^(\*|zone:{NAME}|category:.{{1,200}})$"
SAYS = {
    _DAY: f"should be one of {', '.join(DAYS)}",
    _START: "should be a time of day from 00:00 to 23:59",
    _END: "should be a time of day from 00:00 to 24:00",
    _SUBJECT: "should be default, group:NAME or user:NAME",
    _PLACE: "should be zone:NAME, category:NAME or `*`",
    **PART_SAYS,
}
"""What each pattern says in words."""

MAX_EVERY = 100_000

Day = Annotated[str, Field(pattern=_DAY)]
UserName = Annotated[str, Field(min_length=1, max_length=MAX_USER_LENGTH)]
Metres = Annotated[float, Field(gt=0, le=1e8, strict=True)]
Degrees = Annotated[float, Field(strict=True)]


def _clock(value: Any) -> Any:
    """Read TOML's local times as text."""
    return value.strftime("%H:%M") if isinstance(value, time) and value == value.replace(second=0, microsecond=0) else value


def _as_list(value: Any) -> Any:
    """Take one table for a list of one."""
    return [value] if isinstance(value, dict) else value


class Interval(Part):
    """Minutes of some days; from one day into the next if `to` is not above `from`."""

    days: tuple[Day, ...] = Field(default=DAYS, min_length=1)
    start: Annotated[str, BeforeValidator(_clock), Field(pattern=_START, alias="from")]
    end: Annotated[str, BeforeValidator(_clock), Field(pattern=_END, alias="to")]

    def minutes(self) -> tuple[tuple[str, ...], int, int]:
        """Return the days, and start and end as minutes of the day."""
        start, end = (60 * int(text[:2]) + int(text[3:]) for text in (self.start, self.end))
        return self.days, start, end


class Box(Part):
    """A box of degrees."""

    south: Degrees
    west: Degrees
    north: Degrees
    east: Degrees


class Circle(Part):
    """All that is at most some metres from a point."""

    lon: Degrees
    lat: Degrees
    radius_m: Metres


class ZonePart(Part):
    """One shape: a polygon of [longitude, latitude] corners, a box of degrees, or a circle."""

    polygon: tuple[tuple[Degrees, Degrees], ...] | None = None
    box: Box | None = None
    circle: Circle | None = None


Calendar = Annotated[tuple[Interval, ...], BeforeValidator(_as_list), Field(min_length=1)]
Zone = Annotated[tuple[ZonePart, ...], BeforeValidator(_as_list), Field(min_length=1)]


class Group(Part):
    """Users with rules in common."""

    users: tuple[UserName, ...]
    time_zone: str | None = None


class User(Part):
    """What holds for one user alone."""

    time_zone: str | None = None


class Rule(Part):
    """Whom it is about, who asks what for, when and where; and what is released then."""

    subject: str = Field(pattern=_SUBJECT, max_length=len("user:") + MAX_USER_LENGTH)
    audience: NameOrAny
    usage: NameOrAny = ANY
    time: NameOrAny = ANY
    place: str = Field(default=ANY, pattern=_PLACE)
    level: Level
    radius_m: Metres | None = None
    preference: Name | None = None
    every: int = Field(default=1, ge=1, le=MAX_EVERY, strict=True)
    form: Form = "point"
    candidates: int | None = Field(default=None, ge=2, le=MAX_CANDIDATES, strict=True)
    categories: dict[str, Level] | None = None

    @property
    def user(self) -> str | None:
        """The user it is about, if it is about one."""
        return self.subject.removeprefix("user:") if self.subject.startswith("user:") else None

    @property
    def group(self) -> str | None:
        """The group it is about, if it is about one."""
        return self.subject.removeprefix("group:") if self.subject.startswith("group:") else None

    def specificity(self) -> tuple[int, bool, bool, bool, bool]:
        """Return how specific it is, to be compared from the left."""
        rank = 2 if self.user is not None else 1 if self.group is not None else 0
        return (rank, self.audience != ANY, self.usage != ANY, self.time != ANY, self.place != ANY)


class Document(Part):
    """A whole policy."""

    version: int = Field(ge=1, lt=1 << 53, strict=True)
    time_zone: str = "UTC"
    max_radius_m: Metres = 5000.0
    user_edits: bool = Field(default=False, strict=True)
    groups: dict[Name, Group] = Field(default={})
    users: dict[UserName, User] = Field(default={})
    calendars: dict[Name, Calendar] = Field(default={})
    zones: dict[Name, Zone] = Field(default={})
    preferences: dict[Name, Preference] = Field(default={})
    rule: tuple[Rule, ...] = ()

    def group_of(self) -> dict[str, str]:
        """Return the group of every user who is in one."""
        return {user: name for name, group in self.groups.items() for user in group.users}

    def zone_of(self, user: str | None, group: str | None) -> str:
        """Return the time zone of a user: their own, else their group's, else the document's."""
        own = self.users[user].time_zone if user in self.users else None
        shared = self.groups[group].time_zone if group in self.groups else None
        return own or shared or self.time_zone

    def masks(self) -> dict[str, NDArray[np.bool_]]:
        """Return the minutes of the week that each calendar holds."""
        return {name: week_mask(part.minutes() for part in parts) for name, parts in self.calendars.items()}

    def time_zones(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Return every time zone that is named, with its path."""
        yield ("time_zone",), self.time_zone
        for section, entries in (("groups", self.groups), ("users", self.users)):
            for name, entry in entries.items():
                if entry.time_zone is not None:
                    yield (section, name, "time_zone"), entry.time_zone
