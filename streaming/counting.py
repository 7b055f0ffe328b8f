"""Density's part in a shard: the records of a closed tick -> users in each leaf of the public tree, and the records' outcomes."""

from dataclasses import dataclass, replace

import numpy as np
import orjson
from numpy.typing import NDArray

from geo.tiling.tiling import Tiling
from streaming.accounting import balance_of
from streaming.records import FIRST_POSITION_REASON, Kind
from streaming.release import Balance
from streaming.window import distinct

__all__ = ["ShardCounts", "count_tick", "count_unclosed"]


@dataclass(frozen=True)
class ShardCounts:
    """How many users of one shard were in each leaf in one tick. True counts: they go to the publisher and nowhere else.

    Attributes
    ----------
    leaf, count
        Leaf numbers, ascending, and users in them (>= 1), int64 of the same length.
    balance
        Outcomes if the tick is published; those used now are withheld if it is not.
    """

    leaf: NDArray[np.int64]
    count: NDArray[np.int64]
    balance: Balance

    def dump(self) -> bytes:
        """Encode as JSON."""
        return orjson.dumps({"leaf": self.leaf, "count": self.count, "balance": self.balance.__dict__}, option=orjson.OPT_SERIALIZE_NUMPY)

    @classmethod
    def load(cls, data: bytes) -> "ShardCounts":
        """Decode from JSON."""
        document = orjson.loads(data)
        return cls(np.array(document["leaf"], np.int64), np.array(document["count"], np.int64), Balance(**document["balance"]))

    def outcomes(self, published: bool) -> Balance:
        """Return the records' outcomes, now that it is known whether a tree was published from them."""
        balance = self.balance
        return balance if published else replace(balance, used=0, withheld=balance.withheld + balance.used)


def count_tick(tiling: Tiling, shard: int, tick: int, rows: NDArray[np.void]) -> ShardCounts:
    """Count each user of a tick once.

    A user is counted where the first valid fix of the tick is, by (time, content); outside the region, or if no position of the tick is
    usable, in "elsewhere". So one user changes one leaf by 1, and how many users there are never depends on where anybody is.

    Parameters
    ----------
    tiling
        Public tree.
    shard, tick
        Which.
    rows
        All packed records of a shard accounted for at this tick, in any order.
    """
    fixes = rows[rows["kind"] == Kind.FIX]
    kept = distinct(fixes)  # by user, then by time
    user = fixes["user"][kept]
    first = kept[np.concatenate([[True], user[1:] != user[:-1]])] if len(kept) else kept
    without_place = np.setdiff1d(rows["user"][rows["kind"] >= FIRST_POSITION_REASON], user)
    total = np.bincount(tiling.leaf_of_degrees(fixes["lat_e7"][first], fixes["lon_e7"][first]), minlength=len(tiling.tree.leaves))
    total[tiling.elsewhere] += len(without_place)
    leaves = np.flatnonzero(total)
    used = len(first)
    balance = balance_of(
        "density",
        tick,
        shard,
        rows,
        used=used,
        merged=len(kept) - used,
        duplicate=len(fixes) - len(kept),
        withheld=0,
        unclosed=0,
    )
    return ShardCounts(leaves, total[leaves], balance)


def count_unclosed(shard: int, tick: int, rows: NDArray[np.void]) -> ShardCounts:
    """Account for records whose tick was still open when the input ended: nothing is counted from them."""
    held = int((rows["kind"] == Kind.FIX).sum())
    nothing = np.zeros(0, np.int64)
    balance = balance_of("density", tick, shard, rows, used=0, merged=0, duplicate=0, withheld=held, unclosed=held)
    return ShardCounts(nothing, nothing, balance)
