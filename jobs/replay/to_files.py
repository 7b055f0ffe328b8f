"""The program `wayveil replay --to files`: a replay through the job on a broker of its own, and its products as Parquet.

It is the same graph as live, fed from the same kind of log. The broker's folder stays: its topics `runs` and `charges` are what makes a
second, different look at the same time refused, or charged for.
"""

from pathlib import Path

import orjson
from rich.console import Console

from jobs import runs
from jobs.broker import Broker
from jobs.errors import UserError
from jobs.kafka import create_topics, product_topics
from jobs.kafka.reading import end_offsets
from jobs.kafka.topics import delete_topics
from jobs.protect import Options, run_job
from jobs.replay.datasets import datasets_of, write_dataset
from jobs.replay.program import Plan, replay_to_kafka
from jobs.replay.report import FileReport
from streaming.settings import KafkaSettings, Product, Settings

__all__ = ["replay_to_files"]

NOTES = "replay.json"
"""How far a replay to a folder has come: `begin`, the offsets from which its rows are in the topics, once the job has started; `ran`."""


def replay_to_files(
    settings: Settings, plan: Plan, products: tuple[Product, ...], out: Path, spend_again: bool, console: Console
) -> list[FileReport]:
    """Replay, run the job to the end of the log, and write what it published; return what became of each file.

    Parameters
    ----------
    settings
        Settings; the broker's address in them has no say.
    plan
        What to read.
    products
        What to publish.
    out
        Folder for the datasets, which holds none of another replay.
    spend_again
        Allow a second look at ticks that another replay with the same folder of notes has covered.
    console
        Where to say what goes on.

    Raises
    ------
    UserError
        If something is missing, if the folder is taken, or if the run would be a second look.
    """
    notes = out / NOTES
    if notes.exists() and not plan.resume:
        raise UserError(f"The folder {out} holds a replay already: go on with it by --resume, or name another one.")
    said = orjson.loads(notes.read_bytes()) if notes.exists() else {}
    if said.get("ended"):
        raise UserError(f"The replay in {out} has ended: there is nothing to resume.")
    out.mkdir(parents=True, exist_ok=True)
    _note(notes, said)
    broker = Broker(plan.folder / "broker")
    console.print("· start the broker")
    kafka = KafkaSettings(bootstrap=broker.start(), transaction_timeout_s=settings.kafka.transaction_timeout_s)
    try:
        own = settings.model_copy(update={"kafka": kafka})
        if not plan.resume:
            delete_topics(kafka, [source.topic for source in own.source])
        create_topics(kafka, product_topics(own, own.job.parallelism, replay=True))
        reports = replay_to_kafka(own, plan, console)
        files = datasets_of(own, products)
        if not said.get("ran"):
            resumed = "begin" in said and _has_checkpoint(own, products)
            if not resumed:
                said["begin"] = {topic: _text_keys(end_offsets(kafka, topic)) for topic, _ in files.values()}
                _note(notes, said)
            run_job(own, products, Options(bounded=True, resume=resumed, spend_again=spend_again), lambda line: console.print(f"· {line}"))
            said["ran"] = True
            _note(notes, said)
        for name, (topic, schema) in files.items():
            begin = {int(number): offset for number, offset in said["begin"][topic].items()}
            rows = write_dataset(out / name, kafka, topic, begin, schema, plan.folder)
            console.print(f"· {out / name}: {rows:,} rows", markup=False, soft_wrap=True)
        _note(notes, {**said, "ended": True})
    finally:
        broker.stop()
    return reports


def _has_checkpoint(settings: Settings, products: tuple[Product, ...]) -> bool:
    same = [run for run in runs.known_runs(settings) if set(run.products) == set(products)]
    return bool(same) and runs.latest_checkpoint(Path(settings.job.checkpoint_dir) / same[-1].fingerprint) is not None


def _text_keys(offsets: dict[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in offsets.items()}


def _note(path: Path, said: dict[str, object]) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_bytes(orjson.dumps(said))
    draft.replace(path)
