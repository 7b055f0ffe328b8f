"""Parquet and GeoParquet tables: columns with usual names, or that a person names; places also as points in well-known binary."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray

from jobs.errors import UserError
from jobs.replay.files import InputFile
from jobs.replay.fixes import BATCH, Batch, DamagedError, ReadOptions, Reason
from jobs.replay.readers.columns import Piece, Times, batch_of_piece, local_times, numbers, unix_times
from jobs.replay.readers.names import NO_UNIT, find_columns
from jobs.replay.readers.table import text_times

__all__ = ["read", "recognises"]

MAGIC = b"PAR1"
BUFFER_BYTES = 1 << 20
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
FAR = 1 << 62
"""Beyond all times that a replay takes."""

DEGREES = {("OGC", "CRS84"), ("OGC", "CRS84h"), ("EPSG", "4326"), ("EPSG", "4979")}
MAX_POINT_BYTES = 64
"""A point with height and measure has 41; what is longer is another shape, and may be nested without end."""

Floats = NDArray[np.float64]


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether a file begins as Parquet does."""
    return head.startswith(MAGIC)


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read a table; the index is the row.

    Places are the points of GeoParquet's primary column, unless a person names columns. Times are timestamps (without a zone: in
    `options.zone`), ISO 8601 texts, or numbers in the unit that `options.mapped` names.

    Raises
    ------
    UserError
        If the table does not say where its places and times are, or in which unit, or if its points are no degrees.
    """
    with _seekable(file) as path:
        try:
            # Buffered, so that memory does not grow with the size of a row group; stamps of old writers would overflow as nanoseconds.
            with pq.ParquetFile(path, buffer_size=BUFFER_BYTES, coerce_int96_timestamp_unit="us") as table:
                yield from _rows(table, file, options)
        except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError, MemoryError) as error:
            raise DamagedError("it is no whole Parquet file, or holds columns of a kind that cannot be read") from error


def _rows(table: pq.ParquetFile, file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    mapped, names = options.mapped, table.schema_arrow.names
    geometry = None if mapped.lat or mapped.lon else _geometry(table.schema_arrow)
    columns = find_columns(names, mapped, places=geometry is None)
    wanted = [name for name in (columns.user, columns.time, columns.lat, columns.lon, geometry) if name is not None]
    row, known = 0, False
    for batch in table.iter_batches(BATCH, columns=wanted, use_threads=False):
        piece = Piece([], np.arange(row + 1, row + len(batch) + 1))
        row += len(batch)
        t_ms, bad = _times(batch[columns.time], options, known)
        known = known or len(bad) < len(batch)
        lat, lon = _points(batch[geometry]) if geometry else (_degrees(batch[name]) for name in (columns.lat, columns.lon))
        yield batch_of_piece(piece, file.user if columns.user is None else _text(batch[columns.user]), t_ms, bad, lat, lon)
        file.meter.done = max(file.meter.done, file.meter.size * row // max(table.metadata.num_rows, 1))


@contextmanager
def _seekable(file: InputFile) -> Iterator[str]:
    """Give a file that can be read from its end: what is packed is unpacked to disk first."""
    if file.member is None and not file.path.name.lower().endswith(".gz"):
        yield str(file.path)
        return
    with tempfile.NamedTemporaryFile() as unpacked:
        with file.open() as content:
            shutil.copyfileobj(content, unpacked)
        unpacked.flush()
        yield unpacked.name


def _geometry(schema: pa.Schema) -> str | None:
    """Return the column of points that GeoParquet's metadata name, or None."""
    try:
        geo = orjson.loads((schema.metadata or {})[b"geo"])
        name = geo["primary_column"]
        said = geo["columns"][name]
        kind = schema.field(name).type
        is_wkb = said["encoding"] == "WKB" and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if is_wkb and not _in_degrees(said.get("crs", {"id": {"authority": "OGC", "code": "CRS84"}})):
        raise UserError("The places of a GeoParquet file are not said to be WGS 84: save it again in EPSG:4326.")
    return str(name) if is_wkb else None


def _in_degrees(crs: Any) -> bool:
    try:
        return (crs["id"]["authority"], str(crs["id"]["code"])) in DEGREES
    except (KeyError, TypeError):
        return False


def _points(column: pa.Array) -> tuple[Floats, Floats]:
    is_short = pc.less_equal(pc.binary_length(column), MAX_POINT_BYTES)
    shapes = shapely.from_wkb(pc.if_else(is_short, column, None).to_numpy(zero_copy_only=False), on_invalid="ignore")
    shapes[shapely.is_empty(shapes)] = None  # an empty point has no coordinates to ask for
    return shapely.get_y(shapes), shapely.get_x(shapes)


def _degrees(column: pa.Array) -> Floats:
    if pa.types.is_boolean(column.type):
        return np.full(len(column), np.nan)
    if _is_text(column.type):
        return numbers(_text(column))
    values: Floats = pc.fill_null(pc.cast(column, pa.float64(), safe=False), float("nan")).to_numpy(zero_copy_only=False)
    return values


def _times(column: pa.Array, options: ReadOptions, known: bool) -> Times:
    unit = options.mapped.time_unit
    if pa.types.is_timestamp(column.type):
        t_ms, bad = _stamps(column, options)
    elif _is_text(column.type) or pa.types.is_null(column.type):
        t_ms, bad = text_times(_text(column), options, known)
    elif unit in (None, "iso"):
        raise UserError(NO_UNIT)
    else:
        t_ms, bad = unix_times(_text(column), unit)
    return t_ms, bad | dict.fromkeys(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist(), Reason.MISSING_FIELD)


def _stamps(column: pa.Array, options: ReadOptions) -> Times:
    count = pc.fill_null(pc.cast(column, pa.int64()), 0).to_numpy(zero_copy_only=False)
    per_second = PER_SECOND[column.type.unit]
    if column.type.tz is None:
        return local_times(_rescaled(count, per_second, PER_SECOND["us"]), options.zone)
    t_ms = _rescaled(count, per_second, PER_SECOND["ms"])
    return t_ms, dict.fromkeys(np.flatnonzero(np.abs(t_ms) >= FAR // 2).tolist(), Reason.WRONG_TYPE)


def _rescaled(count: NDArray[np.int64], per_second: int, wanted: int) -> NDArray[np.int64]:
    """Return what counts parts of a second as counts of other parts, rounded down; beyond `FAR` as something near it."""
    if wanted < per_second:
        return count // (per_second // wanted)
    factor = wanted // per_second
    return count.clip(-FAR // factor, FAR // factor) * factor


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(check(inner) for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary))


def _text(column: pa.Array) -> pa.Array:
    """Return values as text, empty where there is none; what is not UTF-8 becomes replacement characters."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not _is_text(column.type):
        return pc.fill_null(pc.cast(column, pa.string()), "")
    try:
        text = pc.fill_null(pc.cast(pc.cast(column, pa.large_binary()), pa.string()), "")
        text.validate(full=True)
    except pa.ArrowInvalid:
        text = pa.array([(value or b"").decode("utf-8", "replace") for value in pc.cast(column, pa.binary()).to_pylist()], pa.string())
    return text
