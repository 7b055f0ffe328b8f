"""Add up the public ledger again, across epochs, from what was published: nothing here trusts the job that published it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geo.tree import Tree
from streaming.pseudonyms import Pseudonyms
from streaming.release import STATUSES, release_key

__all__ = ["Audit", "DensityAudit", "audit", "audit_charges", "audit_density", "highest_window_sum"]


@dataclass(frozen=True)
class Audit:
    """What an audit of one audience's traces found.

    Attributes
    ----------
    rows, releases
        Its rows, and distinct releases among them: an identical row repeats what is known already and spends nothing.
    users
        Users who have a release.
    strangers
        Pseudonyms that belong to no known user. Their sums are taken within one epoch only.
    unbalanced
        Ticks in which the rows do not add up to the entries of the public ledger, or cost more than these say.
    unpaid
        Releases of known users that cost more than all that was charged for their tick.
    misstated
        Releases whose mechanism, radius and loss do not belong together.
    highest_micro
        Highest sum of one user's losses to this audience over any w consecutive ticks, in micro-epsilon.
    over
        Users with a sum above the limit.
    """

    rows: int
    releases: int
    users: int
    strangers: int
    unbalanced: tuple[int, ...]
    unpaid: int
    misstated: int
    highest_micro: int
    over: int


def audit(
    traces: Iterable[Mapping[str, Any]],
    entries: Iterable[Mapping[str, Any]],
    user: NDArray[np.uint64],
    pseudonyms: Pseudonyms,
    charges: NDArray[np.void],
    is_stated: Callable[[Mapping[str, Any]], bool],
    window_ticks: int,
    limit_micro: int,
) -> Audit:
    """Check the rows of one audience against the ledger's entries, against what was charged, and against the limit.

    What it cannot see: noise that is not what the rows state (a statistical test can), and rows of other audiences that do not come from
    the same draw.

    Parameters
    ----------
    traces, entries
        All rows of the audience's topic, and its entries in topic `releases`, as documents; repeats of identical runs included.
    user
        Ids of all users who may have been released, shape (n,).
    pseudonyms
        The names under which they were published.
    charges
        Distinct charges, `CHARGE` of shape (m,).
    is_stated
        Tells whether a release's mechanism, radius and loss belong together.
    window_ticks, limit_micro
        w, and the limit of every sum over w consecutive ticks in micro-epsilon.
    """
    totals: dict[int, NDArray[np.int64]] = {}
    losses: dict[tuple[str, int], int] = {}
    highest: dict[tuple[str, int], int] = {}
    misstated = 0
    seen: set[tuple[Any, ...]] = set()
    rows = 0
    for row in traces:
        rows += 1
        charge = row.get("epsilon_micro", 0)
        _total(totals, row["tick"])[[STATUSES.index(row["status"]), 3]] += (1, charge)
        release = release_key(row)
        if release is not None and release not in seen:
            seen.add(release)
            name = row["user"], row["tick"]
            losses[name] = losses.get(name, 0) + charge
            highest[name] = max(highest.get(name, 0), charge)
            misstated += not is_stated(row)
    for entry in entries:
        _total(totals, entry["tick"])[:] -= [*(entry[status] for status in STATUSES), entry["epsilon_micro"]]

    number, strangers = _owners(losses, user, pseudonyms)
    owner = np.array([number[name, pseudonyms.epoch(tick)] for name, tick in losses], np.int64)
    tick, loss = np.array([tick for _, tick in losses], np.int64), np.array(list(losses.values()), np.int64)
    sums = highest_window_sum(owner, tick, loss, window_ticks)
    paid: dict[tuple[int, int], int] = {}
    for who, when, _, charge in charges.tolist():
        paid[who, when] = paid.get((who, when), 0) + charge
    # Releases of several runs may come from one draw, which is paid once; so of each tick the dearest is held against what was paid.
    dearest = zip(owner.tolist(), tick.tolist(), highest.values(), strict=True)
    unpaid = sum(spent > paid.get((int(user[who]), when), 0) for who, when, spent in dearest if who < len(user))
    return Audit(
        rows=rows,
        releases=len(seen),
        users=len(np.unique(owner)) - strangers,
        strangers=strangers,
        unbalanced=tuple(sorted(tick for tick, left in totals.items() if left[:3].any() or left[3] > 0)),
        unpaid=unpaid,
        misstated=misstated,
        highest_micro=int(sums.max(initial=0)),
        over=len(np.unique(owner[sums > limit_micro])),
    )


def audit_charges(charges: NDArray[np.void], window_ticks: int, limit_micro: int) -> tuple[int, int]:
    """Return the highest sum of one user's charges over any w consecutive ticks, in micro-epsilon, and how many users pass the limit.

    Parameters
    ----------
    charges
        Distinct charges, `CHARGE` of shape (n,).
    window_ticks, limit_micro
        w, and the limit of every such sum.
    """
    _, owner = np.unique(charges["user"], return_inverse=True)
    sums = highest_window_sum(owner.astype(np.int64), charges["tick"], charges["charge_micro"], window_ticks)
    return int(sums.max(initial=0)), len(np.unique(owner[sums > limit_micro]))


def highest_window_sum(
    owner: NDArray[np.int64], tick: NDArray[np.int64], charge_micro: NDArray[np.int64], window_ticks: int
) -> NDArray[np.int64]:
    """Return for each charge, shape (n,), the sum of its owner's charges in the `window_ticks` ticks that end at its own tick."""
    order = np.lexsort((tick, owner))
    # one line of time for all: owners lie further apart than any window reaches
    first = int(tick.min(initial=0))
    span = int(tick.max(initial=0)) - first + window_ticks + 1
    _, rank = np.unique(owner, return_inverse=True)
    place = (rank * span + (tick - first))[order]
    running = np.concatenate([[0], np.cumsum(charge_micro[order])])
    begin = np.searchsorted(place, place - window_ticks, side="right")
    end = np.searchsorted(place, place, side="right")
    sums = np.empty(len(tick), np.int64)
    sums[order] = running[end] - running[begin]
    return sums


