"""The command `wayveil`: names every program; each imports what it needs only when it runs, so that `--help` stays fast.

A new program is a module of `jobs` and, here, a function of a few lines that imports and calls it.
"""

import logging
import os
import re
import sys
import time
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.anchors.cli import anchors_app
from jobs.errors import UserError
from jobs.evaluate.cli import evaluate_app
from jobs.policy.cli import policy_app
from jobs.replay.cli import replay
from jobs.tiling.cli import tiling_app

if TYPE_CHECKING:
    from streaming.settings import Product

__all__ = ["app", "main"]

DEBUG_VARIABLE = "WAYVEIL_DEBUG"
EXIT_FAILURE = 1
EXIT_USER_ERROR = 2
UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

app = typer.Typer(
    name="wayveil",
    help="Protects streams of locations: services read protected topics, and never a raw fix.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
broker_app = typer.Typer(help="A one-node Kafka broker on this machine.", no_args_is_help=True)
cluster_app = typer.Typer(help="A Flink cluster on this machine.", no_args_is_help=True)
topics_app = typer.Typer(help="The topics of the product.", no_args_is_help=True)
app.add_typer(broker_app, name="broker")
app.add_typer(cluster_app, name="cluster")
app.add_typer(topics_app, name="topics")
run_app = typer.Typer(help="The streaming jobs.", no_args_is_help=True)
app.add_typer(run_app, name="run")
app.add_typer(policy_app, name="policy")
app.add_typer(anchors_app, name="anchors")
app.add_typer(tiling_app, name="tiling")
app.add_typer(evaluate_app, name="evaluate")
app.command("replay")(replay)

DataOption = Annotated[Path, typer.Option("--data", envvar="WAYVEIL_BROKER_DATA", help="Folder of the local broker.")]
ClusterDataOption = Annotated[Path, typer.Option("--data", envvar="WAYVEIL_CLUSTER_DATA", help="Folder of the local cluster.")]
SettingsOption = Annotated[Path, typer.Option("--settings", envvar="WAYVEIL_SETTINGS", help="Settings file (TOML).")]


BoundedOption = Annotated[bool, typer.Option("--bounded", help="End at the present end of the topics.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint of the last run.")]
SpendAgainOption = Annotated[
    bool, typer.Option("--spend-again", help="Look a second time at ticks of an earlier, different run, and charge for it.")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="HOST:PORT", help="Flink cluster (REST address) to run on.", show_default="a Flink within this process"
    ),
]


class OutputTopic(StrEnum):
    """The topics that the jobs write, by the names that the settings give them."""

    TRACES = "traces"
    RELEASES = "releases"
    CHARGES = "charges"
    REJECTED = "rejected"
    LATE = "late"
    BALANCE = "balance"
    RUNS = "runs"
    POLICIES = "policies"
    DENSITY = "density"


DEFAULT_DATA = Path(".wayveil/broker")
DEFAULT_CLUSTER = Path(".wayveil/cluster")
DEFAULT_SETTINGS = Path("wayveil.toml")
DEFAULT_DEMO = Path(".wayveil/demo")
DEFAULT_BENCH = Path(".wayveil/bench")
DEFAULT_BENCH_DENSITY = Path(".wayveil/bench-density")


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help=f"Show the trace of an error, also by {DEBUG_VARIABLE}=1.")] = False,
) -> None:
    """Take the options of all commands; `main` has read --debug already, wherever it stands."""


@broker_app.command("start")
def broker_start(
    data: DataOption = DEFAULT_DATA,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on.", show_default="the last one, or any free")] = None,
    security: Annotated[Path | None, typer.Option(help="Properties that secure it: see deploy/kafka.", show_default="open")] = None,
) -> None:
    """Start the broker and wait until it answers."""
    from jobs.broker import Broker

    broker = Broker(data)
    typer.echo(f"running at {broker.start(port, security)}")
    if security is not None:
        typer.echo(f"for administrators at {broker.status().internal}")


@broker_app.command("stop")
def broker_stop(data: DataOption = DEFAULT_DATA) -> None:
    """Stop the broker; its data stay."""
    from jobs.broker import Broker

    broker = Broker(data)
    if not broker.status().running:
        typer.echo("stopped already")
    elif broker.stop():
        typer.echo("stopped, but only by killing it: it did not end in time")
    else:
        typer.echo("stopped")


@broker_app.command("status")
def broker_status(data: DataOption = DEFAULT_DATA) -> None:
    """Tell whether the broker runs, and at which address."""
    from jobs.broker import Broker

    status = Broker(data).status()
    typer.echo(f"running at {status.bootstrap} (process {status.pid})" if status.running else "stopped")


