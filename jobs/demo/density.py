"""The density part of the demo: the published tree beside the true counts, which only the demo knows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from geo.tiling.tiling import Tiling
from jobs.demo.sample import CAR, Sample
from jobs.errors import UserError
from streaming.density import Density

__all__ = ["DensityComparison", "compare_density", "show_density", "write_density_picture"]

CREDITS = "Streets © OpenStreetMap contributors (ODbL)"
E7, MICRO = 1e7, 1e6
MARGIN = 0.1


@dataclass(frozen=True)
class DensityComparison:
    """The published trees beside the truth.

    Attributes
    ----------
    published
        The records in which a tree was published, each once.
    true
        True number of users of each leaf for each of them, shape (records, leaves).
    """

    published: Sequence[Density]
    true: NDArray[np.int64]

    @property
    def busiest(self) -> int:
        """Index of the record with most users."""
        return int(np.argmax(self.true.sum(axis=1)))


def compare_density(sample: Sample, values: Iterable[bytes], tiling: Tiling, tick_ms: int) -> DensityComparison:
    """Read the records, check that every tree adds up, and count the users of the same ticks from the raw fixes.

    Parameters
    ----------
    sample : Sample
        Raw fixes, in the order of time.
    values : iterable of bytes
        Records of the topic `density`.
    tiling : Tiling
        On which they were counted.
    tick_ms : int
        Length of a tick.

    Raises
    ------
    UserError
        If a tree does not add up, or nothing was published.
    """
    published = [density for density in (Density.load(value, tiling) for value in values) if density.stands == density.tick]
    tree = tiling.tree
    for density in published:
        if (density.count < 0).any() or (tree.sums(density.count[tree.leaves]) != density.count).any():
            raise UserError("A density record does not add up: please report this as a bug.")
    if not published:
        raise UserError("The run published no density: please report this as a bug.")
    return DensityComparison(published, np.stack([_true(sample, tiling, density.tick, tick_ms) for density in published]))


def show_density(console: Console, comparison: DensityComparison) -> None:
    """Print how far the published counts of tiles are from the truth, beside the error that they state.

    Parameters
    ----------
    console : Console
        Where to.
    comparison : DensityComparison
        Truth and records.
    """
    first = comparison.published[0]
    leaves = first.tiling.tree.leaves
    unbiased, stated, count = (
        np.stack([getattr(density, name)[leaves] for density in comparison.published]) for name in ("unbiased", "standard_error", "count")
    )
    charge = first.charge
    table = Table(title="What was published of density: users in each tile, one tree every ten minutes", title_justify="left")
    table.add_column("")
    for name in ("promised", "measured"):
        table.add_column(name, justify="right")
    spent = max(density.charge.publish for density in comparison.published)
    table.add_row("budget of any ten minutes, ε", f"{charge.limit / MICRO:g}", f"{spent / MICRO:g}")
    table.add_row("standard error of a tile, users", f"{np.sqrt((stated**2).mean()):.2f}", f"{(unbiased - comparison.true).std():.2f}")
    table.add_row("same, of the counts that are whole and not negative", "", f"{np.sqrt(((count - comparison.true) ** 2).mean()):.2f}")
    table.add_row("users of the busiest tree", "exact: presence is public", f"{comparison.published[comparison.busiest].count[0]}")
    console.print(table)
    console.print(
        f"{len(comparison.published)} trees of {len(leaves)} tiles; at every node the parts add up. Few users are in the demo, so its ε is "
        "large.",
        soft_wrap=True,
    )


def write_density_picture(path: Path, sample: Sample, comparison: DensityComparison) -> None:
    """Draw the tiles of Helsinki twice: true counts, and the published ones with their errors.

    Parameters
    ----------
    path : Path
        PNG file to write.
    sample : Sample
        Raw fixes.
    comparison : DensityComparison
        Truth and records.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    density, true = comparison.published[comparison.busiest], comparison.true[comparison.busiest]
    tiling, leaves = density.tiling, density.tiling.tree.leaves
    corners = tiling.lattice.corners_m(tiling.box[leaves])
    cars = np.char.startswith(sample.user, CAR)
    raw = tiling.plane.to_mm(*(np.rint(axis[cars] * E7).astype(np.int64) for axis in (sample.lat, sample.lon))) / 1000.0
    middle = (raw.min(axis=0) + raw.max(axis=0)) / 2
    raw, corners = raw - middle, corners - np.tile(middle, 2)
    rim = MARGIN * (raw.max(axis=0) - raw.min(axis=0)).max()
    low, high = raw.min(axis=0) - rim, raw.max(axis=0) + rim
    shown = np.flatnonzero(((corners[:, :2] < high) & (corners[:, 2:] > low)).all(axis=1) & (np.arange(len(leaves)) != tiling.elsewhere))
    seen = np.concatenate([np.maximum(corners[shown, :2], low), np.minimum(corners[shown, 2:], high)], axis=1)
    count, error = density.count[leaves], density.standard_error[leaves]
    top = max(int(count[shown].max()), int(true[shown].max()), 1)
    with mpl.rc_context({"font.size": 9, "axes.titlesize": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(13, 6.6), layout="constrained")
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        left = _draw_tiles(panels[0], seen, true[shown], [f"{value}" for value in true[shown]], top)
        texts = [f"{value}\n±{spread:.1f}" for value, spread in zip(count[shown], error[shown], strict=True)]
        _draw_tiles(panels[1], seen, count[shown], texts, top)
        panels[0].set_title("True users in each tile (only the demo knows)")
        panels[1].set_title("What wayveil publishes: count ± standard error")
        for axes in panels:
            axes.scatter(*raw[::20].T, s=0.4, color="#999999", alpha=0.5, zorder=2)
            axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel="metres east of the middle of the streets")
            axes.set_aspect("equal")
        panels[0].set_ylabel("metres north")
        figure.colorbar(left, ax=panels, label="users", shrink=0.8)
        figure.suptitle("Density of one minute in Helsinki", fontsize=14, fontweight="bold")
        figure.supxlabel(CREDITS, fontsize=7, color="#666666")
        figure.savefig(path, dpi=130)


def _true(sample: Sample, tiling: Tiling, tick: int, tick_ms: int) -> NDArray[np.int64]:
    here = np.flatnonzero(sample.t_ms // tick_ms == tick)
    _, first = np.unique(sample.user[here], return_index=True)
    lat, lon = (np.rint(axis[here[first]] * E7).astype(np.int64) for axis in (sample.lat, sample.lon))
    return np.bincount(tiling.leaf_of_degrees(lat, lon), minlength=len(tiling.tree.leaves))


def _draw_tiles(axes: Any, corners: NDArray[np.float64], value: NDArray[np.int64], texts: Sequence[str], top: int) -> Any:
    from matplotlib.collections import PolyCollection

    x0, y0, x1, y1 = corners.T
    outlines = np.stack([np.stack([x0, x1, x1, x0], axis=1), np.stack([y0, y0, y1, y1], axis=1)], axis=2)
    tiles = PolyCollection(list(outlines), array=value.astype(float), cmap="YlGnBu", edgecolor="white", linewidth=1.0, alpha=0.85)
    tiles.set_clim(0, top)
    axes.add_collection(tiles)
    for (left, bottom, right, upper), text, number in zip(corners, texts, value, strict=True):
        middle = np.array([(left + right) / 2, (bottom + upper) / 2])
        axes.text(*middle, text, ha="center", va="center", fontsize=8, color="white" if number > 0.6 * top else "#222222", zorder=3)
    return tiles
