"""The programs behind `wayveil anchors`: read public places, check them against the region, save them, and tell about them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from geo.anchors.index import AnchorIndex, inside
from geo.plane import Plane, Region
from jobs.anchors.readers import Columns, PublicPlaces, category_names, read_public_places
from jobs.errors import UserError
from streaming.anchor_file import AnchorFileError, AnchorOrigin, load_anchors, save_anchors

__all__ = ["Plan", "anchors_of", "build_anchors", "read_anchors", "show_anchors"]

MOST = 0.5
"""Share of the places above which swapped axes are taken for the reason why they lie outside the region."""


@dataclass(frozen=True)
class Plan:
    """What to build; all of it public.

    Parameters
    ----------
    region : Region
        Places outside it are left out.
    source : Path
        File of places.
    columns : Columns
        What to read of each place.
    out : Path
        File to write.
    """

    region: Region
    source: Path
    columns: Columns
    out: Path


def build_anchors(plan: Plan, say: Callable[[str], None]) -> AnchorIndex:
    """Build and save anchors.

    Parameters
    ----------
    plan : Plan
    say : callable
        Takes one line of text at a time: what the input held.

    Raises
    ------
    UserError
        If the input cannot be used, or the file cannot be written.
    """
    places = read_public_places(plan.source, plan.columns)
    anchors, outside = anchors_of(places, plan.region, plan.columns)
    say(
        f"{places.name}: {len(anchors)} anchors; left out {outside} outside the region, {places.uncategorised} without a category and "
        f"{places.unplaced} without a position"
    )
    try:
        plan.out.parent.mkdir(parents=True, exist_ok=True)
        save_anchors(plan.out, anchors, AnchorOrigin(places.source, places.licence))
    except OSError as error:
        raise UserError(f"`{plan.out}` cannot be written: {error.strerror or error}.") from error
    return anchors


def anchors_of(places: PublicPlaces, region: Region, columns: Columns) -> tuple[AnchorIndex, int]:
    """Make the index of the places inside a region.

    Returns
    -------
    anchors : AnchorIndex
    outside : int
        How many places were left out.

    Raises
    ------
    UserError
        If no place is left, or most of them would be inside if latitude and longitude were swapped.
    """
    if not places.ids:
        raise UserError(
            f"`{places.name}` holds no place with a category: {places.uncategorised} have none under {', '.join(columns.category_from)} "
            "(see --category-from)."
        )
    lat, lon = np.array(places.lat), np.array(places.lon)
    within, swapped = inside(region, lat, lon), inside(region, lon, lat)
    if np.mean(~within) > MOST and np.mean(swapped & ~within) > MOST:
        raise UserError(
            f"Latitude and longitude are swapped in `{places.name}`: {int((swapped & ~within).sum())} of {len(within)} places lie outside "
            f"region {region.name!r}, but inside it with the two exchanged."
        )
    if not within.any():
        raise UserError(f"None of the {len(within)} places of `{places.name}` lies in region {region.name!r}.")
    names = category_names(places, columns)
    code = {name: at for at, name in enumerate(names)}
    keep = np.flatnonzero(within)
    try:
        anchors = AnchorIndex(
            Plane(region),
            names,
            [places.ids[at] for at in keep],
            lat[keep],
            lon[keep],
            [[code[name] for name in places.categories[at]] for at in keep],
            np.array(places.popularity)[keep],
        )
    except ValueError as error:
        raise UserError(str(error)) from error
    return anchors, len(within) - len(keep)


def read_anchors(path: Path) -> tuple[AnchorIndex, AnchorOrigin]:
    """Load anchors.

    Raises
    ------
    UserError
        If the file holds none, or not as they were built.
    """
    try:
        return load_anchors(path)
    except AnchorFileError as error:
        raise UserError(str(error)) from error


def show_anchors(console: Console, anchors: AnchorIndex, origin: AnchorOrigin) -> None:
    """Print version, source and the number of anchors of each category."""
    console.print(f"anchors {anchors.version} of region {anchors.plane.region.name!r}: {len(anchors)} places", highlight=False)
    console.print(f"  source: {origin.source} ({origin.licence})", highlight=False)
    table = Table("category", show_edge=False)
    for heading in ("anchors", "first category of", "share of popularity"):
        table.add_column(heading, justify="right")
    total = float(anchors.popularity.sum()) or 1.0
    for code, name in enumerate(anchors.category_names):
        has = (anchors.codes == code).any(axis=1)
        first = int((anchors.codes[:, 0] == code).sum())
        table.add_row(name, f"{int(has.sum()):,}", f"{first:,}", f"{anchors.popularity[has].sum() / total:.1%}")
    console.print(table)
