"""Which records of the topic `policies` change what, and from which tick on; the same live and in a replay."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import orjson

from streaming.policy import Deployment, Editable, Policy, PolicyError, parse_edit
from streaming.policy_log import DEPLOYMENT, Entry, PolicyReason, Version, edit_record, in_force, user_scope, with_entry
from streaming.records import HEARTBEAT
from streaming.settings import Settings
from streaming.shard import tick_grid

__all__ = ["MAX_EDIT_BYTES", "MAX_POLICY_BYTES", "MAX_STEP", "Admission", "Admitted", "Memory"]

MAX_POLICY_BYTES = 900_000
MAX_EDIT_BYTES = 16_384
MAX_TICK = 1 << 53
MAX_STEP = 1_000_000
"""So far may a version's number be above the last one: a slip must not use up all numbers."""


class Memory(Protocol):
    """What was admitted and can still hold, by scope; a map state of Flink is one."""

    def get(self, scope: str) -> Iterable[Entry] | None:
        """Return the entries of a scope, or None."""

    def put(self, scope: str, entries: list[Entry]) -> None:
        """Remember the entries of a scope."""


class Admitted(NamedTuple):
    """A record that changes something: its scope and its entry there."""

    scope: str
    number: int
    from_tick: int
    record: bytes


class Admission:
    """Judge the records of the topic, in the order of their offsets.

    Guarantee
        What becomes of a record is a function of the records up to it, of its log time and those before, and of the settings. An edit
        holds from the first tick of the first public epoch (`privacy.epoch_ticks`) that begins after its log time, and of one user at most
        one is admitted that holds from the same epoch: when an edit was made shows to an epoch, where it was made not at all.
        Whatever a record holds, it is judged and nothing is raised; what is admitted can be put in force.

    A version of the policy names its first tick itself; that has to begin after the record's log time. An edit has to fit the policy that
    holds in its first tick, as far as admitted before. What holds if it no longer fits a later version is
    for `Editable` to say.

    Parameters
    ----------
    settings
        Ticks and epochs.
    first
        The policy that holds at first, or None.
    deployment
        What a policy has to fit.
    memory
        Changed by `admit`; it holds an entry for every user with an edit, and the versions that can still hold.
    """

    def __init__(self, settings: Settings, first: Policy | None, deployment: Deployment, memory: Memory) -> None:
        self._grid, self._epoch_ticks = tick_grid(settings), settings.privacy.epoch_ticks
        self._first = Editable(first, deployment) if first else None
        self._deployment, self._memory = deployment, memory
        self._read: dict[int, Editable] = {}

    def admit(self, record: bytes | None, clock_ms: int) -> Admitted | str | None:
        """Judge a record.

        Parameters
        ----------
        record
            Its value.
        clock_ms
            The highest log time of the records up to this one.

        Returns
        -------
        Admitted, str or None
            What it changes; or why it changes nothing, one of `PolicyReason`; or None for a heartbeat.
        """
        document = _decode(record)
        if document == HEARTBEAT:
            return None
        match document:
            case {"wayveil": "policy"}:
                found = self._version(document, clock_ms)
            case {"wayveil": "policy-edit", "user": str(), "rule": list()} if len(record or b"") <= MAX_EDIT_BYTES:
                found = self._edit({key: value for key, value in document.items() if key != "wayveil"}, clock_ms)
            case _:
                found = PolicyReason.MALFORMED
        if isinstance(found, Admitted):
            kept = found.record if found.scope == DEPLOYMENT else b""
            held = with_entry(self._memory.get(found.scope) or [], (found.number, found.from_tick, kept), self.next_epoch(clock_ms))
            self._memory.put(found.scope, held)
        return found

    def next_epoch(self, clock_ms: int) -> int:
        """Return the first tick of the first epoch that begins after a log time."""
        epoch_ms = self._epoch_ticks * self._grid.length_ms
        return (clock_ms // epoch_ms + 1) * self._epoch_ticks

    def last_version(self) -> int:
        """Return the number of the version that was admitted last, or of the policy that holds at first; 0 if there is none."""
        return max((number for number, *_ in self._memory.get(DEPLOYMENT) or []), default=self._first.policy.version if self._first else 0)

    def base(self, tick: int) -> Editable | None:
        """Return the deployment's policy that holds in a tick of a coming epoch, as far as admitted, or None if there is none."""
        entry = in_force(self._memory.get(DEPLOYMENT) or [], tick)
        if entry is None:
            return self._first
        if entry[0] not in self._read:
            self._read = {entry[0]: Editable(Version.load(entry[2], self._deployment).policy, self._deployment)}
        return self._read[entry[0]]

    def _version(self, document: Any, clock_ms: int) -> Admitted | str:
        try:
            version = Version.of(document, self._deployment)
            dumped = version.dump()
        except PolicyError:
            return PolicyReason.INVALID
        except ValueError:
            return PolicyReason.MALFORMED
        except Exception:  # whatever it is, a record must not stop the job
            return PolicyReason.INVALID
        last = self.last_version()
        if not last < version.policy.version <= last + MAX_STEP:
            return PolicyReason.VERSION
        if version.from_tick >= MAX_TICK or self._grid.start_ms(version.from_tick) <= clock_ms:
            return PolicyReason.TOO_LATE
        return Admitted(DEPLOYMENT, version.policy.version, version.from_tick, dumped)

    def _edit(self, document: dict[str, Any], clock_ms: int) -> Admitted | str:
        try:
            edit = parse_edit(document)
            dumped = edit_record(edit)
        except Exception:  # whatever it is, a record must not stop the job
            return PolicyReason.INVALID
        from_tick = self.next_epoch(clock_ms)
        base = self.base(from_tick)
        if base is None or not base.policy.document.user_edits:
            return PolicyReason.EDITS_OFF
        last = max(self._memory.get(user_scope(edit.user)) or [], default=None)
        if last is not None and edit.version <= last[0]:
            return PolicyReason.VERSION
        if last is not None and from_tick <= last[1]:
            return PolicyReason.RATE
        try:
            fits = not base.unfit({edit.user: edit})
        except Exception:  # as above
            fits = False
        return Admitted(user_scope(edit.user), edit.version, from_tick, dumped) if fits else PolicyReason.INVALID


def _decode(record: bytes | None) -> Any:
    if record is None or len(record) > MAX_POLICY_BYTES:
        return None
    try:
        return orjson.loads(record)
    except (ValueError, RecursionError):
        return None
