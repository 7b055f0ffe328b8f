"""The commands `wayveil tiling build` and `wayveil tiling show`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from jobs.errors import UserError

__all__ = ["tiling_app"]

tiling_app = typer.Typer(help="Public tiles for the density job.", no_args_is_help=True)

DEFAULT_OUT = Path("tiling.parquet")
DEFAULT_PICTURE = Path("tiling.png")


@tiling_app.command("build")
def tiling_build(
    users: Annotated[float, typer.Option(help="Users expected per tick: a public figure, never counted from the stream.")],
    epsilon: Annotated[float, typer.Option(help="ε of one published tree.")],
    inputs: Annotated[
        list[Path] | None, typer.Argument(help="Roads or places: .osm.pbf, Overpass .json, .geojson (also .gz). None: equal areas.")
    ] = None,
    settings: Annotated[Path | None, typer.Option("--settings", help="Settings file (TOML) that names the region.")] = None,
    region: Annotated[
        tuple[float, float, float, float] | None, typer.Option(metavar="SOUTH WEST NORTH EAST", help="The region in degrees instead.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the region given by --region.")] = "region",
    cell_m: Annotated[int, typer.Option("--cell-m", min=1, help="Side of a road cell in metres.")] = 25,
    neighbours: Annotated[
        Literal["replace-one", "add-remove"] | None,
        typer.Option(help="What ε protects; by default the settings' density.neighbours, or else replace-one."),
    ] = None,
    reach: Annotated[int, typer.Option(min=0, help="Cells by which roads are spread, for positions that are not exact.")] = 1,
    off_road: Annotated[float, typer.Option(help="Share of users expected anywhere, whatever the roads: from 0 to less than 1.")] = 0.05,
    out: Annotated[Path, typer.Option(help="File to write (GeoParquet, opens in QGIS).")] = DEFAULT_OUT,
) -> None:
    """Cut a region into public tiles that share its roads evenly, and save them."""
    from geo.plane import Region
    from jobs.protect import read_settings
    from jobs.tiling.program import Plan, build_tiling

    if (settings is None) == (region is None):
        raise UserError("The region should come from exactly one of --settings and --region.")
    try:
        read = read_settings(settings) if settings else None
        area = read.region.region() if read else Region(name, *region) if region else None
    except ValueError as error:
        raise UserError(str(error)) from error
    assert area is not None
    protects = neighbours or (read.density.neighbours if read and read.density else "replace-one")
    build_tiling(Plan(area, tuple(inputs or ()), users, epsilon, cell_m, out, protects, reach, off_road), typer.echo)
    typer.echo(f"  written to {out}")


@tiling_app.command("show")
def tiling_show(
    tiling: Annotated[Path, typer.Argument(help="File that `wayveil tiling build` wrote.")] = DEFAULT_OUT,
    out: Annotated[Path, typer.Option(help="Picture to write: .png, .svg or .pdf.")] = DEFAULT_PICTURE,
) -> None:
    """Describe and draw a tiling."""
    from jobs.tiling.picture import write_picture
    from jobs.tiling.program import read_tiling, summary

    read, origin = read_tiling(tiling)
    for line in summary(read, origin):
        typer.echo(line)
    write_picture(out, read, origin)
    typer.echo(f"  drawn in {out}")
