"""The topic `runs`: what this start reads, whether it would be a second look, and what earlier looks have spent."""

import fcntl
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from jobs.errors import UserError
from jobs.kafka import abort_transactions, documents, identify_topics, log_ranges, read_committed, require_settled, send_all
from streaming.audiences import Audiences
from streaming.charges import read_charges
from streaming.clock import now_ms
from streaming.earlier import EarlierSpends
from streaming.publisher import limit_units
from streaming.runs import Partition, Run, fingerprint, names_digest, overlapping, tick_range
from streaming.settings import Product, Settings
from streaming.shard import tick_grid

__all__ = [
    "admit",
    "alone",
    "charges",
    "earlier_density",
    "earlier_spends",
    "forget_checkpoints",
    "known_runs",
    "latest_checkpoint",
    "of_products",
    "plan",
    "record",
    "supersede",
]

EARLIER_FILE = "earlier.npz"
EARLIER_DENSITY_FILE = "earlier-density.json"


def plan(settings: Settings, secret: bytes, products: Collection[Product], bounded: bool, artefacts: Mapping[str, str]) -> Run:
    """Say what a start would read now, without starting it; `artefacts` are the digests of its public files.

    A bounded run ends at the present end of its topics. Its ticks close up to the lowest log time at which a partition ends, so
    that the outcome is a function of the log and not of the order in which partitions are read.
    """
    topics = settings.read_by_job(products)
    live = topics[len(settings.source) :]
    topic_ids = identify_topics(settings.kafka, *topics)
    parts = [
        Partition(topic, topic_ids[topic], number, part.begin_offset, part.end_offset, part.first_ms, part.last_ms)
        for topic in topics
        for number, part in sorted(log_ranges(settings.kafka, topic).items())
    ]
    inputs, versions = [part for part in parts if part.topic not in live], [part for part in parts if part.topic in live]
    if len(versions) > 1:
        raise UserError(f"Topic {settings.topics.policies} needs exactly one partition, so that its versions have an order: make it again.")
    horizon = min((part.last_ms for part in inputs if part.last_ms is not None), default=0) if bounded else None
    if horizon is not None and versions:
        # what the policy's clock has not passed may still change
        horizon = min(horizon, versions[0].last_ms or 0)
    if not bounded:
        inputs, versions = ([replace(part, end=part.begin, last_ms=None) for part in some] for some in (inputs, versions))
    policies = versions[0] if versions else None
    grid = tick_grid(settings)
    first, last = tick_range(grid, tuple(inputs), horizon)
    density = settings.density if "density" in products else None
    return Run(
        fingerprint(secret, settings, products, tuple(inputs), horizon, artefacts, policies),
        {product: names_digest(secret, settings, product) for product in products},
        density is not None and density.neighbours == "add-remove",
        {product: limit_of(settings, secret, product) for product in products},
        grid.length_ms,
        first,
        last,
        horizon,
        tuple(inputs),
        now_ms(),
        policies,
    )


def limit_of(settings: Settings, secret: bytes, product: Product) -> tuple[int, int]:
    """Return what any w consecutive ticks of a product may cost, in the ledger's units, and w."""
    if product == "traces":
        return Audiences(settings, secret).limit_micro, settings.privacy.window_ticks
    if settings.density is None:
        raise UserError("Density needs a section [density] in the settings.")
    return limit_units(settings.density), settings.density.window_ticks


def of_products(products: Collection[Product], some: Iterable[Run]) -> list[Run]:
    """Return the runs that published one of some products."""
    return [run for run in some if set(run.products) & set(products)]


def known_runs(settings: Settings) -> list[Run]:
    """Return the runs recorded so far, oldest first."""
    return [Run.load(value) for *_, value in read_committed(settings.kafka, settings.topics.runs) if value is not None]


def admit(run: Run, earlier: list[Run], spend_again: bool) -> None:
    """Refuse a run that would look again at ticks of another run.

    Raises
    ------
    UserError
        Unless `spend_again`; and always if what the other run has spent could not be found under this one's names, or if traces give
        away the presence that density promises to protect.
    """
    near = overlapping(run, earlier, within_window=True)
    together = [run, *near]
    if any(other.protects_presence for other in together) and any("traces" in other.products for other in together):
        raise UserError(
            "Traces tell who is present, so density of the same time cannot protect presence: set density.neighbours = replace-one, which "
            "protects the place."
        )
    if any(other.names.get(product, name) != name for other in near for product, name in run.names.items()):
        raise UserError(
            "An earlier run published some of this time, or less than a window from it, under another secret, privacy.radius_m, mechanism, "
            "tick length, topic of charges or of density, kind of density noise or density.neighbours, so that what it spent could not be "
            "charged: restore these."
        )
    for product, (limit, window) in run.limits.items():
        if any(product in o.limits and (limit > o.limits[product][0] or window < o.limits[product][1]) for o in near):
            raise UserError(
                f"An earlier run promised a lower limit or a longer window of {product} for some of this time, or less than a window from "
                "it: restore it; a limit may be raised only once a window has passed."
            )
    again = of_products(run.products, overlapping(run, earlier))
    if again and not spend_again:
        raise UserError(
            f"An earlier, different run covers some of these ticks ({_described(again[-1])}): go on with that one by --resume under its "
            "settings, or pass --spend-again to spend privacy budget on them a second time (the earlier spends are then loaded into the "
            "ledger)."
        )


