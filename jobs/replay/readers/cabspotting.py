"""Cabspotting taxis: a table `lat,lng,time,id` in milliseconds, or the original `new_NAME.txt` with occupancy and seconds."""

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions, Reason, batch_of
from jobs.replay.readers.columns import first_line, numbers, pieces, unix_times

__all__ = ["read", "recognises"]

HEADER = "lat,lng,time,id"
LINE = re.compile(r"-?\d+\.\d+ -?\d+\.\d+ [01] \d{9,10}\s*")
NAME = re.compile(r"new_(\w+)\.txt")


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether the first line is the table's header, or one of the original files'."""
    line = first_line(head)
    return line == HEADER or (NAME.fullmatch(file.inner_name) is not None and LINE.fullmatch(line) is not None)


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read fixes of taxis "cabspotting-abboip" and so on; the index is the line."""
    original = NAME.fullmatch(file.inner_name)
    other = 0 if original else 1
    with file.open() as content:
        for piece in pieces(content, 4, " " if original else ",", skip=other):
            lat, lon, third, fourth = piece.columns
            t_ms, bad = unix_times(fourth, "s") if original else unix_times(third, "ms")
            names = pa.repeat(pa.scalar(original[1], pa.string()), len(t_ms)) if original else fourth
            users = pc.binary_join_element_wise(pa.scalar("cabspotting"), names, "-").filter(pa.array(~bad))
            refused = [*piece.refused, *((int(line), Reason.WRONG_TYPE) for line in piece.index[bad])]
            yield batch_of(users, t_ms[~bad], numbers(lat)[~bad], numbers(lon)[~bad], piece.index[~bad], refused, piece.other + other)
            other = 0
