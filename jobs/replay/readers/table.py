"""Delimited text with a header: comma, semicolon or tab; the columns have usual names, or a person names them."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from jobs.errors import UserError
from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, DamagedError, Mapped, ReadOptions
from jobs.replay.readers.columns import Times, batch_of_piece, first_line, numbers, pieces, split_line, times, unix_times
from jobs.replay.readers.names import NO_UNIT, find_columns

__all__ = ["read", "recognises", "text_times"]

DELIMITERS = (",", ";", "\t")


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether the first line is a header that names one latitude, one longitude and one time."""
    try:
        find_columns(_header(head)[0], Mapped())
    except UserError:
        return False
    return True


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read a table; the index is the line.

    Times are ISO 8601 texts, or numbers in the unit that `options.mapped` names: which unit is never guessed.

    Raises
    ------
    UserError
        If the table does not say where its places and times are, or in which unit.
    """
    names, delimiter = _header(file.head())
    if len(names) == 1:
        raise DamagedError("its first line is no header of a table")
    columns = find_columns(names, options.mapped)
    wanted = [names.index(str(name)) for name in (columns.time, columns.lat, columns.lon, columns.user) if name is not None]
    known = False
    with file.open() as content:
        for piece in pieces(content, len(names), wanted, delimiter, skip=1, quoted=True):
            moments, lat, lon, *users = piece.columns
            t_ms, bad = text_times(moments, options, known)
            known = known or len(bad) < len(moments)
            yield batch_of_piece(piece, users[0] if users else file.user, t_ms, bad, numbers(lat), numbers(lon))


def text_times(moments: pa.Array, options: ReadOptions, known: bool) -> Times:
    """Return texts as times, in the unit that `options` say, or else of ISO 8601.

    Raises
    ------
    UserError
        If no unit is said, none of them is ISO 8601, it is not `known` that others of the table are, and some are numbers.
    """
    if options.mapped.time_unit not in (None, "iso"):
        return unix_times(moments, options.mapped.time_unit)
    t_ms, bad = times(moments, options.zone)
    is_iso = known or len(bad) < len(moments) or options.mapped.time_unit == "iso"
    if not is_iso and np.isfinite(numbers(moments)).any():
        raise UserError(NO_UNIT)
    return t_ms, bad


def _header(head: bytes) -> tuple[list[str], str]:
    line = first_line(head)
    delimiter = max(DELIMITERS, key=line.count)
    return split_line(line, delimiter), delimiter
