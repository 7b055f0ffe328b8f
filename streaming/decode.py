"""First step of the flow: raw bytes of the log -> packed records, a batch at a time."""

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from geo.privacy.prf import subkey
from streaming.records import RECORD, Kind
from streaming.settings import SourceSettings
from streaming.ticks import TickGrid

__all__ = ["Decoder", "split_by_shard", "user_id"]

CACHED_USERS = 1_000_000
SECONDS, MICROSECONDS = 1000.0, 0.001
MAX_ABS_MS = 1e15
MAX_LAT, MAX_LON = 90, 180
CONTROL = {"heartbeat": Kind.HEARTBEAT, "enrolment": Kind.ENROLMENT}

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def user_id(key: bytes, user: str) -> int:
    """Return the keyed 8-byte id that stands for a user inside the job (1 .. 2**64 - 1).

    Keyed, so that nobody without the secret can craft two users who share an id; by chance some two of 10**6 users do
    with probability 2.7e-8, and then share one window and one budget.
    """
    return int.from_bytes(hashlib.blake2b(user.encode(), key=key, digest_size=8).digest(), "little") or 1


class Decoder:
    """Turn raw JSON records into packed records; every input record gives exactly one row.

    Rules, in order (the first that applies decides; `Kind` names the reasons). Time and identity come before position,
    so that whether a record is late or rejected for its time never depends on where it was:

    ========================  =====================================================================================
    `MALFORMED`               not one JSON object in UTF-8 (but see `POSITION_TYPE`)
    `MISSING_FIELD`           user or time is absent or null
    `WRONG_TYPE`              user is not text (or empty); time is not a finite number (or, where mapped, text)
    `USER_TOO_LONG`           user is longer than `max_user_bytes` of UTF-8
    `TIME_ZONE_MISSING`       an ISO time without an offset
    `WRONG_TIME_UNIT`         implausible time that would be plausible if read as s, ms or µs
    `BEFORE_ARCHIVE`          before `archive_start`
    `FUTURE`                  later than its own record's log timestamp + `future_tolerance_s`
    `LATE`                    its tick had closed at its own record's log timestamp
    `POSITION_MISSING`        latitude or longitude is absent or null
    `POSITION_TYPE`           … is not a finite number (true, NaN, "12.3" unless mapped as text), or a number or text elsewhere is none
    `POSITION_RANGE`          |lat| > 90 or |lon| > 180; never wrapped
    `NULL_ISLAND`             both within `null_island_deg` of zero
    ========================  =====================================================================================

    Fields that the settings do not name are never read, so that no other location-bearing field can pass.

    Parameters
    ----------
    sources
        One per raw topic, in the order of the `source` numbers given to `decode`.
    grid
        The ticks.
    secret
        Keys the 8-byte user ids.
    """

    def __init__(self, sources: Sequence[SourceSettings], grid: TickGrid, secret: bytes) -> None:
        self._sources = tuple(sources)
        self._starts = [datetime.fromisoformat(s.archive_start).replace(tzinfo=UTC).timestamp() * 1000 for s in sources]
        self._grid = grid
        self._key = subkey(secret, b"user-id")
        self._ids: dict[str, int] = {}

    def decode(
        self,
        values: Sequence[bytes | None],
        log_ms: NDArray[np.int64],
        partition: NDArray[np.int64],
        offset: NDArray[np.int64],
        source: int = 0,
    ) -> NDArray[np.void]:
        """Decode a batch.

        Parameters
        ----------
        values
            n raw record values; None is a record without a value.
        log_ms, partition, offset
            Arrays of shape (n,): log timestamp and place in the log.
        source
            Index of the settings of the source that all of them come from.

        Returns
        -------
        ndarray with shape (n,) and dtype `RECORD`
            In the order of the input.
        """
        rows = np.zeros(len(values), RECORD)
        rows["log_ms"], rows["partition"], rows["offset"], rows["source"] = log_ms, partition, offset, source
        docs = _parse(values, self._sources[source])
        self._fill(rows, docs, source)
        timed = (rows["kind"] == Kind.FIX) | (rows["kind"] >= Kind.POSITION_MISSING)
        rows["tick"] = self._grid.tick_of(np.where(timed, rows["t_ms"], rows["log_ms"]))
        return rows

    def _fill(self, rows: NDArray[np.void], docs: list[Any], number: int) -> None:
        source = self._sources[number]
        kind = rows["kind"]
        if set(map(type, docs)) != {dict}:
            kind[[type(doc) is not dict for doc in docs]] = Kind.MALFORMED
            docs = [doc if type(doc) is dict else {} for doc in docs]
        control = [doc.get("wayveil") for doc in docs]
        if any(name is not None for name in control):
            for i, name in enumerate(control):
                if name is not None:
                    kind[i] = CONTROL.get(name, Kind.WRONG_TYPE) if isinstance(name, str) else Kind.WRONG_TYPE
        open_rows = (kind == Kind.FIX) | (kind == Kind.ENROLMENT)

        self._users(rows, open_rows, [doc.get(source.user) for doc in docs], source.max_user_bytes)
        fixes = kind == Kind.FIX
        t_ms = self._times(rows, fixes, [doc.get(source.time) for doc in docs], source)
        self._plausible(rows, fixes, t_ms, source, self._starts[number])
        fixes = kind == Kind.FIX
        late = fixes & self._grid.is_late(rows["t_ms"], rows["log_ms"])
        kind[late] = Kind.LATE
        self._positions(rows, fixes & ~late, docs, source)

    def _users(self, rows: NDArray[np.void], open_rows: Mask, users: list[Any], max_bytes: int) -> None:
        ids = self._ids
        if len(ids) > CACHED_USERS:
            ids.clear()
        try:
            rows["user"] = [ids[user] for user in users]
        except (KeyError, TypeError):
            rows["user"] = [self._identify(user, max_bytes) for user in users]
        kind, bad = rows["kind"], open_rows & (rows["user"] == 0)
        for i in np.flatnonzero(bad).tolist():
            user = users[i]
            kind[i] = Kind.MISSING_FIELD if user is None else Kind.USER_TOO_LONG if type(user) is str and user else Kind.WRONG_TYPE
        rows["user"][~open_rows] = 0

    def _identify(self, user: object, max_bytes: int) -> int:
        if type(user) is not str or not user:
            return 0
        if user not in self._ids:
            try:
                if len(user.encode()) > max_bytes:
                    return 0
                self._ids[user] = user_id(self._key, user)
            except UnicodeEncodeError:
                return 0
        return self._ids[user]

    @staticmethod
    def _times(rows: NDArray[np.void], fixes: Mask, times: list[Any], source: SourceSettings) -> Floats:
        if source.time_unit == "iso":
            t_ms, reasons = np.zeros(len(times)), rows["kind"]
            for i in np.flatnonzero(fixes).tolist():
                t_ms[i], reason = _iso_ms(times[i])
                reasons[i] = reason
            return t_ms
        numbers, missing, bad = _numbers(times, source.text_numbers)
        rows["kind"][fixes & bad] = Kind.WRONG_TYPE
        rows["kind"][fixes & missing] = Kind.MISSING_FIELD
        if source.time_unit == "s":
            numbers = numbers * 1000.0
        elif source.time_unit == "us":
            numbers = numbers / 1000.0
        whole: Floats = np.rint(numbers)
        return whole

    @staticmethod
    def _plausible(rows: NDArray[np.void], fixes: Mask, t_ms: Floats, source: SourceSettings, start_ms: float) -> None:
        kind = rows["kind"]
        latest = rows["log_ms"] + source.future_tolerance_s * 1000.0

        def within(times: Floats) -> Mask:
            return (times >= start_ms) & (times <= latest)

        fixes = fixes & (kind == Kind.FIX)
        wrong = fixes & ~within(t_ms)
        if wrong.any():
            kind[wrong & (t_ms < start_ms)] = Kind.BEFORE_ARCHIVE
            kind[wrong & (t_ms > latest)] = Kind.FUTURE
            factors = (SECONDS, MICROSECONDS, SECONDS**2, MICROSECONDS**2)
            other_unit = np.any([within(t_ms * factor) for factor in factors], axis=0)
            if source.time_unit != "iso":
                kind[wrong & other_unit] = Kind.WRONG_TIME_UNIT
        usable = fixes & ~wrong & (np.abs(t_ms) < MAX_ABS_MS)
        rows["t_ms"] = np.where(usable, t_ms, 0.0).astype(np.int64)

    @staticmethod
    def _positions(rows: NDArray[np.void], fixes: Mask, docs: list[Any], source: SourceSettings) -> None:
        lat, lat_missing, lat_bad = _numbers([doc.get(source.lat) for doc in docs], source.text_numbers)
        lon, lon_missing, lon_bad = _numbers([doc.get(source.lon) for doc in docs], source.text_numbers)
        kind = rows["kind"]
        band = source.null_island_deg
        if band > 0:
            kind[fixes & (np.abs(lat) <= band) & (np.abs(lon) <= band)] = Kind.NULL_ISLAND
        kind[fixes & ((np.abs(lat) > MAX_LAT) | (np.abs(lon) > MAX_LON))] = Kind.POSITION_RANGE
        kind[fixes & (lat_bad | lon_bad)] = Kind.POSITION_TYPE
        kind[fixes & (lat_missing | lon_missing)] = Kind.POSITION_MISSING
        good = kind == Kind.FIX
        rows["lat_e7"] = np.rint(np.where(good, lat, 0.0) * 1e7)
        rows["lon_e7"] = np.rint(np.where(good, lon, 0.0) * 1e7)


