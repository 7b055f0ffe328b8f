"""What the operator fixes, and a policy has to fit: audiences, the finest radius, categories, the region."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from geo.plane import Region
from streaming.policy.document import REST
from streaming.policy.parts import ANY
from streaming.policy.radii import ladder_m

__all__ = ["Audience", "Deployment"]


class Audience(NamedTuple):
    """Who reads one topic of traces.

    Parameters
    ----------
    name : str
        Of the topic `traces.NAME`.
    role : str
        What rules call it.
    usage : str
        What it declared to use releases for.
    """

    name: str
    role: str
    usage: str = "any"


@dataclass(frozen=True)
class Deployment:
    """Public constants of a deployment.

    Parameters
    ----------
    audiences : tuple of Audience
        Who reads; the place here is an audience's number.
    full_radius_m : float
        The finest protected radius that any release may have, ground metres above 0. It is what `level = "full"` gives.
    categories : tuple of str, optional
        Categories of the anchors; the place here is a category's number. None: there are no anchors.
    region : Region, optional
        Zones have to meet it; None: not checked.
    coarsest_radius_m : float, default infinite
        The largest protected radius whose noise can be drawn, ground metres; at least the finest one.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    audiences: tuple[Audience, ...]
    full_radius_m: float
    categories: tuple[str, ...] | None = None
    region: Region | None = None
    coarsest_radius_m: float = math.inf

    def __post_init__(self) -> None:
        """Check every field."""
        if not (math.isfinite(self.full_radius_m) and self.full_radius_m > 0):
            raise ValueError("`full_radius_m` should be a finite number of metres above 0.")
        if not self.coarsest_radius_m >= self.full_radius_m:
            raise ValueError("`coarsest_radius_m` should be at least `full_radius_m`.")
        for what, names in (("audiences", [a.name for a in self.audiences]), ("categories", list(self.categories or ()))):
            if len(set(names)) < len(names):
                raise ValueError(f"`{what}` should have different names.")
        if {REST, ANY} & set(self.categories or ()):
            raise ValueError(f"`categories` should not hold `{REST}` or `{ANY}`: policies mean all others by them.")

    @property
    def ladder(self) -> tuple[float, ...]:
        """The radii that releases may have: those of `ladder_m` up to the coarsest one."""
        return tuple(rung for rung in ladder_m(self.full_radius_m) if rung <= self.coarsest_radius_m)
