"""Last step of a replay to Kafka: the records of the log -> the topics that the job reads, each once, also after an interruption."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from jobs.errors import UserError
from jobs.kafka import identify_topics, log_ranges
from jobs.kafka.bulk import bulk_sender
from jobs.kafka.connect import admin_client
from jobs.kafka.reading import last_records
from jobs.kafka.topics import config_value
from jobs.preflight import require_topics
from jobs.replay.log import Record
from streaming.settings import KafkaSettings

__all__ = ["Destination", "open_destination", "send_log"]

PROGRESS_EVERY = 5_000
PATIENCE_S = 0.05


@dataclass(frozen=True)
class Destination:
    """Where a replay goes on in the log.

    Since each partition holds the beginning of what belongs there, in order and without repeats, the log itself says how far the replay
    has come; only the offsets at which it began are kept in a file beside it.

    Attributes
    ----------
    broker : KafkaSettings
        The broker.
    topic : str
        The topic of the fixes.
    begin : dict of int to int
        Offset of each partition at which the replay begins.
    done : dict of int to int
        Records of this replay that each partition has already.
    last : dict of int to tuple of (bytes or None, int)
        Value and log time of the last record of each partition that has any.
    beside : dict of str to dict of int to int
        Other topics that the job reads, which get heartbeats: log time of the last record of each partition, or -1.
    journal : Path
        The file that says where the replay begins.
    contents : str
        Digest of what is replayed.
    resumed : bool
        Whether it began earlier.
    """

    broker: KafkaSettings
    topic: str
    begin: dict[int, int]
    done: dict[int, int]
    last: dict[int, tuple[bytes | None, int]]
    beside: dict[str, dict[int, int]]
    journal: Path
    contents: str
    resumed: bool


def open_destination(broker: KafkaSettings, topic: str, beside: Iterable[str], folder: Path, contents: str, resume: bool) -> Destination:
    """Look up where a replay goes on, or note where it begins.

    Parameters
    ----------
    broker : KafkaSettings
        The broker.
    topic : str
        The topic of the fixes.
    beside : iterable of str
        Other topics that the job reads.
    folder : Path
        Folder of the notes about replays; created when missing.
    contents : str
        Digest of what is replayed, which stays the same when it is resumed.
    resume : bool
        Go on with a replay that was interrupted.

    Raises
    ------
    UserError
        If a topic is missing or has the broker's times, or if there is nothing, or something, to resume.
    """
    beside = list(beside)
    require_topics(broker, topic, *beside)
    with admin_client(broker) as admin:
        for name in (topic, *beside):
            if config_value(admin, name, "message.timestamp.type") != "CreateTime":
                raise UserError(f"Topic {name} has the broker's times: make it with `wayveil topics create --replay`, or name another one.")
    identity = identify_topics(broker, topic)[topic]
    journal = folder / f"{identity}.json"
    ranges = log_ranges(broker, topic)
    noted = orjson.loads(journal.read_bytes()) if journal.exists() else None
    if resume:
        if noted is None or noted["ended"]:
            raise UserError(f"There is no unfinished replay to topic {topic} in {folder}: start it without --resume.")
        if noted["contents"] != contents:
            raise _Others(topic)
        begin = {int(number): offset for number, offset in noted["begin"].items()}
    else:
        if noted is not None and not noted["ended"]:
            raise UserError(f"An unfinished replay has begun to fill topic {topic}: go on with it by --resume, or delete the topic.")
        begin = {number: part.end_offset for number, part in ranges.items()}
    folder.mkdir(parents=True, exist_ok=True)
    _note(journal, begin, contents, ended=False)
    clocks = {name: {number: _or_before(part.last_ms) for number, part in log_ranges(broker, name).items()} for name in beside}
    done = {number: part.end_offset - begin[number] for number, part in ranges.items()}
    return Destination(broker, topic, begin, done, last_records(broker, topic), clocks, journal, contents, resume)


@dataclass
class _Pace:
    """Lets event time pass at most so many times as fast as the clock on the wall; None: as fast as it goes."""

    speed: float | None
    _since: tuple[int, float] | None = field(default=None, init=False)

    def wait(self, t_ms: int) -> None:
        if self.speed is None:
            return
        if self._since is None:
            self._since = (t_ms, time.monotonic())
        first_ms, start = self._since
        ahead_s = start + (t_ms - first_ms) / 1000 / self.speed - time.monotonic()
        if ahead_s > PATIENCE_S:
            time.sleep(ahead_s)


def send_log(to: Destination, records: Iterable[Record], speed: float | None, progress: Callable[[int], None]) -> None:
    """Write the records that are not in the log yet.

    Parameters
    ----------
    to : Destination
        Where to.
    records : iterable of Record
        All records of the replay, from its beginning, also if it was interrupted.
    speed : float or None
        Event time against the wall's, above 0; None for as fast as the broker takes records.
    progress : callable
        Called now and then with the number of fixes that are in the log.

    Raises
    ------
    UserError
        If the topic's records are not those that this replay would have written, are later than its first one, or if the broker does not
        take them.
    """
    left, pace, sent, fixes = dict(to.done), _Pace(speed), dict.fromkeys(to.done, 0), 0
    newest = max((t_ms for _, t_ms in to.last.values()), default=None)
    with bulk_sender(to.broker) as bulk:
        for record in records:
            if not to.resumed and newest is not None and record.t_ms < newest:
                to.journal.unlink()
                raise UserError(
                    f"Topic {to.topic} holds later records than the first of these files, which would come too late: replay older files "
                    "first, all of them at once, or to another topic."
                )
            newest = None
            for partition in left if record.partition is None else (record.partition,):
                sent[partition] += 1
                if left[partition]:
                    left[partition] -= 1
                    if not left[partition] and to.last[partition] != (record.value, record.t_ms):
                        raise _Others(to.topic)
                    continue
                pace.wait(record.t_ms)
                bulk.send(to.topic, partition, record.value, record.t_ms)
            if record.partition is None:
                for name, clocks in to.beside.items():
                    for partition, clock in clocks.items():
                        if record.t_ms > clock:
                            bulk.send(name, partition, record.value, record.t_ms)
            else:
                fixes += 1
                if fixes % PROGRESS_EVERY == 0:
                    progress(fixes)
        if any(left.values()):
            raise _Others(to.topic)
    progress(fixes)
    found = {number: part.end_offset - to.begin[number] for number, part in log_ranges(to.broker, to.topic).items()}
    if found != sent:
        raise _Others(to.topic)
    _note(to.journal, to.begin, to.contents, ended=True)


class _Others(UserError):
    """The log does not hold what this replay writes."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"Topic {topic} does not hold what this replay writes: resume it with the same files and options, and let nobody else write "
            "there meanwhile; else delete the topic and start again."
        )


def _or_before(t_ms: int | None) -> int:
    return -1 if t_ms is None else t_ms


def _note(journal: Path, begin: dict[int, int], contents: str, *, ended: bool) -> None:
    draft = journal.with_suffix(".tmp")
    said = {"begin": {str(number): offset for number, offset in begin.items()}, "contents": contents, "ended": ended}
    draft.write_bytes(orjson.dumps(said))
    draft.replace(journal)
