"""Porto taxi trips: a row a trip, with its start and a line of places 15 seconds apart."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions, Reason, batch_of
from jobs.replay.readers.columns import bad_users, first_line, numbers, pieces, split_line, unix_times

__all__ = ["read", "recognises"]

COLUMNS = ["TRIP_ID", "CALL_TYPE", "ORIGIN_CALL", "ORIGIN_STAND", "TAXI_ID", "TIMESTAMP", "DAY_TYPE", "MISSING_DATA", "POLYLINE"]
WANTED = tuple(COLUMNS.index(name) for name in ("TAXI_ID", "TIMESTAMP", "POLYLINE"))
STEP_MS = 15_000
PAIR = 2
MAX_TAXI_BYTES = 64
"""Its name is repeated for each place of a trip, and there may be millions of these."""

MAX_ODD_CHARACTERS = 1 << 20
"""Of a list that is not all pairs of numbers: Python's objects take many times the space of its text."""

NUMBER = r"\s*-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\s*"
POINT = rf"\s*\[{NUMBER},{NUMBER}\]\s*"
PLAIN = rf"^\s*\[{POINT}(?:,{POINT})*\]\s*$"
EMPTY = r"^\s*\[\s*\]\s*$"

Pairs = NDArray[np.float64]


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether the header is that of the trips."""
    return split_line(first_line(head), ",") == COLUMNS


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read fixes of taxis "porto-20000376" and so on; the index is the line of the trip.

    A trip without places is left out. Where a trip has gaps (MISSING_DATA), its times are the nominal ones all the same: the data say no
    others.
    """
    with file.open() as content:
        for piece in pieces(content, len(COLUMNS), WANTED, skip=1, quoted=True):
            taxi, begins, lists = piece.columns
            begin_ms, reasons = unix_times(begins, "s")
            counts, points = _points(lists)
            long = pc.greater(pc.binary_length(taxi), MAX_TAXI_BYTES).to_numpy(zero_copy_only=False)
            reasons |= bad_users(taxi) | dict.fromkeys(np.flatnonzero(long).tolist(), Reason.USER_TOO_LONG)
            reasons = dict.fromkeys(np.flatnonzero(counts < 0).tolist(), Reason.MALFORMED) | reasons
            good = np.ones(len(counts), bool)
            good[list(reasons)] = False
            which = np.repeat(np.arange(len(counts)), counts.clip(0))
            kept = good[which]
            points, which = points[kept], which[kept]
            step = np.arange(len(which)) - np.searchsorted(which, which)
            yield batch_of(
                pc.binary_join_element_wise(pa.scalar("porto"), taxi, "-").take(pa.array(which)),
                begin_ms[which] + STEP_MS * step,
                points[:, 1],
                points[:, 0],
                piece.index[which],
                sorted([*piece.refused, *((int(piece.index[place]), reason) for place, reason in reasons.items())]),
                piece.other + int((good & (counts == 0)).sum()),
            )


def _points(lists: pa.Array) -> tuple[NDArray[np.int64], Pairs]:
    """Return how many points each text lists, -1 if it is no list, and all their longitudes and latitudes, NaN where a point is none."""
    plain, empty = (pc.match_substring_regex(lists, pattern).to_numpy(zero_copy_only=False) for pattern in (PLAIN, EMPTY))
    counts = np.where(empty, 0, -1)
    fields = pc.split_pattern(pc.replace_substring_regex(lists.filter(pa.array(plain)), r"[\[\]]", ""), ",")
    counts[plain] = pc.list_value_length(fields).to_numpy(zero_copy_only=False) // PAIR
    odd = {place: _odd_points(lists[place].as_py()) for place in np.flatnonzero(~plain & ~empty).tolist()}
    for place, points in odd.items():
        counts[place] = -1 if points is None else len(points)
    is_plain = np.repeat(plain, counts.clip(0))
    whole = np.empty((len(is_plain), PAIR))
    whole[is_plain] = numbers(fields.flatten()).reshape(-1, PAIR)
    whole[~is_plain] = np.array([point for points in odd.values() for point in points or ()]).reshape(-1, PAIR)
    return counts, whole


def _odd_points(text: str) -> list[tuple[float, float]] | None:
    try:
        # The standard library's parser takes numbers that are not finite, which spoil one point and not the trip.
        points: Any = json.loads(text, parse_int=float) if len(text) <= MAX_ODD_CHARACTERS else None
    except (ValueError, RecursionError):
        return None
    return [_point(point) for point in points] if type(points) is list else None


def _point(point: Any) -> tuple[float, float]:
    if type(point) is list and len(point) == PAIR and all(type(number) is float for number in point):
        return point[0], point[1]
    return float("nan"), float("nan")
