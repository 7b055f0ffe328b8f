"""The program `wayveil audit-ledger`: read what was published, and add it up again, traces with the secret."""

from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from jobs.errors import UserError
from jobs.kafka import documents, read_committed
from jobs.protect import read_secret
from jobs.tiling.program import read_tiling
from streaming.audit import Audit, audit, audit_density
from streaming.decode import Decoder
from streaming.pseudonyms import Pseudonyms
from streaming.publisher import limit_units
from streaming.settings import DensitySettings, Settings
from streaming.shard import Protector, tick_grid

__all__ = ["audit_ledger"]

EPSILON, RHO = 1e6, 1e9
SHOWN_TICKS = 5


def audit_ledger(settings: Settings) -> Audit:
    """Read the topics of a deployment, audit them, and print what was found.

    Raises
    ------
    UserError
        If the rows do not add up, or a user's charges pass the limit.
    """
    secret = read_secret(settings)
    privacy, names = settings.privacy, settings.topics
    limit = Protector(settings, secret).promise.limit_micro
    found = audit(
        documents(settings.kafka.bootstrap, names.traces),
        documents(settings.kafka.bootstrap, names.releases),
        _users(settings, secret),
        Pseudonyms(secret, privacy.audience, privacy.epoch_ticks),
        privacy.window_ticks,
        limit,
    )
    _show(found, limit, privacy.window_ticks)
    if found.unbalanced:
        ticks = ", ".join(map(str, found.unbalanced[:SHOWN_TICKS]))
        raise UserError(
            f"In {len(found.unbalanced)} ticks the rows of {names.traces} do not add up to {names.releases} (first: {ticks}): "
            "wait until the job has committed both and audit again, or look for a writer that is not the job."
        )
    if found.over:
        raise UserError(f"{found.over} users have spent more than the limit: stop publishing and look at topic {names.runs}.")
    if found.strangers:
        raise UserError(
            f"{found.strangers} pseudonyms belong to no user of the input topics: audit with the secret and settings of the runs that "
            "wrote them, and while the input topics still hold these users."
        )
    if settings.density is not None:
        _audit_density(settings, settings.density)
    Console(highlight=False).print("All releases are accounted for, and nobody is above the limit.")
    return found


def _audit_density(settings: Settings, density: DensitySettings) -> None:
    tiling, _ = read_tiling(Path(density.tiling))
    limit, topic = limit_units(density), settings.topics.density
    found = audit_density(documents(settings.kafka.bootstrap, topic), tiling.tree, tiling.version, density.window_ticks, limit)
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
        records = read_committed(settings.kafka.bootstrap, source.topic)
        while batch := list(islice(records, settings.job.batch)):
            partition, offset, log_ms, _, values = zip(*batch, strict=True)
            rows = decoder.decode(values, np.array(log_ms), np.array(partition), np.array(offset), number)
            users = np.union1d(users, rows["user"])
    return users[users > 0]


def _show(found: Audit, limit_micro: int, window_ticks: int) -> None:
    table = Table(show_header=False)
    table.add_row("rows of traces", f"{found.rows:,}")
    table.add_row("… of them releases, each once", f"{found.releases:,}")
    table.add_row("users released", f"{found.users:,}")
    table.add_row("pseudonyms that belong to no known user", f"{found.strangers:,}")
    table.add_row("ticks that do not add up", f"{len(found.unbalanced):,}")
    table.add_row(f"highest ε of a user over {window_ticks} ticks", f"{found.highest_micro / EPSILON:.6f}")
    table.add_row("limit", f"{limit_micro / EPSILON:.6f}")
    table.add_row("users above the limit", f"{found.over:,}")
    Console(highlight=False).print(table)
