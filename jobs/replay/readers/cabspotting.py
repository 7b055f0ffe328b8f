"""Cabspotting taxis: a table `lat,lng,time,id` in milliseconds, or the original `new_NAME.txt` with occupancy and seconds."""

import re
from collections.abc import Iterator

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions
from jobs.replay.readers.columns import batch_of_piece, first_line, numbers, pieces, unix_times

__all__ = ["read", "recognises"]

HEADER = "lat,lng,time,id"
LINE = re.compile(r"-?\d+\.\d+ -?\d+\.\d+ [01] \d{9,10}\s*")
NAME = re.compile(r"new_(\w+)\.txt")
FIELDS = 4
USER = "cabspotting-"


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether the first line is the table's header, or one of the original files'."""
    line = first_line(head)
    return line == HEADER or (NAME.fullmatch(file.inner_name) is not None and LINE.fullmatch(line) is not None)


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read fixes of taxis "cabspotting-abboip" and so on; the index is the line."""
    original = NAME.fullmatch(file.inner_name)
    with file.open() as content:
        if original:
            for piece in pieces(content, FIELDS, (0, 1, 3), " "):
                lat, lon, moments = piece.columns
                yield batch_of_piece(piece, USER + original[1], *unix_times(moments, "s"), numbers(lat), numbers(lon))
        else:
            for piece in pieces(content, FIELDS, range(FIELDS), skip=1):
                lat, lon, moments, taxi = piece.columns
                yield batch_of_piece(piece, taxi, *unix_times(moments, "ms"), numbers(lat), numbers(lon), prefix=USER)
