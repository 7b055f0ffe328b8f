"""The steps of `wayveil demo`, in order: folder, broker, sample in, job, topics out, tables, pictures, and how to go on."""

import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from geo.plane import Plane
from jobs.broker import Broker
from jobs.demo.counts import cost, count
from jobs.demo.density import compare_density, show_density, write_density_picture
from jobs.demo.files import build_anchors, build_tiling, write_settings
from jobs.demo.map import write_map
from jobs.demo.measure import compare, true_means
from jobs.demo.pictures import write_picture
from jobs.demo.sample import read_sample, records
from jobs.demo.tables import show_anchored, show_cost, show_counts, show_displacement
from jobs.errors import UserError
from jobs.kafka import Record, create_topics, documents, heartbeat, product_topics, read_committed, send_all
from jobs.preflight import java_program, require_jars
from jobs.progress import progress_bar
from jobs.protect import Options, read_secret, read_settings, run_job
from jobs.runs import charges
from streaming.charges import distinct_charges
from streaming.settings import PRODUCTS, Settings
from streaming.shard import tick_grid

__all__ = ["run_demo"]

PACKAGES = ("bokeh", "gpxpy", "matplotlib")
MARK = "made-by-wayveil-demo"
PARTITIONS = 2


def run_demo(folder: Path, cars: int | None = None) -> None:
    """Send the bundled sample through the product on a broker of its own, and show what came out.

    Parameters
    ----------
    folder : Path
        Folder of the demo; what an earlier demo left there is removed.
    cars : int, optional
        Send the first so many cars only.

    Raises
    ------
    UserError
        If something is missing, or if a count does not add up.
    """
    console = Console(highlight=False)
    _require_everything()
    broker = Broker(folder / "broker")
    _fresh_folder(console, folder, broker)
    with _step(console, "read the bundled sample"):
        sample = read_sample(cars)
    users = len(set(sample.user.tolist()))
    console.print(
        f"  {len(sample):,} fixes of {users} users: cars in Helsinki (SUMO, simulated) and tracks at Lake Cerknica (GPX); "
        "24 broken records are added on purpose",
        soft_wrap=True,
    )
    try:
        with _step(console, "start a broker"):
            bootstrap = broker.start()
        files = write_settings(folder, bootstrap)
        settings = read_settings(files["settings"])
        stretch = Plane(settings.region.region()).scale_max - 1
        console.print(
            f"  at {bootstrap}; one region holds both places: its plane stretches lengths by up to {stretch:.2%}, the noise allows for it",
            soft_wrap=True,
        )
        create_topics(settings.kafka, product_topics(settings, PARTITIONS, replay=True))
        sent = _feed(console, settings, records(sample, settings.source[0].topic, PARTITIONS))
        with _step(console, "cut the region into public tiles along Helsinki's roads"):
            tiling = build_tiling(settings)
        with _step(console, "sort Helsinki's public places into categories"):
            build_anchors(settings, lambda line: console.print(f"  {line}", soft_wrap=True))
        with _step(console, "run the job: wayveil run all --bounded"):
            run_job(settings, PRODUCTS, Options(bounded=True))
        with _step(console, "read what it published"):
            names, own = settings.topics, zip(settings.audiences, settings.trace_topics, strict=True)
            traces = {audience.name: list(documents(settings.kafka, topic)) for audience, topic in own}
            releases, balance = (list(documents(settings.kafka, topic)) for topic in (names.releases, names.balance))
            charged = distinct_charges(charges(settings))
            density = [value for *_, value in read_committed(settings.kafka, names.density) if value is not None]
    finally:
        if broker.status().running:
            with _step(console, "stop the broker"):
                broker.stop()

    counts, paid = count(sent, balance, releases, traces), cost(charged, traces)
    truth, secret = true_means(sample, settings.tick), read_secret(settings)
    comparisons = [compare(truth, rows, settings, secret, audience) for audience, rows in traces.items()]
    counted = compare_density(sample, density, tiling, tick_grid(settings).length_ms)
    written = {"traces": folder / "traces.png", "density": folder / "density.png", "map": folder / "map.html", **files}
    with _step(console, "draw the pictures"):
        write_picture(written["traces"], sample, comparisons)
        write_density_picture(written["density"], sample, counted)
        write_map(written["map"], sample, comparisons)
    show_counts(console, counts)
    show_displacement(console, [comparison for comparison in comparisons if not comparison.anchored])
    for comparison in comparisons:
        if comparison.anchored:
            show_anchored(console, comparison)
    show_cost(console, paid)
    show_density(console, counted)
    _show_ways_on(console, folder, settings, written)


