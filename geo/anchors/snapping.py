"""Nearest-neighbour anchors: a noisy point becomes a public place, its category, or a few candidates.

All functions read the *noisy* point, public data and a public rule, and nothing else. What they return is therefore post-processing: it
costs no privacy budget, whatever the rule, as long as the rule is not chosen by the true position.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geo.anchors.index import AnchorIndex, into_region

__all__ = ["Candidates", "Level", "Snapped", "rule_of_names", "snap_to_anchors", "snap_to_candidates", "snap_to_categories"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 8192
_SMALL_BLOCK = 256
"""Points looked at together, and where popularity differs: then all anchors in reach may have to be compared, which takes memory."""


class Level(IntEnum):
    """What may be told about anchors of a category. Of an anchor with several categories, the lowest level counts."""

    NONE = 0
    PERTURBED = 1
    FULL = 2


@dataclass(frozen=True)
class Snapped:
    """One place a point, or none.

    Attributes
    ----------
    anchor : ndarray of int64 with shape (n,)
        Number in the index; -1 where no anchor is near, or only the category may be told.
    category : ndarray of int64 with shape (n,)
        Code; -1 where no anchor is near (unanchored).
    """

    anchor: Ints
    category: Ints


@dataclass(frozen=True)
class Candidates:
    """Up to k places a point, best first.

    Attributes
    ----------
    anchor, category : ndarray of int64 with shape (n, k)
        As in `Snapped`; both are -1 after the last candidate.
    share : ndarray of float64 with shape (n, k)
        Scores divided by their sum over the row; 0 after the last candidate.
    """

    anchor: Ints
    category: Ints
    share: Floats


def rule_of_names(index: AnchorIndex, levels: Mapping[str, Level], default: Level) -> NDArray[np.int8]:
    """Write a rule as the snapping functions take it.

    Parameters
    ----------
    index : AnchorIndex
    levels : mapping of str to Level
        By name of category.
    default : Level
        Of the categories not named.

    Returns
    -------
    ndarray of int8 with shape (categories,)

    Raises
    ------
    ValueError
        If a name is no category of the index.
    """
    for name in levels:
        if name not in index.category_names:
            raise ValueError(f"{name!r} is no category of these anchors, which have: {', '.join(index.category_names)}.")
    return np.array([levels.get(name, default) for name in index.category_names], np.int8)


def snap_to_anchors(
    index: AnchorIndex,
    lat: ArrayLike,
    lon: ArrayLike,
    rules: ArrayLike,
    epsilon_per_m: ArrayLike,
    reach_m: ArrayLike,
    rule_of: ArrayLike = 0,
) -> Snapped:
    """Move each noisy point to the best anchor.

    Guarantee
        That of the noisy point: this is post-processing, and costs nothing.
    Formula
        argmax over offered anchors a with d(a) <= reach_m of popularity(a) · exp(-epsilon_per_m · d(a)), d the geodesic on WGS 84; among
        equals, the anchor with the lowest id. With equal popularity it is the nearest anchor. Offered are the anchors of
        positive popularity without a category of level `NONE`; if one of its categories has level `PERTURBED`, only the first
        category of the anchor is told.
    Source
        The nearest-neighbour anchor resource of Assam, Hassani, Seidl, "Differential private trajectory protection of moving objects"
        (IWGS 2012), with scores.

    Parameters
    ----------
    index : AnchorIndex
    lat, lon : array_like of float with shape (n,)
        Noisy points in degrees, finite. A point outside the region counts as the nearest one on its edge, by meridian and parallel.
    rules : array_like of int8 with shape (categories,) or (r, categories)
        `Level` of each category; one rule for all, or several.
    epsilon_per_m : array_like of float with shape () or (n,)
        Privacy parameter of the noise in 1/m, more than 0.
    reach_m : array_like of float with shape () or (n,)
        Public cap in ground metres, at least 0: the 95 % radius of the noise. The edge counts.
    rule_of : array_like of int with shape () or (n,), default 0
        Which of the rules holds for each point.

    Returns
    -------
    Snapped

    Raises
    ------
    ValueError
        If an argument has another shape or is outside its range.
    """
    points = _points(index, lat, lon, rules, epsilon_per_m, reach_m, rule_of, 1)
    row, anchor, _ = _best(index, points, 1)
    out = _nothing(len(points.lat)), _nothing(len(points.lat))
    out[0][row] = np.where(_perturbed(index, points, row, anchor), -1, anchor)
    out[1][row] = index.codes[anchor, 0]
    return Snapped(*out)


def snap_to_categories(
    index: AnchorIndex,
    lat: ArrayLike,
    lon: ArrayLike,
    rules: ArrayLike,
    epsilon_per_m: ArrayLike,
    reach_m: ArrayLike,
    rule_of: ArrayLike = 0,
    *,
    k: int,
) -> Snapped:
    """Give each noisy point the category that its best anchors speak for most.

    The argmax over categories of the sum of the scores of the `k` best anchors; an anchor counts for each of its categories; among equals,
    the category that comes first by name. Arguments, guarantee and scores are those of `snap_to_anchors`.

    Parameters
    ----------
    index, lat, lon, rules, epsilon_per_m, reach_m, rule_of
        As for `snap_to_anchors`.
    k : int
        Public number of anchors looked at, at least 1: those of the highest scores, which are the nearest if all are equally popular.

    Returns
    -------
    Snapped
        Its `anchor` is -1 everywhere.
    """
    points = _points(index, lat, lon, rules, epsilon_per_m, reach_m, rule_of, k)
    row, anchor, score = _best(index, points, k)
    codes = index.codes[anchor]
    entry, place = np.nonzero(codes >= 0)
    row, code, total = _tally(row[entry], codes[entry, place], score[entry], len(index.category_names))
    best = np.lexsort((code, -total, row))
    first = best[np.flatnonzero(np.diff(row[best], prepend=-1))]
    category = _nothing(len(points.lat))
    category[row[first]] = code[first]
    return Snapped(_nothing(len(points.lat)), category)


def snap_to_candidates(
    index: AnchorIndex,
    lat: ArrayLike,
    lon: ArrayLike,
    rules: ArrayLike,
    epsilon_per_m: ArrayLike,
    reach_m: ArrayLike,
    rule_of: ArrayLike = 0,
    *,
    k: int,
) -> Candidates:
    """Give each noisy point its `k` best anchors with their share of the score.

    Anchors of which only the category may be told are one candidate for each (first) category, with the sum of their scores, so that their
    shares do not tell them apart. Ordered by share; among equals, anchors by id, then categories by name. Arguments, guarantee and
    scores are those of `snap_to_anchors`.

    Parameters
    ----------
    index, lat, lon, rules, epsilon_per_m, reach_m, rule_of
        As for `snap_to_anchors`.
    k : int
        Public number of candidates, at least 1.

    Returns
    -------
    Candidates
    """
    points = _points(index, lat, lon, rules, epsilon_per_m, reach_m, rule_of, k)
    row, anchor, score = _best(index, points, k)
    told = np.where(_perturbed(index, points, row, anchor), len(index) + index.codes[anchor, 0], anchor)
    row, told, total = _tally(row, told, score, len(index) + len(index.category_names))
    best = np.lexsort((told, -total, row))
    row, told, total = row[best], told[best], total[best]
    out = Candidates(_nothing(len(points.lat), k), _nothing(len(points.lat), k), np.zeros((len(points.lat), k)))
    column = np.arange(len(row)) - np.searchsorted(row, row, side="left")
    named = told < len(index)
    out.anchor[row, column] = np.where(named, told, -1)
    out.category[row, column] = np.where(named, index.codes[np.where(named, told, 0), 0], told - len(index))
    out.share[row, column] = total / np.bincount(row, total, len(points.lat))[row]
    return out


@dataclass(frozen=True)
class _Points:
    lat: Floats
    lon: Floats
    rules: NDArray[np.int8]
    rule: Ints
    epsilon_per_m: Floats
    reach_m: Floats


def _points(
    index: AnchorIndex,
    lat: ArrayLike,
    lon: ArrayLike,
    rules: ArrayLike,
    epsilon_per_m: ArrayLike,
    reach_m: ArrayLike,
    rule_of: ArrayLike,
    k: int,
) -> _Points:
    at = np.asarray(lat, np.float64), np.asarray(lon, np.float64)
    if at[0].ndim != 1 or at[0].shape != at[1].shape or not (np.isfinite(at[0]).all() and np.isfinite(at[1]).all()):
        raise ValueError("`lat` and `lon` should be finite and of one shape (n,).")
    table = np.atleast_2d(np.asarray(rules, np.int8))
    if table.shape[1:] != (len(index.category_names),) or not np.isin(table, list(Level)).all():
        raise ValueError(f"`rules` should give one of the levels 0, 1, 2 to each of the {len(index.category_names)} categories.")
    shape = at[0].shape
    try:
        rule = np.broadcast_to(np.asarray(rule_of, np.int64), shape)
        epsilon, reach = (np.broadcast_to(np.asarray(column, np.float64), shape) for column in (epsilon_per_m, reach_m))
    except ValueError:
        raise ValueError("`rule_of`, `epsilon_per_m` and `reach_m` should have one value, or one for each point.") from None
    if not ((rule >= 0) & (rule < len(table))).all():
        raise ValueError("`rule_of` should hold places in `rules`.")
    if not (np.isfinite(epsilon) & (epsilon > 0)).all():
        raise ValueError("`epsilon_per_m` should be finite and more than 0.")
    if not (np.isfinite(reach) & (reach >= 0)).all():
        raise ValueError("`reach_m` should be finite and at least 0.")
    if k < 1:
        raise ValueError("`k` should be at least 1.")
    return _Points(*into_region(index.plane.region, *at), table, rule, epsilon, reach)


def _best(index: AnchorIndex, points: _Points, k: int) -> tuple[Ints, Ints, Floats]:
    """Return rows, anchors and scores of the `k` best anchors, sorted by row; scores are relative to the best of the row."""
    parts: list[tuple[Ints, Ints, Floats]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    for hidden, block, least, most in _blocks(index, points):
        lat, lon, epsilon_per_m, reach_m = (column[block] for column in (points.lat, points.lon, points.epsilon_per_m, points.reach_m))
        if k == 1 and least == most:
            anchor = index.nearest(hidden, lat, lon, reach_m)
            found = np.flatnonzero(anchor >= 0)
            parts.append((block[found], anchor[found], np.ones(len(found))))
            continue
        # An anchor farther than the k-th nearest by more than this scores less than k others, however popular it is.
        row, anchor, distance_m = index.near(hidden, lat, lon, reach_m, k, (most - least) / epsilon_per_m)
        score = np.log(index.popularity[anchor]) - epsilon_per_m[row] * distance_m
        order = np.lexsort((anchor, -score, row))
        row, anchor, score = row[order], anchor[order], score[order]
        first = np.searchsorted(row, row, side="left")
        keep = np.arange(len(row)) - first < k
        parts.append((block[row[keep]], anchor[keep], np.exp(score - score[first])[keep]))
    row, anchor, score = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(row, kind="stable")
    return row[order], anchor[order], score[order]


def _blocks(index: AnchorIndex, points: _Points) -> Iterator[tuple[NDArray[np.bool_], Ints, float, float]]:
    """Yield each set of hidden categories that leaves anchors, points that it holds for, and the extremes of log popularity."""
    hidden, group = np.unique(points.rules == Level.NONE, axis=0, return_inverse=True)
    group_of = group.ravel()[points.rule]
    for at, own in enumerate(hidden):
        popularity = index.popularity[index.offered(own)]
        if not len(popularity):
            continue
        least, most = float(np.log(popularity.min())), float(np.log(popularity.max()))
        rows, size = np.flatnonzero(group_of == at), _BLOCK if least == most else _SMALL_BLOCK
        for start in range(0, len(rows), size):
            yield own, rows[start : start + size], least, most


def _perturbed(index: AnchorIndex, points: _Points, row: Ints, anchor: Ints) -> NDArray[np.bool_]:
    """Tell of which anchors only the category may be told to the point of that row."""
    codes = index.codes[anchor]
    # The code -1, no category, is the last place of the table.
    table = np.pad(points.rules == Level.PERTURBED, ((0, 0), (0, 1)))
    return np.asarray(table[points.rule[row][:, None], codes].any(axis=1))


def _tally(row: Ints, code: Ints, score: Floats, codes: int) -> tuple[Ints, Ints, Floats]:
    """Add up the scores of equal (row, code), in the order given."""
    keys, place = np.unique(row * codes + code, return_inverse=True)
    return keys // codes, keys % codes, np.asarray(np.bincount(place, score, len(keys)), np.float64)


def _nothing(*shape: int) -> Ints:
    return np.full(shape, -1, np.int64)
