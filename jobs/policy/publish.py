"""The program `wayveil policy put`: publish a version of the policy, or one user's own rules."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jobs.artefacts import read_anchors, read_policy
from jobs.errors import UserError
from jobs.kafka import read_committed, send_all
from jobs.policy.program import read_policy_file
from streaming.audiences import deployment_of
from streaming.clock import now_ms
from streaming.policy import Deployment, PolicyError, load_edit
from streaming.policy_admission import MAX_EDIT_BYTES, MAX_POLICY_BYTES, MAX_STEP, Admission, Admitted
from streaming.policy_log import Entry, PolicyReason, Version, edit_record
from streaming.settings import Settings
from streaming.shard import tick_grid
from streaming.ticks import TickGrid

__all__ = ["put_edit", "put_policy"]

MARGIN_MS = 2_000
"""From now to the earliest tick that a version may hold from: it has to be in the log before."""


class _Remembered(dict[str, list[Entry]]):
    """What has been admitted so far."""

    put = dict.__setitem__


@dataclass
class _Topic:
    """The topic as a job finds it after its last record."""

    deployment: Deployment
    grid: TickGrid
    admission: Admission
    clock_ms: int


def put_policy(settings: Settings, path: Path, start: str | None, log_time: str | None) -> str:
    """Publish a policy, and return what was done in a sentence.

    Parameters
    ----------
    settings : Settings
        The deployment.
    path : Path
        The policy.
    start : str, optional
        ISO time from which it holds, rounded up to a tick; by default the next tick.
    log_time : str, optional
        ISO time of the record, for topics with event times (a replay); by default the present.

    Raises
    ------
    UserError
        If the policy has problems, or the jobs would reject it.
    """
    topic = _read_topic(settings)
    policy = read_policy_file(path, topic.deployment)
    written_ms = _written_ms(topic, log_time)
    from_tick = -(-(written_ms + MARGIN_MS if start is None else _instant_ms(start)) // topic.grid.length_ms)
    last = topic.admission.last_version()
    found = topic.admission.admit(Version(from_tick, policy).dump(), written_ms)
    if found == PolicyReason.VERSION:
        raise UserError(f"The last version is {last}: give this policy a `version` above that, by at most {MAX_STEP:,}.")
    if found == PolicyReason.TOO_LATE:
        raise UserError("A policy cannot hold from a time that has begun: choose a later --from.")
    if not isinstance(found, Admitted):
        raise UserError(f"The jobs would reject the policy: it may have {MAX_POLICY_BYTES} bytes in the topic. Make it smaller.")
    _send(settings, found, log_time)
    return f"version {policy.version} {_holds(topic, from_tick)}"


def put_edit(settings: Settings, user: str, path: Path, log_time: str | None) -> str:
    """Publish a user's own rules, and return what was done in a sentence.

    Parameters
    ----------
    settings : Settings
        The deployment.
    user : str
        Whose rules they are.
    path : Path
        The rules; see `streaming.policy.edits`.
    log_time : str, optional
        As for `put_policy`.

    Raises
    ------
    UserError
        If the rules have problems, or the jobs would reject them.
    """
    topic = _read_topic(settings)
    # The broker may write it a little later, and then perhaps in the next epoch.
    written_ms = _written_ms(topic, log_time) + (MARGIN_MS if log_time is None else 0)
    from_tick = topic.admission.next_epoch(written_ms)
    base = topic.admission.base(from_tick)
    try:
        edit, lines = load_edit(path, user)
        record = edit_record(edit)
        if base is not None and (problems := base.problems(edit, lines)):
            raise PolicyError(problems, lines)
    except PolicyError as error:
        raise UserError(str(error)) from error
    except (TypeError, UnicodeError):
        raise UserError("The user's name is no text: write it in UTF-8.") from None
    found = topic.admission.admit(record, written_ms)
    if found == PolicyReason.EDITS_OFF:
        raise UserError("The policy in force then permits no edits: publish one with user_edits = true first.")
    if found == PolicyReason.VERSION:
        raise UserError("An edit of this user with that `version` or a higher one has been published already: give this one a higher one.")
    if found == PolicyReason.RATE:
        raise UserError("This user has made an edit in this epoch already, and one counts: publish the next one when that holds.")
    if not isinstance(found, Admitted):
        raise UserError(f"The jobs would reject the edit: it may have {MAX_EDIT_BYTES} bytes in the topic. Make it smaller.")
    _send(settings, found, log_time)
    return f"edit {edit.version} of user {user} {_holds(topic, from_tick)}"


def _read_topic(settings: Settings) -> _Topic:
    if not settings.live_policies:
        raise UserError("No job reads policies while it runs: set live_policies = true in the settings and start the job again.")
    anchors = read_anchors(settings)
    deployment = deployment_of(settings, anchors)
    admission = Admission(settings, read_policy(settings, anchors), deployment, _Remembered())
    clock_ms = 0
    for _, _, log_ms, _, value in read_committed(settings.kafka, settings.topics.policies):
        clock_ms = max(clock_ms, log_ms)
        admission.admit(value, clock_ms)
    return _Topic(deployment, tick_grid(settings), admission, clock_ms)


def _written_ms(topic: _Topic, log_time: str | None) -> int:
    """Return the clock of the topic at a record that is written now, or at a given time."""
    return max(topic.clock_ms, now_ms() if log_time is None else _instant_ms(log_time))


def _send(settings: Settings, found: Admitted, log_time: str | None) -> None:
    stamp = None if log_time is None else _instant_ms(log_time)
    record = (settings.topics.policies, 0, f"{found.scope}/{found.number}".encode(), found.record, stamp)
    report = send_all(settings.kafka, [record])
    if report.failed:
        raise UserError(f"Topic {settings.topics.policies} refused it ({', '.join(report.failed)}): make it smaller, or see the broker.")


def _holds(topic: _Topic, from_tick: int) -> str:
    begins = datetime.fromtimestamp(topic.grid.start_ms(from_tick) / 1000, UTC)
    return f"holds from tick {from_tick} on, which starts at {begins:%Y-%m-%d %H:%M:%S} UTC"


def _instant_ms(text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise UserError(f"`{text}` is no time with an offset: write it like 2026-03-29T03:30+02:00.") from None
    return int(when.timestamp() * 1000)
