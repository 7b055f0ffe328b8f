"""`wayveil tiling show`: the tiles and the roads inside them as a picture."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geo.tiling.tiling import Tiling
from jobs.errors import UserError
from streaming.tiling_file import Origin

__all__ = ["write_picture"]

TILE, BRANCH = "#0072b2", "#d55e00"
MARGIN = 0.03
PIXELS = 1400
"""Most pixels of the roads' image along the longer side."""
FORMATS = (".png", ".svg", ".pdf")


def write_picture(path: Path, tiling: Tiling, origin: Origin) -> None:
    """Draw where the roads are: the tiles, the branches above them, and the roads, the darker the more metres.

    Parameters
    ----------
    path : Path
        File to write, ``.png``, ``.svg`` or ``.pdf``.
    tiling : Tiling
    origin : Origin
        For the credits.

    Raises
    ------
    UserError
        If matplotlib is missing, the file's ending is another, or it cannot be written.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise UserError("Drawing needs the package matplotlib: install wayveil with the extra `tiling`.") from error
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    if path.suffix not in FORMATS:
        raise UserError(f"`{path.name}` should end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    tree = tiling.tree
    low, high = _window(tiling)
    with mpl.rc_context({"font.size": 9, "axes.titlesize": 12, "axes.spines.top": False, "axes.spines.right": False}):
        width, height = high - low
        figure = Figure(figsize=(11, float(np.clip(11 * height / width, 5, 14)) + 0.8), layout="constrained")
        axes = figure.subplots()
        if len(tiling.cell_weight):
            _draw_roads(axes, tiling, low, high)
        branches = tree.levels[1] if len(tree.levels) > 2 else slice(0, 0)  # noqa: PLR2004
        for nodes, colour, thickness in ((tree.leaves, TILE, 0.7), (np.arange(len(tree))[branches], BRANCH, 1.6)):
            corners = tiling.lattice.corners_m(tiling.box[nodes][tiling.box[nodes].any(axis=1)]) / 1000.0
            axes.add_collection(LineCollection(list(_outlines(corners)), colors=colour, linewidths=thickness))
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel="kilometres east", ylabel="kilometres north")
        axes.set_aspect("equal")
        axes.set_title(f"{tiling.plane.region.name}: {len(tree.leaves) - 1} tiles (tiling {tiling.version})")
        handles = [Line2D([], [], color=TILE, linewidth=0.9, label="tile (leaf of the tree)")]
        if branches.stop:
            handles.append(Line2D([], [], color=BRANCH, linewidth=1.6, label="first level below the root"))
        if len(tiling.cell_weight):
            handles.append(Line2D([], [], color="#555555", linewidth=3, label=f"road cells of {tiling.cell_m} m, darker with more road"))
        figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8, frameon=False)
        figure.supxlabel(f"{origin.source} ({origin.licence})", fontsize=7, color="#666666", x=0.99, ha="right")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=130)
        except OSError as error:
            raise UserError(f"`{path}` cannot be written: {error.strerror or error}.") from error


def _window(tiling: Tiling) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners, in kilometres, of what is shown: all roads, or the whole lattice."""
    xy = tiling.cell_xy if len(tiling.cell_xy) else np.array([[0, 0], tiling.lattice.shape]) - [[0, 0], [1, 1]]
    corners = tiling.lattice.corners_m(np.concatenate([xy.min(axis=0), xy.max(axis=0) + 1])[None])[0].reshape(2, 2) / 1000.0
    rim = MARGIN * float((corners[1] - corners[0]).max())
    return corners[0] - rim, corners[1] + rim


def _draw_roads(axes: Any, tiling: Tiling, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
    centre = (tiling.lattice.corners_m(np.concatenate([tiling.cell_xy] * 2, axis=1))[:, :2] + tiling.cell_m / 2) / 1000.0
    step = max(tiling.cell_m / 1000.0, float((high - low).max()) / PIXELS)
    shape = np.ceil((high - low) / step).astype(int)
    column, row = ((centre - low) / step).astype(np.int64).T
    image: NDArray[np.float64] = np.zeros(shape[::-1])
    np.add.at(image, (row, column), tiling.cell_weight)
    top = float(np.quantile(image[image > 0], 0.98))
    extent = (low[0], low[0] + shape[0] * step, low[1], low[1] + shape[1] * step)
    axes.imshow(
        np.where(image > 0, image, np.nan),
        origin="lower",
        extent=extent,
        cmap="Greys",
        vmin=-0.6 * top,
        vmax=top,
        interpolation="nearest",
        zorder=0,
    )


def _outlines(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    x0, y0, x1, y1 = corners.T
    return np.stack([np.stack([x0, x1, x1, x0, x0], axis=1), np.stack([y0, y0, y1, y1, y0], axis=1)], axis=2)
