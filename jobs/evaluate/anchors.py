"""How useful anchors are: visits at known places are released with noise, moved to anchors, and compared with the truth."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from geo.anchors.index import AnchorIndex, geodesic_m
from geo.anchors.remap import Remap
from geo.anchors.snapping import Level, rule_of_names, snap_to_anchors, snap_to_categories
from geo.plane import Region
from geo.privacy.window_mean import WindowMean, nano_epsilon_per_m
from jobs.anchors.program import anchors_of, read_anchors
from jobs.anchors.readers import Columns, read_public_places
from jobs.errors import UserError

__all__ = ["Plan", "anchors_to_evaluate", "evaluate", "show_evaluation", "write_evaluation"]

Floats = NDArray[np.float64]

TWO_SIDED_95 = 1.96
REACH_Q, REMAP_Q = 0.95, 0.99
REMAPPED = 2000
"""Visits that are remapped, at most: with every anchor as a place of the prior, this is the slow part."""
MARGIN_M = 5000.0
METRES_PER_DEGREE = 111_195.0
TURN_DEG = 360.0
GOLDEN_ANGLE = math.pi * (3.0 - math.sqrt(5.0))
SEED = b"public seed of the evaluation"
"""The noise of an evaluation protects nobody: it is drawn as releases are, under a key that everybody knows, so that it can be repeated."""


@dataclass(frozen=True)
class Plan:
    """What to simulate.

    Parameters
    ----------
    radii_m : tuple of float
        Protected radii; ε is ln(ratio) / radius.
    ratio : float
        Likelihood ratio allowed within the radius, more than 1.
    visits : int
        Visits for each radius, rounded up to a multiple of the number of anchors: each is visited equally often.
    away_m : float
        Metres between a visitor and the anchor, in evenly spread directions.
    k : int
        Anchors that the form `category` looks at.
    step_m : int
        Grid step of the mechanism.
    """

    radii_m: tuple[float, ...] = (50.0, 100.0, 200.0, 500.0, 1000.0)
    ratio: float = 4.0
    visits: int = 10_000
    away_m: float = 0.0
    k: int = 16
    step_m: int = 10


def anchors_to_evaluate(path: Path, columns: Columns) -> AnchorIndex:
    """Read anchors: a file of `wayveil anchors build`, or public places, whose region is then their box and 5 km around it.

    Raises
    ------
    UserError
        If the file cannot be used.
    """
    if path.name.endswith(".parquet"):
        return read_anchors(path)[0]
    places = read_public_places(path, columns)
    if not places.ids:
        return anchors_of(places, Region("empty", -1.0, -1.0, 1.0, 1.0), columns)[0]
    lat, lon = np.array(places.lat), np.array(places.lon)
    high, wide = MARGIN_M / METRES_PER_DEGREE, MARGIN_M / METRES_PER_DEGREE / max(0.01, math.cos(math.radians(np.abs(lat).max())))
    try:
        box = max(-90.0, lat.min() - high), max(-180.0, lon.min() - wide), min(90.0, lat.max() + high), min(180.0, lon.max() + wide)
        return anchors_of(places, Region("evaluation", *map(float, box)), columns)[0]
    except ValueError as error:
        raise UserError(f"The places of `{path.name}` lie too far apart: build anchors of one region, and evaluate those.") from error


def evaluate(anchors: AnchorIndex, plan: Plan) -> dict[str, Any]:
    """Simulate visits at all radii.

    Parameters
    ----------
    anchors : AnchorIndex
    plan : Plan

    Returns
    -------
    dict
        JSON values: the plan, the baselines, and `rows`, one a radius: shares and means are [value, half width of its 95 % interval].

    Raises
    ------
    UserError
        If a number is out of range.
    """
    if plan.visits < 1 or plan.k < 1 or not (math.isfinite(plan.away_m) and plan.away_m >= 0):
        raise UserError("`visits` and `k` should be at least 1, and `away_m` a number of metres, at least 0.")
    offered = np.flatnonzero(anchors.popularity > 0)
    if not len(offered):
        raise UserError("No anchor has a popularity above 0: nothing can be offered.")
    place = np.tile(offered, math.ceil(plan.visits / len(offered)))
    turn = GOLDEN_ANGLE * np.arange(len(place))
    lat = anchors.lat[place] + plan.away_m * np.cos(turn) / METRES_PER_DEGREE
    lon = anchors.lon[place] + plan.away_m * np.sin(turn) / (METRES_PER_DEGREE * np.cos(np.radians(lat)))
    truth = _Truth(place, lat, np.remainder(lon + TURN_DEG / 2, TURN_DEG) - TURN_DEG / 2)
    try:
        rows = [_row(anchors, plan, truth, radius_m) for radius_m in plan.radii_m]
    except ValueError as error:
        raise UserError(str(error)) from error
    rule = rule_of_names(anchors, {}, Level.FULL)
    nearest = snap_to_anchors(anchors, truth.lat, truth.lon, rule, 1.0, 2 * plan.away_m + 1.0).anchor
    shares = [float(np.mean((anchors.codes[offered] == code).any(axis=1))) for code in range(len(anchors.category_names))]
    return {
        "anchors": {"version": anchors.version, "count": len(offered), "region": anchors.plane.region.name},
        "visits": len(place),
        "ratio": plan.ratio,
        "away_m": plan.away_m,
        "step_m": plan.step_m,
        "k": plan.k,
        "without_noise": {"hit": _share(nearest == place), "category": _share(_has(anchors, place, anchors.codes[nearest, 0]))},
        "random_guess": {"hit": 1.0 / len(offered), "category": _guess(anchors, offered), "most_frequent_category": max(shares)},
        "rows": rows,
    }


def show_evaluation(console: Console, result: dict[str, Any]) -> None:
    """Print an evaluation as tables."""
    head = result["anchors"]
    table = Table(
        title=f"Anchors {head['version']} of {head['region']}: {head['count']:,} places, {result['visits']:,} visits a row, "
        f"{result['away_m']:g} m away; per cent, ± a 95 % interval",
        title_justify="left",
    )
    table.add_column("radius m")
    for heading in ("ε per m", "cap m", "hit@1", "category\nof anchor", f"category\nof best {result['k']}", "un-\nanchored"):
        table.add_column(heading, justify="right", no_wrap=True)
    without, guess = result["without_noise"], result["random_guess"]
    table.add_row("no noise", "", "", _percent(without["hit"]), _percent(without["category"]), "", "")
    for row in result["rows"]:
        shares = [_percent(row[name]) for name in ("hit", "category_of_anchor", "category", "unanchored")]
        table.add_row(f"{row['radius_m']:g}", f"{row['epsilon_per_m']:.5f}", f"{row['reach_m']:,.0f}", *shares)
    table.add_row("a guess", "", "", f"{100 * guess['hit']:.2f}", *[f"{100 * guess['category']:.1f}"] * 2, "")
    table.add_row("commonest", "", "", "", *[f"{100 * guess['most_frequent_category']:.1f}"] * 2, "")
    console.print(table)
    table = Table(title="Metres from the true place: mean (median)", title_justify="left")
    table.add_column("radius m")
    for heading in ("noisy point", "anchor", "remap to mean", "remap to median"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result["rows"]:
        cells = [f"{at['mean'][0]:,.0f} ±{at['mean'][1]:,.0f} ({at['median']:,.0f})" if at else "–" for at in row["metres"].values()]
        table.add_row(f"{row['radius_m']:g}", *cells)
    console.print(table)
    console.print(
        "A guess draws the anchor, or its category, as often as there are such; the commonest is always the same category. Unanchored "
        "visits are misses, and in no distance of the anchor. The remaps take all anchors as the prior, by popularity.",
        highlight=False,
    )


def write_evaluation(path: Path, result: dict[str, Any]) -> None:
    """Write an evaluation as JSON.

    Raises
    ------
    UserError
        If the file cannot be written.
    """
    try:
        path.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    except OSError as error:
        raise UserError(f"`{path}` cannot be written: {error.strerror or error}.") from error


@dataclass(frozen=True)
class _Truth:
    place: NDArray[np.int64]
    lat: Floats
    lon: Floats

    def metres(self, lat: Floats, lon: Floats, rows: NDArray[np.int64] | slice = slice(None)) -> dict[str, Any] | None:
        """Summarise the distances of the visits `rows` to positions, one each."""
        distance = geodesic_m(self.lat[rows], self.lon[rows], lat, lon)
        if not len(distance):
            return None
        return {
            "mean": [float(distance.mean()), TWO_SIDED_95 * _sd(distance) / math.sqrt(len(distance))],
            "median": float(np.median(distance)),
        }


def _row(anchors: AnchorIndex, plan: Plan, truth: _Truth, radius_m: float) -> dict[str, Any]:
    nano = nano_epsilon_per_m(plan.ratio, radius_m)
    mechanism = WindowMean(anchors.plane, plan.step_m, nano)
    visits = len(truth.place)
    lat_e7, lon_e7 = (np.rint(column * 1e7).astype(np.int64) for column in (truth.lat, truth.lon))
    cells = mechanism.cells(anchors.plane.to_mm(lat_e7, lon_e7), np.ones(visits, np.int64))
    noisy, _ = mechanism.perturb(SEED, np.arange(visits, dtype=np.uint64), 0, cells)
    lat, lon = mechanism.publish(noisy).T
    epsilon_per_m, reach_m = nano * 1e-9, mechanism.radius_m(REACH_Q)
    rule = rule_of_names(anchors, {}, Level.FULL)
    anchor = snap_to_anchors(anchors, lat, lon, rule, epsilon_per_m, reach_m)
    best = snap_to_categories(anchors, lat, lon, rule, epsilon_per_m, reach_m, k=plan.k)
    prior = Remap(anchors.plane, anchors.lat, anchors.lon, anchors.popularity)
    some = np.arange(0, visits, math.ceil(visits / REMAPPED))
    mean, median = (remap(lat[some], lon[some], epsilon_per_m, mechanism.radius_m(REMAP_Q)) for remap in (prior.mean, prior.median))
    found = np.flatnonzero(anchor.anchor >= 0)
    to = anchor.anchor[found]
    return {
        "radius_m": radius_m,
        "epsilon_per_m": epsilon_per_m,
        "reach_m": reach_m,
        "hit": _share(anchor.anchor == truth.place),
        "category_of_anchor": _share(_has(anchors, truth.place, anchor.category)),
        "category": _share(_has(anchors, truth.place, best.category)),
        "unanchored": _share(anchor.anchor < 0),
        "metres": {
            "noisy": truth.metres(lat, lon),
            "anchor": truth.metres(anchors.lat[to], anchors.lon[to], found),
            "remap_mean": truth.metres(mean[:, 0], mean[:, 1], some),
            "remap_median": truth.metres(median[:, 0], median[:, 1], some),
        },
    }


def _has(anchors: AnchorIndex, place: NDArray[np.int64], category: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell where a category is one of the true place's; -1 is none."""
    return np.asarray((category >= 0) & (anchors.codes[place] == category[:, None]).any(axis=1))


def _guess(anchors: AnchorIndex, offered: NDArray[np.int64]) -> float:
    """Return how often the first category of an anchor drawn by itself is one of another's."""
    codes = anchors.codes[offered]
    share = np.bincount(codes[:, 0], minlength=len(anchors.category_names)) / len(codes)
    return float(np.mean(np.where(codes >= 0, share[codes], 0.0).sum(axis=1)))


def _share(hits: NDArray[np.bool_]) -> list[float]:
    """Return a share and the half width of Wilson's interval."""
    n, share, z2 = len(hits), float(np.mean(hits)), TWO_SIDED_95**2
    return [share, TWO_SIDED_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))]


def _sd(values: Floats) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _percent(share: list[float]) -> str:
    return f"{100 * share[0]:.1f} ±{100 * share[1]:.1f}"
