"""The topic `policies`: versions of the policy, each with the tick from which it holds.

The topic has one partition, is kept for ever, and its clock is part of the jobs' watermark: a tick is closed only when that clock has
passed it, and so after every version that could hold in it has been read. Whether a version comes too late is decided by its own record's
log time, so that a replay comes to the same. (A compacted topic would not do: of two records with one number the first holds, and
compaction would keep the second.)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from streaming.policy import Deployment, Policy, PolicyError, parse_policy
from streaming.release import SCHEMA_VERSION
from streaming.ticks import TickGrid

__all__ = ["PolicyReason", "Version", "admit_version", "in_force", "rejected_policy_line"]

HEARTBEAT = {"wayveil": "heartbeat"}


class PolicyReason:
    """Why a record of the topic changes nothing."""

    MALFORMED = "policy_malformed"
    INVALID = "policy_invalid"
    TOO_LATE = "policy_too_late"
    VERSION = "policy_version"


@dataclass(frozen=True)
class Version:
    """A policy and the first tick in which it holds."""

    from_tick: int
    policy: Policy

    def dump(self) -> bytes:
        """Encode as a record of the topic."""
        document = self.policy.document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return orjson.dumps({"wayveil": "policy", "from_tick": self.from_tick, "policy": document})

    @classmethod
    def load(cls, record: bytes, deployment: Deployment | None = None) -> "Version":
        """Decode.

        Raises
        ------
        PolicyError
            If the policy has problems, or does not fit the deployment.
        ValueError
            If it is no record of a policy.
        """
        document = orjson.loads(record)
        match document:
            case {"wayveil": "policy", "from_tick": int(tick), "policy": dict(policy)} if type(tick) is int and len(document) == 3:  # noqa: PLR2004
                return cls(tick, parse_policy(policy, deployment))
        raise ValueError("the record is no version of a policy: write it with `wayveil policy put`")


def admit_version(record: bytes | None, log_ms: int, last_version: int, grid: TickGrid, deployment: Deployment) -> Version | str | None:
    """Judge a record of the topic.

    Parameters
    ----------
    record, log_ms
        Value and log timestamp.
    last_version
        Version admitted last, or that of the policy that holds at first; 0 for none.
    grid, deployment
        Ticks, and what a policy has to fit.

    Returns
    -------
    Version, str or None
        The version; or why the record changes nothing; or None for a heartbeat.
    """
    try:
        if orjson.loads(record or b"") == HEARTBEAT:
            return None
        version = Version.load(record or b"", deployment)
    except PolicyError:
        return PolicyReason.INVALID
    except ValueError:
        return PolicyReason.MALFORMED
    if version.policy.version <= last_version:
        return PolicyReason.VERSION
    if grid.start_ms(version.from_tick) <= log_ms:
        return PolicyReason.TOO_LATE
    return version


def in_force(versions: Iterable[Version], tick: int) -> Version | None:
    """Return what holds in a tick: of the versions that have begun, the highest."""
    return max((version for version in versions if version.from_tick <= tick), key=lambda version: version.policy.version, default=None)


def rejected_policy_line(reason: str, topic: str, offset: int, log_ms: int) -> str:
    """Encode a record that changes nothing, for the topic `rejected`."""
    row: dict[str, Any] = {
        "v": SCHEMA_VERSION,
        "reason": reason,
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "log_ms": log_ms,
    }
    return f"policy-{offset}\t" + orjson.dumps(row).decode()
