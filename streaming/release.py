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
    "Promise",
    "Summary",
    "balance_line",
    "late_lines",
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
class Promise:
    """What every release states beside its position; constant in a run.

    Parameters
    ----------
    mechanism
        Name of the mechanism.
    r50_m, r95_m
        Radii in ground metres within which the noise stays with probability 0.5 and 0.95.
    charge_micro
        Charge of one release in micro-epsilon, at the protected radius.
    radius_m
        The protected radius in ground metres.
    limit_micro
        Limit of the ledger over its window, in micro-epsilon.
    policy_version
        Version of the policy in force.
    """

    mechanism: str
    r50_m: float
    r95_m: float
    charge_micro: int
    radius_m: float
    limit_micro: int
    policy_version: int

    def budget_classes(self, left_micro: NDArray[np.int64]) -> list[str]:
        """Return a coarse class of what is left: `high` from half the limit, `low` from one charge, else `none`."""
        names = np.array(["none", "low", "high"])
        rank = (left_micro >= self.charge_micro).astype(int) + (2 * left_micro >= self.limit_micro) * (left_micro >= self.charge_micro)
        return names[rank].tolist()  # type: ignore[no-any-return]


def trace_lines(
    promise: Promise,
    tick: int,
    start_ms: int,
    pseudonyms: Sequence[str],
    released: NDArray[np.bool_],
    withheld: NDArray[np.bool_],
    position: NDArray[np.float64],
    look: NDArray[np.uint64],
    budget: Sequence[str],
) -> list[str]:
    """Encode the traces of one tick.

    Parameters
    ----------
    promise, tick, start_ms
        Constants of the tick.
    pseudonyms, budget
        n identifiers, and classes of the remaining budget.
    released, withheld
        Masks of shape (n,); who is neither is absent.
    position, look
        Latitude and longitude of shape (released.sum(), 2), and what tells these releases from others of the same users and tick,
        of shape (released.sum(),), in the users' order.
    """
    head = f'"tick":{tick},"start_ms":{start_ms},"policy":{promise.policy_version}'
    stated = (
        f'"r50_m":{promise.r50_m:.1f},"r95_m":{promise.r95_m:.1f},"mechanism":"{promise.mechanism}",'
        f'"epsilon_micro":{promise.charge_micro},"radius_m":{promise.radius_m:g}'
    )
    places = iter(zip(*position.T.tolist(), look.tolist(), strict=True))
    lines = []
    for user, is_out, is_held, left in zip(pseudonyms, released.tolist(), withheld.tolist(), budget, strict=True):
        start = f'{user}\t{{"v":{SCHEMA_VERSION},"user":"{user}",{head},"budget":"{left}",'
        if is_out:
            lat, lon, number = next(places)
            lines.append(f'{start}"status":"released","lat":{lat:.6f},"lon":{lon:.6f},"look":"{number:016x}",{stated}}}')
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
    """The public ledger's entry of one tick and shard; the trace rows of the tick add up to its totals."""

    tick: int
    shard: int
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


def rejected_lines(rows: NDArray[np.void], topics: Sequence[str]) -> Iterable[str]:
    """Encode rejected records: reason and place in the log, never a coordinate, a user or the raw bytes."""
    for row in np.sort(rows, order=["source", "partition", "offset"]).tolist():
        _, _, log_ms, _, offset, _, _, partition, source, kind = row
        reason = Kind(kind).name.lower()
        yield (
            f'{partition}-{offset}\t{{"v":{SCHEMA_VERSION},"reason":"{reason}","topic":"{topics[source]}",'
            f'"partition":{partition},"offset":{offset},"log_ms":{log_ms}}}'
        )


def late_lines(rows: NDArray[np.void], pseudonyms: Sequence[str], ticks: NDArray[np.int64], late_ms: NDArray[np.int64]) -> Iterable[str]:
    """Encode late records: who (by pseudonym), for which tick, and by how much; never a coordinate."""
    columns = zip(pseudonyms, ticks.tolist(), late_ms.tolist(), rows["partition"].tolist(), rows["offset"].tolist(), strict=True)
    for user, tick, late, partition, offset in columns:
        yield f'{user}\t{{"v":{SCHEMA_VERSION},"user":"{user}","tick":{tick},"late_ms":{late},"partition":{partition},"offset":{offset}}}'
