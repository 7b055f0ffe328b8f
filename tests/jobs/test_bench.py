"""The bench: its fixes are the same each time and all used, its arithmetic is right, and it tells what it cannot tell."""

import io
from pathlib import Path

import numpy as np
import orjson
import pytest
from rich.console import Console

from jobs.bench.contenders import CONTENDERS, Lab
from jobs.bench.memory import Collections, MemoryReport, live_heap, quarters
from jobs.bench.processes import Cost, Sample
from jobs.bench.program import Plan, run_bench
from jobs.bench.report import Machine, Report
from jobs.bench.workload import PARTITIONS, REGION, Workload, records_in, require_count
from jobs.errors import UserError
from streaming.decode import Decoder
from streaming.records import Kind
from streaming.settings import KafkaSettings, SourceSettings
from streaming.ticks import TickGrid

USERS = 500
GRID = TickGrid(60_000, 30_000)
GC_LOG = """\
[0.004s][info][gc] Using G1
[2.301s][info][gc] GC(5) Pause Remark 31M->31M(136M) 3.199ms
[9.514s][info][gc] GC(14) Pause Young (Concurrent Start) (Metadata GC Threshold) 86M->44M(136M) 29.183ms
[13.237s][info][gc] GC(19) Pause Young (Normal) (G1 Evacuation Pause) 179M->57M(232M) 16.464ms
[18.766s][info][gc] GC(23) Pause Cleanup 121M->121M(232M) 0.069ms
[20.766s][info][gc] GC(24) Concurrent Mark Cycle 40.069ms
[30.101s][info][gc] GC(25) Pause Full (Diagnostic Command) 300M->61M(296M) 304.094ms
[35.500s][info][gc] GC(26) Pause Full (Diagnostic Command) 280M->62M(296M) 204.094ms
[77.191s][info][gc] GC(71) Pause Full (System.gc()) 338M->80M(296M) 304.094ms
"""


def report(memory: MemoryReport | None = None, **seconds: tuple[list[float], list[float]]) -> Report:
    runs = {
        "loop": ([10.0], [40.0]),
        "identity": ([20.0], [26.0]),
        "traces": ([35.0], [65.0]),
        "policies": ([36.0], [69.0]),
        "density": ([30.0], [60.0]),
        **seconds,
    }
    costs = {name: [[Cost(wall_s, 2 * wall_s) for wall_s in size] for size in sizes] for name, sizes in runs.items()}
    sizes = {name: {1_000_000: small, 4_000_000: big} for name, (small, big) in costs.items()}
    return Report(1_000_000, 4_000_000, USERS, sizes, memory, Machine(2, 0.25))


def shown(found: Report) -> str:
    text = io.StringIO()
    found.show(Console(file=text, width=140))
    return text.getvalue()


def test_fixes_are_the_same_each_time_and_a_small_run_is_the_start_of_a_big_one() -> None:
    big = list(Workload(5_003, USERS).fixes())
    assert big == list(Workload(5_003, USERS).fixes())
    assert list(Workload(1_200, USERS).fixes()) == big[:1_200]
    assert len(big) == 5_003
    assert {partition for partition, *_ in big} == set(range(PARTITIONS))
    assert all(85 <= len(value) <= 100 for *_, value in big)


