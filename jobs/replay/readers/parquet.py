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
from jobs.replay.fixes import BATCH, Batch, DamagedError, ReadOptions, Reason, batch_of
from jobs.replay.readers.columns import numbers, times, unix_times
from jobs.replay.readers.names import LATS, LONS, find_columns, first_of

__all__ = ["read", "recognises"]

MAGIC = b"PAR1"


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether a file begins as Parquet does."""
    return head.startswith(MAGIC)


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read a table; the index is the row.

    Times are timestamps (without a zone: in `options.zone`), ISO 8601 texts, or numbers in the unit that `options.mapped` names.

    Raises
    ------
    UserError
        If the table does not say where its places and times are, or in which unit.
    """
    with _seekable(file) as path:
        try:
            table = pq.ParquetFile(path)
            names = table.schema_arrow.names
            geometry = None if first_of(LATS, names) and first_of(LONS, names) else _geometry(table)
            columns = find_columns(names, options.mapped, places=geometry is None)
            wanted = [columns.user, columns.time, *((geometry,) if geometry else (columns.lat, columns.lon))]
            row = 1
            for batch in table.iter_batches(BATCH, columns=[name for name in wanted if name is not None]):
                index = np.arange(row, row + len(batch))
                row += len(batch)
                t_ms, reasons = _times(batch[columns.time], options)
                users = pa.repeat(pa.scalar(file.user), len(batch)) if columns.user is None else pc.cast(batch[columns.user], pa.string())
                users = pc.fill_null(users, "")
                reasons |= dict.fromkeys(np.flatnonzero(pc.equal(users, "").to_numpy(zero_copy_only=False)).tolist(), Reason.MISSING_FIELD)
                lat, lon = _points(batch[geometry]) if geometry else (_degrees(batch[name]) for name in (columns.lat, columns.lon))
                good = np.ones(len(batch), bool)
                good[list(reasons)] = False
                refused = [(int(index[place]), reason) for place, reason in reasons.items()]
                yield batch_of(users.filter(pa.array(good)), t_ms[good], lat[good], lon[good], index[good], refused)
        except (pa.ArrowException, OSError) as error:
            raise DamagedError("it is no whole Parquet file, or holds columns of a kind that cannot be read") from error


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


def _geometry(table: Any) -> str | None:
    """Return the column of points that GeoParquet's metadata name, or None."""
    said = (table.schema_arrow.metadata or {}).get(b"geo")
    try:
        geo = orjson.loads(said) if said else {}
        name = geo.get("primary_column")
        return str(name) if geo["columns"][name]["encoding"] == "WKB" and name in table.schema_arrow.names else None
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None


def _points(column: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shapes = shapely.from_wkb(column.to_numpy(zero_copy_only=False), on_invalid="ignore")
    points = np.array(shapes)
    points[shapely.get_type_id(shapes) != shapely.GeometryType.POINT] = None
    return shapely.get_y(points), shapely.get_x(points)


def _degrees(column: pa.Array) -> NDArray[np.float64]:
    if pa.types.is_boolean(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return numbers(pc.fill_null(column, ""))
    values = pc.cast(column, pa.float64(), safe=False)
    return np.asarray(pc.fill_null(values, float("nan")).to_numpy(zero_copy_only=False))


def _times(column: pa.Array, options: ReadOptions) -> tuple[NDArray[np.int64], dict[int, Reason]]:
    missing = dict.fromkeys(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist(), Reason.MISSING_FIELD)
    unit = options.mapped.time_unit
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            column = pc.strftime(column, "%Y-%m-%dT%H:%M:%S")
        else:
            micro = pc.fill_null(pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz), safe=False), pa.int64()), 0)
            return micro.to_numpy(zero_copy_only=False) // 1000, missing
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        text = pc.fill_null(pc.cast(column, pa.string()), "")
        if unit in (None, "iso"):
            t_ms, bad = times(text, options.zone)
            return t_ms, dict(bad) | missing
    elif unit in (None, "iso"):
        raise UserError("The times of a table are numbers: say with --time-unit whether they are s, ms or us since 1970.")
    else:
        text = pc.fill_null(pc.cast(column, pa.string()), "")
    t_ms, wrong = unix_times(text, str(unit))
    return t_ms, dict.fromkeys(np.flatnonzero(wrong).tolist(), Reason.WRONG_TYPE) | missing
