"""The demo: its sample, its comparison with the truth, its pictures, and the whole of it."""

import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from geo.plane import Plane
from geo.privacy.prf import subkey
from jobs.broker import Broker
from jobs.demo.counts import cost, count
from jobs.demo.files import build_anchors, write_settings
from jobs.demo.map import write_map
from jobs.demo.measure import Comparison, compare, true_means
from jobs.demo.pictures import write_picture
from jobs.demo.program import MARK, run_demo
from jobs.demo.sample import CAR, PLANTED, POLICY, START_MS, TRACK, Sample, read_sample, records
from jobs.demo.scene import SPOTS, scene
from jobs.demo.tables import NEVER, show_anchored, show_cost
from jobs.errors import UserError
from jobs.kafka import Record
from jobs.policy.program import check_policy
from jobs.protect import read_settings
from streaming.anchor_file import load_anchors
from streaming.audiences import deployment_of
from streaming.charges import CHARGE
from streaming.decode import Decoder, user_id
from streaming.pseudonyms import Pseudonyms
from streaming.records import Kind
from streaming.release import OUTCOMES, STATUSES
from streaming.settings import Settings
from streaming.shard import tick_grid
from streaming.window import gather

ROOT = Path(__file__).parents[2]
SECRET = bytes(range(32))
R50, R95 = 280.0, 800.0
AUDIENCES = ("dispatch", "partners", "city")


@pytest.fixture(scope="module")
def sample() -> Sample:
    return read_sample()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings(write_settings(tmp_path, "127.0.0.1:9092")["settings"])


def pseudonym(settings: Settings, user: str, tick: int, audience: str = "dispatch") -> str:
    names = Pseudonyms(SECRET, audience, settings.privacy.epoch_ticks)
    return names.of(np.array([user_id(subkey(SECRET, b"user-id"), user)], np.uint64), tick)[0]


def released(settings: Settings, user: str, tick: int, lat: float, lon: float, audience: str = "dispatch", **more: Any) -> dict[str, Any]:
    name = pseudonym(settings, user, tick, audience)
    place = {"form": "point", "lat": lat, "lon": lon}
    return {"user": name, "tick": tick, "status": "released", **place, "radius_m": 200, "r50_m": R50, "r95_m": R95, **more}


def compared(sample: Sample, rows: list[dict[str, Any]], settings: Settings, audience: str = "dispatch") -> Comparison:
    return compare(true_means(sample, settings.tick), rows, settings, SECRET, audience)


def balance(product: str = "traces", **outcomes: int) -> dict[str, Any]:
    row = {**dict.fromkeys(OUTCOMES, 0), **outcomes}
    return {"product": product, "records": sum(row.values()), "unclosed": 0, "reasons": {"malformed": row["rejected"]}, **row}


def test_the_sample_is_whole_and_in_the_order_of_time(sample: Sample) -> None:
    users = set(sample.user.tolist())
    assert Counter(user[: len(CAR)] for user in users) == {CAR: 300, TRACK: 7}
    assert len(sample) == 76_955 + 296
    assert sample.t_ms[0] == START_MS
    assert (np.diff(sample.t_ms) >= 0).all()
    assert {user for user in read_sample(5).user.tolist() if user.startswith(CAR)} == {f"car-{i}" for i in range(5)}


def test_the_region_holds_the_sample(sample: Sample, settings: Settings) -> None:
    region = settings.region
    assert region.south < sample.lat.min() < sample.lat.max() < region.north
    assert region.west < sample.lon.min() < sample.lon.max() < region.east


@pytest.fixture(scope="module")
def feed(sample: Sample) -> list[Record]:
    return records(sample, "fixes", 2)


def test_the_feed_is_in_the_order_of_the_log_and_keeps_a_user_in_one_partition(sample: Sample, feed: list[Record]) -> None:
    assert len(feed) == len(sample) + sum(PLANTED.values())
    assert (np.diff([stamp for *_, stamp in feed]) >= 0).all()
    assert {place for _, place, *_ in feed} == {0, 1}
    assert len({(key, place) for _, place, key, *_ in feed}) == len(set(sample.user.tolist()))


