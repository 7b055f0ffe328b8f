"""First step of the demo: the bundled tracks -> one sample in the order of time -> records to send, some of them broken on purpose."""

import csv
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from jobs.kafka import Record

__all__ = ["CAR", "PLACES", "PLANTED", "POLICY", "ROADS", "START_MS", "TRACK", "Sample", "read_sample", "records"]

START_MS = 1_736_150_400_000
"""Public start of all tracks: 2025-01-06 08:00 UTC, the beginning of a tick."""

CAR, TRACK = "car-", "gpx-"
"""How the users' names begin: simulated cars in Helsinki, and recorded tracks at Lake Cerknica."""

DATA = Path(__file__).with_name("data")
ROADS = DATA / "helsinki-roads.json.gz"
"""The public roads of Helsinki that density is counted on."""

PLACES = DATA / "helsinki-places.geojson.gz"
"""The public places of Helsinki that releases may be moved to."""

POLICY = DATA / "policy.toml"
"""What each audience may learn."""

LOG_DELAY_MS = 2_000
LATE_BY_MS = 180_000
LEAP_DEG, LEAP_MS = 0.05, 500
BAD_LAT = 95.0
TICK_MS = 60_000
CARRIERS = 3

PLANTED = {
    "malformed": CARRIERS,
    "missing_field": CARRIERS,
    "wrong_time_unit": CARRIERS,
    "position_range": CARRIERS,
    "null_island": CARRIERS,
    "duplicate": CARRIERS,
    "merged": CARRIERS,
    "late": CARRIERS,
}
"""Outcome of each kind of record that :func:`records` adds to the sample, and how many there are."""


@dataclass(frozen=True)
class Sample:
    """Raw fixes in the order of time.

    Attributes
    ----------
    user : ndarray of str with shape (n,)
        Names.
    t_ms : ndarray of int64 with shape (n,)
        Milliseconds since 1970, ascending.
    lat, lon : ndarray of float64 with shape (n,)
        Degrees.
    """

    user: NDArray[np.str_]
    t_ms: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.user)


def read_sample(cars: int | None = None) -> Sample:
    """Read the bundled data.

    Parameters
    ----------
    cars : int, optional
        Read the first so many cars only.

    Returns
    -------
    Sample
        300 cars in Helsinki at 1 Hz for 20 minutes, and the 7 tracks of an outing at Lake Cerknica, each a user who starts at
        `START_MS`.
    """
    fixes = sorted([*_cars(cars), *_tracks()], key=lambda fix: fix[1])
    user, t_ms, lat, lon = zip(*fixes, strict=True)
    return Sample(np.array(user), np.array(t_ms, np.int64), np.array(lat), np.array(lon))


def records(sample: Sample, topic: str, partitions: int) -> list[Record]:
    """Encode the sample, and add what a real feed has too: broken, doubled, impossible and late records.

    Parameters
    ----------
    sample : Sample
        What to send.
    topic : str
        Where to.
    partitions : int
        Number of its partitions; a user's records all go to one of them.

    Returns
    -------
    list of Record
        In the order of their log timestamps, which are the event times and a constant delay.
    """
    columns = zip(sample.user.tolist(), sample.t_ms.tolist(), sample.lat.tolist(), sample.lon.tolist(), strict=True)
    out = [(user, _value(user, t, lat, lon), t) for user, t, lat, lon in columns]
    for at in _carriers(sample):
        user, t = str(sample.user[at]), int(sample.t_ms[at])
        out.extend((user, value, sent) for value, sent in _broken(user, t, float(sample.lat[at]), float(sample.lon[at])))
    out.sort(key=lambda record: record[2])
    place = {user: zlib.crc32(user.encode()) % partitions for user in set(sample.user.tolist())}
    return [(topic, place[user], user.encode(), value, sent + LOG_DELAY_MS) for user, value, sent in out]


def _cars(limit: int | None) -> Iterator[tuple[str, int, float, float]]:
    with gzip.open(DATA / "helsinki.csv.gz", "rt", encoding="ascii", newline="") as lines:
        for row in csv.DictReader(lines):
            if limit is None or int(row["vehicle"]) < limit:
                yield CAR + row["vehicle"], START_MS + 1000 * int(row["time_s"]), float(row["lat"]), float(row["lon"])


def _tracks() -> Iterator[tuple[str, int, float, float]]:
    import gpxpy

    document = gpxpy.parse((DATA / "cerknicko-jezero.gpx").read_text(encoding="utf-8"))
    for number, track in enumerate(document.tracks, 1):
        points = [point for segment in track.segments for point in segment.points]
        times = [point.time.timestamp() for point in points if point.time is not None]
        for point, time_s in zip(points, times, strict=True):
            yield f"{TRACK}{number}", START_MS + round(1000 * (time_s - times[0])), point.latitude, point.longitude


def _carriers(sample: Sample) -> list[int]:
    """Choose the fixes beside which broken records are put: first fixes of cars, spread over the sample.

    Not of one that starts with a tick: with another fix its window would have more than 60, and the last one would not be used.
    """
    users, first = np.unique(sample.user, return_index=True)
    usable = np.sort(first[np.char.startswith(users, CAR) & (sample.t_ms[first] % TICK_MS > 0)])
    return [int(usable[(2 * i + 1) * len(usable) // (2 * CARRIERS)]) for i in range(CARRIERS)]


def _broken(user: str, t: int, lat: float, lon: float) -> Iterator[tuple[bytes, int]]:
    """Yield values and times of sending, in the order of `PLANTED`."""
    good = _value(user, t, lat, lon)
    yield good[: len(good) // 2], t
    yield orjson.dumps({"t": t, "lat": lat, "lon": lon}), t
    yield _value(user, t // 1000, lat, lon), t
    yield _value(user, t, BAD_LAT, lon), t
    yield _value(user, t, 0.0, 0.0), t
    yield good, t
    yield _value(user, t + LEAP_MS, lat + LEAP_DEG, lon), t + LEAP_MS
    yield good, t + LATE_BY_MS


def _value(user: str, t: int, lat: float, lon: float) -> bytes:
    document: dict[str, Any] = {"user": user, "t": t, "lat": lat, "lon": lon}
    return orjson.dumps(document)
