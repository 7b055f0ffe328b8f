"""The program `wayveil policy put`: publish a version of the policy from a tick on."""

from datetime import UTC, datetime
from pathlib import Path

from jobs.artefacts import read_anchors, read_policy
from jobs.errors import UserError
from jobs.kafka import read_committed, send_all
from jobs.policy.program import read_policy_file
from streaming.audiences import deployment_of
from streaming.clock import now_ms
from streaming.policy_log import Version, admit_version
from streaming.settings import Settings
from streaming.shard import tick_grid
from streaming.ticks import TickGrid

__all__ = ["put_policy"]

MARGIN_MS = 2_000
"""From now to the earliest tick that a version may hold from: it has to be in the log before."""


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
    if not settings.live_policies:
        raise UserError("No job reads policies while it runs: set live_policies = true in the settings and start the job again.")
    deployment, grid = deployment_of(settings, read_anchors(settings)), tick_grid(settings)
    policy = read_policy_file(path, deployment)
    written_ms = now_ms() if log_time is None else _instant_ms(log_time)
    from_tick = -(-(written_ms + MARGIN_MS if start is None else _instant_ms(start)) // grid.length_ms)
    version = Version(from_tick, policy)
    last = last_version(settings, grid)
    if policy.version <= last:
        raise UserError(f"Version {last} has been published already: give this policy a higher `version` than that.")
    if grid.start_ms(from_tick) <= written_ms:
        raise UserError("A policy cannot hold from a time that has begun: choose a later --from.")
    record = (settings.topics.policies, 0, str(policy.version).encode(), version.dump(), None if log_time is None else written_ms)
    report = send_all(settings.kafka.bootstrap, [record])
    if report.failed:
        raise UserError(
            f"Topic {settings.topics.policies} refused the policy ({', '.join(report.failed)}): make it smaller, or see the broker."
        )
    begins = datetime.fromtimestamp(grid.start_ms(from_tick) / 1000, UTC)
    return f"version {policy.version} holds from tick {from_tick} on, which starts at {begins:%Y-%m-%d %H:%M:%S} UTC"


def last_version(settings: Settings, grid: TickGrid) -> int:
    """Return the number of the version that was admitted last, or of the policy that holds at first."""
    anchors = read_anchors(settings)
    first = read_policy(settings, anchors)
    last = first.version if first else 0
    deployment = deployment_of(settings, anchors)
    for _, _, log_ms, _, value in read_committed(settings.kafka.bootstrap, settings.topics.policies):
        found = admit_version(value, log_ms, last, grid, deployment)
        if isinstance(found, Version):
            last = found.policy.version
    return last


def _instant_ms(text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise UserError(f"`{text}` is no time with an offset: write it like 2026-03-29T03:30+02:00.") from None
    return int(when.timestamp() * 1000)
