"""Check that the counts of the topics add up, and that all audiences together cost the ledger only the finest one's releases."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.errors import UserError
from streaming.release import OUTCOMES, STATUSES
from streaming.settings import PRODUCTS

__all__ = ["Cost", "Counts", "Rows", "cost", "count"]

Rows = Sequence[Mapping[str, Any]]
"""Rows of a topic."""


@dataclass(frozen=True)
class Counts:
    """Totals of the topics that count.

    Attributes
    ----------
    records : int
        Input records that the job accounted for.
    outcomes : mapping of str to mapping of str to int
        For each product, how many had each of `OUTCOMES`.
    reasons : mapping of str to int
        Why records were rejected.
    rows : mapping of str to mapping of str to int
        For each audience, its rows of traces with each of `STATUSES`.
    """

    records: int
    outcomes: Mapping[str, Mapping[str, int]]
    reasons: Mapping[str, int]
    rows: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Cost:
    """What the ledger was charged for all audiences together, beside what the releases of each state: micro-epsilon, summed up.

    Attributes
    ----------
    looks : int
        Users and ticks that were charged.
    charged : int
        All charges.
    stated : mapping of str to int
        For each audience, what its releases would cost if it were the only one.
    finest : str
        The audience with the smallest protected radius.
    """

    looks: int
    charged: int
    stated: Mapping[str, int]
    finest: str


def count(sent: int, balance: Iterable[Mapping[str, Any]], releases: Rows, traces: Mapping[str, Rows]) -> Counts:
    """Add up the counts and check them against each other.

    Parameters
    ----------
    sent : int
        Records that were written to the input.
    balance, releases : iterable of mapping
        Rows of the two topics.
    traces : mapping of str to sequence of mapping
        Rows of each audience.

    Raises
    ------
    UserError
        If a record has no outcome or more than one, or if the public ledger and the rows of an audience differ.
    """
    totals: dict[str, Counter[str]] = {product: Counter() for product in PRODUCTS}
    reasons: Counter[str] = Counter()
    for row in balance:
        totals[row["product"]].update({name: row[name] for name in ("records", "unclosed", *OUTCOMES)})
        if row["product"] == "traces":
            reasons.update(row["reasons"])
    outcomes = {product: {name: total[name] for name in OUTCOMES} for product, total in totals.items()}
    for product, total in totals.items():
        if not sent == total["records"] == sum(outcomes[product].values()):
            raise UserError(
                f"The counts of {product} do not add up ({sent} records sent, {total['records']} accounted for, "
                f"{sum(outcomes[product].values())} outcomes): please report this as a bug."
            )
        if total["unclosed"]:
            raise UserError(f"The run ended with {total['unclosed']} records in open ticks: please report this as a bug.")

    rows = {}
    for audience, told in traces.items():
        found = Counter(str(row["status"]) for row in told)
        rows[audience] = {name: found[name] for name in STATUSES}
        ledger = {name: sum(entry[name] for entry in releases if entry["audience"] == audience) for name in STATUSES}
        if rows[audience] != ledger:
            raise UserError(f"The rows of {audience} differ from their totals in `releases`: please report this as a bug.")
    return Counts(sent, outcomes, dict(reasons), rows)


def cost(charges: NDArray[np.void], traces: Mapping[str, Rows]) -> Cost:
    """Compare what the ledger was charged with what the releases state.

    Parameters
    ----------
    charges : ndarray of `streaming.charges.CHARGE` with shape (m,)
        Each look once.
    traces : mapping of str to sequence of mapping
        Rows of each audience; the finest one gets a row at every tick.

    Raises
    ------
    UserError
        If the charges are not exactly what the finest audience's releases cost.
    """
    released = {audience: [row for row in rows if row["status"] == "released"] for audience, rows in traces.items()}
    stated = {audience: sum(row["epsilon_micro"] for row in rows) for audience, rows in released.items()}
    finest = min((row["radius_m"], audience) for audience, rows in released.items() for row in rows)[1]
    charged = int(charges["charge_micro"].sum())
    if charged != stated[finest]:
        raise UserError(f"The ledger was charged otherwise than {finest} alone costs: please report this as a bug.")
    return Cost(len(charges), charged, stated, finest)