def split_by_shard(rows: NDArray[np.void], shards: int) -> tuple[list[int], list[bytes]]:
    """Split packed records into one block of bytes for each shard that has any.

    Records without a user go to the shard of their log partition, so that all of one partition are accounted for together.

    Returns
    -------
    (shard numbers, blocks)
        Two lists of equal length, at most one entry for each record.
    """
    shard = (rows["user"] % np.uint64(shards)).astype(np.int64)
    shard = np.where(rows["user"] == 0, rows["partition"] % shards, shard)
    order = np.argsort(shard, kind="stable")
    rows, shard = rows[order], shard[order]
    numbers, starts = np.unique(shard, return_index=True)
    return numbers.tolist(), [part.tobytes() for part in np.split(rows, starts[1:]) if len(part)]


def _parse(values: Sequence[bytes | None], source: SourceSettings) -> list[Any]:
    loads: Callable[[Any], Any] = orjson.loads
    try:
        return [loads(value) for value in values]
    except (orjson.JSONDecodeError, TypeError):
        return [_parse_one(value, source) for value in values]


def _parse_one(value: bytes | None, source: SourceSettings) -> Any:
    """Parse one record; where it is JSON but for its numbers or texts, keep who and when, and mark the position as unusable.

    A device that writes NaN for want of a position is present all the same: that must not show as an absence.
    """
    if value is None:
        return None
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        try:
            document = json.loads(value.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError):
            return None
    if type(document) is not dict or document.get(source.user) is None or document.get(source.time) is None:
        return None
    return {source.user: document[source.user], source.time: document[source.time], source.lat: True, source.lon: True}