@dataclass(frozen=True)
class DensityAudit:
    """What an audit of density found.

    Attributes
    ----------
    records, looks
        Records, and distinct ones among them: a record that repeats a look tells nothing new and spends nothing.
    foreign
        Records that were counted on another tiling: they are charged, but whether they add up is not known.
    uneven
        Ticks with a count that is negative or not the sum of its parts.
    highest
        Highest sum of charges over any w consecutive ticks, in the ledger's units.
    over
        Ticks at which that sum is above the limit.
    """

    records: int
    looks: int
    foreign: int
    uneven: tuple[int, ...]
    highest: int
    over: tuple[int, ...]


def audit_density(records: Iterable[Mapping[str, Any]], tree: Tree, version: str, window_ticks: int, limit: int) -> DensityAudit:
    """Check density records against the tree and against the limit.

    Parameters
    ----------
    records
        All rows of the topic `density`, as documents; repeats of identical runs included.
    tree, version
        Public tree, and the version of its file.
    window_ticks, limit
        w, and the limit of every sum over w consecutive ticks, in the records' units.
    """
    charges: dict[tuple[int, str], int] = {}
    uneven: set[int] = set()
    rows = foreign = 0
    for record in records:
        rows += 1
        charges[record["tick"], record["look"]] = record["charge"]["test"] + record["charge"]["publish"]
        if record["tree"] != version:
            foreign += 1
        elif record["count"] is not None:
            count = np.array(record["count"], np.int64)
            if count.shape != (len(tree),) or (count < 0).any() or (tree.sums(count[tree.leaves]) != count).any():
                uneven.add(record["tick"])
    tick = np.array([tick for tick, _ in charges], np.int64)
    sums = highest_window_sum(np.zeros(len(tick), np.int64), tick, np.array(list(charges.values()), np.int64), window_ticks)
    over = np.unique(tick[sums > limit])
    return DensityAudit(rows, len(charges), foreign, tuple(sorted(uneven)), int(sums.max(initial=0)), tuple(over.tolist()))


def _total(totals: dict[int, NDArray[np.int64]], tick: int) -> NDArray[np.int64]:
    return totals.setdefault(tick, np.zeros(len(STATUSES) + 1, np.int64))


def _owners(
    charges: Mapping[tuple[str, int], int], user: NDArray[np.uint64], pseudonyms: Pseudonyms
) -> tuple[dict[tuple[str, int], int], int]:
    """Return a number for the owner of each (pseudonym, epoch), known users first, and how many strangers there are."""
    first_tick = {pseudonyms.epoch(tick): tick for _, tick in charges}
    names = {epoch: dict(zip(pseudonyms.of(user, tick), range(len(user)), strict=True)) for epoch, tick in first_tick.items()}
    number: dict[tuple[str, int], int] = {}
    strangers = 0
    for name, tick in charges:
        epoch = pseudonyms.epoch(tick)
        if (name, epoch) not in number:
            known = names[epoch].get(name)
            number[name, epoch] = len(user) + strangers if known is None else known
            strangers += known is None
    return number, strangers
