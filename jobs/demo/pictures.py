"""Last step of the demo: a picture (PNG) and a map (HTML that needs no network) of raw and sanitized traces."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyproj import Proj

from jobs.demo.measure import Comparison
from jobs.demo.sample import CAR, START_MS, TRACK, Sample

__all__ = ["write_map", "write_picture"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#666666")
GROUND = "#d9d9d9"
PLACES = (("Helsinki", CAR, 3, 8), ("Lake Cerknica", TRACK, 1, 7))
"""Title, beginning of the users' names, and how many of them the picture and the map show."""

THIN = 5
MARGIN = 0.04
TICK_MS = 60_000
CREDITS = "Streets of the simulated cars © OpenStreetMap contributors (ODbL); tracks by Tomo Krajina, gpxpy (Apache-2.0)"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Traces:
    """What is drawn of one user, in metres east and north of the middle of the place; windows in the order of ticks."""

    user: str
    colour: str
    raw: Floats
    true: Floats
    published: Floats
    minute: NDArray[np.int64]
    distance_m: Floats

    @property
    def released(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.distance_m)

    @property
    def ringed(self) -> int:
        """Index of the window around which the radii are drawn: the middle one of those released."""
        out = np.flatnonzero(self.released)
        return int(out[len(out) // 2])


def write_picture(path: Path, sample: Sample, comparison: Comparison) -> None:
    """Draw a few users' raw and sanitized traces and the distribution of the displacement.

    Parameters
    ----------
    path : Path
        PNG file to write.
    sample : Sample
        Raw fixes.
    comparison : Comparison
        Truth and releases.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9, "axes.titlesize": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(15, 6.6), layout="constrained")
        *maps, spread = figure.subplots(1, 3)
        for axes, (title, prefix, few, _) in zip(maps, PLACES, strict=True):
            _draw_place(axes, title, sample, comparison, prefix, few)
        _draw_displacement(spread, comparison)
        figure.suptitle("Raw fixes and what wayveil publishes of them", fontsize=14, fontweight="bold")
        figure.supxlabel(CREDITS, fontsize=7, color="#666666")
        figure.savefig(path, dpi=130)


def write_map(path: Path, sample: Sample, comparison: Comparison) -> None:
    """Write a map to zoom, with the users in a legend that hides them one by one; all its parts are inside the file.

    Parameters
    ----------
    path : Path
        HTML file to write.
    sample : Sample
        Raw fixes.
    comparison : Comparison
        Truth and releases.
    """
    from bokeh.embed import file_html
    from bokeh.layouts import column, row
    from bokeh.models import Div
    from bokeh.resources import Resources

    text = (
        "<h2>Raw fixes and what wayveil publishes of them</h2>"
        "<p>Line: raw fixes. Small dot: mean of a minute's fixes (the truth). Large dot: what is released of it. "
        f"Cross: withheld, since the budget was spent. Circles around one mean of each user: half of all releases fall within the "
        f"inner one ({comparison.r50_m:.0f} m), 95 % within the outer one ({comparison.r95_m:.0f} m). "
        f"Click a name to hide or show a user.</p><p><small>{CREDITS}</small></p>"
    )
    places = [_map_place(title, sample, comparison, prefix, many) for title, prefix, _, many in PLACES]
    page = column(Div(text=text, width=1100, disable_math=True), row(*places))
    path.write_text(file_html(page, Resources(mode="inline"), "wayveil demo"), encoding="utf-8")


def _traces(sample: Sample, comparison: Comparison, prefix: str, many: int) -> tuple[Floats, list[_Traces]]:
    """Return the raw fixes of a place, shape (n, 2), and the users with most releases there."""
    here = np.char.startswith(sample.user, prefix)
    lat, lon = sample.lat[here], sample.lon[here]
    plane = Proj(proj="aeqd", lat_0=float(np.mean([lat.min(), lat.max()])), lon_0=float(np.mean([lon.min(), lon.max()])), ellps="WGS84")

    def metres(degrees: Floats) -> Floats:
        return np.stack(plane(degrees[:, 1], degrees[:, 0]), axis=1)

    raw = metres(np.stack([lat, lon], axis=1))
    true, published = metres(comparison.true), metres(comparison.published)
    released = comparison.user[~np.isnan(comparison.distance_m)]
    users, releases = np.unique(released[np.char.startswith(released, prefix)], return_counts=True)
    shown = []
    for user, colour in zip(users[np.argsort(-releases, kind="stable")][:many].tolist(), COLOURS, strict=False):
        own = np.flatnonzero(comparison.user == user)
        minute = comparison.tick[own] - START_MS // TICK_MS
        shown.append(_Traces(user, colour, raw[sample.user[here] == user], true[own], published[own], minute, comparison.distance_m[own]))
    return raw, shown


def _draw_place(axes: Any, title: str, sample: Sample, comparison: Comparison, prefix: str, few: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle

    raw, shown = _traces(sample, comparison, prefix, few)
    axes.scatter(*raw[::THIN].T, s=1, color=GROUND, zorder=1)
    handles = [Line2D([], [], color=GROUND, linewidth=3, label="raw fixes of all users here")]
    for user in shown:
        out = user.released
        axes.plot(*user.raw.T, color=user.colour, linewidth=2, zorder=3)
        axes.plot(*np.stack([user.true[out], user.published[out]], axis=1).T, color=user.colour, linewidth=0.6, alpha=0.5, zorder=2)
        axes.plot(*user.published[out].T, "o", color=user.colour, markersize=7, markeredgecolor="white", zorder=5)
        axes.plot(*user.true[~out].T, "x", color="black", markersize=4, markeredgewidth=0.8, zorder=4)
        handles.append(
            Line2D(
                [],
                [],
                color=user.colour,
                linewidth=2,
                marker="o",
                markeredgecolor="white",
                label=f"{user.user}: raw (line), released (dots)",
            )
        )
    handles.append(Line2D([], [], color="black", linestyle="", marker="x", markersize=5, label="withheld: budget spent"))
    first = shown[0]
    centre = first.true[first.ringed]
    promised: tuple[tuple[float, Any, str], ...] = ((comparison.r50_m, "-", "50 %"), (comparison.r95_m, "--", "95 %"))
    for radius, style, share in promised:
        axes.add_patch(Circle(centre, radius, fill=False, color=first.colour, linestyle=style, linewidth=1, zorder=2))
        label = f"promised around one true place: {share} within {radius:.0f} m"
        handles.append(Line2D([], [], color=first.colour, linestyle=style, linewidth=1, label=label))
    rings = centre + comparison.r95_m * np.array([[-1.0, -1.0], [1.0, 1.0]])
    seen = np.concatenate([rings, *(part for user in shown for part in (user.raw, user.published[user.released]))])
    low, high = seen.min(axis=0), seen.max(axis=0)
    (x, y), half = (low + high) / 2, (0.5 + MARGIN) * float((high - low).max())
    axes.set(xlim=(x - half, x + half), ylim=(y - half, y + half))
    axes.set_aspect("equal", adjustable="box")
    axes.set(title=title, xlabel="metres east", ylabel="metres north")
    _legend_below(axes, handles)


def _legend_below(axes: Any, handles: list[Any] | None = None) -> None:
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, -0.13), fontsize=8, frameon=False)


def _draw_displacement(axes: Any, comparison: Comparison) -> None:
    distance = np.sort(comparison.displacements())
    axes.hist(distance, bins=40, range=(0, float(distance[-1])), color="#9ecae1", edgecolor="white")
    promised = (("half", 0.5, comparison.r50_m, COLOURS[0]), ("95 %", 0.95, comparison.r95_m, COLOURS[1]))
    for name, share, radius, colour in promised:
        measured = float(np.quantile(distance, share))
        axes.axvline(radius, color=colour, linewidth=1.5, label=f"{name} within {radius:.0f} m: promised")
        axes.axvline(measured, color=colour, linewidth=1.5, linestyle=":", label=f"{name} within {measured:.0f} m: measured")
    axes.set_title(f"Displacement of all {len(distance)} releases")
    axes.set_xlabel("metres between the released and the true place")
    axes.set_ylabel("releases")
    _legend_below(axes)


def _map_place(title: str, sample: Sample, comparison: Comparison, prefix: str, many: int) -> Any:
    from bokeh.models import HoverTool, Legend, LegendItem
    from bokeh.plotting import figure

    raw, shown = _traces(sample, comparison, prefix, many)
    plot = figure(
        title=title,
        width=720,
        height=640,
        match_aspect=True,
        x_axis_label="metres east",
        y_axis_label="metres north",
        tools="pan,wheel_zoom,box_zoom,reset,save",
        active_scroll="wheel_zoom",
    )
    plot.toolbar.logo = None
    streets = plot.scatter(*np.round(raw[::THIN], 1).T, size=2, color=GROUND)
    items, dots = [LegendItem(label="all raw fixes", renderers=[streets])], []
    for user in shown:
        parts = list(_map_user(plot, user, comparison))
        dots.append(parts[0])
        items.append(LegendItem(label=user.user, renderers=parts))
    plot.add_layout(Legend(items=items, click_policy="hide"), "right")
    tips = [("user", "@user"), ("minute", "@minute"), ("displacement", "@distance{0} m")]
    plot.add_tools(HoverTool(renderers=dots, tooltips=tips))
    return plot


def _map_user(plot: Any, user: _Traces, comparison: Comparison) -> Iterator[Any]:
    """Add one user's layers and yield them, the released positions first."""
    from bokeh.models import ColumnDataSource

    out = user.released
    source = ColumnDataSource(
        {
            "x": user.published[out, 0],
            "y": user.published[out, 1],
            "user": [user.user] * int(out.sum()),
            "minute": user.minute[out],
            "distance": user.distance_m[out],
        }
    )
    yield plot.scatter("x", "y", source=source, size=11, color=user.colour, line_color="white")
    yield plot.line(*user.raw.T, color=user.colour, line_width=2.5)
    yield plot.scatter(*user.true[out].T, size=5, color=user.colour, line_color="black")
    yield plot.segment(*user.true[out].T, *user.published[out].T, color=user.colour, line_alpha=0.4)
    yield plot.scatter(*user.true[~out].T, size=9, marker="x", color="black", line_width=1.5)
    for radius, dash in ((comparison.r50_m, "solid"), (comparison.r95_m, "dashed")):
        x, y = user.true[user.ringed]
        yield plot.circle([x], [y], radius=radius, fill_color=None, line_color=user.colour, line_dash=dash, line_alpha=0.7)
