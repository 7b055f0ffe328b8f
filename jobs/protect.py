"""The programs `wayveil run traces`, `density` and `all`: check everything first, then run the graph until it ends."""

import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geo.tiling.tiling import Tiling
from jobs import rest, runs
from jobs.artefacts import read_artefacts
from jobs.errors import UserError
from jobs.preflight import java_program, require_jars, require_topics
from streaming.earlier import EarlierSpends
from streaming.publisher import Publisher
from streaming.runs import Run, fingerprint, overlapping
from streaming.secret import SecretError, load_secret, secret_check
from streaming.settings import Product, Settings, SettingsError, load_settings

if TYPE_CHECKING:
    from streaming.flink.graph import DensityInput, StreamJob

__all__ = ["Options", "read_secret", "read_settings", "run_job"]

FOLLOW_S = 1.0


@dataclass(frozen=True)
class Options:
    """What the command line chooses beside the settings.

    Parameters
    ----------
    bounded
        End at the present end of the topics.
    resume
        Go on from the newest checkpoint of the last run.
    spend_again
        Allow a second look at ticks that another run has covered.
    cluster
        REST address (``host:port``) of the Flink cluster to run on; by default the job runs within this process.
    """

    bounded: bool = False
    resume: bool = False
    spend_again: bool = False
    cluster: str | None = None


def read_settings(path: Path) -> Settings:
    """Read a settings file.

    Raises
    ------
    UserError
        With every problem of the file.
    """
    try:
        return load_settings(path)
    except SettingsError as error:
        raise UserError(str(error)) from error


def read_secret(settings: Settings) -> bytes:
    """Read the secret that the settings name.

    Raises
    ------
    UserError
        If it is missing or too short.
    """
    try:
        return load_secret(settings.secret)
    except SecretError as error:
        raise UserError(f"{error}.") from error


def run_job(settings: Settings, products: Collection[Product], options: Options, say: Callable[[str], None] | None = None) -> Run:
    """Run a job with some products until its input ends (or for ever) and return what ran.

    Parameters
    ----------
    settings, products, options
        What to run, and how.
    say
        Called with a line when the job starts, runs, and has ended.

    Raises
    ------
    UserError
        If something that the job needs is missing, or if the start would be a second look.
    """
    java_program()
    jars = require_jars("flink", "flink-sql-connector-kafka")
    if options.cluster is not None:
        rest.require_cluster(options.cluster)
        settings = _with_whole_paths(settings)
    secret = read_secret(settings)
    public = read_artefacts(settings, products)
    require_topics(settings.kafka, *settings.read_by_job(products), *settings.written_by_job(products), settings.topics.runs)

    earlier = runs.known_runs(settings)
    if options.resume:
        run = _last_run(settings, secret, products, public.digests, earlier)
        if options.bounded != (run.horizon_ms is not None):
            how = "runs without an end: leave --bounded out" if options.bounded else "ends with its input: pass --bounded as well"
            raise UserError(f"The run to resume {how}.")
    else:
        run = runs.plan(settings, secret, products, options.bounded, public.digests)
    folder = Path(settings.job.checkpoint_dir) / run.fingerprint
    with ExitStack() as held:
        for product in run.products:
            held.enter_context(runs.alone(folder.parent / f"{product}.lock"))
        folder.mkdir(parents=True, exist_ok=True)
        if options.cluster is not None:
            _take_over(options.cluster, runs.of_products(products, earlier), run if options.resume else None)
        checkpoint = runs.latest_checkpoint(folder) if options.resume else None
        if options.resume and checkpoint is None:
            raise UserError("The last run left no checkpoint, because it ended or had not come to one: start it without --resume.")
        if not options.resume:
            runs.admit(run, earlier, options.spend_again)
            if runs.latest_checkpoint(folder) is not None:
                raise UserError(
                    f"This very run was stopped and can go on: pass --resume, or remove the folder {folder} to write its rows once more."
                )
            runs.supersede(settings, run, earlier)
            runs.forget_checkpoints(folder)
        spends = runs.earlier_spends(settings, run, earlier, folder, options.resume) if "traces" in products else EarlierSpends.none()
        spent = runs.earlier_density(settings, run, earlier, folder, options.resume) if public.tiling else {}

        from streaming.flink.graph import DensityInput, StreamJob

        tiling = public.tiling
        density = DensityInput(_without_roads(tiling), tiling.version, spent) if tiling else None
        if density:
            _check_publisher(settings, secret, density)
        if not options.resume:
            runs.record(settings, run)
        job = StreamJob(
            settings,
            secret_check(secret),
            run,
            spends,
            density,
            public.policy,
            public.anchors,
            folder,
            jars,
            checkpoint,
            options.cluster,
        )
        _run(job, say or (lambda _: None))
    return run