def _require_everything() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise UserError(
            f"The demo needs packages that are not installed ({', '.join(missing)}): run `make demo`, or install `wayveil[demo]`."
        )
    java_program()
    require_jars("broker", "kafka_")
    require_jars("flink", "flink-sql-connector-kafka")


def _fresh_folder(console: Console, folder: Path, broker: Broker) -> None:
    """Make the folder, without what an earlier demo left; a folder that no demo made is left alone."""
    if folder.exists():
        if not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARK).exists()):
            raise UserError(f"{folder} was not made by a demo and is left alone: name another folder with --folder.")
        if broker.status().running:
            with _step(console, "stop the broker of the last demo, which still runs"):
                broker.stop()
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def _feed(console: Console, settings: Settings, feed: list[Record]) -> int:
    """Send the records and one last heartbeat a partition, which closes the last tick; return how many records these are."""
    topic = settings.source[0].topic
    with progress_bar(console, "· send the sample", len(feed)) as update:
        report = send_all(settings.kafka, feed, update)
    if report.failed:
        raise UserError(f"The broker refused records ({', '.join(sorted(report.failed))}): start the demo again.")
    grid = tick_grid(settings)
    last = max(timestamp or 0 for *_, timestamp in feed)
    return report.sent + heartbeat(settings.kafka, topic, grid.closes_ms(last // grid.length_ms))


def _show_ways_on(console: Console, folder: Path, settings: Settings, written: dict[str, Path]) -> None:
    """Say what was written where, and print commands that work from the working folder."""

    def command(*words: str | Path) -> str:
        return shlex.join(str(_short(word)) if isinstance(word, Path) else word for word in words)

    bootstrap = settings.kafka.bootstrap
    wayveil, data = Path(sys.executable).with_name("wayveil"), folder / "broker"
    ways = {
        "start the broker again, with all that the demo wrote": command(
            wayveil, "broker", "start", "--data", data, "--port", bootstrap.rpartition(":")[2]
        ),
        "look at what partners may read": command(
            wayveil, "topics", "read", "traces", "--audience", "partners", "--limit", "5", "--settings", written["settings"]
        ),
        "have the policy told in words": command(
            wayveil, "policy", "explain", written["policy"], "--audience", "partners", "--settings", written["settings"]
        ),
        "look at the tiles": command(wayveil, "tiling", "show", folder / "tiling.parquet"),
        "look at the public places": command(wayveil, "anchors", "show", folder / "anchors.parquet"),
        "add all releases up again, with the secret": command(wayveil, "audit-ledger", "--settings", written["settings"]),
        "run the job again: an identical run repeats its rows and spends nothing": command(
            wayveil, "run", "all", "--bounded", "--settings", written["settings"]
        ),
        "stop the broker": command(wayveil, "broker", "stop", "--data", data),
    }
    console.print("\n[bold]Written[/]")
    for name, path in written.items():
        console.print(f"  {name:8}  {_short(path)}", markup=False, soft_wrap=True)
    console.print("\n[bold]The broker is stopped. To go on[/]")
    for purpose, line in ways.items():
        console.print(f"[dim]# {purpose}[/]", soft_wrap=True)
        console.print(line, markup=False, soft_wrap=True)
    console.print(
        "\nFor your own data see `Start` in README.md. The next demo starts afresh, and removes this one's folder first.", soft_wrap=True
    )


def _short(path: Path) -> Path:
    """Return the path from the working folder if it lies there."""
    whole, here = path.absolute(), Path.cwd()
    return whole.relative_to(here) if whole.is_relative_to(here) else whole


@contextmanager
def _step(console: Console, title: str) -> Iterator[None]:
    """Show what goes on with its time, and leave one line when it is done."""
    start = time.monotonic()
    with console.status(f"{title} …"):
        yield
    console.print(f"· {title} ({time.monotonic() - start:.1f} s)")
