"""The packed record: one fixed-width row for each input record, from decoding to its outcome."""

from enum import IntEnum

import numpy as np

__all__ = ["FIRST_POSITION_REASON", "FIRST_REASON", "HEARTBEAT", "RECORD", "Kind"]

HEARTBEAT = {"wayveil": "heartbeat"}
"""The record that lets time pass in a topic where nothing else comes."""


class Kind(IntEnum):
    """What an input record turned out to be; from `MALFORMED` on it is a reason for rejection.

    Reasons from `POSITION_MISSING` on concern only where the fix says it was: its user and time were read, so it still
    counts as the user's presence in the tick. Otherwise a bad position would show as an absence.
    """

    FIX = 0
    LATE = 1
    HEARTBEAT = 2
    ENROLMENT = 3
    MALFORMED = 16
    MISSING_FIELD = 17
    WRONG_TYPE = 18
    USER_TOO_LONG = 19
    TIME_ZONE_MISSING = 20
    WRONG_TIME_UNIT = 21
    BEFORE_ARCHIVE = 22
    FUTURE = 23
    POSITION_MISSING = 32
    POSITION_TYPE = 33
    POSITION_RANGE = 34
    NULL_ISLAND = 35


FIRST_REASON = int(Kind.MALFORMED)
FIRST_POSITION_REASON = int(Kind.POSITION_MISSING)

RECORD = np.dtype(
    [
        ("user", "<u8"),  # keyed 8-byte id; 0 where no user was read
        ("t_ms", "<i8"),  # event time
        ("log_ms", "<i8"),  # the record's own log timestamp
        ("tick", "<i8"),  # the tick in which the record is accounted for: event tick, or log tick where it has none
        ("offset", "<i8"),
        ("lat_e7", "<i4"),  # degrees * 1e7; zero unless kind is FIX
        ("lon_e7", "<i4"),
        ("partition", "<i4"),
        ("source", "u1"),
        ("kind", "u1"),
    ]
)
