"""The program `wayveil replay`: read and check all files, sort their fixes by time, and write them where a job can read them."""

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console

from jobs.errors import UserError
from jobs.progress import progress_bar
from jobs.replay.checks import Checks
from jobs.replay.files import InputFile, UserFrom, find_files
from jobs.replay.fixes import SCHEMA, DamagedError, ReadOptions, Reason
from jobs.replay.formats import FORMATS, Format, recognise
from jobs.replay.log import ORDER, LogBuilder
from jobs.replay.report import FileReport, show_report
from jobs.replay.sending import open_destination, send_log
from jobs.replay.sorting import ExternalSort
from streaming.clock import now_ms
from streaming.settings import Settings, SourceSettings
from streaming.shard import tick_grid

__all__ = ["Plan", "read_into", "replay_to_kafka"]

SORTED = SCHEMA.remove(SCHEMA.get_field_index("index"))
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Plan:
    """What to read, and how.

    Attributes
    ----------
    paths : list of Path
        Files, folders and archives.
    format : str or None
        Name of the format of all files; None: each is looked at.
    user, user_from
        Who files are about that do not say so; see `find_files`.
    options : ReadOptions
        What a person says about files beyond what they say themselves.
    rolled_over : collection of str
        Users whose receivers are 1024 weeks behind.
    active_since : datetime or None
        When the devices began to send; None: what the source's `archive_start` says.
    speed : float or None
        Event time against the wall's; None: as fast as possible.
    folder : Path
        Folder of the notes about replays, and of what does not fit in memory.
    resume : bool
        Go on with a replay that was interrupted.
    topic : str or None
        Which raw topic of the settings to fill; None: the only one.
    """

    paths: list[Path]
    format: str | None = None
    user: str | None = None
    user_from: UserFrom = "path"
    options: ReadOptions = field(default_factory=ReadOptions)
    rolled_over: Collection[str] = ()
    active_since: datetime | None = None
    speed: float | None = None
    folder: Path = Path(".wayveil/replay")
    resume: bool = False
    topic: str | None = None


def replay_to_kafka(settings: Settings, plan: Plan, console: Console) -> list[FileReport]:
    """Read, sort and send; return what became of each file.

    Raises
    ------
    UserError
        If something is missing, or if it cannot be sent.
    """
    source = _source(settings, plan.topic)
    plan.folder.mkdir(parents=True, exist_ok=True)
    beside = [topic for topic in settings.read_by_job(["traces"]) if topic != source.topic]
    with ExternalSort(SORTED, ORDER, plan.folder) as sort:
        reports = read_into(sort, source, plan, console)
        show_report(console, reports)
        if not sort.rows:
            raise UserError("There is no fix to send in these files: see the reasons above.")
        to = open_destination(settings.kafka, source.topic, beside, plan.folder, _digest(reports), plan.resume)
        builder = LogBuilder(source, tick_grid(settings), len(to.begin), settings.tick.silent_ticks)
        with progress_bar(console, f"· send to {source.topic}", sort.rows) as update:
            send_log(to, builder.records(sort.sorted()), plan.speed, update)
    return reports


def read_into(sort: ExternalSort, source: SourceSettings, plan: Plan, console: Console) -> list[FileReport]:
    """Read all files into a sort, and return what became of each."""
    files = find_files(plan.paths, plan.user, plan.user_from)
    forced = next((format_ for format_ in FORMATS if format_.name == plan.format), None)
    if forced is None and plan.format is not None:
        raise UserError(f"`{plan.format}` is no format: choose auto or one of {', '.join(format_.name for format_ in FORMATS)}.")
    since = plan.active_since or datetime.fromisoformat(source.archive_start).replace(tzinfo=UTC)
    checks = Checks(round(since.timestamp() * 1000), now_ms(), source.max_user_bytes, plan.rolled_over)
    reports, before = [], 0
    with progress_bar(console, "· read", sum(file.meter.size for file in files), counts=False) as update:
        for file in files:
            reports.append(_read(sort, file, forced, checks, plan.options, partial(_advance, update, before)))
            before += file.meter.size
            update(before)
    return reports


def _read(
    sort: ExternalSort, file: InputFile, forced: Format | None, checks: Checks, options: ReadOptions, progress: Callable[[int], None]
) -> FileReport:
    report = FileReport(file.name, UNKNOWN)
    try:
        format_ = forced or recognise(file, file.head())
        if format_ is None:
            report.refused[Reason.UNSUPPORTED] += 1
            report.places[Reason.UNSUPPORTED] = [1]
            return report
        report.format = format_.name
        for batch in format_.read(file, options):
            checked, moved = checks.apply(batch)
            report.add(checked, moved)
            sort.add(checked.fixes.select(SORTED.names))
            progress(file.meter.done)
    except DamagedError as error:
        report.damage = str(error)
    return report


def _digest(reports: Collection[FileReport]) -> str:
    """Return what tells a replay of other files from this one, in whatever order they are named."""
    said = sorted((report.format, report.fixes, report.without_place, report.sum_ms) for report in reports)
    return hashlib.blake2b(repr(said).encode(), digest_size=16).hexdigest()


def _advance(update: Callable[[int], None], before: int, done: int) -> None:
    update(before + done)


def _source(settings: Settings, topic: str | None) -> SourceSettings:
    found = [source for source in settings.source if topic is None or source.topic == topic]
    if len(found) != 1:
        names = ", ".join(source.topic for source in settings.source)
        raise UserError(f"Say which raw topic to fill with --topic: {names}.")
    return found[0]
