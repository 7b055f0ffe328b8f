"""Porto taxi trips: a row a trip, with its start and a line of places 15 seconds apart."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions, Reason, batch_of
from jobs.replay.readers.columns import first_line, pieces, unix_times

__all__ = ["read", "recognises"]

COLUMNS = ("TRIP_ID", "CALL_TYPE", "ORIGIN_CALL", "ORIGIN_STAND", "TAXI_ID", "TIMESTAMP", "DAY_TYPE", "MISSING_DATA", "POLYLINE")
TAXI, START, LINE = COLUMNS.index("TAXI_ID"), COLUMNS.index("TIMESTAMP"), COLUMNS.index("POLYLINE")
STEP_MS = 15_000
PAIR = 2
ODD = ('"', "true", "false", "null")
"""What numpy would take for numbers."""

TOO_LARGE = 1e300


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether the header is that of the trips."""
    return tuple(name.strip('"') for name in first_line(head).split(",")) == COLUMNS


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read fixes of taxis "porto-20000376" and so on; the index is the line of the trip.

    A trip without places is left out. Where a trip has gaps (MISSING_DATA), its times are the nominal ones all the same: the data say no
    others.
    """
    other = 1
    with file.open() as content:
        for piece in pieces(content, len(COLUMNS), skip=1, quoted=True):
            starts, bad = unix_times(piece.columns[START], "s")
            refused = list(piece.refused)
            users: list[str] = []
            trips: list[tuple[int, int, NDArray[np.float64]]] = []
            rows = zip(
                piece.index.tolist(), starts.tolist(), bad.tolist(), *(piece.columns[n].to_pylist() for n in (TAXI, LINE)), strict=True
            )
            for line, start, is_bad, taxi, text in rows:
                places = None if is_bad else _places(text)
                if places is None or not taxi:
                    refused.append((line, Reason.WRONG_TYPE if is_bad else Reason.MISSING_FIELD if not taxi else Reason.MALFORMED))
                elif not len(places):
                    other += 1
                else:
                    users.append(f"porto-{taxi}")
                    trips.append((line, start, places))
            counts = [len(places) for *_, places in trips]
            whole = np.concatenate([places for *_, places in trips]) if trips else np.zeros((0, PAIR))
            t_ms = np.concatenate([start + STEP_MS * np.arange(len(p)) for _, start, p in trips]) if trips else np.zeros(0, np.int64)
            which = pa.array(np.repeat(np.arange(len(trips)), counts))
            index = np.repeat(np.array([line for line, *_ in trips], np.int64), counts)
            yield batch_of(pa.array(users, pa.string()).take(which), t_ms, whole[:, 1], whole[:, 0], index, refused, piece.other + other)
            other = 0


def _places(text: str) -> NDArray[np.float64] | None:
    """Return longitudes and latitudes, shape (n, 2), NaN where a point is none; None if the text is no list."""
    try:
        points: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if type(points) is not list:
        return None
    if not any(word in text for word in ODD):
        try:
            places = np.array(points, np.float64)
        except (ValueError, TypeError, OverflowError):
            pass
        else:
            if places.shape == (len(points), PAIR):
                return places
    return np.array([_point(point) for point in points], np.float64).reshape(-1, PAIR)


def _point(point: Any) -> tuple[float, float]:
    if type(point) is list and len(point) == PAIR and all(type(number) in (int, float) and abs(number) < TOO_LARGE for number in point):
        return float(point[0]), float(point[1])
    return float("nan"), float("nan")
