"""T-Drive taxis: lines of taxi, time in China, longitude and latitude; no header."""

import re
from collections.abc import Iterator
from datetime import timedelta, timezone

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions
from jobs.replay.readers.columns import batch_of_piece, first_line, numbers, pieces, times

__all__ = ["read", "recognises"]

LINE = re.compile(r"\d+,\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,-?\d+(\.\d+)?,-?\d+(\.\d+)?\s*")
CHINA = timezone(timedelta(hours=8))
FIELDS = 4


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether the first line is one of T-Drive's."""
    return LINE.fullmatch(first_line(head)) is not None


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read fixes of taxis "tdrive-1" and so on; the index is the line."""
    with file.open() as content:
        for piece in pieces(content, FIELDS, range(FIELDS)):
            taxi, moments, lon, lat = piece.columns
            yield batch_of_piece(piece, taxi, *times(moments, CHINA), numbers(lat), numbers(lon), prefix="tdrive-")
