"""One pass over a shard's closed tick for all products of the job: traces, and counts for density."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from geo.anchors.index import AnchorIndex
from geo.tiling.tiling import Tiling
from streaming.accounting import OperatorLines
from streaming.counting import count_tick, count_unclosed
from streaming.earlier import EarlierSpends
from streaming.policy import Policy
from streaming.policy_log import Entry
from streaming.pseudonyms import OPERATORS, Pseudonyms
from streaming.release import Outputs
from streaming.settings import Product, Settings
from streaming.shard import Protector, ShardState, tick_grid

__all__ = ["Closer"]


class Closer:
    """Close the ticks of a shard.

    Parameters
    ----------
    settings, secret
        What is promised, and the key of all that is keyed.
    products
        What the job publishes, at least one.
    earlier
        What earlier runs have spent on traces.
    tiling
        Density's public tree; needed if density is published.
    policy, anchors
        What audiences of traces may learn, and the public places that it speaks of.
    """

    def __init__(
        self,
        settings: Settings,
        secret: bytes,
        products: Collection[Product],
        earlier: EarlierSpends,
        tiling: Tiling | None = None,
        policy: Policy | None = None,
        anchors: AnchorIndex | None = None,
    ) -> None:
        privacy = settings.privacy
        self._operator = OperatorLines(settings, tick_grid(settings), Pseudonyms(secret, OPERATORS, privacy.epoch_ticks))
        self._protector = Protector(settings, secret, earlier, policy, anchors) if "traces" in products else None
        if "density" in products and tiling is None:
            raise ValueError("density needs a tiling: set density.tiling")
        self._tiling = tiling if "density" in products else None

    def close(self, state: ShardState, shard: int, tick: int, rows: NDArray[np.void]) -> tuple[Outputs, bytes | None]:
        """Close one tick; `state` changes.

        Parameters
        ----------
        state
            The shard's state; its ticks never go back.
        shard, tick
            Which.
        rows
            All packed records accounted for at this tick, in any order.

        Returns
        -------
        (outputs, counts)
            Lines for each topic, and the tick's `ShardCounts` as bytes for the publisher of density, if there are records to count.
        """
        out = self._protector.close(state, shard, tick, rows) if self._protector else {}
        state.tick = tick
        counts = count_tick(self._tiling, shard, tick, rows).dump() if self._tiling and len(rows) else None
        return {**out, **self._operator.of(rows)}, counts

    def enforce(self, admitted: Mapping[str, Iterable[Entry]]) -> None:
        """Take over what has been admitted by the topic `policies`, by scope; see `streaming.policy_log`."""
        if self._protector:
            self._protector.enforce(admitted)

    def unclosed(self, shard: int, tick: int, rows: NDArray[np.void]) -> tuple[Outputs, bytes | None]:
        """Account for records whose tick was still open when a bounded input ended: nothing is released from them."""
        out = self._protector.unclosed(shard, tick, rows) if self._protector else {}
        counts = count_unclosed(shard, tick, rows).dump() if self._tiling and len(rows) else None
        return {**out, **self._operator.of(rows)}, counts