def test_what_the_job_makes_of_the_feed_is_what_was_planted_and_measured(sample: Sample, feed: list[Record], settings: Settings) -> None:
    decoder, grid, plane = Decoder(settings.source, tick_grid(settings), SECRET), tick_grid(settings), Plane(settings.region.region())
    log_ms = np.array([stamp for *_, stamp in feed], np.int64)
    rows = decoder.decode([value for *_, value, _ in feed], log_ms, np.zeros(len(feed), np.int64), np.arange(len(feed)))
    outcomes = Counter(Kind(kind).name.lower() for kind in rows["kind"].tolist())
    fixes = rows[rows["kind"] == Kind.FIX]
    means = {}
    for tick in np.unique(grid.tick_of(fixes["t_ms"])).tolist():
        windows = gather(fixes[fixes["tick"] == tick], plane, settings.tick.max_fixes, settings.tick.max_speed_mps)
        outcomes.update(merged=windows.merged, duplicate=windows.duplicate)
        means.update(zip(((user, tick) for user in windows.user.tolist()), windows.sum_mm / windows.kept[:, None], strict=True))
    leaps_of_the_receiver = 1
    expected = {**PLANTED, "merged": PLANTED["merged"] + leaps_of_the_receiver}
    assert {name: outcomes[name] for name in PLANTED} == expected

    truth = true_means(sample, settings.tick)
    ids = [user_id(subkey(SECRET, b"user-id"), user) for user in truth.user.tolist()]
    windows_mm = np.array([means[window] for window in zip(ids, truth.tick.tolist(), strict=True)])
    true_mm = plane.to_mm(*(np.rint(truth.mean * 1e7).astype(np.int64).T))
    assert len(truth.user) == len(means)
    assert np.hypot(*(windows_mm - true_mm).T).max() < 1000


def made_sample() -> Sample:
    """Two users: one is there for two ticks, one only in the first."""
    t = START_MS + np.array([0, 1_000, 30_000, 60_000])
    return Sample(np.array(["a", "b", "a", "a"]), t, np.array([50.0, 51.0, 50.0002, 50.0]), np.array([20.0, 20.0, 20.0, 20.0]))


def test_displacement_is_the_distance_from_the_mean_of_the_window(settings: Settings) -> None:
    tick = START_MS // 60_000
    rows = [
        released(settings, "a", tick, 50.0001, 20.0),
        released(settings, "b", tick, 51.01, 20.0),
        {"user": pseudonym(settings, "a", tick + 1), "tick": tick + 1, "status": "withheld"},
    ]
    found = compared(made_sample(), rows, settings)
    truth = found.truth
    assert list(zip(truth.user.tolist(), truth.tick.tolist(), strict=True)) == [("a", tick), ("a", tick + 1), ("b", tick)]
    assert found.distance_m == pytest.approx([0, np.nan, 1112.5], abs=0.1, nan_ok=True)
    assert found.withheld.tolist() == [False, True, False]
    assert len(found.displacements()) == 2
    assert (found.radius_m, found.r50_m, found.r95_m) == (200, R50, R95)
    assert not found.anchored


def anchored_rows(settings: Settings) -> list[dict[str, Any]]:
    tick = START_MS // 60_000
    rows = [released(settings, user, at, 51.0, 20.0, "city") for user, at in (("a", tick), ("a", tick + 1), ("b", tick))]
    for row, told in zip(rows, ({"form": "category"}, {"form": "unanchored"}, {"form": "anchor"}), strict=True):
        row.update(told)
        if row["form"] != "anchor":
            del row["lat"], row["lon"]
        if row["form"] != "unanchored":
            row["category"] = "worship"
    return rows


def test_only_a_named_place_has_a_displacement_and_an_unanchored_row_nothing(settings: Settings) -> None:
    found = compared(made_sample(), anchored_rows(settings), settings, "city")
    assert found.anchored
    assert found.form.tolist() == ["category", "unanchored", "anchor"]
    assert found.category.tolist() == ["worship", "", "worship"]
    assert found.placed.tolist() == [False, False, True]
    console = Console(record=True, width=200)
    show_anchored(console, found)
    shares = dict(re.findall(r"│ ([\w ]+?) +│ +\d+ │ ([\d.]+%) │", console.export_text()))
    assert shares == {"place": "33.3%", "category": "33.3%", "unanchored": "33.3%", "any category": "66.7%"}


