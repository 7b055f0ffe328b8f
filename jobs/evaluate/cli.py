"""The commands `wayveil evaluate …`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["evaluate_app"]

evaluate_app = typer.Typer(help="How useful what is released is, on samples whose truth is known.", no_args_is_help=True)


@evaluate_app.callback()
def _group() -> None:
    """Keep the name of the only command."""


@evaluate_app.command("anchors")
def evaluate_anchors(
    places: Annotated[Path, typer.Argument(help="Anchors (.parquet), or places: .geojson, .json (also .gz), .osm.pbf or .csv.")],
    category_from: Annotated[
        str | None, typer.Option(metavar="KEYS", help="As for `wayveil anchors build`.", show_default="all OSM keys of the table")
    ] = None,
    radius_m: Annotated[
        list[float] | None, typer.Option("--radius-m", help="Protected radius; once for each.", show_default="50 100 200 500 1000")
    ] = None,
    ratio: Annotated[float, typer.Option(help="Likelihood ratio allowed within the radius.")] = 4.0,
    visits: Annotated[int, typer.Option(min=1, help="Visits for each radius; every anchor is visited equally often.")] = 10_000,
    away_m: Annotated[float, typer.Option("--away-m", min=0, help="Metres between a visitor and the anchor.")] = 0.0,
    json: Annotated[Path | None, typer.Option("--json", help="File to write the figures to as well.")] = None,
) -> None:
    """Release simulated visits with noise, move them to anchors, and compare with the truth: hits, categories, metres."""
    from rich.console import Console

    from jobs.anchors.categories import OSM_KEYS
    from jobs.anchors.cli import split_keys
    from jobs.anchors.readers import Columns
    from jobs.evaluate.anchors import Plan, anchors_to_evaluate, evaluate, show_evaluation, write_evaluation

    anchors = anchors_to_evaluate(places, Columns(split_keys(category_from) if category_from is not None else OSM_KEYS))
    plan = Plan(tuple(radius_m or Plan.radii_m), ratio, visits, away_m)
    result = evaluate(anchors, plan)
    show_evaluation(Console(), result)
    if json:
        write_evaluation(json, result)
