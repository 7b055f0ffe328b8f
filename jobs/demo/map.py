"""A map (HTML that needs no network) of the demo's traces, with a layer for each user and for each audience."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jobs.demo.measure import Comparison
from jobs.demo.sample import Sample
from jobs.demo.scene import CREDITS, GROUND, MARKS, SPOTS, Mark, Scene, Track, scene

__all__ = ["write_map"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d")
"""Of the users; colour-blind people tell them apart."""

THIN = 5
NEUTRAL = "#444444"
FADED = 0.07


def write_map(path: Path, sample: Sample, comparisons: Sequence[Comparison]) -> None:
    """Write a map to zoom, with legends that fade users and hide audiences one by one; all its parts are inside the file.

    Parameters
    ----------
    path : Path
        HTML file to write.
    sample : Sample
        Raw fixes.
    comparisons : sequence of Comparison
        Truth, and what each audience is told.
    """
    from bokeh.embed import file_html
    from bokeh.layouts import column, row
    from bokeh.models import Div
    from bokeh.resources import Resources

    points = [comparison for comparison in comparisons if not comparison.anchored]
    rings = " and ".join(f"{comparison.r50_m:.0f} m for {comparison.audience}" for comparison in points)
    text = (
        "<h2>Raw fixes, and what wayveil tells each audience of them</h2>"
        "<p>Line: raw fixes. Small dot: mean of a minute's fixes (the truth). The shape of a large mark says which audience is told it. "
        "Cross: withheld from all, since the budget was spent. Circles around one mean of each user: half of all releases fall within "
        f"({rings}). Click a user to show or fade it, an audience to hide or show it.</p><p><small>{CREDITS}</small></p>"
    )
    plots = [_plot(scene(spot, sample, comparisons, len(COLOURS)), comparisons) for spot in SPOTS]
    page = column(Div(text=text, width=1100, disable_math=True), row(*plots))
    path.write_text(file_html(page, Resources(mode="inline"), "wayveil demo"), encoding="utf-8")


def _plot(drawn: Scene, comparisons: Sequence[Comparison]) -> Any:
    from bokeh.models import HoverTool, Legend, LegendItem
    from bokeh.plotting import figure

    plot = figure(
        title=drawn.title,
        width=760,
        height=640,
        match_aspect=True,
        x_axis_label="metres east",
        y_axis_label="metres north",
        tools="pan,wheel_zoom,box_zoom,reset,save",
        active_scroll="wheel_zoom",
    )
    plot.toolbar.logo = None
    streets = plot.scatter(*np.round(drawn.raw[::THIN], 1).T, size=2, color=GROUND)
    marks = list(zip(comparisons, MARKS, strict=True))
    layers: dict[str, list[Any]] = {comparison.audience: [] for comparison in comparisons}
    users, dots = [LegendItem(label="all raw fixes", renderers=[streets])], []
    for track, colour in zip(drawn.tracks, COLOURS, strict=False):
        parts = list(_draw_truth(plot, track, colour))
        for comparison, mark in marks:
            own = list(_draw_told(plot, track, comparison, colour, mark))
            dots.append(own[0])
            layers[comparison.audience] += own
            parts += own
        users.append(LegendItem(label=track.user, renderers=parts))
        for part in parts:
            part.muted = track is not drawn.tracks[0]
    for comparison, mark in marks:  # nowhere, so that the legend has a mark of no user's colour on top
        layers[comparison.audience].append(plot.scatter([np.nan], [np.nan], size=mark.map_size, marker=mark.map_shape, color=NEUTRAL))
    audiences = [LegendItem(label=name, renderers=renderers) for name, renderers in layers.items()]
    plot.add_layout(Legend(items=users, click_policy="mute", title="users"), "right")
    plot.add_layout(Legend(items=audiences, click_policy="hide", title="told to", orientation="horizontal", spacing=25), "above")
    tips = [
        ("user", "@user"),
        ("minute", "@minute"),
        ("told to", "@audience"),
        ("category", "@category"),
        ("displacement", "@distance{0} m"),
    ]
    plot.add_tools(HoverTool(renderers=dots, tooltips=tips))
    return plot


def _draw_truth(plot: Any, track: Track, colour: str) -> Iterator[Any]:
    yield plot.line(*track.raw.T, color=colour, line_width=2.5, muted_alpha=FADED)
    yield plot.scatter(*track.true.T, size=5, color=colour, line_color="black", muted_alpha=FADED)
    yield plot.scatter(*track.true[track.withheld].T, size=9, marker="x", color="black", line_width=1.5, muted_alpha=FADED)


def _draw_told(plot: Any, track: Track, comparison: Comparison, colour: str, mark: Mark) -> Iterator[Any]:
    """Add what one audience is told of one user and yield the parts, its places first."""
    from bokeh.models import ColumnDataSource

    told = track.told[comparison.audience]
    out = told.placed
    source = ColumnDataSource(
        {
            "x": told.xy[out, 0],
            "y": told.xy[out, 1],
            "user": [track.user] * int(out.sum()),
            "audience": [comparison.audience] * int(out.sum()),
            "minute": track.minute[out],
            "category": [name or "–" for name in told.category[out].tolist()],
            "distance": told.distance_m[out],
        }
    )
    yield plot.scatter(
        "x", "y", source=source, size=mark.map_size, marker=mark.map_shape, color=colour, line_color="white", muted_alpha=FADED
    )
    yield plot.segment(*track.true[out].T, *told.xy[out].T, color=colour, line_alpha=0.4, muted_alpha=FADED)
    if not comparison.anchored:
        ring = {"fill_color": None, "line_color": colour, "line_dash": mark.map_dash, "line_alpha": 0.7, "muted_alpha": FADED}
        yield plot.circle(*track.ringed(comparison.audience).T, radius=comparison.r50_m, **ring)
