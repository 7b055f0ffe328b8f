"""The commands `wayveil anchors build` and `wayveil anchors show`."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.errors import UserError

__all__ = ["anchors_app"]

anchors_app = typer.Typer(help="Public places with categories that releases may be moved to.", no_args_is_help=True)

DEFAULT_OUT = Path("anchors.parquet")


@anchors_app.command("build")
def anchors_build(
    source: Annotated[Path, typer.Option("--from", help="Places: .geojson, .json (also .gz), .osm.pbf or .csv with lat and lon.")],
    settings: Annotated[Path | None, typer.Option("--settings", help="Settings file (TOML) that names the region.")] = None,
    region: Annotated[
        tuple[float, float, float, float] | None, typer.Option(metavar="SOUTH WEST NORTH EAST", help="The region in degrees instead.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the region given by --region.")] = "region",
    category_from: Annotated[
        str | None,
        typer.Option(
            metavar="KEYS",
            help="Where categories come from, separated by commas: OSM keys (amenity,shop); kind=value: two properties that hold key "
            "and value; or a property whose text is the category.",
            show_default="all OSM keys of the table",
        ),
    ] = None,
    id_from: Annotated[str | None, typer.Option(help="Property or column of the id.", show_default="the feature's id, or id")] = None,
    popularity_from: Annotated[str | None, typer.Option(help="Property or column of the popularity.", show_default="all equal")] = None,
    out: Annotated[Path, typer.Option(help="File to write (GeoParquet, opens in QGIS).")] = DEFAULT_OUT,
) -> None:
    """Read public places of a region, sort them into categories, and save them as anchors."""
    from rich.console import Console

    from geo.plane import Region
    from jobs.anchors.categories import OSM_KEYS
    from jobs.anchors.program import Plan, build_anchors, read_anchors, show_anchors
    from jobs.anchors.readers import Columns
    from jobs.protect import read_settings

    if (settings is None) == (region is None):
        raise UserError("The region should come from exactly one of --settings and --region.")
    try:
        area = read_settings(settings).region.region() if settings else Region(name, *region) if region else None
    except ValueError as error:
        raise UserError(str(error)) from error
    assert area is not None
    columns = Columns(split_keys(category_from) if category_from is not None else OSM_KEYS, id_from, popularity_from)
    build_anchors(Plan(area, source, columns, out), typer.echo)
    show_anchors(Console(), *read_anchors(out))


@anchors_app.command("show")
def anchors_show(
    anchors: Annotated[Path, typer.Argument(help="File that `wayveil anchors build` wrote.")] = DEFAULT_OUT,
) -> None:
    """Count the anchors of each category, and tell their version."""
    from rich.console import Console

    from jobs.anchors.program import read_anchors, show_anchors

    show_anchors(Console(), *read_anchors(anchors))


def split_keys(text: str) -> tuple[str, ...]:
    """Split what --category-from gives.

    Raises
    ------
    UserError
        If a key is empty or has more than one `=`.
    """
    keys = tuple(key.strip() for key in text.split(","))
    for key in keys:
        if not key or not all(key.split("=")) or key.count("=") > 1:
            raise UserError(f"--category-from should be keys separated by commas, such as amenity,shop or kind=value, not {text!r}.")
    return keys