def _numbers(column: list[Any], text: bool) -> tuple[Floats, Mask, Mask]:
    """Return (values, missing, bad) of a column; values are 0 where missing or bad."""
    types = set(map(type, column))
    if types <= {float, int}:
        try:
            values = np.array(column, np.float64)
        except OverflowError:
            pass
        else:
            bad = ~np.isfinite(values)
            return np.where(bad, 0.0, values), np.zeros(len(column), bool), bad
    accepted: tuple[type, ...] = (float, int, str) if text else (float, int)
    values = np.zeros(len(column))
    missing, bad = np.zeros(len(column), bool), np.zeros(len(column), bool)
    for i, item in enumerate(column):
        if item is None:
            missing[i] = True
        elif type(item) not in accepted:
            bad[i] = True
        else:
            try:
                values[i] = float(item)
            except (ValueError, OverflowError):
                bad[i] = True
    wild = ~np.isfinite(values)
    values[wild] = 0.0
    return values, missing, bad | wild


def _iso_ms(text: object) -> tuple[float, Kind]:
    if text is None:
        return 0.0, Kind.MISSING_FIELD
    if type(text) is not str:
        return 0.0, Kind.WRONG_TYPE
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0, Kind.WRONG_TYPE
    if moment.tzinfo is None:
        return 0.0, Kind.TIME_ZONE_MISSING
    try:
        since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except OverflowError:
        return 0.0, Kind.BEFORE_ARCHIVE
    return float(since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000), Kind.FIX
