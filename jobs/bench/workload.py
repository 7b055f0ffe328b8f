"""First step of the bench: topics filled with fixes, the same ones each time."""

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.errors import UserError
from jobs.kafka import EVENT_TIME, HEARTBEAT, TopicSpec, create_topics, log_ranges
from jobs.kafka.bulk import bulk_sender
from streaming.settings import KafkaSettings

__all__ = ["PARTITIONS", "REGION", "Workload", "records_in", "require_count"]

PARTITIONS = 2
REGION = {"south": 60.0, "west": 24.5, "north": 60.4, "east": 25.4}
START_MS = 1_700_000_040_000
PERIOD_MS = 5_000
MAX_DELAY_MS = 3_000
CLOSING_MS = 120_000


@dataclass(frozen=True)
class Workload:
    """Fixes of some users, each heard once in five seconds: log time, and with it the output, grows with the number of records.

    Nothing is drawn at random. Users live on a grid of homes, walk to and fro at some three metres a second, and their fixes reach the
    log up to three seconds late.

    Parameters
    ----------
    records
        Number of fixes, at least 1.
    users
        Number of users, at least 1.
    """

    records: int
    users: int

    @property
    def topic(self) -> str:
        """Name of the topic that holds these fixes."""
        return f"fixes-{self.records}"

    @property
    def total(self) -> int:
        """Number of records in the topic: the fixes, and a heartbeat in each partition that closes the last ticks."""
        return self.records + PARTITIONS

    def fixes(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (partition, log timestamp in milliseconds, JSON) of each fix; log time never steps back."""
        users = self.users
        for number in range(self.records):
            turn, user = divmod(number, users)
            log_ms = START_MS + turn * PERIOD_MS + user * PERIOD_MS // users
            swing = 100 * abs((turn + user) % 40 - 20)  # millionths of a degree
            value = b'{"user":"user-%07d","t":%d,"lat":60.%06d,"lon":24.%06d,"accuracy":5.0}' % (
                user,
                log_ms - (user * 37 + turn * 611) % MAX_DELAY_MS,
                100_000 + user * 7_919 % 200_000 + swing,
                600_000 + user * 104_729 % 300_000 + swing,
            )
            yield user % PARTITIONS, log_ms, value

    @property
    def end_ms(self) -> int:
        """Log time of the heartbeats: all ticks have closed by then."""
        turn, user = divmod(self.records - 1, self.users)
        return START_MS + turn * PERIOD_MS + user * PERIOD_MS // self.users + CLOSING_MS

    def fill(self, broker: KafkaSettings) -> None:
        """Create the topic and write the fixes into it.

        Parameters
        ----------
        broker
            Where the broker is, and how it is reached.

        Raises
        ------
        UserError
            If the topic does not hold all of them afterwards.
        """
        create_topics(broker, {self.topic: TopicSpec(PARTITIONS, EVENT_TIME)})
        with bulk_sender(broker) as bulk:
            for partition, log_ms, value in self.fixes():
                bulk.send(self.topic, partition, value, log_ms)
            for partition in range(PARTITIONS):
                bulk.send(self.topic, partition, HEARTBEAT, self.end_ms)
        require_count(f"Topic {self.topic}", self.total, records_in(broker, self.topic))


def records_in(broker: KafkaSettings, topic: str) -> int:
    """Count the records of a topic that no transaction has written to."""
    return sum(part.end_offset - part.begin_offset for part in log_ranges(broker, topic).values())


def require_count(what: str, expected: int, found: int) -> None:
    """Refuse a measurement that did not treat every record.

    Raises
    ------
    UserError
        If the numbers differ.
    """
    if found != expected:
        raise UserError(f"{what} has {found:,} records, not {expected:,}, so nothing was measured: see the broker's log, and run again.")
