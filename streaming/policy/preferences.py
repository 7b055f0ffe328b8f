"""The three preference models of Ray et al. (SPRINGL 2008): from a context to how precise a release may be, from 0 to 1.

The paper's M1 is `weighted`, M2 `role-tables`, M3 `full-table`. In every table a key may be `*`, for whatever is not named beside it; keys
of `time` are calendars, keys of `place` are `zone:NAME` and `category:NAME`. `*` is also the key of being nowhere in particular.
A context without a value has none, and what has no value is denied.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from streaming.policy.lines import Path
from streaming.policy.parts import ANY, Part

__all__ = ["Context", "FullTable", "Preference", "RoleTables", "WeightedSum"]

Unit = Annotated[float, Field(ge=0, le=1, strict=True)]
Values = dict[str, Unit]


class Context(NamedTuple):
    """What a decision reads.

    Parameters
    ----------
    role, usage : str
        Of the audience.
    calendars : frozenset of str
        That hold at the tick's start, where the subject is.
    place : str
        `zone:NAME`, `category:NAME`, or `*` for nowhere in particular.
    """

    role: str
    usage: str
    calendars: frozenset[str]
    place: str


class RoleWeights(Part):
    """The weights of M2."""

    usage: Unit = 0.0
    time: Unit = 0.0
    place: Unit = 0.0


class Weights(RoleWeights):
    """The weights of M1."""

    role: Unit = 0.0


class WeightedSum(Part):
    """M1: L = Σ weight · value over usage, role, time and place; a factor of weight 0 is not looked up."""

    model: Literal["weighted"]
    weights: Weights
    usage: Values = Field(default={})
    role: Values = Field(default={})
    time: Values = Field(default={})
    place: Values = Field(default={})

    def value(self, context: Context) -> float | None:
        """Return L, or None if a value is missing."""
        return _weighted(dict(self.weights), self._tables(), context)

    def keys(self) -> Iterator[tuple[Path, str, Mapping[str, object]]]:
        """Return each table's path in the model, the factor that its keys belong to, and itself."""
        for factor, table in self._tables().items():
            yield (factor,), factor, table

    def _tables(self) -> dict[str, Values]:
        return {"usage": self.usage, "role": self.role, "time": self.time, "place": self.place}


class RoleTable(Part):
    """The values that one role has."""

    usage: Values = Field(default={})
    time: Values = Field(default={})
    place: Values = Field(default={})


class RoleTables(Part):
    """M2: L = Σ weight · value over usage, time and place, with values of the audience's own role."""

    model: Literal["role-tables"]
    weights: RoleWeights
    roles: dict[str, RoleTable]

    def value(self, context: Context) -> float | None:
        """Return L, or None if a value is missing."""
        table = self.roles.get(context.role, self.roles.get(ANY))
        if table is None:
            return None
        return _weighted(dict(self.weights), {"usage": table.usage, "time": table.time, "place": table.place}, context)

    def keys(self) -> Iterator[tuple[Path, str, Mapping[str, object]]]:
        """Return each table's path in the model, the factor that its keys belong to, and itself."""
        yield ("roles",), "role", self.roles
        for role, table in self.roles.items():
            for factor, values in (("usage", table.usage), ("time", table.time), ("place", table.place)):
                yield ("roles", role, factor), factor, values


class FullTable(Part):
    """M3: L from a table of role, usage, time and place, in this order; the most specific entry counts, compared from the left."""

    model: Literal["full-table"]
    table: dict[str, dict[str, dict[str, Values]]]

    def value(self, context: Context) -> float | None:
        """Return L, or None if no entry matches."""
        for role in (context.role, ANY):
            for usage in (context.usage, ANY):
                by_time = self.table.get(role, {}).get(usage, {})
                for time in (*(name for name in by_time if name in context.calendars), ANY):
                    by_place = by_time.get(time, {})
                    for place in (context.place, ANY):
                        if place in by_place:
                            return by_place[place]
        return None

    def keys(self) -> Iterator[tuple[Path, str, Mapping[str, object]]]:
        """Return each table's path in the model, the factor that its keys belong to, and itself."""
        yield ("table",), "role", self.table
        for role, by_usage in self.table.items():
            yield ("table", role), "usage", by_usage
            for usage, by_time in by_usage.items():
                yield ("table", role, usage), "time", by_time
                for time, by_place in by_time.items():
                    yield ("table", role, usage, time), "place", by_place


Preference = Annotated[WeightedSum | RoleTables | FullTable, Field(discriminator="model")]


def _weighted(weights: Mapping[str, float], tables: Mapping[str, Values], context: Context) -> float | None:
    total = 0.0
    for factor, table in tables.items():
        if weight := weights.get(factor, 0.0):
            value = _look_up(table, factor, context)
            if value is None:
                return None
            total += weight * value
    return min(total, 1.0)


def _look_up(table: Values, factor: str, context: Context) -> float | None:
    if factor == "time":
        # At most one: calendars that overlap may not stand in one table.
        return next((table[name] for name in table if name in context.calendars), table.get(ANY))
    return table.get({"usage": context.usage, "role": context.role, "place": context.place}[factor], table.get(ANY))
