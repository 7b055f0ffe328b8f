"""A picture (PNG) of the demo's traces: raw, and as each audience is told of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jobs.demo.measure import Comparison
from jobs.demo.sample import Sample
from jobs.demo.scene import CREDITS, GROUND, MARKS, SPOTS, Scene, scene

__all__ = ["write_picture"]

THIN = 5
MARGIN = 0.04
SIZE = 6.5


def write_picture(path: Path, sample: Sample, comparisons: Sequence[Comparison]) -> None:
    """Draw one user of each place as raw fixes and as each audience is told of them, and the distribution of the displacement.

    Parameters
    ----------
    path : Path
        PNG file to write.
    sample : Sample
        Raw fixes.
    comparisons : sequence of Comparison
        Truth, and what each audience is told.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9, "axes.titlesize": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(15, 7.0), layout="constrained")
        *maps, spread = figure.subplots(1, 3)
        for axes, spot in zip(maps, SPOTS, strict=True):
            _draw_scene(axes, scene(spot, sample, comparisons, 1), comparisons)
        _draw_displacement(spread, comparisons)
        figure.suptitle("Raw fixes, and what wayveil tells each audience of the same user", fontsize=14, fontweight="bold")
        figure.supxlabel(CREDITS, fontsize=7, color="#666666", x=0.99, ha="right")
        figure.savefig(path, dpi=130)


def _draw_scene(axes: Any, drawn: Scene, comparisons: Sequence[Comparison]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle

    (track,) = drawn.tracks
    axes.scatter(*drawn.raw[::THIN].T, s=1, color=GROUND, zorder=1)
    axes.plot(*track.raw.T, color="black", linewidth=2, zorder=4)
    axes.plot(*track.true[track.withheld].T, "x", color="black", markersize=5, markeredgewidth=0.8, zorder=4)
    handles = [
        Line2D([], [], color=GROUND, linewidth=3, label="raw fixes of all users here"),
        Line2D([], [], color="black", linewidth=2, label=f"raw fixes of {track.user}"),
    ]
    seen = [track.raw]
    for comparison, mark in zip(comparisons, MARKS, strict=True):
        told = track.told[comparison.audience]
        out, line = told.placed, {"color": mark.colour, "linewidth": 0.6, "alpha": 0.5}
        dots: dict[str, Any] = {"marker": mark.shape, "markersize": SIZE, "markeredgecolor": "white", "color": mark.colour}
        axes.plot(*np.stack([track.true[out], told.xy[out]], axis=1).T, **line, zorder=2)
        axes.plot(*told.xy[out].T, linestyle="", **dots, zorder=6)
        what = ("public places" if out.any() else "public places, as none is near") if comparison.anchored else "positions"
        label = f"told to {comparison.audience}: {out.sum()} {what}, protected within {comparison.radius_m:.0f} m"
        handles.append(Line2D([], [], linewidth=0.6, **dots, label=label))
        seen.append(told.xy[out])
        if not comparison.anchored:
            for centre in track.ringed(comparison.audience):
                axes.add_patch(Circle(centre, comparison.r50_m, fill=False, color=mark.colour, linewidth=1.2, zorder=3))
                seen.append(centre + comparison.r50_m * np.array([[-1.0, -1.0], [1.0, 1.0]]))
            label = f"promised to {comparison.audience}: half within {comparison.r50_m:.0f} m of the truth"
            ring: dict[str, Any] = {"marker": "o", "markersize": 9, "fillstyle": "none", "markeredgecolor": mark.colour}
            handles.append(Line2D([], [], linestyle="", **ring, label=label))
    if track.withheld.any():
        handles.append(Line2D([], [], color="black", linestyle="", marker="x", markersize=5, label="withheld from all: budget spent"))
    points = np.concatenate(seen)
    low, high = points.min(axis=0), points.max(axis=0)
    (x, y), half = (low + high) / 2, (0.5 + MARGIN) * float((high - low).max())
    axes.set(xlim=(x - half, x + half), ylim=(y - half, y + half))
    axes.set_aspect("equal", adjustable="box")
    axes.set(title=drawn.title, xlabel="metres east", ylabel="metres north")
    _legend_below(axes, handles)


def _draw_displacement(axes: Any, comparisons: Sequence[Comparison]) -> None:
    for comparison, mark in zip(comparisons, MARKS, strict=True):
        if comparison.anchored:
            continue
        distance = np.sort(comparison.displacements())
        share = np.arange(1, len(distance) + 1) / len(distance)
        axes.step(distance, share, where="post", color=mark.colour, label=f"{comparison.audience}: measured, {len(distance)} releases")
        promised = f"{comparison.audience}: promised, half within {comparison.r50_m:.0f} m, 95 % within {comparison.r95_m:.0f} m"
        ring: dict[str, Any] = {
            "marker": mark.shape,
            "markersize": 9,
            "fillstyle": "none",
            "markeredgecolor": mark.colour,
            "markeredgewidth": 1.5,
        }
        axes.plot([comparison.r50_m, comparison.r95_m], [0.5, 0.95], linestyle="", **ring, label=promised)
    axes.grid(color=GROUND, linewidth=0.6)
    axes.set(ylim=(0, 1.02), xlim=(0, None), title="Displacement of all positions")
    axes.set(xlabel="metres between the released and the true position", ylabel="share of the releases within this distance")
    _legend_below(axes)


def _legend_below(axes: Any, handles: list[Any] | None = None) -> None:
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, -0.13), fontsize=8, frameon=False)
