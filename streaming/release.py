"""What leaves the job: the allow-list schemas of every output topic, and their encoding to lines, column by column.

A line is ``key TAB value``; several lines of one topic travel as one block, joined by newlines. JSON text holds neither.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from streaming.records import Kind
from streaming.settings import Product

__all__ = [
    "OUTCOMES",
    "SCHEMA_VERSION",
    "STATUSES",
    "Balance",
    "Outputs",
    "Statement",
    "Summary",
    "balance_line",
    "budget_classes",
    "late_lines",
    "rejected_line",
    "rejected_lines",
    "release_key",
    "summary_line",
    "trace_lines",
]

SCHEMA_VERSION = 1

Outputs = dict[str, list[str]]
"""Lines of each topic."""

STATUSES = ("released", "absent", "withheld")
"""What a trace row says of a user and tick, and what an entry of the public ledger counts."""

OUTCOMES = ("used", "merged", "duplicate", "late", "rejected", "withheld", "control")
"""What becomes of an input record; each record has one of them, and a balance counts them."""


@dataclass(frozen=True)
class Statement:
    """What a release states of its noise, beside what it says of the place.

    Parameters
    ----------
    mechanism
        Name of the mechanism.
    r50_m, r95_m
        Radii in ground metres within which the noise stays with probability 0.5 and 0.95.
    epsilon_micro
        Loss of one release in micro-epsilon, at the ledger's radius.
    radius_m
        The protected radius in ground metres.
    """

    mechanism: str
    r50_m: float
    r95_m: float
    epsilon_micro: int
    radius_m: float

    def encode(self) -> str:
        """Return the statement as JSON members."""
        return (
            f'"r50_m":{self.r50_m:.1f},"r95_m":{self.r95_m:.1f},"mechanism":"{self.mechanism}",'
            f'"epsilon_micro":{self.epsilon_micro},"radius_m":{self.radius_m:g}'
        )


def budget_classes(left_micro: NDArray[np.int64], charge_micro: NDArray[np.int64], limit_micro: int) -> list[str]:
    """Return a coarse class of what each user has left: `high` from half the limit, `low` from one charge, else `none`."""
    names = np.array(["none", "low", "high"])
    enough = left_micro >= charge_micro
    return names[enough.astype(int) + (2 * left_micro >= limit_micro) * enough].tolist()  # type: ignore[no-any-return]


def trace_lines(
    tick: int,
    start_ms: int,
    policy_version: int,
    statement: Statement,
    pseudonyms: Sequence[str],
    budget: Sequence[str],
    withheld: NDArray[np.bool_],
    released: NDArray[np.bool_],
    told: Iterable[str],
    look: NDArray[np.uint64],
) -> list[str]:
    """Encode the rows of one audience and tick that have one view of their users.

    Parameters
    ----------
    tick, start_ms, policy_version, statement
        Constants of the rows.
    pseudonyms, budget
        n identifiers, and classes of the remaining budget.
    withheld, released
        Masks of shape (n,); who is neither is absent.
    told, look
        What is told of the place, as JSON members, and what tells these releases from others of the same users and tick; of
        `released.sum()` users, in their order.
    """
    head = f'"tick":{tick},"start_ms":{start_ms},"policy":{policy_version}'
    stated = statement.encode()
    places = iter(zip(told, look.tolist(), strict=True))
    lines = []
    for user, left, is_held, is_out in zip(pseudonyms, budget, withheld.tolist(), released.tolist(), strict=True):
        start = f'{user}\t{{"v":{SCHEMA_VERSION},"user":"{user}",{head},"budget":"{left}",'
        if is_out:
            place, number = next(places)
            lines.append(f'{start}"status":"released",{place},"look":"{number:016x}",{stated}}}')
        elif is_held:
            lines.append(f'{start}"status":"withheld","reason":"budget"}}')
        else:
            lines.append(f'{start}"status":"absent"}}')
    return lines


def release_key(row: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return what tells a release from every other one, or None for a row that releases nothing.

    A row with the same key repeats what is known already and spends nothing. Equal positions would not say so: two looks may come to the
    same one.
    """
    return (row["user"], row["tick"], row["look"]) if row["status"] == "released" else None


@dataclass(frozen=True)
class Summary:
    """The public ledger's entry of one tick, shard and audience; the audience's rows of the tick add up to its totals."""

    tick: int
    shard: int
    audience: str
    enrolled: int
    released: int
    absent: int
    withheld: int
    epsilon_micro: int


@dataclass(frozen=True)
class Balance:
    """The outcome for one product of every input record accounted for at one tick and shard; for operators only.

    `records` = `used` + `merged` + `duplicate` + `late` + `rejected` + `withheld` + `control`, where control records are the
    product's own heartbeats and enrolments. `reasons` splits `rejected`; `unclosed` is the part of `withheld` whose tick was still
    open when a bounded run's input ended.
    """

    product: Product
    tick: int
    shard: int
    records: int
    used: int
    merged: int
    duplicate: int
    late: int
    rejected: int
    withheld: int
    control: int
    unclosed: int
    reasons: dict[str, int]


def summary_line(summary: Summary) -> str:
    """Encode an entry of the public ledger."""
    return f"{summary.shard}\t" + orjson.dumps({"v": SCHEMA_VERSION, **summary.__dict__}).decode()


def balance_line(balance: Balance) -> str:
    """Encode a balance."""
    return f"{balance.shard}\t" + orjson.dumps({"v": SCHEMA_VERSION, **balance.__dict__}).decode()


def rejected_line(key: str, reason: str, topic: str, partition: int, offset: int, log_ms: int) -> str:
    """Encode one rejected record: reason and place in the log, never a coordinate, a user or the raw bytes."""
    return (
        f'{key}\t{{"v":{SCHEMA_VERSION},"reason":"{reason}","topic":"{topic}","partition":{partition},"offset":{offset},"log_ms":{log_ms}}}'
    )


def rejected_lines(rows: NDArray[np.void], topics: Sequence[str]) -> Iterable[str]:
    """Encode the rejected records of the inputs; see `rejected_line`."""
    for row in np.sort(rows, order=["source", "partition", "offset"]).tolist():
        _, _, log_ms, _, offset, _, _, partition, source, kind = row
        yield rejected_line(f"{partition}-{offset}", Kind(kind).name.lower(), topics[source], partition, offset, log_ms)


def late_lines(rows: NDArray[np.void], pseudonyms: Sequence[str], ticks: NDArray[np.int64], late_ms: NDArray[np.int64]) -> Iterable[str]:
    """Encode late records: who (by pseudonym), for which tick, and by how much; never a coordinate."""
    columns = zip(pseudonyms, ticks.tolist(), late_ms.tolist(), rows["partition"].tolist(), rows["offset"].tolist(), strict=True)
    for user, tick, late, partition, offset in columns:
        yield f'{user}\t{{"v":{SCHEMA_VERSION},"user":"{user}","tick":{tick},"late_ms":{late},"partition":{partition},"offset":{offset}}}'
