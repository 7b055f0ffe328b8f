"""Delimited text with a header: comma, semicolon or tab; the columns have usual names, or a person names them."""

import csv
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import UserError
from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, DamagedError, ReadOptions, Reason, batch_of
from jobs.replay.readers.columns import first_line, numbers, pieces, times, unix_times
from jobs.replay.readers.names import LATS, LONS, TIMES, find_columns, first_of

__all__ = ["read", "recognises"]

DELIMITERS = (",", ";", "\t")


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether the first line is a header that names a latitude and a longitude, and a time."""
    names, _ = _header(head)
    return all(first_of(usual, names) for usual in (LATS, LONS, TIMES))


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read a table; the index is the line.

    Times are ISO 8601 texts, or numbers in the unit that `options.mapped` names: which unit is never guessed.

    Raises
    ------
    UserError
        If the table does not say where its places and times are, or in which unit.
    """
    head = file.head()
    names, delimiter = _header(head)
    if len(names) == 1:
        raise DamagedError("its first line is no header of a table")
    columns = find_columns(names, options.mapped)
    at_user = None if columns.user is None else names.index(columns.user)
    at_time, at_lat, at_lon = (names.index(name) for name in (columns.time, columns.lat, columns.lon))
    unit, other = options.mapped.time_unit, 1
    with file.open() as content:
        for piece in pieces(content, len(names), delimiter, skip=1, quoted=True):
            moments = piece.columns[at_time]
            if unit is None and len(moments) and np.isfinite(numbers(moments[:1]))[0]:
                raise UserError("The times of a table are numbers: say with --time-unit whether they are s, ms or us since 1970.")
            if unit in (None, "iso"):
                t_ms, bad = times(moments, options.zone)
            else:
                t_ms, wrong = unix_times(moments, unit)
                bad = [(int(place), Reason.WRONG_TYPE) for place in np.flatnonzero(wrong)]
            users = pa.repeat(pa.scalar(file.user), len(t_ms)) if at_user is None else piece.columns[at_user]
            nobody = pc.equal(users, "").to_numpy(zero_copy_only=False)
            reasons = dict(bad) | dict.fromkeys(np.flatnonzero(nobody).tolist(), Reason.MISSING_FIELD)
            good = np.ones(len(t_ms), bool)
            good[list(reasons)] = False
            refused = [*piece.refused, *((int(piece.index[place]), reason) for place, reason in reasons.items())]
            lat, lon = (numbers(piece.columns[at])[good] for at in (at_lat, at_lon))
            yield batch_of(users.filter(pa.array(good)), t_ms[good], lat, lon, piece.index[good], refused, piece.other + other)
            other = 0


def _header(head: bytes) -> tuple[Sequence[str], str]:
    line = first_line(head)
    delimiter = max(DELIMITERS, key=line.count)
    try:
        return next(csv.reader([line], delimiter=delimiter), []), delimiter
    except csv.Error:
        return [], delimiter
