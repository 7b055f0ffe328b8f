"""From the fixes of one closed tick to one window a user: duplicates out, at most n_max fixes, integer sums."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geo.plane import Plane

__all__ = ["Windows", "distinct", "gather"]

MM = 1000


@dataclass(frozen=True)
class Windows:
    """The users' windows of one tick.

    Attributes
    ----------
    user
        Ids, shape (n,), ascending.
    sum_mm
        Sums of the kept fixes' plane coordinates in millimetres, int64 of shape (n, 2).
    kept
        Kept fixes for each user, int64 of shape (n,), all >= 1.
    merged, duplicate
        Fixes that were valid and not used (beyond `max_fixes`, or too fast), and repeats of a (user, time).
    """

    user: NDArray[np.uint64]
    sum_mm: NDArray[np.int64]
    kept: NDArray[np.int64]
    merged: int
    duplicate: int


def distinct(fixes: NDArray[np.void]) -> NDArray[np.intp]:
    """Return the places of one fix for each (user, time), ordered by these: of several the first by content, whatever came first."""
    order = np.lexsort((fixes["lon_e7"], fixes["lat_e7"], fixes["t_ms"], fixes["user"]))
    user, t_ms = fixes["user"][order], fixes["t_ms"][order]
    first = np.ones(len(order), bool)
    first[1:] = (user[1:] != user[:-1]) | (t_ms[1:] != t_ms[:-1])
    kept: NDArray[np.intp] = order[first]
    return kept


def gather(fixes: NDArray[np.void], plane: Plane, max_fixes: int, max_speed_mps: float) -> Windows:
    """Reduce the fixes of one tick to one window a user.

    Fixes are ordered by (user, time, content), so that neither their order of arrival nor their place in the log has a
    say; of several with the same user and time the first by content stays. Then the first `max_fixes` stay, and of
    these, one after the other, those that `max_speed_mps` allows to be reached from the last one that stayed. Only
    fixes of the same window are compared: reaching into the one before would make this release depend on that one's
    data too. The first fix of a user always stays, so that *whether* there is a window never depends on positions.

    Parameters
    ----------
    fixes
        Packed records of one tick, all of kind `FIX`, in any order.
    plane
        The region's metric plane.
    max_fixes, max_speed_mps
        n_max (>= 1) and the speed limit in metres a second on the plane (> 0).
    """
    order = distinct(fixes)
    user, t_ms = fixes["user"][order], fixes["t_ms"][order]

    users, starts, counts = np.unique(user, return_index=True, return_counts=True)
    rank = np.arange(len(user)) - np.repeat(starts, counts)
    keep = rank < max_fixes
    xy = np.zeros((len(user), 2), np.int64)
    xy[keep] = plane.to_mm(fixes["lat_e7"][order[keep]], fixes["lon_e7"][order[keep]])
    _drop_too_fast(keep, xy, t_ms, starts, np.minimum(counts, max_fixes), max_speed_mps)

    xy[~keep] = 0
    kept = np.add.reduceat(keep.astype(np.int64), starts) if len(users) else np.zeros(0, np.int64)
    sums = np.add.reduceat(xy, starts, axis=0) if len(users) else np.zeros((0, 2), np.int64)
    return Windows(users, sums, kept, merged=len(user) - int(kept.sum()), duplicate=len(fixes) - len(order))


def _drop_too_fast(
    keep: NDArray[np.bool_],
    xy: NDArray[np.int64],
    t_ms: NDArray[np.int64],
    starts: NDArray[np.intp],
    counts: NDArray[np.int64],
    max_speed_mps: float,
) -> None:
    """Clear `keep` where a fix cannot be reached from the last kept one; a step for each rank, over all users at once."""
    limit_um_per_s = round(max_speed_mps * 1_000_000)
    last = starts.copy()
    for rank in range(1, int(counts.max(initial=0))):
        live = counts > rank
        here = starts[live] + rank
        step = (xy[here] - xy[last[live]]).astype(np.float64)
        reach_mm = limit_um_per_s * (t_ms[here] - t_ms[last[live]]) / (MM * MM)
        reachable = step[:, 0] ** 2 + step[:, 1] ** 2 <= reach_mm**2
        keep[here[~reachable]] = False
        last[np.flatnonzero(live)[reachable]] = here[reachable]
