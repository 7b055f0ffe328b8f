"""The contender to beat: one process that reads, adds Laplace noise to each fix, and writes; no windows, no state, no guarantee."""

import math
import time

import orjson
from numpy.random import default_rng

from jobs.bench.processes import Cost
from jobs.bench.workload import PARTITIONS, records_in, require_count
from jobs.errors import UserError
from jobs.kafka.bulk import FAST_PRODUCER
from jobs.kafka.security import librdkafka_options
from streaming.settings import KafkaSettings

__all__ = ["run_loop"]

BATCH = 10_000
STALL_S = 30.0
SCALE_M = 200.0 / math.log(4.0)
METRES_A_DEGREE = 111_320.0


def run_loop(broker: KafkaSettings, source: str, target: str) -> Cost:
    """Protect every fix of a topic on its own, as a short script would.

    Parameters
    ----------
    broker
        Where the broker is, and how it is reached.
    source, target
        Names of existing topics.

    Returns
    -------
    Cost
        From the first poll until every answer is acknowledged.

    Raises
    ------
    UserError
        If no record comes for half a minute, or an answer is missing in the end.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    total = records_in(broker, source)
    consumer = Consumer({**librdkafka_options(broker), "group.id": "bench-loop", "enable.auto.commit": False})
    producer = Producer({**librdkafka_options(broker), **FAST_PRODUCER})
    draw = default_rng().laplace
    consumer.assign([TopicPartition(source, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])

    start, start_cpu = time.perf_counter(), time.process_time()
    heard = start
    seen = answers = 0
    while seen < total:
        messages = consumer.consume(BATCH, 1.0)
        if messages:
            heard = time.perf_counter()
        elif time.perf_counter() - heard > STALL_S:
            raise UserError(f"The loop waited {STALL_S:.0f} seconds for the rest of topic {source}: see the broker's log, and run again.")
        seen += len(messages)
        noise = draw(scale=SCALE_M / METRES_A_DEGREE, size=(len(messages), 2)).tolist()
        for message, (north, east) in zip(messages, noise, strict=True):
            fix = orjson.loads(message.value())
            user = fix.get("user")
            if user is None:
                continue
            lat = fix["lat"]
            answer = {"user": user, "t": fix["t"], "lat": lat + north, "lon": fix["lon"] + east / math.cos(math.radians(lat))}
            while True:
                try:
                    producer.produce(target, orjson.dumps(answer), key=user)
                    break
                except BufferError:
                    producer.poll(0.1)
            answers += 1
        producer.poll(0)
    producer.flush()
    cost = Cost(time.perf_counter() - start, time.process_time() - start_cpu)
    consumer.close()
    require_count(f"The loop's topic {target}", answers, records_in(broker, target))
    return cost
