"""GeoLife tracks (`.plt`): six lines of header, then latitude, longitude, 0, altitude, days, date and time in GMT; a folder a user."""

from collections.abc import Iterator
from datetime import UTC

import pyarrow.compute as pc

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions
from jobs.replay.readers.columns import batch_of_piece, first_line, numbers, pieces, times

__all__ = ["read", "recognises"]

HEADER_LINES, FIELDS = 6, 7
LAT, LON, DATE, TIME = 0, 1, 5, 6


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether a file begins as GeoLife's do."""
    return first_line(head).strip().lower() == "geolife trajectory"


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read a track of the user after whom the folder above `Trajectory`, or above the file, is called; the index is the line."""
    folders = [name for name in file.parents if name.lower() != "trajectory"]
    user = f"geolife-{folders[-1]}" if folders else file.user
    with file.open() as content:
        for piece in pieces(content, FIELDS, (LAT, LON, DATE, TIME), skip=HEADER_LINES):
            lat, lon, date, time = piece.columns
            moments = pc.binary_join_element_wise(pc.utf8_trim_whitespace(date), pc.utf8_trim_whitespace(time), "T")
            yield batch_of_piece(piece, user, *times(moments, UTC), numbers(lat), numbers(lon))
