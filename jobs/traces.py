"""The program `wayveil run traces`: check everything first, then run the graph until it ends."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import runs
from jobs.errors import UserError
from jobs.preflight import java_program, require_jars, require_topics
from streaming.runs import Run, fingerprint
from streaming.secret import SecretError, load_secret, secret_check
from streaming.settings import Settings, SettingsError, load_settings

if TYPE_CHECKING:
    from streaming.flink.graph import TracesJob

__all__ = ["Options", "read_secret", "read_settings", "run_traces"]

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
        Submitted to a Flink cluster, which brings the connector jar itself.
    """

    bounded: bool = False
    resume: bool = False
    spend_again: bool = False
    cluster: bool = False


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


def run_traces(settings: Settings, options: Options, say: Callable[[str], None] | None = None) -> Run:
    """Run the traces job until its input ends (or for ever) and return what ran.

    Parameters
    ----------
    settings, options
        What to run, and how.
    say
        Called with a line when the job starts, runs, and has ended.

    Raises
    ------
    UserError
        If something that the job needs is missing, or if the start would be a second look.
    """
    jars = []
    if not options.cluster:
        java_program()
        jars = require_jars("flink", "flink-sql-connector-kafka")
    secret = read_secret(settings)
    topics = settings.topics
    require_topics(settings.kafka.bootstrap, *(s.topic for s in settings.source), *topics.written_by_job(), topics.runs)

    earlier = runs.known_runs(settings)
    run = _last_run(settings, secret, earlier) if options.resume else runs.plan(settings, secret, options.bounded)
    folder = Path(settings.job.checkpoint_dir) / run.fingerprint
    with runs.alone(folder):
        checkpoint = runs.latest_checkpoint(folder) if options.resume else None
        if options.resume and checkpoint is None:
            raise UserError("The last run left no checkpoint, because it ended or had not come to one: start it without --resume.")
        if not options.resume:
            runs.admit(run, earlier, options.spend_again)
            runs.forget_checkpoints(folder)
        spends = runs.earlier_spends(settings, run, earlier, folder, options.resume)
        if not options.resume:
            runs.record(settings, run)

        from streaming.flink.graph import TracesJob

        _run(TracesJob(settings, secret_check(secret), run, spends, folder, jars, checkpoint), say or (lambda _: None))
    return run


def _run(job: "TracesJob", say: Callable[[str], None]) -> None:
    source = ", ".join(source.topic for source in job.settings.source)
    say("starting Flink: about 20 seconds" + (f", from {job.resume.name}" if job.resume else ""))
    try:
        result = job.start()
        say(f"running: {source} -> {job.settings.topics.traces}; rows can be read after the next checkpoint")
        if job.resume:
            _follow_resumed(job, result.get_job_client())
        result.wait()
    except Exception as error:
        raise UserError(f"The job failed: {_cause(error)} Its checkpoints are kept; mend the cause and go on with --resume.") from error
    runs.forget_checkpoints(job.checkpoint_dir)
    say("ended: all of its input is accounted for")


def _follow_resumed(job: "TracesJob", client: Any) -> None:
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


def _last_run(settings: Settings, secret: bytes, earlier: list[Run]) -> Run:
    if not earlier:
        raise UserError("There is no run to resume: start one without --resume.")
    last = earlier[-1]
    if fingerprint(secret, settings, last.inputs, last.horizon_ms) != last.fingerprint:
        raise UserError("The last run had other settings or another secret: restore them to resume it, or start without --resume.")
    return last


def _cause(error: BaseException) -> str:
    """Return the kind of the innermost cause; its text is withheld, since it could quote a record."""
    text = str(error)
    causes = [line.split(":")[1].strip() for line in text.splitlines() if line.startswith("Caused by:")]
    kind = causes[-1] if causes else type(error).__name__
    return f"{kind.rsplit('.', 1)[-1]} (see it whole with --debug)."
