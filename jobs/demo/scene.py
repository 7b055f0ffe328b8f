"""What the demo's picture and map draw: the users of a place, in metres, and how each audience is marked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyproj import Proj

from jobs.demo.measure import Comparison
from jobs.demo.sample import CAR, START_MS, TRACK, Sample

__all__ = ["CREDITS", "GROUND", "MARKS", "SPOTS", "Floats", "Mark", "Scene", "Spot", "Told", "Track", "scene"]

GROUND = "#d9d9d9"
TICK_MS = 60_000
CREDITS = "Streets of the simulated cars and public places © OpenStreetMap contributors (ODbL); tracks by Tomo Krajina, gpxpy (Apache-2.0)"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mark:
    """How an audience is drawn: colours that colour-blind people tell apart, and shapes, as matplotlib and bokeh name them."""

    colour: str
    shape: str
    map_shape: str
    map_size: int
    map_dash: str


MARKS = (
    Mark("#0072b2", "o", "circle", 11, "solid"),
    Mark("#d55e00", "s", "square", 11, "dashed"),
    Mark("#009e73", "D", "diamond", 18, "dotted"),
)
"""The marks of the audiences, in their order."""


@dataclass(frozen=True)
class Spot:
    """A place of the sample: its title, and how its users' names begin."""

    title: str
    prefix: str


SPOTS = (Spot("Helsinki", CAR), Spot("Lake Cerknica", TRACK))


@dataclass(frozen=True)
class Told:
    """What one audience was told of each window of one user; `xy` holds only where `placed`."""

    xy: Floats
    distance_m: Floats
    category: NDArray[np.str_]

    @property
    def placed(self) -> NDArray[np.bool_]:
        """Where a position is given."""
        return ~np.isnan(self.distance_m)


@dataclass(frozen=True)
class Track:
    """One user in metres east and north of the middle of the place; windows in the order of ticks.

    Attributes
    ----------
    user : str
        Name.
    raw, true : ndarray of float64 with shape (n, 2)
        Raw fixes, and the means of the windows.
    minute : ndarray of int64
        Minutes since the start, of the windows.
    withheld : ndarray of bool
        Whether no audience is told anything of a window, since the budget is spent.
    told : mapping of str to Told
        For each audience.
    """

    user: str
    raw: Floats
    true: Floats
    minute: NDArray[np.int64]
    withheld: NDArray[np.bool_]
    told: Mapping[str, Told]

    def ringed(self, audience: str) -> Floats:
        """Return the true place around which the audience's radius is drawn: the middle one of those of which it was told a position."""
        out = self.true[self.told[audience].placed]
        return out[len(out) // 2 : len(out) // 2 + 1]


@dataclass(frozen=True)
class Scene:
    """A place: its title, the raw fixes of all users there, shape (n, 2), and the users that are shown."""

    title: str
    raw: Floats
    tracks: Sequence[Track]


def scene(spot: Spot, sample: Sample, comparisons: Sequence[Comparison], many: int) -> Scene:
    """Choose the users to show, those of whom the audience that is told least often was told most, and put them into metres.

    Parameters
    ----------
    spot : Spot
        Which place.
    sample : Sample
        Raw fixes.
    comparisons : sequence of Comparison
        Of each audience.
    many : int
        How many users to show.
    """
    truth = comparisons[0].truth
    here = np.char.startswith(sample.user, spot.prefix)
    lat, lon = sample.lat[here], sample.lon[here]
    plane = Proj(proj="aeqd", lat_0=float(np.mean([lat.min(), lat.max()])), lon_0=float(np.mean([lon.min(), lon.max()])), ellps="WGS84")

    def metres(degrees: Floats) -> Floats:
        return np.stack(plane(degrees[:, 1], degrees[:, 0]), axis=1)

    raw, true = metres(np.stack([lat, lon], axis=1)), metres(truth.mean)
    published = [metres(comparison.published) for comparison in comparisons]
    withheld = np.any([comparison.withheld for comparison in comparisons], axis=0)
    users, number = np.unique(truth.user, return_inverse=True)
    points = [np.bincount(number[c.placed], minlength=len(users)) for c in comparisons if not c.anchored]
    order = np.lexsort([np.arange(len(users))[::-1], *sorted(points, key=np.sum, reverse=True)])[::-1]
    chosen = users[order][np.char.startswith(users[order], spot.prefix)][:many]
    tracks = []
    for user in chosen.tolist():
        own = np.flatnonzero(truth.user == user)
        told = {c.audience: Told(xy[own], c.distance_m[own], c.category[own]) for c, xy in zip(comparisons, published, strict=True)}
        minute = truth.tick[own] - START_MS // TICK_MS
        tracks.append(Track(user, raw[sample.user[here] == user], true[own], minute, withheld[own], told))
    return Scene(spot.title, raw, tracks)
