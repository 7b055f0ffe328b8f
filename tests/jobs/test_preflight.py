"""What is missing is said in one sentence that tells what to do."""

import socket
from pathlib import Path

import pytest
from pydantic import ValidationError

from jobs import preflight
from jobs.errors import UserError
from streaming.settings import KafkaSettings


def fake_java(folder: Path, output: str) -> None:
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    program.chmod(0o755)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    return tmp_path


def test_no_java(path: Path) -> None:
    with pytest.raises(UserError, match="Java is missing"):
        preflight.java_program()


@pytest.mark.parametrize(("output", "version"), [('java version "1.8.0_392"', "8"), ('openjdk version "11.0.21" 2023-10-17', "11")])
def test_old_java(path: Path, output: str, version: str) -> None:
    fake_java(path, output)
    with pytest.raises(UserError, match=f"Java {version} is too old"):
        preflight.java_program()


@pytest.mark.parametrize("output", ['openjdk version "17.0.9" 2023-10-17', 'openjdk version "21" 2023-09-19', 'openjdk version "25-ea"'])
def test_new_java(path: Path, output: str) -> None:
    fake_java(path, output)
    assert preflight.java_program() == str(path / "java")


def test_java_that_does_not_answer(path: Path) -> None:
    fake_java(path, "no runtime present")
    with pytest.raises(UserError, match="does not answer"):
        preflight.java_program()


def test_java_home_goes_first(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    fake_java(path, 'java version "1.8.0"')
    home = tmp_path_factory.mktemp("home")
    (home / "bin").mkdir()
    fake_java(home / "bin", 'openjdk version "17"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert preflight.java_program() == str(home / "bin" / "java")


def test_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WAYVEIL_JARS", str(tmp_path))
    with pytest.raises(UserError, match="The flink jars are missing: run `make setup`"):
        preflight.require_jars("flink")
    (tmp_path / "flink").mkdir()
    jar = tmp_path / "flink" / "other-1.jar"
    jar.touch()
    assert preflight.require_jars("flink") == [jar]
    with pytest.raises(UserError, match="run `make setup`"):
        preflight.require_jars("flink", "flink-sql-connector-kafka")


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", ":9092", "host:port", "good:1,bad"])
def test_malformed_address(address: str) -> None:
    with pytest.raises(ValidationError, match="bootstrap"):
        KafkaSettings(bootstrap=address)


def test_unreachable_broker() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(UserError, match="No Kafka broker answers"):
            preflight.require_broker(KafkaSettings(bootstrap=f"127.0.0.1:{silent.getsockname()[1]}"))


def test_any_reachable_address_suffices() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        preflight.require_broker(KafkaSettings(bootstrap=f"127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}"))


@pytest.mark.integration
def test_missing_topics_are_all_named(broker: KafkaSettings) -> None:
    with pytest.raises(UserError, match="Topics nowhere, never do not exist"):
        preflight.require_topics(broker, "nowhere", "never")
