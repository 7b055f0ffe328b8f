"""What the programs ask of Kafka, against a real broker."""

from itertools import count

import kafka
import pytest

from jobs.errors import UserError
from jobs.kafka import (
    EVENT_TIME,
    HEARTBEAT,
    LogRange,
    TopicSpec,
    create_topics,
    heartbeat,
    log_ranges,
    product_topics,
    read_committed,
    send_all,
)
from streaming.settings import KafkaSettings, parse_settings

_numbers = count()
SETTINGS = parse_settings({"region": {"name": "r", "south": 1, "west": 1, "north": 2, "east": 2}, "secret": {"env": "SECRET"}})
YEAR_2008_MS = 1_201_959_000_000


def new_topic(broker: KafkaSettings, partitions: int = 1, **config: str) -> str:
    name = f"topic-{next(_numbers)}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    create_topics(broker, {name: TopicSpec(partitions, {**EVENT_TIME, **settings})})
    return name


def values(broker: KafkaSettings, topic: str) -> list[bytes | None]:
    return [value for *_, value in read_committed(broker, topic)]


def write_in_transaction(broker: KafkaSettings, topic: str, *contents: bytes, commit: bool) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"writer-{next(_numbers)}")
    producer.init_transactions()
    producer.begin_transaction()
    for content in contents:
        producer.send(topic, content)
    producer.flush()
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    producer.close()


def test_product_topics_that_are_ordered_as_a_whole_have_one_partition() -> None:
    topics = product_topics(SETTINGS, 8)
    assert {name for name, spec in topics.items() if spec.partitions == 1} == {"runs"}


def test_inputs_of_a_replay_carry_event_times() -> None:
    topics = product_topics(SETTINGS, 8, replay=True)
    assert {name for name, spec in topics.items() if spec.config.get("message.timestamp.type") == "CreateTime"} == {"fixes"}


@pytest.mark.parametrize("function", [log_ranges, lambda at, topic: list(read_committed(at, topic)), heartbeat])
def test_unreachable_broker(function) -> None:
    with pytest.raises(UserError, match="No Kafka broker answers"):
        function(KafkaSettings(bootstrap="127.0.0.1:1"), "fixes")


@pytest.mark.integration
class TestTopics:
    def test_creation_is_idempotent(self, broker: KafkaSettings) -> None:
        topics = {"once": TopicSpec(3), "twice": TopicSpec(1, EVENT_TIME)}
        assert create_topics(broker, topics) == ["once", "twice"]
        assert create_topics(broker, topics) == []

    def test_another_number_of_partitions_is_refused(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker, 2)
        with pytest.raises(UserError, match="exists with 2 partitions, not 3"):
            create_topics(broker, {topic: TopicSpec(3, EVENT_TIME)})

    def test_another_kind_of_timestamp_is_refused(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker)
        with pytest.raises(UserError, match="exists with CreateTime timestamps, not LogAppendTime"):
            create_topics(broker, {topic: TopicSpec(1)})

    def test_a_wrong_setting_is_refused(self, broker: KafkaSettings) -> None:
        with pytest.raises(UserError, match="refused to create topic wrong"):
            create_topics(broker, {"wrong": TopicSpec(1, {"no.such.setting": "1"})})

    def test_the_broker_stamps_live_records(self, broker: KafkaSettings) -> None:
        create_topics(broker, {"live": TopicSpec(1)})
        send_all(broker, [("live", 0, None, b"x", YEAR_2008_MS)])
        [(_, _, timestamp_ms, _, _)] = read_committed(broker, "live")
        assert timestamp_ms > 1_700_000_000_000