def test_a_release_of_nobody_is_an_error(settings: Settings) -> None:
    with pytest.raises(UserError, match="somebody who sent nothing"):
        compared(made_sample(), [released(settings, "b", START_MS // 60_000 + 1, 51.0, 20.0)], settings)


def test_rows_of_one_audience_are_not_taken_for_those_of_another(settings: Settings) -> None:
    with pytest.raises(UserError, match="somebody who sent nothing"):
        compared(made_sample(), [released(settings, "a", START_MS // 60_000, 50.0, 20.0, "partners")], settings)


def test_counts_add_up_for_each_audience() -> None:
    ledger = [
        {"audience": "dispatch", "released": 2, "absent": 1, "withheld": 0},
        {"audience": "dispatch", "released": 0, "absent": 0, "withheld": 1},
        {"audience": "city", "released": 1, "absent": 0, "withheld": 0},
    ]
    traces = {
        "dispatch": [{"status": status} for status in ("released", "released", "absent", "withheld")],
        "city": [{"status": "released"}],
    }
    parts = [balance(used=7, rejected=2), balance(late=2, control=1), balance("density", used=1, merged=6, rejected=2, late=2, control=1)]
    counts = count(12, parts, ledger, traces)
    assert counts.records == sum(counts.outcomes["traces"].values()) == sum(counts.outcomes["density"].values()) == 12
    assert counts.reasons == {"malformed": 2}
    assert counts.rows == {"dispatch": {"released": 2, "absent": 1, "withheld": 1}, "city": {"released": 1, "absent": 0, "withheld": 0}}
    with pytest.raises(UserError, match="rows of city differ"):
        count(12, parts, ledger[:2], traces)


@pytest.mark.parametrize(
    ("sent", "row", "ledger", "message"),
    [
        (8, balance(used=7), 1, "do not add up"),
        (7, {**balance(used=7), "used": 6}, 1, "do not add up"),
        (7, {**balance(used=7), "unclosed": 1}, 1, "open ticks"),
        (7, balance(used=7), 2, "differ"),
        (7, {**balance(used=7), "product": "density"}, 1, "traces do not add up"),
    ],
)
def test_counts_that_do_not_add_up_are_an_error(sent: int, row: dict[str, Any], ledger: int, message: str) -> None:
    entry = {"audience": "dispatch", **dict.fromkeys(STATUSES, 0), "released": ledger}
    with pytest.raises(UserError, match=message):
        count(sent, [row, balance("density", used=sent)], [entry], {"dispatch": [{"status": "released"}]})


def test_all_audiences_together_cost_what_the_finest_costs() -> None:
    def rows(number: int, epsilon_micro: int, radius_m: float) -> list[dict[str, Any]]:
        return [{"status": "released", "epsilon_micro": epsilon_micro, "radius_m": radius_m}] * number + [{"status": "absent"}]

    traces = {"partners": rows(1, 5, 800), "dispatch": rows(3, 20, 200), "city": rows(3, 10, 400)}
    charges = np.zeros(3, CHARGE)
    charges["charge_micro"] = 20
    found = cost(charges, traces)
    assert (found.looks, found.charged, found.finest) == (3, 60, "dispatch")
    assert found.stated == {"partners": 5, "dispatch": 60, "city": 30}
    console = Console(record=True, width=400)
    show_cost(console, found)
    assert "exactly what the releases to dispatch cost alone" in console.export_text()
    for wrong in (charges[:2], np.concatenate([charges, charges[:1]])):
        with pytest.raises(UserError, match="otherwise than dispatch alone"):
            cost(wrong, traces)


def test_the_policy_fits_the_settings_and_the_anchors(settings: Settings) -> None:
    lines: list[str] = []
    build_anchors(settings, lines.append)
    assert settings.anchors is not None
    anchors, origin = load_anchors(Path(settings.anchors))
    assert len(anchors) == 1977
    assert lines == [
        f"helsinki-places.geojson.gz: {len(anchors)} anchors; left out 0 outside the region, 0 without a category and 0 without a position"
    ]
    assert (origin.source, origin.licence) == ("© OpenStreetMap contributors", "ODbL 1.0")
    assert NEVER in anchors.category_names
    assert [audience.name for audience in settings.audiences] == list(AUDIENCES)
    assert settings.policy is not None
    assert Path(settings.policy).read_bytes() == POLICY.read_bytes()
    check_policy(Path(settings.policy), deployment_of(settings, anchors), lines.append)
    assert len(lines) == 2
    assert lines[1].startswith("ok: ")


class Loads(HTMLParser):
    """Collects what a page loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}" for name, _ in attrs if name in ("src", "srcset", "href", "data", "action", "background")]


@pytest.fixture
def comparisons(sample: Sample, settings: Settings) -> list[Comparison]:
    tick = START_MS // 60_000
    places = {"gpx-2": (45.77, 14.36), **{f"car-{i}": (60.17, 24.95) for i in range(4)}}
    rows = {
        audience: [released(settings, user, tick, *place, audience) for user, place in places.items() if user not in left_out]
        for audience, left_out in zip(AUDIENCES, ((), ("car-0", "car-3"), ("gpx-2",)), strict=True)
    }
    rows["dispatch"] += [released(settings, user, tick + 1, *places[user]) for user in ("car-0", "car-1")]
    for row in rows["city"]:
        row.update(form="anchor", category="food")
    return [compared(sample, told, settings, audience) for audience, told in rows.items()]


def test_the_user_is_shown_of_whom_the_audience_told_least_is_told_most(sample: Sample, comparisons: list[Comparison]) -> None:
    helsinki, lake = (scene(spot, sample, comparisons, 4) for spot in SPOTS)
    assert [track.user for track in helsinki.tracks] == ["car-1", "car-2", "car-0", "car-3"]
    assert lake.tracks[0].user == "gpx-2"
    first = helsinki.tracks[0].told
    assert {audience: int(told.placed.sum()) for audience, told in first.items()} == {"dispatch": 2, "partners": 1, "city": 1}
    out = first["dispatch"].placed
    apart = np.hypot(*(first["dispatch"].xy - helsinki.tracks[0].true)[out].T)
    assert apart == pytest.approx(first["dispatch"].distance_m[out], rel=1e-3)
    assert not lake.tracks[0].told["city"].placed.any()


def test_pictures_are_written_and_load_nothing(sample: Sample, comparisons: list[Comparison], tmp_path: Path) -> None:
    write_picture(tmp_path / "traces.png", sample, comparisons)
    assert (tmp_path / "traces.png").read_bytes().startswith(b"\x89PNG")
    write_map(tmp_path / "map.html", sample, comparisons)
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    for name in ("gpx-2", *AUDIENCES):
        assert f'"{name}"' in page
    assert Loads(page).found == []


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match="left alone"):
        run_demo(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.integration
def test_the_whole_demo_in_the_folder_of_an_earlier_one(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / MARK).touch()
    (folder / "traces.png").write_bytes(b"of the last demo")
    code = f"from pathlib import Path; from jobs.demo.program import run_demo; run_demo(Path({str(folder)!r}), cars=10)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    numbers = re.findall(r"│ (\w+) +│ +([\d,]+) │ +([\d,]+) │", done.stdout)
    shown = {name: [int(number.replace(",", "")) for number in columns] for name, *columns in numbers}
    sent = records(read_sample(10), "fixes", 2)
    assert shown["in"] == [len(sent) + 2] * 2
    for name, expected in (("late", 3), ("duplicate", 3), ("rejected", 15), ("control", 2)):
        assert shown[name] == [expected] * 2
    rows = {name: [int(number) for number in told] for name, *told in re.findall(r"│ (\w+) +│ +(\d+) │ +(\d+) │ +(\d+) │", done.stdout)}
    dispatch, partners, city = np.array([rows[name] for name in (*STATUSES, "all")]).T
    assert (dispatch[:3].sum(), partners[:3].sum(), city[:3].sum()) == (dispatch[3], partners[3], city[3])
    assert (dispatch == city).all()
    assert 0 < partners[0] < dispatch[0]
    assert f"for {dispatch[0]} looks" in done.stdout
    assert "exactly what the releases to dispatch cost alone" in done.stdout
    assert {path.name for path in folder.iterdir()} == {
        MARK,
        "anchors.parquet",
        "broker",
        "checkpoints",
        "density.png",
        "map.html",
        "policy.toml",
        "secret.txt",
        "tiling.parquet",
        "traces.png",
        "wayveil.toml",
    }
    for picture in ("traces.png", "density.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert not Broker(folder / "broker").status().running
    assert str(folder / "map.html") in done.stdout
