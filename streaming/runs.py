"""A second run is a second look: what identifies a run, which ticks it covers, and when a start must be refused."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import orjson

from geo.privacy.prf import subkey
from streaming.settings import PRODUCTS, Product, Settings
from streaming.ticks import TickGrid

__all__ = ["Partition", "Run", "fingerprint", "names_digest", "overlapping", "tick_range"]

FINGERPRINT_BYTES = 16


@dataclass(frozen=True)
class Partition:
    """What a run reads of one partition: offsets [begin, end) and the log times of the first and last record there (None if empty).

    `topic_id` is the broker's own: a topic that is deleted and made again has another one, and so is another input.
    """

    topic: str
    topic_id: str
    partition: int
    begin: int
    end: int
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True)
class Run:
    """One start without a checkpoint, as the topic `runs` keeps it.

    Attributes
    ----------
    fingerprint
        Keyed digest of everything that its releases depend on; equal fingerprints mean equal releases as long as log times do not step
        back.
    names
        For each of its products a digest of what its spends are found by: ticks, the topic that holds them, and for traces the users' ids
        (keyed).
    protects_presence
        Whether it published density that protects presence, "add-remove": traces of the same time would give it away.
    limits
        For each of its products the limit of any w consecutive ticks, in the ledger's units, and w.
    tick_ms
        Length of its ticks.
    first_tick, last_tick
        The ticks that it may release; `last_tick` is None for a run without an end.
    horizon_ms
        For a bounded run the log time up to which ticks close, else None.
    inputs
        What it reads.
    policies
        What it reads of the topic `policies`, or None.
    started_ms
        Wall clock of the start.
    """

    fingerprint: str
    names: dict[Product, str]
    protects_presence: bool
    limits: dict[Product, tuple[int, int]]
    tick_ms: int
    first_tick: int
    last_tick: int | None
    horizon_ms: int | None
    inputs: tuple[Partition, ...]
    started_ms: int
    policies: Partition | None = None

    @property
    def products(self) -> tuple[Product, ...]:
        """What it publishes."""
        return tuple(product for product in PRODUCTS if product in self.names)

    @property
    def window_ticks(self) -> int:
        """The longest w of its products."""
        return max(window for _, window in self.limits.values())

    @property
    def group(self) -> str:
        """Name under which the run reads and writes: the consumer group, and the prefix of its transactions."""
        return f"wayveil-{self.fingerprint}"

    @property
    def job_name(self) -> str:
        """What Flink calls its job: one that goes on in a cluster without its submitter is found by it."""
        return f"wayveil {' and '.join(self.products)} {self.fingerprint}"

    def dump(self) -> bytes:
        """Encode as JSON."""
        policies = self.policies and self.policies.__dict__
        return orjson.dumps({**self.__dict__, "inputs": [part.__dict__ for part in self.inputs], "policies": policies})

    @classmethod
    def load(cls, data: bytes) -> "Run":
        """Decode from JSON."""
        document = orjson.loads(data)
        document["limits"] = {product: tuple(promised) for product, promised in document["limits"].items()}
        document["inputs"] = tuple(Partition(**part) for part in document["inputs"])
        document["policies"] = document.get("policies") and Partition(**document["policies"])
        return cls(**document)


def fingerprint(
    secret: bytes,
    settings: Settings,
    products: Collection[Product],
    inputs: tuple[Partition, ...],
    horizon_ms: int | None,
    artefacts: Mapping[str, str],
    policies: Partition | None = None,
) -> str:
    """Return the keyed fingerprint of a run: secret, all settings that a release depends on, artefacts, and the input's place in the log.

    `artefacts` are the digests of the files that settings name: density's public tree, the policy, and the anchors.
    """
    # Of a file the digest counts, not where it lies.
    apart = {"kafka": True, "job": True, "secret": True, "density": {"tiling"} if "density" in products else True}
    apart |= {"policy": True, "anchors": True}
    said = settings.model_dump(mode="json", exclude=apart)
    said["shards"] = settings.job.shards
    bounded = horizon_ms is not None
    places = [
        (p.topic, p.topic_id, p.partition, p.begin, p.first_ms, *((p.end, p.last_ms) if bounded else ()))
        for p in (*inputs, *([policies] if policies else ()))
    ]
    text = orjson.dumps([said, sorted(products), artefacts, places, horizon_ms], option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, key=subkey(secret, b"run"), digest_size=FINGERPRINT_BYTES).hexdigest()


def tick_range(grid: TickGrid, inputs: tuple[Partition, ...], horizon_ms: int | None) -> tuple[int, int | None]:
    """Return the first and last tick that a run over these inputs can release."""
    starts = [part.first_ms for part in inputs if part.first_ms is not None]
    first = grid.first_open(min(starts)) if starts else 0
    return first, None if horizon_ms is None else grid.first_open(horizon_ms) - 1


def names_digest(secret: bytes, settings: Settings, product: Product) -> str:
    """Return the digest of what decides under which names a product's spends are found, and where.

    Those on traces are found by the users' keyed ids in topic `charges`, so theirs is keyed, and are losses at one radius. Those on density
    are found by tick, and add up in one unit: millionths of ε, or 1e-9 of ρ.
    """
    topics, length_s = settings.topics, settings.tick.length_s
    if product == "traces":
        # What the predictive mechanism charges depends on what its audience was sent: refusals must not tell another one.
        told = [audience.name for audience in settings.audiences] if settings.privacy.mechanism == "predictive" else None
        text = orjson.dumps([settings.privacy.radius_m, length_s, topics.charges, told])
        key = subkey(secret, b"names")
    else:
        text = orjson.dumps([length_s, topics.density, settings.density and [settings.density.noise, settings.density.neighbours]])
        key = b""
    return hashlib.blake2b(text, key=key, digest_size=FINGERPRINT_BYTES).hexdigest()


def overlapping(run: Run, earlier: list[Run], *, within_window: bool = False) -> list[Run]:
    """Return the earlier, different runs that looked at times that `run` covers, for whatever product.

    With `within_window`, also those whose ticks share a window of w ticks, of either run, with ticks of `run`.
    """

    def touches(other: Run) -> bool:
        margin_ms = max((r.window_ticks - 1) * r.tick_ms for r in (run, other)) if within_window else 0
        begins_before_end = run.last_tick is None or other.first_tick * other.tick_ms < (run.last_tick + 1) * run.tick_ms + margin_ms
        ends_after_begin = other.last_tick is None or run.first_tick * run.tick_ms < (other.last_tick + 1) * other.tick_ms + margin_ms
        return begins_before_end and ends_after_begin

    return [other for other in earlier if other.fingerprint != run.fingerprint and touches(other)]
