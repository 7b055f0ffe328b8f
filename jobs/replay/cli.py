"""The command `wayveil replay`: its options, and what they mean to the program."""

from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, reset_tzpath

import typer

from jobs.errors import UserError

__all__ = ["replay"]

EXIT_INCOMPLETE = 3
"""Something of the input was refused, or could not be read; the report says what."""

MAX_SPEED = 1e9


class To(StrEnum):
    """Where a replay goes."""

    KAFKA = "kafka"
    FILES = "files"


class What(StrEnum):
    """What a replay to files publishes."""

    TRACES = "traces"
    DENSITY = "density"
    ALL = "all"


class UserFrom(StrEnum):
    """What names the user of a file that does not do so itself."""

    PATH = "path"
    FILE = "file"


class TimeUnit(StrEnum):
    """Units of times in tables."""

    S = "s"
    MS = "ms"
    US = "us"
    ISO = "iso"


def replay(
    paths: Annotated[list[Path], typer.Argument(help="Files, folders and .zip archives of fixes; .gz is unpacked.")],
    settings: Annotated[Path, typer.Option(envvar="WAYVEIL_SETTINGS", help="Settings file (TOML).")] = Path("wayveil.toml"),
    to: Annotated[
        To, typer.Option(help="A raw topic, or Parquet files of the protected products, with no broker of one's own.")
    ] = To.KAFKA,
    format_: Annotated[str, typer.Option("--format", help="Format of all files; auto looks into each.")] = "auto",
    rate: Annotated[str, typer.Option(help="How fast event time passes: 1x, 10x, or max.")] = "max",
    user: Annotated[str | None, typer.Option(help="Who files are about that do not say so.", show_default="see --user-from")] = None,
    user_from: Annotated[
        UserFrom, typer.Option(help="Else: one user a PATH, or one a file. Files of one person need one name, or each has a budget.")
    ] = UserFrom.PATH,
    zone: Annotated[str | None, typer.Option(help="Zone of times without one: Europe/Lisbon.", show_default="refused")] = None,
    start: Annotated[str | None, typer.Option(help="When a simulation begins, ISO 8601 with offset.")] = None,
    map_: Annotated[list[str], typer.Option("--map", help="Column of a table: user=NAME, time=NAME, lat=NAME or lon=NAME.")] = [],  # noqa: B006
    time_unit: Annotated[TimeUnit | None, typer.Option(help="Unit of times in tables that are numbers.")] = None,
    active_since: Annotated[str | None, typer.Option(help="Day before which no fix is right.", show_default="archive_start")] = None,
    week_rollover: Annotated[list[str], typer.Option(help="User whose receiver is 1024 weeks behind: moved by as much.")] = [],  # noqa: B006
    topic: Annotated[str | None, typer.Option(help="Which raw topic to fill.", show_default="the only one")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the Parquet files of --to files.")] = None,
    product: Annotated[What | None, typer.Option(help="What --to files publishes.", show_default="all that the settings allow")] = None,
    spend_again: Annotated[
        bool, typer.Option("--spend-again", help="Look a second time at ticks of an earlier, different replay.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Notes, sorting, and the broker of --to files.")] = Path(".wayveil/replay"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a replay that was interrupted.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write the report, with the place of all that was refused, as JSON.")] = None,
) -> None:
    """Replay logs of the past: fixes of many formats, in the order of time, to Kafka or through the job to files."""
    from rich.console import Console

    from jobs.protect import read_settings
    from jobs.replay.fixes import Mapped, ReadOptions
    from jobs.replay.program import Plan, replay_to_kafka
    from jobs.replay.report import write_report
    from jobs.replay.to_files import replay_to_files
    from streaming.settings import PRODUCTS

    begin = None if start is None else _moment(start, None)
    plan = Plan(
        paths,
        None if format_ == "auto" else format_,
        user,
        user_from.value,
        ReadOptions(
            None if zone is None else _zone(zone),
            None if begin is None else round(begin.timestamp() * 1000),
            Mapped(**_mapped(map_), time_unit=time_unit and time_unit.value),
        ),
        week_rollover,
        None if active_since is None else _moment(active_since, UTC),
        _speed(rate),
        folder,
        resume,
        topic,
    )
    read, console = read_settings(settings), Console()
    if to is To.FILES:
        if out is None:
            raise UserError("Say where the files go with --out.")
        chosen = product or (What.ALL if read.density else What.TRACES)
        products = tuple(name for name in PRODUCTS if chosen in (What.ALL, name))
        reports = replay_to_files(read, plan, products, out, spend_again, console)
    else:
        reports = replay_to_kafka(read, plan, console)
    if report is not None:
        write_report(report, reports, sent=True)
    if not all(found.is_whole for found in reports):
        raise typer.Exit(EXIT_INCOMPLETE)


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not (text.endswith("x") and 0 < speed <= MAX_SPEED):
        raise UserError(f"`{text}` is no rate: write 1x, 10x, 0.5x or max.")
    return speed


def _zone(name: str) -> tzinfo:
    reset_tzpath(())  # rules of zones decide what is released: from the pinned package tzdata, never from the machine
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise UserError(f"`{name}` is no time zone: name one of the IANA data base, for instance Europe/Lisbon or UTC.") from None


def _moment(text: str, zone: tzinfo | None) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or (moment.tzinfo is None and zone is None):
        raise UserError(f"`{text}` is no moment: write one in ISO 8601 with its offset, for instance 2026-01-05T08:00Z.")
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def _mapped(words: list[str]) -> dict[str, str]:
    found = dict(word.partition("=")[::2] for word in words)
    if not all(name and part in ("user", "time", "lat", "lon") for part, name in found.items()):
        raise UserError("--map takes user=NAME, time=NAME, lat=NAME or lon=NAME.")
    return found
