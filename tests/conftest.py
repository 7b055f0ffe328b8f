"""Fixtures of all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.broker import Broker
from streaming.settings import KafkaSettings


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    """Give a broker that lives as long as the test session."""
    node = Broker(Path(tmp_path_factory.mktemp("broker")))
    try:
        yield KafkaSettings(bootstrap=node.start())
    finally:
        node.stop()
