"""The one stateful step of density: the shards' counts of a closed tick -> a noisy tree, or the one that stands, by the schedule."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from geo.privacy.budgets import Rule, epsilon_micro, level_budgets, node_budgets
from geo.privacy.consistency import Estimate, estimate
from geo.privacy.dissimilarity import Dissimilarity, error_factor
from geo.privacy.prf import subkey
from geo.privacy.smoothing import Level, smooth
from geo.privacy.tree_counts import TreeCounts
from geo.privacy.w_event import BudgetAbsorption, BudgetDistribution, Sample, Schedule, StreamState, Uniform, advance, decide
from geo.privacy.zcdp import rho_nano
from geo.tiling.tiling import Tiling
from geo.tiling.workload import range_workload
from streaming.counting import ShardCounts
from streaming.density import UNITS, Charge, Standing, density_line
from streaming.release import Outputs, balance_line
from streaming.settings import DensitySettings, Settings
from streaming.shard import tick_grid

__all__ = ["Publisher", "PublisherState", "limit_units"]

STATE_VERSION = 1
SCHEDULES: dict[str, type[Schedule]] = {kind.name: kind for kind in (Uniform, Sample, BudgetDistribution, BudgetAbsorption)}
LOOK_DIGITS = 16


def limit_units(density: DensitySettings) -> int:
    """Return what any window may cost: millionths of ε, or with Gaussian noise 1e-9 of the ρ that (ε, δ) allow."""
    if density.noise == "discrete-laplace":
        return epsilon_micro(density.epsilon)
    return rho_nano(density.epsilon, density.delta)


@dataclass(frozen=True, eq=False)
class PublisherState:
    """All that the publisher remembers between ticks: public numbers only.

    Attributes
    ----------
    stream
        Ledger and schedule.
    tick
        Last closed tick.
    silent
        How many ticks in a row nobody was counted.
    standing
        What was last published, or None.
    level
        What the filter over ticks knows, where smoothing is on.
    """

    stream: StreamState
    tick: int
    silent: int = 0
    standing: Standing | None = None
    level: Level | None = None

    def dump(self) -> bytes:
        """Encode as JSON."""
        document: dict[str, Any] = {
            "v": STATE_VERSION,
            "stream": self.stream.dump().decode(),
            "tick": self.tick,
            "silent": self.silent,
            "standing": None,
            "level": None if self.level is None else base64.b85encode(np.stack(self.level).astype("<f8").tobytes()).decode(),
        }
        if self.standing is not None:
            document["standing"] = {"tick": self.standing.tick, "levels": self.standing.levels, **self.standing.estimate.__dict__}
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)

    @classmethod
    def load(cls, data: bytes) -> "PublisherState":
        """Decode from JSON; a state of another version is refused."""
        document = orjson.loads(data)
        if document["v"] != STATE_VERSION:
            raise ValueError(f"the state has version {document['v']} and this release reads {STATE_VERSION}; use the release that wrote it")
        kept, standing = document["standing"], None
        if kept is not None:
            numbers = Estimate(np.array(kept["count"], np.int64), np.array(kept["unbiased"]), np.array(kept["standard_error"]))
            standing = Standing(kept["tick"], np.array(kept["levels"], np.int64), numbers)
        level = document["level"] and Level(*np.frombuffer(base64.b85decode(document["level"]), "<f8").reshape(len(Level._fields), -1))
        return cls(StreamState.load(document["stream"].encode()), document["tick"], document["silent"], standing, level)


@dataclass
class Publisher:
    """Publish one record a tick: counts of all nodes of a public tree.

    Guarantee (density). Over any `window_ticks` consecutive ticks, the records together have a loss of at most ε (with Gaussian noise:
    they are (ε, δ)-differentially private), see `Schedule`, `TreeCounts` and `Dissimilarity` for the relation between neighbours and
    the formulas. Unit: all that one user does in these ticks; each user is counted once a tick, in exactly one leaf. That a record
    appears, when and under which key is a function of the log's clock and, with "replace-one", of how many users are present, which is
    public there: after `silent_ticks` ticks without anybody, records pause until somebody comes. With "add-remove" they never pause.

    A record's `look` is a keyed digest of all that its noise is a function of: two records of a tick with the same look are one release.

    Parameters
    ----------
    settings, secret
        What is promised, and the key of the noise.
    tiling
        Public tree; its road cells are not used.
    version
        Version of the tiling's file, which records state.
    earlier
        By tick, what earlier runs have spent, in the same units.
    """

    settings: Settings
    secret: bytes
    tiling: Tiling
    version: str
    earlier: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Build what is constant in a run."""
        density = self.settings.density
        if density is None:
            raise ValueError("density needs settings: add a section [density]")
        self.density, self.grid, tree = density, tick_grid(self.settings), self.tiling.tree
        self.schedule = SCHEDULES[density.schedule](limit_units(density), density.window_ticks)
        if density.test_level >= len(tree.levels):
            raise ValueError(f"density.test_level should be below {len(tree.levels)}, the levels of the tiling")
        self._workload = range_workload(tree, self.tiling.box, self.tiling.lattice.shape)
        self.mechanism = lru_cache(maxsize=64)(self._mechanism)
        self._check_largest()
        factor = error_factor(self.mechanism(self._usual())[1], self._tiles(density).tiles)
        self.tiles = self._tiles(density, factor)
        self._context = orjson.dumps(
            [
                self.version,
                self.grid.length_ms,
                self.schedule.name,
                self.schedule.limit,
                self.schedule.window_ticks,
                density.model_dump(mode="json", exclude={"tiling"}),
            ],
            option=orjson.OPT_SORT_KEYS,
        )

    def start(self, first_tick: int) -> PublisherState:
        """Return the state before the first tick of a run."""
        return PublisherState(self.schedule.start(self.earlier), first_tick - 1)

    def pause(self, state: PublisherState, tick: int) -> PublisherState:
        """Return the state before a tick, past ticks in which public silence lets records pause; unchanged where it does not."""
        gap = tick - 1 - state.tick
        if gap > 0 and self.density.neighbours == "replace-one" and state.silent >= self.settings.tick.silent_ticks:
            return replace(state, tick=tick - 1, silent=state.silent + gap)
        return state

    def close(self, state: PublisherState, counts: Sequence[ShardCounts]) -> tuple[Outputs, PublisherState]:
        """Close the tick after the state's.

        Parameters
        ----------
        state
            After the last tick.
        counts
            What the shards counted in this tick, in any order; none where no record was accounted for.

        Returns
        -------
        (outputs, state)
            Lines for each topic, and the state after this tick.
        """
        tick, tree = state.tick + 1, self.tiling.tree
        total = np.zeros(len(tree.leaves), np.int64)
        for part in counts:
            total[part.leaf] += part.count
        silent = 0 if total.any() else state.silent + 1
        if self.density.neighbours == "replace-one" and silent > self.settings.tick.silent_ticks:
            out = {self.settings.topics.balance: [balance_line(part.outcomes(published=False)) for part in counts]} if counts else {}
            return out, replace(state, tick=tick, silent=silent)
        decision = decide(self.schedule, self.tiles, self.secret, state.stream, tick, total, self._context)
        look = subkey(
            self.secret,
            b"density-look",
            self._context,
            tick.to_bytes(8, "little", signed=True),
            state.stream.dump(),
            total.astype("<i8").tobytes(),
            b"" if state.level is None else np.stack(state.level).tobytes(),
        ).hex()[:LOOK_DIGITS]
        standing, level, tiles = state.standing, state.level, None
        if decision.action == "publish":
            levels, mechanism = self.mechanism(decision.publish)
            noisy = mechanism.release(self.secret, tick, total, self._context + state.stream.dump())
            if self.density.smoothing:
                level = smooth(level, noisy, mechanism.variance)
                standing = Standing(tick, levels, estimate(tree, level.value, level.variance))
            else:
                standing = Standing(tick, levels, estimate(tree, noisy, mechanism.variance))
            tiles = standing.estimate.count[self.tiles.tiles]
        line = density_line(
            tick,
            self.grid.start_ms(tick),
            self.version,
            self.density.neighbours,
            self.schedule.name,
            decision.action,
            self.density.smoothing,
            look,
            Charge(UNITS[self.density.noise], decision.test, decision.publish, self.schedule.limit, self.schedule.window_ticks),
            standing,
        )
        out = {self.settings.topics.density: [line]}
        if counts:
            out[self.settings.topics.balance] = [balance_line(part.outcomes(decision.action == "publish")) for part in counts]
        return out, PublisherState(advance(state.stream, decision, tiles), tick, silent, standing, level)

    def unclosed(self, counts: Sequence[ShardCounts]) -> Outputs:
        """Account for records that no tick was published from, because the input ended."""
        return {self.settings.topics.balance: [balance_line(part.outcomes(published=False)) for part in counts]} if counts else {}

    def _check_largest(self) -> None:
        """Refuse now what could not be drawn later, at a tick that the data would choose."""
        test, publish = self.schedule.largest
        try:
            self.mechanism(publish)
            if test:
                self._tiles(self.density).delta(test)
        except ValueError as error:
            raise ValueError(f"{error} Lower density.epsilon, or choose schedule = uniform.") from error

    def _mechanism(self, units: int) -> tuple[NDArray[np.int64], TreeCounts]:
        """Return units by level, and the mechanism that spends them."""
        density, tree = self.density, self.tiling.tree
        exact_root = density.neighbours == "replace-one"
        if density.budgets == "uniform":
            levels = level_budgets(tree, units, "uniform", exact_root=exact_root)
        else:
            rule: Rule = "cube-root" if density.noise == "discrete-laplace" else "square-root"
            levels = level_budgets(tree, units, rule, self._workload, exact_root)
        return levels, TreeCounts(tree, node_budgets(tree, levels), density.neighbours, density.noise, self.version.encode())

    def _usual(self) -> int:
        """Return the units of an ordinary publication."""
        return self.schedule.limit if self.density.schedule == "sample" else max(1, self.schedule.limit // self.schedule.window_ticks)

    def _tiles(self, density: DensitySettings, factor: Any = 1) -> Dissimilarity:
        return Dissimilarity(self.tiling.tree, density.test_level, density.neighbours, factor, self.version.encode())
