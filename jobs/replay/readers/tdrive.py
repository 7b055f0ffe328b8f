"""T-Drive taxis: lines of taxi, time in China, longitude and latitude; no header."""

import re
from collections.abc import Iterator
from datetime import timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions, batch_of
from jobs.replay.readers.columns import first_line, numbers, pieces, times

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
        for piece in pieces(content, FIELDS):
            taxi, moments, lon, lat = piece.columns
            t_ms, bad = times(moments, CHINA)
            good = np.ones(len(t_ms), bool)
            good[[place for place, _ in bad]] = False
            refused = [*piece.refused, *((int(piece.index[place]), reason) for place, reason in bad)]
            users = pc.binary_join_element_wise(pa.scalar("tdrive"), taxi, "-").filter(pa.array(good))
            yield batch_of(users, t_ms[good], numbers(lat)[good], numbers(lon)[good], piece.index[good], refused, piece.other)
