"""The graph of the jobs: which steps run, in which order, and what flows between them."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyflink
from py4j.protocol import Py4JJavaError
from pyflink.common import Configuration, JobClient, Types
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, StreamTableEnvironment, TableResult
from pyflink.table.udf import udf

from geo.anchors.index import AnchorIndex
from geo.tiling.tiling import Tiling
from streaming.audiences import deployment_of
from streaming.earlier import EarlierSpends
from streaming.flink.checkpoints import unread_partitions
from streaming.flink.common import COUNTS, EMITTED, POLICIES
from streaming.flink.connection import connection
from streaming.flink.density import PublishDensity
from streaming.flink.functions import CloseTicks, CloseTicksUnderPolicies, PackFixes
from streaming.flink.policies import REJECTED, VERSIONS, AdmitPolicies, LogMillis
from streaming.policy import Policy
from streaming.runs import Partition, Run
from streaming.settings import Settings

__all__ = ["DensityInput", "StreamJob"]

SAVEPOINTS = "savepoints"
BLOCK = DataTypes.ROW([DataTypes.FIELD("shard", DataTypes.INT()), DataTypes.FIELD("block", DataTypes.BYTES())])
READ_RAW = """
    CREATE TABLE raw_{name} (
        record BYTES,
        log_time TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
        log_partition INT METADATA FROM 'partition' VIRTUAL,
        log_offset BIGINT METADATA FROM 'offset' VIRTUAL,
        WATERMARK FOR log_time AS log_time - INTERVAL '0.001' SECOND
    ) WITH (
        'connector' = 'kafka', {connection}, 'topic' = '{topic}', 'format' = 'raw',
        'properties.group.id' = '{group}', 'properties.isolation.level' = 'read_committed',
        'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = '{begin}',
        'scan.topic-partition-discovery.interval' = '0', 'scan.parallelism' = '{parallelism}'{bounded}
    )"""
BOUNDED = ", 'scan.bounded.mode' = 'specific-offsets', 'scan.bounded.specific-offsets' = '{end}'"
WRITE = """
    CREATE TABLE sanitized (
        record_key STRING, record STRING, topic STRING NOT NULL METADATA
    ) WITH (
        'connector' = 'kafka', {connection}, 'topic' = '{topics}',
        'key.format' = 'raw', 'key.fields' = 'record_key', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY',
        'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{run}',
        'properties.transaction.timeout.ms' = '{timeout_ms}'
    )"""


@dataclass(frozen=True)
class DensityInput:
    """What density needs beside the settings: its public tree with the version of its file, and by tick what earlier runs have spent."""

    tiling: Tiling
    version: str
    earlier: dict[int, int]


@dataclass(frozen=True)
class StreamJob:
    """Raw topics -> traces with their public ledger, or density, or both, and the operators' topics.

    Parameters
    ----------
    settings, secret_check, run
        What runs, the digest by which workers know the secret, and the run's products and place in the log.
    earlier
        What earlier runs have spent on traces.
    density
        Needed if density is one of the products.
    policy, anchors
        What audiences of traces may learn, and the public places that it speaks of; None for everything at the settings' radius.
    checkpoint_dir
        Folder of this run's checkpoints.
    jars
        Jars of the connectors.
    resume
        Checkpoint to go on from, or None.
    cluster
        REST address (``host:port``) of the Flink cluster to run on, or None for one within this process.
    """

    settings: Settings
    secret_check: str
    run: Run
    earlier: EarlierSpends
    density: DensityInput | None
    policy: Policy | None
    anchors: AnchorIndex | None
    checkpoint_dir: Path
    jars: Sequence[Path] = ()
    resume: Path | None = None
    cluster: str | None = None

    def start(self) -> TableResult:
        """Build the graph and submit it; the result waits for its end."""
        # By default a local run keeps all workers in this one process, where a single lock serves them.
        os.environ.setdefault("_python_worker_execution_mode", "process")
        env = self._environment()
        env.set_parallelism(self.settings.job.parallelism)
        tables = StreamTableEnvironment.create(env)
        job = self.settings.job

        # raw records: BYTES with log time, partition and offset; the watermark is the log clock
        for number, source in enumerate(self.settings.source):
            parts = [part for part in self.run.inputs if part.topic == source.topic]
            tables.execute_sql(self._read_raw(str(number), parts))
        # blocks: (shard, packed records of one batch)
        pack = udf(PackFixes(self.settings, self.secret_check), result_type=BLOCK, func_type="pandas")
        tables.create_temporary_function("pack_fixes", pack)
        blocks = tables.sql_query(" UNION ALL ".join(self._blocks(number) for number in range(len(self.settings.source))))
        # emitted: (topic, lines of one closed tick); beside them (tick, counts of one shard)
        tiling = self.density.tiling if self.density else None
        close = (
            self.settings,
            self.secret_check,
            self.run.products,
            self.run.horizon_ms,
            self.earlier,
            tiling,
            self.policy,
            self.anchors,
        )
        keyed = tables.to_data_stream(blocks).key_by(lambda block: block[0], key_type=Types.INT())
        versions = self._versions(tables, self.run.policies) if self.run.policies else None
        if versions is None:
            closed = keyed.process(CloseTicks(*close), output_type=EMITTED)
        else:
            closed = keyed.connect(versions.broadcast(POLICIES)).process(CloseTicksUnderPolicies(*close), output_type=EMITTED)
        closed = closed.name("close ticks of shards").uid("close-ticks").set_max_parallelism(max(128, job.shards))
        emitted = closed
        if versions is not None:
            emitted = emitted.union(versions.get_side_output(REJECTED))
        if self.density:
            emitted = emitted.union(self._published(closed, self.density))
        tables.create_temporary_view("emitted", tables.from_data_stream(emitted))
        # records: (key, JSON) for each line, to the topic that the line names
        tables.execute_sql(
            WRITE.format(
                connection=connection(self.settings.kafka),
                topics=";".join(self.settings.written_by_job(self.run.products)),
                run=self.run.group,
                timeout_ms=self.settings.kafka.transaction_timeout_s * 1000,
            )
        )
        return tables.execute_sql("""
            INSERT INTO sanitized
            SELECT SPLIT_INDEX(line, CHR(9), 0), SPLIT_INDEX(line, CHR(9), 1), topic
            FROM emitted CROSS JOIN UNNEST(SPLIT(lines, CHR(10))) AS each_line(line)""")

    def covers_all_input(self, checkpoint: Path) -> bool:
        """Tell whether a checkpoint of this bounded job leaves nothing to read; False if a newer one has replaced it meanwhile."""
        try:
            return not unread_partitions(checkpoint)
        except Py4JJavaError:
            if (checkpoint / "_metadata").exists():
                raise
            return False

    def drain(self, client: JobClient) -> None:
        """End the job as if its sources had ended: the last watermark, a last savepoint, and the commit of what it wrote."""
        self._end(client, drain=True)

    def stop(self, client: JobClient) -> None:
        """Stop the job where it is, with a savepoint to go on from and the commit of what it wrote until then."""
        self._end(client, drain=False)

    def _end(self, client: JobClient, *, drain: bool) -> None:
        # JobClient.stop_with_savepoint of PyFlink 2.3 calls a Java method that Flink 2 no longer has.
        form = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.NATIVE
        client._j_job_client.stopWithSavepoint(drain, (self.checkpoint_dir / SAVEPOINTS).resolve().as_uri(), form).get()

    def _versions(self, tables: StreamTableEnvironment, policies: Partition) -> DataStream:
        """Return the admitted versions of the policy."""
        tables.execute_sql(self._read_raw("policies", [policies]))
        tables.create_temporary_function("log_millis", udf(LogMillis(), result_type=DataTypes.BIGINT(), func_type="pandas"))
        records = tables.sql_query("SELECT record, log_millis(CAST(log_time AS TIMESTAMP(3))) AS log_ms, log_offset FROM raw_policies")
        admit = AdmitPolicies(self.settings, self.policy, deployment_of(self.settings, self.anchors))
        return (
            tables.to_data_stream(records)
            .key_by(lambda _: 0, key_type=Types.INT())
            .process(admit, output_type=VERSIONS)
            .name("admit policies")
            .uid("admit-policies")
        )

    def _published(self, closed: DataStream, density: DensityInput) -> DataStream:
        publish = PublishDensity(
            self.settings,
            self.secret_check,
            self.run.first_tick if any(part.first_ms is not None for part in self.run.inputs) else None,
            self.run.horizon_ms,
            density.earlier,
            density.tiling,
            density.version,
        )
        # One tree a tick over all shards, so one key. Its other subtasks idle, but with fewer of them records would be spread over the
        # subtasks of the sink, and so lose their order.
        return (
            closed.get_side_output(COUNTS)
            .key_by(lambda _: 0, key_type=Types.INT())
            .process(publish, output_type=EMITTED)
            .name("publish density")
            .uid("publish-density")
        )

    def _read_raw(self, name: str, parts: Sequence[Partition]) -> str:
        return READ_RAW.format(
            name=name,
            connection=connection(self.settings.kafka),
            topic=parts[0].topic,
            group=self.run.group,
            parallelism=min(self.settings.job.parallelism, len(parts)),
            begin=";".join(f"partition:{p.partition},offset:{p.begin}" for p in parts),
            bounded=BOUNDED.format(end=";".join(f"partition:{p.partition},offset:{p.end}" for p in parts))
            if self.run.horizon_ms is not None
            else "",
        )

    @staticmethod
    def _blocks(number: int) -> str:
        return f"""
            SELECT packed.shard AS shard, packed.block AS block
            FROM (
                SELECT pack_fixes(record, CAST(log_time AS TIMESTAMP(3)), log_partition, log_offset, {number}) AS packed FROM raw_{number}
            )
            WHERE packed.block IS NOT NULL"""

    def _environment(self) -> StreamExecutionEnvironment:
        configuration = self._configuration()
        if self.cluster is None:
            return StreamExecutionEnvironment.get_execution_environment(configuration)
        # That function has what it is given run within this process, whatever target the configuration names.
        environment = get_gateway().jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
        return StreamExecutionEnvironment(environment(configuration._j_configuration))

    def _configuration(self) -> Configuration:
        job = self.settings.job
        values = {
            "pipeline.name": self.run.job_name,
            "python.executable": sys.executable,
            "python.client.executable": sys.executable,
            "python.fn-execution.bundle.size": str(job.batch),
            "python.fn-execution.arrow.batch.size": str(job.batch),
            "python.fn-execution.bundle.time": "200",
            "execution.checkpointing.interval": f"{round(job.checkpoint_interval_s * 1000)} ms",
            # The default (memory of the job manager) fails once windows hold real state.
            "execution.checkpointing.storage": "filesystem",
            "execution.checkpointing.dir": self.checkpoint_dir.resolve().as_uri(),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            # With checkpoints on, the default strategy retries for ever.
            "restart-strategy.type": "fixed-delay" if job.restarts else "none",
            "restart-strategy.fixed-delay.attempts": str(max(1, job.restarts)),
            "restart-strategy.fixed-delay.delay": "1 s",
            # Copies between chained steps would copy a block of lines once for each of its lines.
            "pipeline.object-reuse": "true",
            # CAST of a log time to TIMESTAMP must not move it.
            "table.local-time-zone": "UTC",
        }
        jars = list(self.jars)
        if self.cluster is None:
            values["rest.port"] = "0"
        else:
            values["execution.target"] = "remote"
            values["rest.address"], _, values["rest.port"] = self.cluster.rpartition(":")
            # A cluster knows Python steps from this jar alone, and `pipeline.jars` takes the place of what PyFlink would send.
            jars += (Path(pyflink.__file__).parent / "opt").glob("flink-python-*.jar")
        values["pipeline.jars"] = ";".join(jar.resolve().as_uri() for jar in jars)
        if self.resume is not None:
            values["execution.state-recovery.path"] = self.resume.resolve().as_uri()
        configuration = Configuration()
        for key, value in values.items():
            configuration.set_string(key, value)
        return configuration