@pytest.mark.integration
class TestReadCommitted:
    def test_an_empty_topic_ends_at_once(self, broker: KafkaSettings) -> None:
        assert values(broker, new_topic(broker, 3)) == []

    def test_every_field_comes_back(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker, 2)
        send_all(broker, [(topic, 0, b"k", b"v", YEAR_2008_MS), (topic, 1, None, b"w", YEAR_2008_MS + 1), (topic, 0, b"gone", None, 5)])
        assert sorted(read_committed(broker, topic)) == [
            (0, 0, YEAR_2008_MS, b"k", b"v"),
            (0, 1, 5, b"gone", None),
            (1, 0, YEAR_2008_MS + 1, None, b"w"),
        ]

    def test_more_than_one_poll(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker, 3)
        assert send_all(broker, ((topic, None, b"%d" % i, b"%d" % i, None) for i in range(20_000))).sent == 20_000
        assert sorted(int(value or b"") for value in values(broker, topic)) == list(range(20_000))

    def test_ends_on_a_commit_marker(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker)
        write_in_transaction(broker, topic, b"a", b"b", commit=True)
        assert values(broker, topic) == [b"a", b"b"]

    def test_ends_after_an_aborted_transaction(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker)
        send_all(broker, [(topic, 0, None, b"kept", None)])
        write_in_transaction(broker, topic, b"a", b"b", commit=False)
        assert values(broker, topic) == [b"kept"]

    def test_a_topic_of_aborted_records_only(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker)
        write_in_transaction(broker, topic, b"a", commit=False)
        assert values(broker, topic) == []

    def test_stops_before_an_open_transaction(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker)
        send_all(broker, [(topic, 0, None, b"before", None)])
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="open")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open").get(timeout=10)
        send_all(broker, [(topic, 0, None, b"behind", None)])
        assert values(broker, topic) == [b"before"]
        producer.abort_transaction()
        producer.close()
        assert values(broker, topic) == [b"before", b"behind"]

    def test_a_missing_topic(self, broker: KafkaSettings) -> None:
        with pytest.raises(UserError, match="Topic nowhere does not exist"):
            values(broker, "nowhere")


@pytest.mark.integration
class TestLogRanges:
    def test_ranges(self, broker: KafkaSettings) -> None:
        # partition 0: three records    1: empty    2: one record, then 1 + 2 aborted offsets    3: aborted offsets only
        topic = new_topic(broker, 4)
        send_all(broker, [(topic, 0, None, b"%d" % t, t) for t in (100, 300, 200)])
        send_all(broker, [(topic, 2, None, b"x", 700)])
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="ranges")
        producer.init_transactions()
        producer.begin_transaction()
        for partition in (2, 2, 3):
            producer.send(topic, b"gone", partition=partition)
        producer.flush()
        producer.abort_transaction()
        producer.close()
        assert log_ranges(broker, topic) == {
            0: LogRange(0, 3, 100, 200),
            1: LogRange(0, 0, None, None),
            2: LogRange(0, 1, 700, 700),
            3: LogRange(0, 0, None, None),
        }


@pytest.mark.integration
class TestSendAll:
    def test_an_oversized_record_is_counted_and_the_others_are_sent(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker)
        seen: list[int] = []
        big = b"x" * 2_000_000
        report = send_all(broker, [(topic, 0, None, value, None) for value in (b"a", big, b"b")], seen.append)
        assert (report.sent, report.failed) == (2, {"MessageSizeTooLargeError": 1})
        assert values(broker, topic) == [b"a", b"b"]
        assert seen[-1] == 3

    def test_a_record_that_the_broker_finds_too_large(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker, max_message_bytes="1000")
        report = send_all(broker, [(topic, 0, None, value, None) for value in (b"a", b"x" * 5_000, b"b", b"c")])
        assert (report.sent, report.failed) == (3, {"MessageSizeTooLargeError": 1})
        assert values(broker, topic) == [b"a", b"b", b"c"]

    def test_batches_fit_a_topic_of_small_records(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker, max_message_bytes="300")
        report = send_all(broker, [(topic, 0, None, b"x" * size, None) for size in range(1, 301)])
        assert report.sent + sum(report.failed.values()) == 300
        assert report.sent > 200
        assert set(report.failed) == {"MessageSizeTooLargeError"}
        assert [len(value or b"") for value in values(broker, topic)] == list(range(1, report.sent + 1))

    def test_a_record_without_key_and_value_is_refused(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker)
        report = send_all(broker, [(topic, 0, None, None, None), (topic, 0, None, b"a", None)])
        assert (report.sent, report.failed) == (1, {"ValueError": 1})

    def test_a_partition_that_does_not_exist_is_refused(self, broker: KafkaSettings) -> None:
        topic = new_topic(broker)
        report = send_all(broker, [(topic, 9, None, b"x", None), (topic, 0, None, b"a", None)])
        assert report.sent == 1
        assert sum(report.failed.values()) == 1

    def test_a_missing_topic(self, broker: KafkaSettings) -> None:
        with pytest.raises(UserError, match="Topic nowhere does not exist"):
            send_all(broker, [("nowhere", 0, None, b"x", None)])

    def test_nothing_to_send(self, broker: KafkaSettings) -> None:
        assert send_all(broker, []).sent == 0


@pytest.mark.integration
def test_a_heartbeat_reaches_every_partition(broker: KafkaSettings) -> None:
    topic = new_topic(broker, 5)
    assert heartbeat(broker, topic, YEAR_2008_MS) == 5
    assert sorted(read_committed(broker, topic)) == [(number, 0, YEAR_2008_MS, None, HEARTBEAT) for number in range(5)]
