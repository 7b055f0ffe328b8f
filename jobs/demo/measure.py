"""Last but one step of the demo: check that the counts add up, and measure how far from the truth the releases are.

Only the demo compares with the truth: it has the secret and the raw fixes, which nobody downstream has.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import Geod

from geo.privacy.prf import subkey
from jobs.demo.sample import Sample
from jobs.errors import UserError
from streaming.decode import user_id
from streaming.pseudonyms import Pseudonyms
from streaming.release import OUTCOMES, STATUSES
from streaming.settings import PRODUCTS, Settings, TickSettings

__all__ = ["Comparison", "Counts", "compare", "count"]

METRES_PER_DEGREE = 111_320.0
_EARTH = Geod(ellps="WGS84")


@dataclass(frozen=True)
class Counts:
    """Totals of the topics that count.

    Attributes
    ----------
    records : int
        Input records that the job accounted for.
    outcomes : mapping of str to mapping of str to int
        For each product, how many had each of `OUTCOMES`.
    reasons : mapping of str to int
        Why records were rejected.
    rows : mapping of str to int
        Rows of `traces` with each of `STATUSES`.
    """

    records: int
    outcomes: Mapping[str, Mapping[str, int]]
    reasons: Mapping[str, int]
    rows: Mapping[str, int]


@dataclass(frozen=True)
class Comparison:
    """Every window that has a true place, beside what was released of it.

    Attributes
    ----------
    user : ndarray of str with shape (n,)
        Names.
    tick : ndarray of int64 with shape (n,)
        Numbers of the ticks.
    true, published : ndarray of float64 with shape (n, 2)
        Latitude and longitude, degrees: the mean of the window's fixes, and the released position (NaN if it was withheld).
    distance_m : ndarray of float64 with shape (n,)
        Geodesic distance of the two in metres (NaN if it was withheld).
    r50_m, r95_m : float
        The radii that the releases state.
    """

    user: NDArray[np.str_]
    tick: NDArray[np.int64]
    true: NDArray[np.float64]
    published: NDArray[np.float64]
    distance_m: NDArray[np.float64]
    r50_m: float
    r95_m: float

    def displacements(self) -> NDArray[np.float64]:
        """Return the distances of the windows that were released."""
        released: NDArray[np.float64] = self.distance_m[~np.isnan(self.distance_m)]
        return released


def count(
    sent: int, balance: Iterable[Mapping[str, Any]], releases: Iterable[Mapping[str, Any]], traces: Iterable[Mapping[str, Any]]
) -> Counts:
    """Add up the counts and check them against each other.

    Parameters
    ----------
    sent : int
        Records that were written to the input.
    balance, releases, traces : iterable of mapping
        Rows of the three topics.

    Raises
    ------
    UserError
        If a record has no outcome or more than one, or if the public ledger and the rows of `traces` differ.
    """
    totals: dict[str, Counter[str]] = {product: Counter() for product in PRODUCTS}
    reasons: Counter[str] = Counter()
    for row in balance:
        totals[row["product"]].update({name: row[name] for name in ("records", "unclosed", *OUTCOMES)})
        if row["product"] == "traces":
            reasons.update(row["reasons"])
    ledger: Counter[str] = Counter()
    for row in releases:
        ledger.update({name: row[name] for name in STATUSES})
    rows = Counter(str(row["status"]) for row in traces)

    outcomes = {product: {name: total[name] for name in OUTCOMES} for product, total in totals.items()}
    for product, total in totals.items():
        if not sent == total["records"] == sum(outcomes[product].values()):
            raise UserError(
                f"The counts of {product} do not add up ({sent} records sent, {total['records']} accounted for, "
                f"{sum(outcomes[product].values())} outcomes): please report this as a bug."
            )
        if total["unclosed"]:
            raise UserError(f"The run ended with {total['unclosed']} records in open ticks: please report this as a bug.")
    if any(rows[name] != ledger[name] for name in STATUSES):
        raise UserError("The rows of `traces` differ from the totals in `releases`: please report this as a bug.")
    return Counts(sent, outcomes, dict(reasons), {name: rows[name] for name in STATUSES})


def compare(sample: Sample, traces: Iterable[Mapping[str, Any]], settings: Settings, secret: bytes) -> Comparison:
    """Put released positions beside the true means, which are computed here from the raw fixes.

    Parameters
    ----------
    sample : Sample
        Raw fixes, at most one a user and time.
    traces : iterable of mapping
        Rows of the topic.
    settings : Settings
        What the run was started with.
    secret : bytes
        The deployment's secret, which links users and pseudonyms.

    Raises
    ------
    UserError
        If nothing was released, or something of which there is no raw fix.
    """
    user, tick, true = _means(sample, settings.tick)
    key = subkey(secret, b"user-id")
    ids = {name: user_id(key, name) for name in set(user.tolist())}
    named = Pseudonyms(secret, settings.privacy.audience, settings.privacy.epoch_ticks)
    pseudonyms = named.of(np.array([ids[name] for name in user.tolist()], np.uint64), tick)
    place = {window: i for i, window in enumerate(zip(pseudonyms, tick.tolist(), strict=True))}

    published = np.full((len(user), 2), np.nan)
    radii = set()
    for row in traces:
        if row["status"] == "released":
            at = place.get((row["user"], row["tick"]))
            if at is None:
                raise UserError("A position was released of somebody who sent none: please report this as a bug.")
            published[at] = row["lat"], row["lon"]
            radii.add((row["r50_m"], row["r95_m"]))
    if len(radii) != 1:
        raise UserError("The run released nothing, or stated more than one radius: please report this as a bug.")
    *_, distance_m = _EARTH.inv(true[:, 1], true[:, 0], published[:, 1], published[:, 0])
    return Comparison(user, tick, true, published, np.asarray(distance_m), *radii.pop())


def _means(sample: Sample, rule: TickSettings) -> tuple[NDArray[np.str_], NDArray[np.int64], NDArray[np.float64]]:
    """Average the degrees of each user and tick: within a few kilometres the error is below a metre."""
    used = _used(sample, rule)
    names, number = np.unique(sample.user[used], return_inverse=True)
    ticks = sample.t_ms[used] // (1000 * rule.length_s)
    windows, window = np.unique(np.stack([number, ticks], axis=1), axis=0, return_inverse=True)
    fixes = np.bincount(window)
    mean = np.stack([np.bincount(window, weights=axis[used]) / fixes for axis in (sample.lat, sample.lon)], axis=1)
    return names[windows[:, 0]], windows[:, 1], mean


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
