"""What the ledger charged whom, as the topic `charges` keeps it for operators: the memory that one run leaves to the next."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.release import SCHEMA_VERSION

__all__ = ["CHARGE", "charge_lines", "distinct_charges", "read_charges"]

CHARGE = np.dtype([("user", "<u8"), ("tick", "<i8"), ("look", "<u8"), ("charge_micro", "<i8")])
"""A user's keyed id, the tick, what tells this look at the user and tick from another one, and its charge in micro-epsilon."""

CHARGES_A_LINE = 5_000


def charge_lines(shard: int, charges: NDArray[np.void]) -> list[str]:
    """Encode charges of one shard, `CHARGE` of shape (n,), as lines that stay well below a megabyte."""
    return [
        f'{shard}\t{{"v":{SCHEMA_VERSION},"shard":{shard},"charges":"{base64.b64encode(part.tobytes()).decode()}"}}'
        for part in (charges[i : i + CHARGES_A_LINE] for i in range(0, len(charges), CHARGES_A_LINE))
    ]


def read_charges(document: Mapping[str, Any]) -> NDArray[np.void]:
    """Return the charges in a row of the topic `charges`."""
    return np.frombuffer(base64.b64decode(document["charges"]), CHARGE)


def distinct_charges(parts: Iterable[NDArray[np.void]]) -> NDArray[np.void]:
    """Return the charges by (user, tick, look), each once: one that an identical run repeats tells nothing new and spends nothing."""
    charges = np.concatenate([np.zeros(0, CHARGE), *parts])
    # the highest last, so that it is the one that stays
    charges = np.sort(charges, order=["user", "tick", "look", "charge_micro"])
    last = np.ones(len(charges), bool)
    last[:-1] = charges[["user", "tick", "look"]][1:] != charges[["user", "tick", "look"]][:-1]
    return np.asarray(charges[last])
