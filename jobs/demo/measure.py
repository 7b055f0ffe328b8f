"""Measure how far from the truth the releases to each audience are.

Only the demo compares with the truth: it has the secret and the raw fixes, which nobody downstream has.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import Geod

from geo.privacy.prf import subkey
from jobs.demo.counts import Rows
from jobs.demo.sample import Sample
from jobs.errors import UserError
from streaming.decode import user_id
from streaming.pseudonyms import Pseudonyms
from streaming.settings import Settings, TickSettings

__all__ = ["Comparison", "Truth", "compare", "true_means"]

METRES_PER_DEGREE = 111_320.0
_EARTH = Geod(ellps="WGS84")


@dataclass(frozen=True)
class Truth:
    """Every window, which is a user and tick with a fix that is used.

    Attributes
    ----------
    user : ndarray of str with shape (n,)
        Names.
    tick : ndarray of int64 with shape (n,)
        Numbers of the ticks.
    mean : ndarray of float64 with shape (n, 2)
        Latitude and longitude, degrees: the mean of the window's fixes.
    """

    user: NDArray[np.str_]
    tick: NDArray[np.int64]
    mean: NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Every window beside what one audience was told of it.

    Attributes
    ----------
    audience : str
        Its name.
    truth : Truth
        n windows.
    withheld : ndarray of bool with shape (n,)
        Whether the audience was told that the budget is spent.
    form, category : ndarray of str with shape (n,)
        The form of the release, and the category that it names; empty where there is none.
    published : ndarray of float64 with shape (n, 2)
        The position that the release gives, of a point or of an anchor; NaN where it gives none.
    distance_m : ndarray of float64 with shape (n,)
        Geodesic distance of the two in metres; NaN where no position is given.
    radius_m, r50_m, r95_m : float
        The radii that the releases state: the protected one, and those of the noise.
    """

    audience: str
    truth: Truth
    withheld: NDArray[np.bool_]
    form: NDArray[np.str_]
    category: NDArray[np.str_]
    published: NDArray[np.float64]
    distance_m: NDArray[np.float64]
    radius_m: float
    r50_m: float
    r95_m: float

    @property
    def placed(self) -> NDArray[np.bool_]:
        """For which windows a position is given, shape (n,)."""
        return ~np.isnan(self.distance_m)

    @property
    def anchored(self) -> bool:
        """Whether the audience is told of public places instead of positions."""
        return not np.isin(self.form, ["", "point"]).all()

    def displacements(self) -> NDArray[np.float64]:
        """Return the distances of the windows for which a position is given."""
        given: NDArray[np.float64] = self.distance_m[self.placed]
        return given


def true_means(sample: Sample, rule: TickSettings) -> Truth:
    """Average the degrees of each user and tick: within a few kilometres the error is below a metre.

    Parameters
    ----------
    sample : Sample
        Raw fixes, at most one a user and time.
    rule : TickSettings
        Which fixes are used.
    """
    used = _used(sample, rule)
    names, number = np.unique(sample.user[used], return_inverse=True)
    ticks = sample.t_ms[used] // (1000 * rule.length_s)
    windows, window = np.unique(np.stack([number, ticks], axis=1), axis=0, return_inverse=True)
    fixes = np.bincount(window)
    mean = np.stack([np.bincount(window, weights=axis[used]) / fixes for axis in (sample.lat, sample.lon)], axis=1)
    return Truth(names[windows[:, 0]], windows[:, 1], mean)


def compare(truth: Truth, traces: Rows, settings: Settings, secret: bytes, audience: str) -> Comparison:
    """Put what an audience was told beside the true means.

    Parameters
    ----------
    truth : Truth
        Means, computed here from the raw fixes.
    traces : sequence of mapping
        Rows of the audience; its view has to be of one precision.
    settings : Settings
        What the run was started with.
    secret : bytes
        The deployment's secret, which links users and pseudonyms.
    audience : str
        Its name.

    Raises
    ------
    UserError
        If nothing was released, or something of which there is no raw fix.
    """
    key = subkey(secret, b"user-id")
    ids = {name: user_id(key, name) for name in set(truth.user.tolist())}
    named = Pseudonyms(secret, audience, settings.privacy.epoch_ticks)
    pseudonyms = named.of(np.array([ids[name] for name in truth.user.tolist()], np.uint64), truth.tick)
    place = {window: i for i, window in enumerate(zip(pseudonyms, truth.tick.tolist(), strict=True))}

    told: list[Mapping[str, Any]] = [{} for _ in place]
    for row in traces:
        if row["status"] != "absent":
            at = place.get((row["user"], row["tick"]))
            if at is None:
                raise UserError("Something was released of somebody who sent nothing: please report this as a bug.")
            told[at] = row
    radii = {(row["radius_m"], row["r50_m"], row["r95_m"]) for row in told if "r50_m" in row}
    if len(radii) != 1:
        raise UserError(f"The run released nothing to {audience}, or stated more than one radius: please report this as a bug.")
    published = np.array([(row.get("lat", np.nan), row.get("lon", np.nan)) for row in told])
    *_, distance_m = _EARTH.inv(truth.mean[:, 1], truth.mean[:, 0], published[:, 1], published[:, 0])
    return Comparison(
        audience,
        truth,
        np.array([row.get("status") == "withheld" for row in told]),
        np.array([row.get("form", "") for row in told]),
        np.array([row.get("category", "") for row in told]),
        published,
        np.asarray(distance_m),
        *radii.pop(),
    )


def _used(sample: Sample, rule: TickSettings) -> NDArray[np.bool_]:
    """Say which fixes have a part in the mean: a tick's first `max_fixes`, without those that no user could reach so fast."""
    used = np.zeros(len(sample), bool)
    count_of: Counter[tuple[str, int]] = Counter()
    last: dict[tuple[str, int], tuple[int, float, float]] = {}
    columns = zip(sample.user.tolist(), sample.t_ms.tolist(), sample.lat.tolist(), sample.lon.tolist(), strict=True)
    for i, (user, t, lat, lon) in enumerate(columns):
        window = user, t // (1000 * rule.length_s)
        count_of[window] += 1
        t_0, lat_0, lon_0 = last.get(window, (t, lat, lon))
        metres = METRES_PER_DEGREE * math.hypot(lat - lat_0, (lon - lon_0) * math.cos(math.radians(lat)))
        used[i] = count_of[window] <= rule.max_fixes and metres <= rule.max_speed_mps * (t - t_0) / 1000
        if used[i]:
            last[window] = t, lat, lon
    return used