def _with_whole_paths(settings: Settings) -> Settings:
    """Name the secret's file from the root on: workers have another working folder."""
    file = settings.secret.file
    if file is None:
        return settings
    return settings.model_copy(update={"secret": settings.secret.model_copy(update={"file": str(Path(file).resolve())})})


def _take_over(cluster: str, earlier: list[Run], resumed: Run | None) -> None:
    """See that no job of these runs goes on in the cluster, as one does whose submitter was killed; the one to resume is ended."""
    going = rest.running_jobs(cluster)
    for run in earlier:
        if run.job_name in going:
            if resumed is None or run.fingerprint != resumed.fingerprint:
                raise UserError(
                    f"A job of this product still goes on in the cluster at {cluster}: take it over with --resume, under its settings, or "
                    f"cancel job {going[run.job_name]} there."
                )
            rest.cancel(cluster, going[run.job_name])


def _without_roads(tiling: Tiling) -> Tiling:
    """Leave out what only range answers need, so that it does not travel to the workers."""
    start = np.zeros(len(tiling.tree.leaves) + 1, np.int64)
    return replace(tiling, cell_xy=np.zeros((0, 2), np.int64), cell_weight=np.zeros(0), cell_start=start, off_road=1.0)


def _check_publisher(settings: Settings, secret: bytes, density: "DensityInput") -> None:
    """Build the publisher here once, so that settings that do not fit the tree are refused before the job starts."""
    try:
        Publisher(settings, secret, density.tiling, density.version, density.earlier)
    except ValueError as error:
        raise UserError(f"The density settings cannot be used: {error}") from error


def _run(job: "StreamJob", say: Callable[[str], None]) -> None:
    source = ", ".join(source.topic for source in job.settings.source)
    say("starting Flink: about 20 seconds" + (f", from {job.resume.name}" if job.resume else ""))
    client = None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = job.start()
        own = [topic for product in job.run.products for topic in job.settings.product_topics(product)]
        say(f"running: {source} -> {', '.join(own)}; rows can be read after the next checkpoint")
        client = result.get_job_client()
        if job.resume:
            _follow_resumed(job, client)
        result.wait()
    except KeyboardInterrupt:
        if client is not None:
            _stop(job, client, say)
        raise
    except Exception as error:
        raise UserError(f"The job failed: {_cause(error)} Its checkpoints are kept; mend the cause and go on with --resume.") from error
    runs.forget_checkpoints(job.checkpoint_dir)
    say("ended: all of its input is accounted for")


def _stop(job: "StreamJob", client: Any, say: Callable[[str], None]) -> None:
    say("stopping: what has been written is committed first")
    try:
        job.stop(client)
    except Exception:  # no savepoint can be made of a job that has not started, is restarting, or was killed by the same signal
        with suppress(Exception):
            client.cancel().result()
        say("stopped without a savepoint: --resume goes on from the last checkpoint, if there is one")
    else:
        say("stopped: go on with --resume")


def _follow_resumed(job: "StreamJob", client: Any) -> None:
    """Drop the checkpoints of earlier jobs as soon as this one has its own, and end a bounded run once these cover all of its input.

    Kafka's source never ends a restored run: it finds no new partition there and so never says that none will come (FLINK-31006).
    """
    own = str(client.get_job_id())
    while not client.get_job_status().result().is_globally_terminal_state():
        newest = runs.latest_checkpoint(job.checkpoint_dir, own)
        if newest is not None:
            runs.forget_checkpoints(job.checkpoint_dir, except_job=own)
            if job.run.horizon_ms is None:
                return
            if job.covers_all_input(newest):
                job.drain(client)
                return
        time.sleep(FOLLOW_S)


def _last_run(settings: Settings, secret: bytes, products: Collection[Product], artefacts: Mapping[str, str], earlier: list[Run]) -> Run:
    same = [run for run in earlier if set(run.products) == set(products)]
    if not same:
        raise UserError("There is no run to resume: start one without --resume.")
    last = same[-1]
    later = runs.of_products(products, earlier[earlier.index(last) + 1 :])
    if overlapping(last, later, within_window=True):
        raise UserError(
            "Another run has looked at some of these ticks since, which the checkpoint does not know: start anew with --spend-again, which "
            "charges both."
        )
    if fingerprint(secret, settings, products, last.inputs, last.horizon_ms, artefacts, last.policies) != last.fingerprint:
        raise UserError(
            "The last run had other settings, another secret, tiling, policy or anchors: restore them to resume it, or start without "
            "--resume."
        )
    return last


def _cause(error: BaseException) -> str:
    """Return the kind of the innermost cause; its text is withheld, since it could quote a record."""
    text = str(error)
    causes = [line.split(":")[1].strip() for line in text.splitlines() if line.startswith("Caused by:")]
    kind = causes[-1] if causes else type(error).__name__
    return f"{kind.rsplit('.', 1)[-1]} (see it whole with --debug)."
