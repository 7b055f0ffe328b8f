"""The local broker: one process per folder, whatever happened to the one before."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.broker import Broker, BrokerStatus
from jobs.errors import UserError
from jobs.kafka import TopicSpec, create_topics, read_committed, send_all
from streaming.settings import KafkaSettings

TOPIC = "things"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "a folder, with é")
    yield broker
    broker.stop()


def record_file(node: Broker) -> Path:
    return node.data / "broker.json"


def test_nothing_runs_in_an_empty_folder(node: Broker) -> None:
    assert node.status() == BrokerStatus(running=False)
    assert node.stop() is False


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_file_counts_as_stopped(node: Broker, content: str) -> None:
    node.data.mkdir()
    record_file(node).write_text(content)
    assert not node.status().running


def test_a_number_that_another_process_has_now_counts_as_stopped(node: Broker) -> None:
    node.data.mkdir()
    record_file(node).write_text(json.dumps({"pid": os.getpid(), "started": "1", "port": 1, "internal_port": 2, "controller_port": 3}))
    assert not node.status().running
    assert node.stop() is False  # and this process still lives


def test_missing_jars(node: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WAYVEIL_JARS", str(tmp_path))
    with pytest.raises(UserError, match="run `make setup`"):
        node.start()


@pytest.mark.integration
def test_a_taken_port_is_refused(node: Broker) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=f"Port {port} is taken"):
            node.start(port)
    assert not node.status().running


@pytest.mark.integration
def test_life_of_a_broker(node: Broker) -> None:
    # start ── second start refused ── kill -9 ── restart at the same address ── stop ── restart at another address
    #   └ 1 record                                    └ 2 records                              └ 3 records
    address = node.start()
    broker = KafkaSettings(bootstrap=address)
    create_topics(broker, {TOPIC: TopicSpec()})
    assert send_all(broker, [(TOPIC, 0, None, b"1", None)]).sent == 1

    status = Broker(node.data).status()
    assert status.bootstrap == address
    with pytest.raises(UserError, match="A broker runs already"):
        Broker(node.data).start()

    assert status.pid is not None
    os.kill(status.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while node.status().running and time.monotonic() < deadline:
        time.sleep(0.05)
    assert record_file(node).exists()
    assert not node.status().running

    assert node.start() == address
    assert send_all(broker, [(TOPIC, 0, None, b"2", None)]).sent == 1
    assert [value for *_, value in read_committed(broker, TOPIC)] == [b"1", b"2"]

    assert node.stop() is False
    assert node.status() == BrokerStatus(running=False)

    record = json.loads(record_file(node).read_text())
    with socket.create_server(("127.0.0.1", record["port"])), socket.create_server(("127.0.0.1", record["controller_port"])):
        address = node.start()
    moved = KafkaSettings(bootstrap=address)
    assert moved != broker
    assert send_all(moved, [(TOPIC, 0, None, b"3", None)]).sent == 1
    assert [value for *_, value in read_committed(moved, TOPIC)] == [b"1", b"2", b"3"]
    create_topics(moved, {"more": TopicSpec()})


@pytest.mark.integration
def test_a_broker_that_does_not_listen_is_killed(node: Broker) -> None:
    node.start()
    pid = node.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert node.stop(timeout_s=0.5) is True
    assert not node.status().running


@pytest.mark.integration
def test_a_broker_that_ends_while_starting_names_its_log(node: Broker) -> None:
    node.data.mkdir()
    (node.data / "log").mkdir()
    (node.data / "log" / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=other\n")
    with pytest.raises(UserError, match=r"ended while starting: .*broker\.log"):
        node.start()
    assert node.log_file.stat().st_size > 0