@cluster_app.command("start")
def cluster_start(
    data: ClusterDataOption = DEFAULT_CLUSTER,
    task_managers: Annotated[int, typer.Option(min=1, help="Processes that run the jobs' steps.")] = 2,
    slots: Annotated[int, typer.Option(min=1, help="Parallel steps that each of them takes.")] = 2,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the REST interface.", show_default="the last one, or any free")
    ] = None,
) -> None:
    """Start the cluster and wait until all of it is there."""
    from jobs.cluster import Cluster

    typer.echo(f"running at {Cluster(data).start(task_managers, slots, port)}")


@cluster_app.command("stop")
def cluster_stop(data: ClusterDataOption = DEFAULT_CLUSTER) -> None:
    """Stop the cluster, and with it its jobs; their checkpoints stay."""
    from jobs.cluster import Cluster

    cluster = Cluster(data)
    if not cluster.status().running:
        typer.echo("stopped already")
    elif cluster.stop():
        typer.echo("stopped, but only by killing some of it: not all ended in time")
    else:
        typer.echo("stopped")


@cluster_app.command("status")
def cluster_status(data: ClusterDataOption = DEFAULT_CLUSTER) -> None:
    """Tell which processes of the cluster run, and at which address."""
    from jobs.cluster import Cluster

    status = Cluster(data).status()
    if not status.running:
        typer.echo("stopped")
        return
    where = f"running at {status.address} (process {status.job_manager})" if status.address else "no job manager"
    typer.echo(f"{where}, task managers: {', '.join(map(str, status.task_managers)) or 'none'}")


@topics_app.command("create")
def topics_create(
    settings: SettingsOption = DEFAULT_SETTINGS,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each topic that is read in parallel.")] = 4,
    replay: Annotated[bool, typer.Option("--replay", help="Inputs carry event times instead of the broker's clock.")] = False,
) -> None:
    """Create the topics of a settings file that do not exist yet."""
    from jobs.kafka import create_topics, product_topics
    from jobs.protect import read_settings

    read = read_settings(settings)
    topics = product_topics(read, partitions, replay=replay)
    created = create_topics(read.kafka, topics)
    for name in topics:
        typer.echo(f"{'created' if name in created else 'exists '}  {name}")


@topics_app.command("read")
def topics_read(
    name: Annotated[OutputTopic, typer.Argument(help="Which of the topics that the jobs write.")],
    settings: SettingsOption = DEFAULT_SETTINGS,
    audience: Annotated[str | None, typer.Option(help="Whose traces; needed where the settings name audiences.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many rows.", show_default="all")] = None,
) -> None:
    """Print the committed rows that a topic of the product holds now, one JSON document a line."""
    from jobs.kafka import read_committed
    from jobs.protect import read_settings

    read = read_settings(settings)
    topic = getattr(read.topics, name)
    if name is OutputTopic.TRACES and read.audience:
        of_audience = dict(zip((named.name for named in read.audience), read.trace_topics, strict=True))
        if audience not in of_audience:
            raise UserError(f"Say whose traces with --audience: {', '.join(of_audience)}.")
        topic = of_audience[audience]
    empty = True
    for *_, value in islice(read_committed(read.kafka, topic), limit):
        if value is not None:
            typer.echo(value)
            empty = False
    if empty:
        typer.echo("no committed rows yet: they come when a tick has closed and the job's next checkpoint is done", err=True)


@run_app.command("traces")
def run_traces(
    settings: SettingsOption = DEFAULT_SETTINGS,
    bounded: BoundedOption = False,
    resume: ResumeOption = False,
    spend_again: SpendAgainOption = False,
    cluster: ClusterOption = None,
) -> None:
    """Protect live traces: raw fixes in, sanitized positions and the public ledger out."""
    _run(settings, ("traces",), bounded, resume, spend_again, cluster)


@run_app.command("density")
def run_density(
    settings: SettingsOption = DEFAULT_SETTINGS,
    bounded: BoundedOption = False,
    resume: ResumeOption = False,
    spend_again: SpendAgainOption = False,
    cluster: ClusterOption = None,
) -> None:
    """Publish private density: raw fixes in, noisy counts on the public tree that the settings name out."""
    _run(settings, ("density",), bounded, resume, spend_again, cluster)


@run_app.command("all")
def run_all(
    settings: SettingsOption = DEFAULT_SETTINGS,
    bounded: BoundedOption = False,
    resume: ResumeOption = False,
    spend_again: SpendAgainOption = False,
    cluster: ClusterOption = None,
) -> None:
    """Publish traces and density from one reading of the raw topics."""
    _run(settings, ("traces", "density"), bounded, resume, spend_again, cluster)


