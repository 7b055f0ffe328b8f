"""Floating car data of SUMO: whose fixes they are, when a simulation's times are, and positions that are no degrees."""

import gzip
from pathlib import Path

import pytest

from jobs.errors import UserError
from jobs.replay.files import InputFile
from jobs.replay.fixes import ReadOptions, Reason
from jobs.replay.readers.sumo import recognises
from tests.jobs.replay.inputs import DATA, Found, write

START = 1_767_600_000_000
OPTIONS = ReadOptions(start_ms=START)


def vehicle(x: str = "24.95", y: str = "60.17", user: str = "car", tag: str = "vehicle") -> str:
    return f'<{tag} id="{user}" x="{x}" y="{y}" angle="359.49" type="passenger" speed="7.90" pos="5.10" lane="1_0" slope="0.00"/>'


def step(*inside: str, time: str = "0.00") -> str:
    return f'<timestep time="{time}">{"".join(inside)}</timestep>'


def export(folder: Path, *steps: str, options: ReadOptions = OPTIONS) -> Found:
    return Found(write(folder, "run.fcd.xml", f"<fcd-export>{''.join(steps)}</fcd-export>"), options)


def test_vehicles_and_persons_are_called_by_their_ids_and_x_is_the_longitude(tmp_path: Path) -> None:
    found = export(tmp_path, step(vehicle(), vehicle("25", "61", "walker", "person")), step(vehicle(), time="1.50"))
    assert found.format == "sumo"
    assert found.fixes == [
        {"user": "car", "t_ms": START, "lat": 60.17, "lon": 24.95, "index": 1},
        {"user": "walker", "t_ms": START, "lat": 61.0, "lon": 25.0, "index": 2},
        {"user": "car", "t_ms": START + 1500, "lat": 60.17, "lon": 24.95, "index": 3},
    ]


def test_goods_are_nobody(tmp_path: Path) -> None:
    assert export(tmp_path, step(vehicle(tag="container"), vehicle())).counts == (1, 0, 0, 1)


def test_without_a_start_it_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--start"):
        export(tmp_path, step(vehicle()), options=ReadOptions())


@pytest.mark.parametrize(
    ("time", "ms"),
    [("1.001", 1001), ("1.005", 1005), ("0.29", 290), ("4.35", 4350), ("86399.999", 86_399_999), ("-0.5", -500), ("1e3", 10**6)],
)
def test_milliseconds_are_exact(tmp_path: Path, time: str, ms: int) -> None:  # A19
    assert export(tmp_path, step(vehicle(), time=time)).times == [START + ms]


@pytest.mark.parametrize(
    ("time", "reason"), [("", Reason.MISSING_FIELD), *((t, Reason.WRONG_TYPE) for t in ("1:00:05", "nan", "1e13", "1_0"))]
)
def test_a_step_without_a_usable_time_is_refused(tmp_path: Path, time: str, reason: Reason) -> None:
    found = export(tmp_path, step(vehicle(), time=time), step(vehicle(), time="1.00"))
    assert (found.refused, found.at, found.times) == ({reason: 1}, [1], [START + 1000])


def test_who_has_no_name_or_no_step_is_refused(tmp_path: Path) -> None:
    found = export(tmp_path, step(vehicle(user=""), vehicle().replace('id="car" ', "")), vehicle(), step(vehicle()))
    assert found.refused == {Reason.MISSING_FIELD: 3}
    assert (found.at, [fix["index"] for fix in found.fixes]) == ([1, 2, 3], [4])


@pytest.mark.parametrize("value", ["nan", "inf", "-1e999", "", "true", "2_4", "24,9"])
def test_what_is_no_number_leaves_a_presence_without_a_place(tmp_path: Path, value: str) -> None:  # A21
    found = export(tmp_path, step(vehicle(x=value), vehicle(y=value), vehicle().replace('x="24.95" ', ""), vehicle()))
    assert found.places == [(None, None)] * 3 + [(60.17, 24.95)]


@pytest.mark.parametrize(("x", "y"), [("180.01", "60"), ("25", "-90.01"), ("2513.4", "6671.2")])
def test_metres_are_refused_with_what_to_do(tmp_path: Path, x: str, y: str) -> None:
    found = export(tmp_path, step(vehicle(x="nan"), vehicle(x, y), vehicle()))
    assert found.places == [(None, None)]
    assert "--fcd-output.geo" in str(found.damage)
    assert x not in str(found.damage)


def test_a_later_place_out_of_range_is_passed_on(tmp_path: Path) -> None:  # A3
    found = export(tmp_path, step(vehicle(), vehicle("1848.7", "1848.7"), vehicle("0", "0")))
    assert (found.places[1:], found.damage) == ([(1848.7, 1848.7), (0.0, 0.0)], None)


@pytest.mark.parametrize("count", [0, 1])
def test_a_simulation_may_have_no_fix_or_one(tmp_path: Path, count: int) -> None:  # A20
    found = export(tmp_path, step(*[vehicle()] * count), step())
    assert (found.counts, found.damage) == ((count, 0, 0, 0), None)


def test_a_file_cut_anywhere_gives_every_whole_vehicle_before_the_cut(tmp_path: Path) -> None:
    whole = f"<fcd-export>{step(vehicle(), vehicle(), time='1.00')}{step(vehicle(), time='2.00')}</fcd-export>"
    for cut in range(len(whole)):
        found = Found(write(tmp_path, "run.xml", whole[:cut]), OPTIONS, "sumo")
        assert (len(found.fixes), found.damage is None) == (whole[:cut].count("/>"), False), cut


def test_an_identifier_that_is_an_entity_does_not_fill_the_memory(tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 40}">' for n in range(1, 8))
    bomb = f'<!DOCTYPE fcd-export [<!ENTITY e0 "{"x" * 1000}">{entities}]><fcd-export>{step(vehicle(), vehicle(user="&e7;"))}</fcd-export>'
    found = Found(write(tmp_path, "run.xml", bomb), OPTIONS, "sumo")
    assert [fix["user"] for fix in found.fixes] == ["car"]
    assert found.damage is not None


@pytest.mark.parametrize("head", [b"", b"<gpx/>", b"<routes/>", b"fcd-export", b"\0"])
def test_other_files_are_not_recognised(tmp_path: Path, head: bytes) -> None:
    assert not recognises(InputFile(tmp_path / "a.fcd.xml", None, "a"), head)


@pytest.mark.skipif(not (DATA / "sumo_fcd").is_dir(), reason="the public samples are not beside this checkout")
def test_the_sample_has_300_cars_and_ends_with_the_last_of_them() -> None:
    path = DATA / "sumo_fcd" / "helsinki_seed42.fcd.xml.gz"
    found = Found(path, OPTIONS)
    assert len(found.fixes) == gzip.decompress(path.read_bytes()).count(b"<vehicle ") == 76_955
    assert len({fix["user"] for fix in found.fixes}) == 300
    assert found.fixes[-1] == {"user": "299", "t_ms": START + 1_199_000, "lat": 60.165776, "lon": 24.944279, "index": 76_955}
