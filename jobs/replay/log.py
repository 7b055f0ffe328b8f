"""Third step of a replay: fixes in the order of time -> the records of the log, with a heartbeat a tick in each partition."""

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from streaming.records import HEARTBEAT
from streaming.settings import SourceSettings
from streaming.ticks import TickGrid

__all__ = ["ORDER", "LogBuilder", "Record"]

ORDER = ("t_ms", "user", "lat", "lon")
"""What fixes are sorted by: a function of their content, so that the order of files has no say."""

BEAT = orjson.dumps(HEARTBEAT)


class Record(NamedTuple):
    """One record to write: partition, or None for one in every partition of every topic that the job reads; value; log time."""

    partition: int | None
    value: bytes
    t_ms: int


class LogBuilder:
    """Write down fixes as records in the form that the job reads, in the order of their times.

    A heartbeat in each partition begins every tick, and the last one closes the last tick. In a silence in which all users' enrolment
    lapses, heartbeats end with that and begin again with the next fix: nothing is due in between.

    Parameters
    ----------
    source : SourceSettings
        Names of the fields, and the unit of time.
    grid : TickGrid
        The ticks.
    partitions : int
        Partitions of the topic, at least 1; a user's fixes are all in one.
    quiet_ticks : int
        Length of a silence after which nobody is enrolled, at least 1.
    """

    def __init__(self, source: SourceSettings, grid: TickGrid, partitions: int, quiet_ticks: int) -> None:
        self._source, self._grid, self._partitions, self._quiet = source, grid, partitions, quiet_ticks

    def records(self, blocks: Iterable[pa.RecordBatch]) -> Iterator[Record]:
        """Yield the records of fixes that come in the order of `ORDER`."""
        tick = None
        for block in blocks:
            t_ms = block["t_ms"].to_numpy()
            ticks = self._grid.tick_of(t_ms)
            starts = np.flatnonzero(np.diff(ticks, prepend=ticks[0] - 1))
            rows = self._rows(block, t_ms)
            for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(ticks)], strict=True):
                now = int(ticks[start])
                if tick != now:
                    yield from self._beats(tick, now)
                    tick = now
                yield from rows[start:end]
        if tick is not None:
            yield Record(None, BEAT, self._grid.closes_ms(tick))

    def _beats(self, last: int | None, now: int) -> Iterator[Record]:
        first = now if last is None else last + 1
        quiet_from = first + self._quiet
        for tick in range(first, min(now, quiet_from)):
            yield Record(None, BEAT, self._grid.start_ms(tick))
        yield Record(None, BEAT, self._grid.start_ms(now))

    def _rows(self, block: pa.RecordBatch, t_ms: NDArray[np.int64]) -> list[Record]:
        source = self._source
        users = block["user"].dictionary_encode()
        names = users.dictionary.to_pylist()
        heads = [f"{{{_text(source.user)}:{_text(name)},{_text(source.time)}:" for name in names]
        parts = [zlib.crc32(name.encode()) % self._partitions for name in names]
        lat, lon = f",{_text(source.lat)}:", f",{_text(source.lon)}:"
        columns = zip(users.indices.to_pylist(), self._times(t_ms), block["lat"].to_pylist(), block["lon"].to_pylist(), strict=True)
        return [
            Record(
                parts[user],
                f"{heads[user]}{time}{lat}{'null' if y is None else repr(y)}{lon}{'null' if x is None else repr(x)}}}".encode(),
                log_ms,
            )
            for (user, time, y, x), log_ms in zip(columns, t_ms.tolist(), strict=True)
        ]

    def _times(self, t_ms: NDArray[np.int64]) -> list[str]:
        match self._source.time_unit:
            case "ms":
                return [str(t) for t in t_ms.tolist()]
            case "us":
                return [str(t * 1000) for t in t_ms.tolist()]
            case "s":
                return [f"{t // 1000}.{t % 1000:03d}" for t in t_ms.tolist()]
            case "iso":
                return [f'"{t}Z"' for t in np.datetime_as_string(t_ms.astype("datetime64[ms]"), unit="ms").tolist()]


def _text(value: str) -> str:
    return orjson.dumps(value).decode()