def supersede(settings: Settings, run: Run, earlier: list[Run]) -> int:
    """End what is left of the runs that cannot go on once this one has started, so that nothing they wrote stays open; return how many."""
    near = of_products(run.products, overlapping(run, earlier, within_window=True))
    return abort_transactions(settings.kafka, {other.group for other in near})


def _described(run: Run) -> str:
    started = datetime.fromtimestamp(run.started_ms / 1000, UTC)
    return f"{' and '.join(run.products)}, started {started:%Y-%m-%d %H:%M:%S} UTC, run {run.fingerprint[:8]}"


def record(settings: Settings, run: Run) -> None:
    """Write a run to the topic `runs`."""
    report = send_all(settings.kafka, [(settings.topics.runs, 0, run.fingerprint.encode(), run.dump(), None)])
    if report.failed:
        raise UserError(f"The run could not be recorded in topic {settings.topics.runs}: check the broker and start again.")


def charges(settings: Settings) -> Iterator[NDArray[np.void]]:
    """Yield what the topic `charges` holds, `CHARGE` of shape (n,) a row."""
    return map(read_charges, documents(settings.kafka, settings.topics.charges))


def earlier_density(settings: Settings, run: Run, earlier: list[Run], folder: Path, resume: bool) -> dict[int, int]:
    """Return by tick what other runs have spent on density within a window of this run's ticks; kept beside its checkpoints."""
    kept = folder / EARLIER_DENSITY_FILE
    if resume and kept.exists():
        return {int(tick): units for tick, units in orjson.loads(kept.read_bytes()).items()}
    spends: dict[int, int] = {}
    if any(other.fingerprint != run.fingerprint and "density" in other.products for other in earlier):
        require_settled(settings.kafka, settings.topics.density)
        seen: set[tuple[int, str]] = set()
        for row in documents(settings.kafka, settings.topics.density):
            tick, look = row["tick"], row["look"]
            near = run.first_tick - run.window_ticks < tick and (run.last_tick is None or tick < run.last_tick + run.window_ticks)
            if near and (tick, look) not in seen:
                seen.add((tick, look))
                spends[tick] = spends.get(tick, 0) + row["charge"]["test"] + row["charge"]["publish"]
    kept.write_bytes(orjson.dumps({str(tick): units for tick, units in spends.items()}))
    return spends


def earlier_spends(settings: Settings, run: Run, earlier: list[Run], folder: Path, resume: bool) -> EarlierSpends:
    """Return what other runs have spent on traces in this run's ticks and a window around them; kept beside its checkpoints."""
    kept = folder / EARLIER_FILE
    if resume and kept.exists():
        with np.load(kept) as columns:
            return EarlierSpends(columns["charges"])
    spends = EarlierSpends.none()
    if any(other.fingerprint != run.fingerprint and "traces" in other.products for other in earlier):
        require_settled(settings.kafka, settings.topics.charges)
        first, last, window = run.first_tick, run.last_tick, settings.privacy.window_ticks
        spends = EarlierSpends.of(
            part[(first - window < part["tick"]) & ((part["tick"] < last + window) if last is not None else True)]
            for part in charges(settings)
        )
    np.savez(kept, charges=spends.charges)
    return spends


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder: two jobs of one product would not know of each other's spends.

    Raises
    ------
    UserError
        If another job holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError("A job of this product still goes on in another process: stop that first, then go on with --resume.") from None
        yield


def latest_checkpoint(folder: Path, job: str = "*") -> Path | None:
    """Return the newest complete checkpoint or savepoint of a run, or of one Flink job of it, or None."""
    found = [(meta.stat().st_mtime_ns, meta.parent) for meta in folder.glob(f"{job}/*-*/_metadata")]
    return max(found)[1] if found else None


def forget_checkpoints(folder: Path, except_job: str | None = None) -> None:
    """Remove the checkpoints of a run, but those of one Flink job: to go on from them would publish rows a second time."""
    for job in folder.glob("*/"):
        if job.name != except_job:
            shutil.rmtree(job, ignore_errors=True)
