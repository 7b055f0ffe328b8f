"""Flink alone, as a measure of what it can do at best here: raw records in, the same records out, no Python step and no guarantee."""

import sys
from collections.abc import Sequence

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

from streaming.flink.connection import connection
from streaming.settings import KafkaSettings

__all__ = ["run_identity"]

READ = """
    CREATE TABLE source (record BYTES) WITH (
        'connector' = 'kafka', {connection}, 'topic' = '{topic}', 'format' = 'raw',
        'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'scan.topic-partition-discovery.interval' = '0'
    )"""
WRITE = """
    CREATE TABLE target (record BYTES) WITH (
        'connector' = 'kafka', {connection}, 'topic' = '{topic}', 'format' = 'raw'
    )"""


def run_identity(broker: KafkaSettings, source: str, target: str, parallelism: int, jars: Sequence[str]) -> None:
    """Copy what a topic holds now into another one, and return when that is done.

    Parameters
    ----------
    broker
        Where the broker is, and how it is reached.
    source, target
        Names of existing topics.
    parallelism
        Number of parallel copies, at least 1.
    jars
        Addresses (``file:///…``) of the jars of Flink's Kafka connector.
    """
    configuration = Configuration()
    for key, value in {"pipeline.jars": ";".join(jars), "rest.port": "0", "pipeline.object-reuse": "true"}.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    tables = StreamTableEnvironment.create(env)
    tables.execute_sql(READ.format(connection=connection(broker), topic=source))
    tables.execute_sql(WRITE.format(connection=connection(broker), topic=target))
    tables.execute_sql("INSERT INTO target SELECT record FROM source").wait()


if __name__ == "__main__":
    run_identity(KafkaSettings(bootstrap=sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:])
