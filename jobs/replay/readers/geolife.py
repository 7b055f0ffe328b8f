"""GeoLife tracks (`.plt`): six lines of header, then latitude, longitude, 0, altitude, days, date and time in GMT; a folder a user."""

from collections.abc import Iterator
from datetime import UTC

import numpy as np
import pyarrow.compute as pc

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions, batch_of
from jobs.replay.readers.columns import first_line, numbers, pieces, times

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
    other = HEADER_LINES
    with file.open() as content:
        for piece in pieces(content, FIELDS, skip=HEADER_LINES):
            moments = pc.binary_join_element_wise(piece.columns[DATE], pc.utf8_trim_whitespace(piece.columns[TIME]), "T")
            t_ms, bad = times(moments, UTC)
            good = np.ones(len(t_ms), bool)
            good[[place for place, _ in bad]] = False
            refused = [*piece.refused, *((int(piece.index[place]), reason) for place, reason in bad)]
            lat, lon = numbers(piece.columns[LAT]), numbers(piece.columns[LON])
            yield batch_of(user, t_ms[good], lat[good], lon[good], piece.index[good], refused, piece.other + other)
            other = 0
