"""The program `wayveil audit-ledger`: read what was published, and add it up again, traces with the secret."""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from jobs import runs
from jobs.errors import UserError
from jobs.kafka import documents, read_committed
from jobs.protect import read_secret
from jobs.tiling.program import read_tiling
from streaming.audiences import Audiences
from streaming.audit import Audit, audit, audit_charges, audit_density
from streaming.charges import distinct_charges
from streaming.decode import Decoder
from streaming.pseudonyms import Pseudonyms
from streaming.publisher import limit_units
from streaming.settings import DensitySettings, Settings
from streaming.shard import tick_grid

__all__ = ["audit_ledger"]

EPSILON, RHO = 1e6, 1e9
SHOWN_TICKS = 5


def audit_ledger(settings: Settings) -> dict[str, Audit]:
    """Read the topics of a deployment, audit them, and print what was found; return what was found for each audience.

    Raises
    ------
    UserError
        If the rows do not add up, or a user's charges pass the limit.
    """
    secret = read_secret(settings)
    privacy, names = settings.privacy, settings.topics
    audiences = Audiences(settings, secret)
    limit, window = audiences.limit_micro, privacy.window_ticks
    charges = distinct_charges(runs.charges(settings))
    users = np.union1d(_users(settings, secret), charges["user"])
    entries = list(documents(settings.kafka, names.releases))
    found = {}
    for audience, topic in zip(settings.audiences, settings.trace_topics, strict=True):
        found[audience.name] = audit(
            documents(settings.kafka, topic),
            (entry for entry in entries if entry["audience"] == audience.name),
            users,
            Pseudonyms(secret, audience.name, privacy.epoch_ticks),
            charges,
            audiences.is_stated,
            window,
            limit,
        )
    highest, over = audit_charges(charges, window, limit)
    _show(dict(zip(settings.trace_topics, found.values(), strict=True)), highest, limit, window)
    for topic, of_audience in zip(settings.trace_topics, found.values(), strict=True):
        _require(of_audience, topic, settings)
    if over:
        raise UserError(f"{over} users have spent more than the limit: stop publishing and look at topic {names.runs}.")
    if settings.density is not None:
        _audit_density(settings, settings.density)
    Console(highlight=False).print("All releases are accounted for, and nobody is above the limit.")
    return found


def _require(found: Audit, topic: str, settings: Settings) -> None:
    names = settings.topics
    if found.unbalanced:
        ticks = ", ".join(map(str, found.unbalanced[:SHOWN_TICKS]))
        raise UserError(
            f"In {len(found.unbalanced)} ticks the rows of {topic} do not add up to {names.releases} (first: {ticks}): "
            "wait until the job has committed both and audit again, or look for a writer that is not the job."
        )
    if found.misstated:
        raise UserError(
            f"{found.misstated} releases in {topic} state a loss that their mechanism and radius do not have under these settings: audit "
            "with the settings of the runs that wrote them, or look for a writer that is not the job."
        )
    if found.unpaid or found.over:
        raise UserError(
            f"{found.unpaid} releases in {topic} cost more than topic {names.charges} says was charged, and {found.over} users are above "
            f"the limit there: stop publishing and look at topic {names.runs}."
        )
    if found.strangers:
        raise UserError(
            f"{found.strangers} pseudonyms in {topic} belong to no user of the input topics or of {names.charges}: audit with the secret "
            "and settings of the runs that wrote them."
        )


def _audit_density(settings: Settings, density: DensitySettings) -> None:
    tiling, _ = read_tiling(Path(density.tiling))
    limit, topic = limit_units(density), settings.topics.density
    found = audit_density(documents(settings.kafka, topic), tiling.tree, tiling.version, density.window_ticks, limit)
    unit = EPSILON if density.noise == "discrete-laplace" else RHO
    table = Table(show_header=False)
    table.add_row(f"records of {topic}", f"{found.records:,}")
    table.add_row("… of them looks, each once", f"{found.looks:,}")
    table.add_row("records on another tiling", f"{found.foreign:,}")
    table.add_row("ticks whose counts do not add up", f"{len(found.uneven):,}")
    table.add_row(f"highest {'ε' if unit == EPSILON else 'ρ'} over {density.window_ticks} ticks", f"{found.highest / unit:.6f}")
    table.add_row("limit", f"{limit / unit:.6f}")
    Console(highlight=False).print(table)
    if found.uneven:
        raise UserError(f"In {len(found.uneven)} ticks the counts of {topic} do not add up: look for a writer that is not the job.")
    if found.over:
        raise UserError(
            f"At {len(found.over)} ticks density has spent more than the limit: stop publishing and look at topic {settings.topics.runs}."
        )


def _users(settings: Settings, secret: bytes) -> NDArray[np.uint64]:
    """Return the ids of all users in the input topics."""
    decoder = Decoder(settings.source, tick_grid(settings), secret)
    users = np.zeros(0, np.uint64)
    for number, source in enumerate(settings.source):
        records = read_committed(settings.kafka, source.topic)
        while batch := list(islice(records, settings.job.batch)):
            partition, offset, log_ms, _, values = zip(*batch, strict=True)
            rows = decoder.decode(values, np.array(log_ms), np.array(partition), np.array(offset), number)
            users = np.union1d(users, rows["user"])
    return users[users > 0]


def _show(found: Mapping[str, Audit], highest_micro: int, limit_micro: int, window_ticks: int) -> None:
    table = Table("", *found)
    each = found.values()
    table.add_row("rows", *(f"{one.rows:,}" for one in each))
    table.add_row("… of them releases, each once", *(f"{one.releases:,}" for one in each))
    table.add_row("users released", *(f"{one.users:,}" for one in each))
    table.add_row("pseudonyms that belong to no known user", *(f"{one.strangers:,}" for one in each))
    table.add_row("ticks that do not add up", *(f"{len(one.unbalanced):,}" for one in each))
    table.add_row("releases that were not charged", *(f"{one.unpaid:,}" for one in each))
    table.add_row("releases that misstate their loss", *(f"{one.misstated:,}" for one in each))
    table.add_row(f"highest ε of a user over {window_ticks} ticks", *(f"{one.highest_micro / EPSILON:.6f}" for one in each))
    table.add_row("users above the limit", *(f"{one.over:,}" for one in each))
    console = Console(highlight=False)
    console.print(table)
    charged, limit = highest_micro / EPSILON, limit_micro / EPSILON
    console.print(f"Charged for all audiences together: at most ε {charged:.6f} a user in {window_ticks} ticks; the limit is {limit:.6f}.")
