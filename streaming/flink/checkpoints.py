"""What a checkpoint says of the sources: which partitions they had still to read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.java_gateway import get_gateway

__all__ = ["unread_partitions"]

READER_STATE = "SourceReaderState"


def unread_partitions(checkpoint: Path) -> set[tuple[str, int]]:
    """Return (topic, partition) of every Kafka split that a checkpoint holds: one that has been read to its end is in it no more.

    The offsets that the source commits to Kafka cannot tell: it commits them after the checkpoint and without waiting, so that
    a job that dies, or a source that ends, may never do so.

    Parameters
    ----------
    checkpoint
        Folder of a complete checkpoint. The connector's jar must be loaded in the JVM, as it is once the graph has been built.
    """
    jvm = get_gateway().jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    source = jvm.org.apache.flink.connector.kafka.source
    split_serializer, state_serializer = source.split.KafkaPartitionSplitSerializer(), source.enumerator.KafkaSourceEnumStateSerializer()
    read_versioned = jvm.org.apache.flink.core.io.SimpleVersionedSerialization.readVersionAndDeSerialize

    file = jvm.java.io.DataInputStream(jvm.java.io.FileInputStream(str(checkpoint / "_metadata")))
    try:
        metadata = jvm.org.apache.flink.runtime.checkpoint.Checkpoints.loadCheckpointMetadata(file, loader, checkpoint.as_uri())
    finally:
        file.close()
    splits: list[Any] = []
    for operator in _each(metadata.getOperatorStates()):
        splits += [read_versioned(split_serializer, state) for state in _reader_states(jvm, operator)]
        if operator.getCoordinatorState() is not None:
            view = jvm.java.io.DataInputStream(operator.getCoordinatorState().openInputStream())
            view.readInt()  # version of the coordinator's own format
            version, size = view.readInt(), view.readInt()
            splits += _each(state_serializer.deserialize(version, view.readNBytes(size)).unassignedSplits())
    return {(split.getTopic(), split.getPartition()) for split in splits}


def _reader_states(jvm: Any, operator: Any) -> Iterator[bytes]:
    """Yield the serialized splits of one operator's source readers."""
    for subtask in _each(operator.getStates()):
        for handle in _each(subtask.getManagedOperatorState()):
            info = handle.getStateNameToPartitionOffsets().get(READER_STATE)
            if info is None:
                continue
            stream = handle.openInputStream()
            view = jvm.org.apache.flink.core.memory.DataInputViewStreamWrapper(stream)
            for offset in info.getOffsets():
                stream.seek(offset)
                yield jvm.org.apache.flink.api.common.typeutils.base.array.BytePrimitiveArraySerializer.INSTANCE.deserialize(view)
            stream.close()


def _each(collection: Any) -> Iterator[Any]:
    """Iterate over any Java collection: Py4J knows lists and sets alone."""
    iterator = collection.iterator()
    while iterator.hasNext():
        yield iterator.next()
