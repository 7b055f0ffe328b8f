"""The topic `policies`: versions of the whole policy and users' own edits of it, each with the tick from which it holds.

The topic has one partition, is kept for ever, and its clock is part of the jobs' watermark: a tick is closed only when that clock has
passed it, and so after every record that could hold in it has been read. What a record changes, and from when, is decided by the topic's
clock at the record itself (`streaming.policy_admission`), so that a replay comes to the same. (A compacted topic would not do: of two
records with one number the first holds, and compaction would keep the second.)

Each record has a *scope*, in which its number grows: ``deployment`` for the whole policy, ``user:NAME`` for one user's own rules. Users'
names travel in the topic; it is for operators only.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from streaming.policy import Deployment, Edit, Editable, Policy, parse_edit, parse_policy
from streaming.release import rejected_line

__all__ = [
    "DEPLOYMENT",
    "Entry",
    "Point",
    "PolicyReason",
    "Timeline",
    "Version",
    "edit_record",
    "in_force",
    "rejected_policy_line",
    "user_scope",
    "with_entry",
]

DEPLOYMENT = "deployment"
"""The scope of the whole policy."""

POINT_BYTES = 16

Entry = tuple[int, int, bytes]
"""What was admitted in a scope: its number there, the first tick in which it holds, and the record."""


class PolicyReason:
    """Why a record of the topic changes nothing."""

    MALFORMED = "policy_malformed"
    INVALID = "policy_invalid"
    TOO_LATE = "policy_too_late"
    VERSION = "policy_version"
    RATE = "policy_rate"
    EDITS_OFF = "policy_edits_off"


class Point(NamedTuple):
    """What holds in a tick: the number of the deployment's policy, and a digest of whose which edits hold, empty if none does."""

    version: int
    edits: bytes


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
        """Decode a record; see `of`."""
        return cls.of(orjson.loads(record), deployment)

    @classmethod
    def of(cls, document: Any, deployment: Deployment | None = None) -> "Version":
        """Take over a decoded record.

        Raises
        ------
        PolicyError
            If the policy has problems, or does not fit the deployment.
        ValueError
            If it is no record of a policy.
        """
        match document:
            case {"wayveil": "policy", "from_tick": int(tick), "policy": dict(policy)} if type(tick) is int and len(document) == 3:  # noqa: PLR2004
                return cls(tick, parse_policy(policy, deployment))
        raise ValueError("the record is no version of a policy: write it with `wayveil policy put`")


def edit_record(edit: Edit) -> bytes:
    """Encode an edit as a record of the topic."""
    return orjson.dumps({"wayveil": "policy-edit", **edit.model_dump(mode="json", exclude_defaults=True)})


def user_scope(user: str) -> str:
    """Return the scope of a user's own edits."""
    return f"user:{user}"


def in_force(entries: Iterable[Entry], tick: int) -> Entry | None:
    """Return what holds of a scope in a tick: of what has begun, the highest."""
    return max((entry for entry in entries if entry[1] <= tick), default=None)


def with_entry(entries: Iterable[Entry], new: Entry, first_tick: int) -> list[Entry]:
    """Return the entries of a scope with a new one, without those that can hold in no tick from `first_tick` on."""
    every = [*entries, new]
    holding = in_force(every, first_tick)
    return every if holding is None else [entry for entry in every if entry >= holding]


class Timeline:
    """What holds when, of all that has been admitted.

    In a tick the deployment's policy of that tick holds. Where it permits users' edits, the last edit of each user that has begun stands in
    for the rules about that user.

    Parameters
    ----------
    first
        The policy that holds before any version of the topic; None for one that permits no edits.
    deployment
        What every policy fits.
    """

    def __init__(self, first: Policy | None, deployment: Deployment) -> None:
        self._first, self._deployment = Editable(first, deployment) if first else None, deployment
        self._versions: dict[int, tuple[Entry, Editable]] = {}
        self._edits: dict[str, list[tuple[Entry, Edit]]] = {}
        self._changes: list[int] = []
        self._digests: dict[int, bytes] = {}

    def enforce(self, admitted: Mapping[str, Iterable[Entry]]) -> None:
        """Take over what has been admitted and can still hold, by scope; it is all that counts from now on."""
        versions, edits = self._versions, self._edits
        self._versions, self._edits = {}, {}
        for scope, entries in admitted.items():
            if scope == DEPLOYMENT:
                self._versions = {entry[0]: versions.get(entry[0]) or (entry, self._load(entry[2])) for entry in entries}
            else:
                known = {entry[0]: (entry, edit) for entry, edit in edits.get(scope, [])}
                self._edits[scope] = [known.get(entry[0]) or (entry, _load_edit(entry[2])) for entry in sorted(entries)]
        self._changes = sorted({entry[1] for held in self._edits.values() for entry, _ in held})
        self._digests = {}

    def point(self, tick: int) -> Point:
        """Return what holds in a tick."""
        holding = in_force((entry for entry, _ in self._versions.values()), tick)
        held = self._versions[holding[0]][1] if holding else self._first
        number = held.policy.version if held else 0
        change = bisect_right(self._changes, tick)
        if held is None or not held.policy.document.user_edits or not change:
            return Point(number, b"")
        since = self._changes[change - 1]
        if since not in self._digests:
            edits = sorted((edit.user, edit.version) for edit in self._holding(since))
            self._digests[since] = blake2b(orjson.dumps(edits), digest_size=POINT_BYTES).digest()
        return Point(number, self._digests[since])

    def policy(self, tick: int) -> Policy | None:
        """Return the policy that holds in a tick, edits included."""
        point = self.point(tick)
        held = self._versions[point.version][1] if point.version in self._versions else self._first
        if held is None or not point.edits:
            return held.policy if held else None
        return held.merged({edit.user: edit for edit in self._holding(tick)})

    def _load(self, record: bytes) -> Editable:
        return Editable(Version.load(record, self._deployment).policy, self._deployment)

    def _holding(self, tick: int) -> list[Edit]:
        """Return the edit of each user that holds in a tick."""
        found = []
        for held in self._edits.values():
            begun = [edit for entry, edit in held if entry[1] <= tick]
            found += begun[-1:]
        return found


def rejected_policy_line(reason: str, topic: str, offset: int, log_ms: int) -> str:
    """Encode a record that changes nothing, for the topic `rejected`."""
    return rejected_line(f"policy-{offset}", reason, topic, 0, offset, log_ms)


def _load_edit(record: bytes) -> Edit:
    return parse_edit({key: value for key, value in orjson.loads(record).items() if key != "wayveil"})