def _run(settings: Path, products: "tuple[Product, ...]", bounded: bool, resume: bool, spend_again: bool, cluster: str | None) -> None:
    from jobs.protect import Options, read_settings, run_job

    run_job(read_settings(settings), products, Options(bounded, resume, spend_again, cluster), lambda line: typer.echo(line, err=True))


@app.command("audit-ledger")
def audit_ledger(settings: SettingsOption = DEFAULT_SETTINGS) -> None:
    """Add up all published releases again, across epochs, with the secret: against the public ledger, and against the limit."""
    from jobs.audit import audit_ledger
    from jobs.protect import read_settings

    audit_ledger(read_settings(settings))


@app.command("demo")
def demo(folder: Annotated[Path, typer.Option(help="Folder of the demo; an earlier demo in it is removed.")] = DEFAULT_DEMO) -> None:
    """Send a bundled sample through everything on a broker of its own; show counts, displacement and pictures."""
    from jobs.demo.program import run_demo

    run_demo(folder)


@app.command("bench")
def bench(
    small: Annotated[int, typer.Option(min=1, help="Fixes of the small run.")] = 1_000_000,
    big: Annotated[int, typer.Option(min=1, help="Fixes of the big run; the difference gives the steady rate.")] = 4_000_000,
    users: Annotated[int, typer.Option(min=1, help="Users, each with a fix every five seconds.")] = 10_000,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each size; their medians count.")] = 1,
    memory: Annotated[int, typer.Option(min=0, help="Fixes of the run that looks at memory; 0 leaves it out.")] = 6_000_000,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the topics' data.")] = False,
    folder: Annotated[Path, typer.Option(help="Folder of the bench; an earlier bench in it is removed.")] = DEFAULT_BENCH,
) -> None:
    """Compare the traces job with a bare loop and a Flink identity job on a broker of its own, and look at its memory."""
    from jobs.bench.program import Plan, run_bench

    run_bench(Plan(small, big, users, repeat, memory, keep), folder)


@app.command("bench-density")
def bench_density(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer snapshots and streams: about a minute instead of five.")] = False,
    data: Annotated[Path | None, typer.Option(help="Folder of the samples.", show_default="../shared/data")] = None,
    folder: Annotated[Path, typer.Option(help="Where tables and pictures are written.")] = DEFAULT_BENCH_DENSITY,
) -> None:
    """Compare the accuracy of density with other private mechanisms, and its schedules with each other."""
    from jobs.bench.density.program import DEFAULT_DATA, FULL, QUICK, run_density_bench

    run_density_bench(QUICK if quick else FULL, data or DEFAULT_DATA, folder)


@app.command("heartbeat")
def heartbeat(
    settings: SettingsOption = DEFAULT_SETTINGS,
    every: Annotated[str, typer.Option(help="Time between two heartbeats, at most one tick: 500ms, 10s, 1m.")] = "10s",
    once: Annotated[bool, typer.Option("--once", help="Write one heartbeat and end.")] = False,
) -> None:
    """Write heartbeats into every partition of the inputs, so that silence neither stalls a job nor shows."""
    pause_s = parse_duration_s(every)
    from jobs import kafka
    from jobs.protect import read_settings

    read = read_settings(settings)
    due = time.monotonic()
    while True:
        for topic in read.read_by_job(["traces"]):
            kafka.heartbeat(read.kafka, topic)
        if once:
            return
        due = max(due + pause_s, time.monotonic())
        time.sleep(due - time.monotonic() if due > time.monotonic() else 0.0)


def parse_duration_s(text: str) -> float:
    """Read a duration.

    Parameters
    ----------
    text : str
        Number and unit: ``500ms``, ``10s``, ``1m``, ``2h``.

    Returns
    -------
    float
        Seconds, above zero.

    Raises
    ------
    UserError
        If it is no duration above zero.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text.strip())
    seconds = float(found[1]) * UNIT_S[found[2]] if found else 0.0
    if seconds <= 0:
        raise UserError(f"`{text}` is no duration: write a number above zero and a unit, for instance 500ms, 10s or 1m.")
    return seconds


def main() -> None:
    """Run the command line; errors become one sentence.

    The text of an unexpected error is withheld with its trace, since it can quote a record and so a position.
    """
    debug = "--debug" in sys.argv[1:] or os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    if not debug:
        logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
        logging.getLogger().addFilter(_is_no_interrupt)  # py4j logs a trace at Ctrl-C, on the root logger
    try:
        app(arguments)
    except UserError as error:
        if debug:
            raise
        print(f"wayveil: {error}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except Exception as error:
        if debug:
            raise
        print(f"wayveil: {type(error).__name__} stopped the command; run again with --debug to see the trace.", file=sys.stderr)
        sys.exit(EXIT_FAILURE)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not (record.exc_info and record.exc_info[0] is KeyboardInterrupt)
