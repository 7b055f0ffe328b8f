"""The programs behind `wayveil tiling`: read roads or places, cut the region into tiles, save them, and tell about them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geo.plane import Plane, Region
from geo.privacy.tree_counts import Neighbours
from geo.tiling.lattice import Lattice
from geo.tiling.pack import shape_for
from geo.tiling.tiling import OFF_ROAD, REACH_CELLS, Tiling, tile
from jobs.errors import UserError
from jobs.tiling.places import road_cells
from jobs.tiling.readers import read_places
from streaming.tiling_file import Origin, TilingFileError, load_tiling, save_tiling

__all__ = ["Plan", "build_tiling", "read_tiling", "summary"]

NO_SOURCE, NO_LICENCE = "the region's box alone", "none needed"


@dataclass(frozen=True)
class Plan:
    """What to build; all of it public.

    Parameters
    ----------
    region : Region
        That the tiles cover.
    inputs : tuple of Path
        Files of roads or places; none: tiles of equal area.
    expected_users : float
        Users expected per tick.
    epsilon : float
        ε of one published tree.
    cell_m : int
        Side of a lattice cell in metres.
    out : Path
        File to write.
    neighbours : "replace-one" or "add-remove"
        What that ε protects.
    reach : int
        Cells by which roads are spread, for positions that are not exact.
    off_road : float
        Share of all weight that lies evenly on the region, whatever the roads.
    """

    region: Region
    inputs: tuple[Path, ...]
    expected_users: float
    epsilon: float
    cell_m: int
    out: Path
    neighbours: Neighbours = "replace-one"
    reach: int = REACH_CELLS
    off_road: float = OFF_ROAD


def build_tiling(plan: Plan, say: Callable[[str], None]) -> Tiling:
    """Build and save a tiling.

    Parameters
    ----------
    plan : Plan
    say : callable
        Takes one line of text at a time: what each input held, and what was built.

    Raises
    ------
    UserError
        If an input cannot be used, a number is out of range, or the file cannot be written.
    """
    try:
        lattice = Lattice(Plane(plan.region), plan.cell_m)
        fanouts = shape_for(plan.expected_users, plan.epsilon, plan.neighbours)
    except ValueError as error:
        raise UserError(str(error)) from error
    cells, metres = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
    sources: dict[str, None] = {}
    licences: dict[str, None] = {}
    for path in plan.inputs:
        places = read_places(path)
        found = road_cells(places, lattice)
        say(f"{places.name}: {places.features} roads and places, {_left_out(found.outside, places.unplaced, places.incomplete)}")
        cells.append(found.cell_xy)
        metres.append(found.road_m)
        sources[places.source] = licences[places.licence] = None
    try:
        tiling = tile(lattice.plane, plan.cell_m, fanouts, np.concatenate(cells), np.concatenate(metres), plan.reach, plan.off_road)
    except ValueError as error:
        raise UserError(str(error)) from error
    origin = Origin(
        "; ".join(sources) or NO_SOURCE,
        "; ".join(licences) or NO_LICENCE,
        float(plan.expected_users),
        float(plan.epsilon),
        plan.neighbours,
    )
    try:
        plan.out.parent.mkdir(parents=True, exist_ok=True)
        save_tiling(plan.out, tiling, origin)
    except OSError as error:
        raise UserError(f"`{plan.out}` cannot be written: {error.strerror or error}.") from error
    for line in summary(tiling, origin):
        say(line)
    return tiling


def read_tiling(path: Path) -> tuple[Tiling, Origin]:
    """Load a tiling.

    Raises
    ------
    UserError
        If the file is none, or not as it was built.
    """
    try:
        return load_tiling(path)
    except TilingFileError as error:
        raise UserError(str(error)) from error


def summary(tiling: Tiling, origin: Origin) -> list[str]:
    """Describe a tiling in a few lines."""
    tree = tiling.tree
    leaves = len(tree.leaves) - 1
    most = [int(tree.children[part].max()) - (part.start == 0) for part in tree.levels[:-1]]
    shape = f"{len(most)} level(s) below the root, fan-outs up to {' × '.join(map(str, most))}"
    lines = [
        f"tiling {tiling.version} of region {tiling.plane.region.name!r}: {leaves} tiles and the leaf elsewhere, on {shape}",
        f"  for {origin.expected_users:g} users a tick and ε = {origin.epsilon:g} ({origin.neighbours})",
    ]
    if len(tiling.cell_weight):
        road = np.delete(tiling.leaf_weight, tiling.elsewhere)
        lines.append(
            f"  {tiling.cell_weight.sum() / 1000:.1f} km of road in {len(tiling.cell_weight)} cells of {tiling.cell_m} m; "
            f"a tile holds {road.min() / 1000:.2f} to {road.max() / 1000:.2f} km; {tiling.off_road:.0%} of all weight is off the roads"
        )
    else:
        lines.append("  no roads: the tiles share the region's area evenly")
    return [*lines, f"  source: {origin.source} ({origin.licence})"]


def _left_out(outside: int, unplaced: int, incomplete: int) -> str:
    return f"{outside} outside the region and {unplaced} without a geometry left out; {incomplete} cut at the edge of the file"