def test_every_user_is_heard_each_five_seconds_and_log_time_grows_with_the_size() -> None:
    fixes = list(Workload(60 * USERS, USERS).fixes())
    log_ms = np.array([at for _, at, _ in fixes])
    assert (np.diff(log_ms) >= 0).all()
    assert (log_ms[USERS:] - log_ms[:-USERS] == 5_000).all()
    assert len({orjson.loads(value)["user"] for *_, value in fixes}) == USERS
    ticks = {at // 60_000 for at in log_ms.tolist()}
    assert len(ticks) == 5


def test_the_job_uses_every_fix_and_all_ticks_close() -> None:
    workload = Workload(20_000, USERS)
    fixes = list(workload.fixes())
    decoder = Decoder([SourceSettings()], GRID, b"s" * 32)
    columns = [np.array(column) for column in zip(*((at, partition) for partition, at, _ in fixes), strict=True)]
    rows = decoder.decode([value for *_, value in fixes], columns[0], columns[1], np.arange(len(fixes)))
    assert (rows["kind"] == Kind.FIX).all()
    for axis, low, high in (("lat_e7", "south", "north"), ("lon_e7", "west", "east")):
        assert rows[axis].min() > REGION[low] * 1e7
        assert rows[axis].max() < REGION[high] * 1e7
    assert len(np.unique(rows[["user", "t_ms"]])) == len(rows)
    assert GRID.first_open(workload.end_ms) > rows["tick"].max()


@pytest.mark.parametrize(("records", "users"), [(1, 1), (1, 10), (3, 7)])
def test_the_smallest_workloads(records: int, users: int) -> None:
    workload = Workload(records, users)
    fixes = list(workload.fixes())
    assert len(fixes) == records
    assert workload.total == records + PARTITIONS
    assert workload.end_ms == fixes[-1][1] + 120_000


def test_a_missing_record_is_no_measurement() -> None:
    require_count("The loop", 5, 5)
    with pytest.raises(UserError, match="The loop has 4 records, not 5"):
        require_count("The loop", 5, 4)


def test_start_up_cancels() -> None:
    found = report()
    assert found.rate("loop") == pytest.approx(100_000)
    assert found.rate("identity") == pytest.approx(500_000)
    assert found.ratio("traces", "loop") == pytest.approx(1.0)
    assert found.ratio("traces", "identity") == pytest.approx(0.2)
    slow_start = report(traces=([135.0], [165.0]))
    assert slow_start.rate("traces") == found.rate("traces")


def test_medians_count() -> None:
    found = report(traces=([35.0, 90.0, 34.0], [64.0, 65.0, 300.0]))
    assert found.rate("traces") == pytest.approx(100_000)


def test_no_rate_where_the_big_run_is_no_slower() -> None:
    found = report(loop=([10.0], [10.0]))
    assert found.rate("loop") is None
    assert found.ratio("traces", "loop") is None
    assert "pass sizes further apart" in shown(found)


@pytest.mark.parametrize(("big", "verdict"), [(70.0, "bar of 0.7 is reached"), (80.0, "bar of 0.7 is missed")])
def test_the_verdict_of_density(big: float, verdict: str) -> None:
    assert verdict in shown(report(density=([30.0], [big])))


@pytest.mark.parametrize(("big", "verdict"), [(70.0, "bar of 0.8 is reached"), (80.0, "bar of 0.8 is missed")])
def test_the_verdict_of_policies(big: float, verdict: str) -> None:
    assert f"× the traces job: the {verdict}" in shown(report(traces=([35.0], [65.0]), policies=([35.0], [big])))


@pytest.mark.parametrize(("big", "verdict"), [(65.0, "bar of 0.8 is reached"), (80.0, "bar of 0.8 is missed")])
def test_the_verdict(big: float, verdict: str) -> None:
    assert verdict in shown(report(traces=([35.0], [big])))


def test_the_file_says_what_the_table_says(tmp_path: Path) -> None:
    memory = MemoryReport(6_000_000, (900.0, 900.0, 910.0, 909.0), (500.0,) * 4, (200.0, 199.0, 201.0, 202.0), 1500.0)
    found = report(memory, loop=([10.0], [10.0]))
    found.write(tmp_path / "report.json")
    read = orjson.loads((tmp_path / "report.json").read_bytes())
    assert list(read["contenders"]) == list(CONTENDERS)
    assert read["contenders"]["loop"]["records_per_s"] is None
    assert read["contenders"]["traces"] == {
        "small": [{"wall_s": 35.0, "cpu_s": 70.0}],
        "big": [{"wall_s": 65.0, "cpu_s": 130.0}],
        "records_per_s": pytest.approx(100_000),
        "cpu_us_per_record": pytest.approx(20.0),
        "ratio_to_loop": None,
        "ratio_to_identity": pytest.approx(0.2),
    }
    assert read["memory"]["heap_mib"] == [200.0, 199.0, 201.0, 202.0]
    assert read["machine"] == {"cores": 2, "load_before": 0.25}
    text = shown(found)
    assert "+1.0%" in text
    assert "0.20" in text


def test_only_collections_that_were_asked_for_count() -> None:
    assert live_heap(GC_LOG.splitlines()) == [Sample(30.101, 61), Sample(35.5, 62)]


def test_quarters_of_the_second_half() -> None:
    samples = [Sample(at, 1000.0 if at < 40 else float(at)) for at in range(81)]
    assert quarters(samples, 80.0) == (44.5, 54.5, 64.5, 75.0)
    with pytest.raises(UserError, match="pass a larger --memory"):
        quarters(samples[:60], 80.0)
    with pytest.raises(UserError, match="pass a larger --memory"):
        quarters([], 0.0)


def test_the_memory_run_does_not_displace_other_options(tmp_path: Path) -> None:
    collections = Collections(tmp_path, "jcmd")
    added = f'-Xms512m -Xmx512m "-Xlog:gc:file={tmp_path.resolve()}/gc-%p.log"'
    assert collections.variables({}) == {"JDK_JAVA_OPTIONS": added}
    assert collections.variables({"JDK_JAVA_OPTIONS": "-Xmx1g"}) == {"JDK_JAVA_OPTIONS": f"-Xmx1g {added}"}


def test_sizes_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pass a --small below 10"):
        run_bench(Plan(10, 10, 10, 1, 0, False), tmp_path)


@pytest.mark.integration
@pytest.mark.slow
def test_every_contender_accounts_for_every_record(broker: KafkaSettings, tmp_path: Path) -> None:
    workload = Workload(20_000, 1_000)
    workload.fill(broker)
    lab = Lab(broker, tmp_path)
    costs = [lab.run(name, workload, "once") for name in CONTENDERS]
    assert all(cost.wall_s > 0 and cost.cpu_s > 0 for cost in costs)
    with pytest.raises(UserError, match=r"has 20,002 records, not 20,003"):
        require_count("The topic", workload.total + 1, records_in(broker, workload.topic))
