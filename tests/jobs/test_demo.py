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

from geo.plane import Plane
from geo.privacy.prf import subkey
from jobs.broker import Broker
from jobs.demo.measure import compare, count
from jobs.demo.pictures import write_map, write_picture
from jobs.demo.program import MARK, SETTINGS, run_demo
from jobs.demo.sample import CAR, PLANTED, START_MS, TRACK, Sample, read_sample, records
from jobs.errors import UserError
from jobs.kafka import Record
from streaming.decode import Decoder, user_id
from streaming.pseudonyms import Pseudonyms
from streaming.records import Kind
from streaming.release import OUTCOMES, STATUSES
from streaming.settings import Settings, load_settings
from streaming.shard import tick_grid
from streaming.window import gather

ROOT = Path(__file__).parents[2]
SECRET = bytes(range(32))
R50, R95 = 280.0, 800.0


@pytest.fixture(scope="module")
def sample() -> Sample:
    return read_sample()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "wayveil.toml"
    path.write_text(
        SETTINGS.format(bootstrap='"127.0.0.1:9092"', tiling='"tiling.parquet"', secret='"secret.txt"', checkpoints='"checkpoints"')
    )
    return load_settings(path)


def pseudonym(settings: Settings, user: str, tick: int) -> str:
    names = Pseudonyms(SECRET, settings.privacy.audience, settings.privacy.epoch_ticks)
    return names.of(np.array([user_id(subkey(SECRET, b"user-id"), user)], np.uint64), tick)[0]


def released(settings: Settings, user: str, tick: int, lat: float, lon: float) -> dict[str, Any]:
    name = pseudonym(settings, user, tick)
    return {"user": name, "tick": tick, "status": "released", "lat": lat, "lon": lon, "r50_m": R50, "r95_m": R95}


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

    tick = START_MS // 60_000
    truth = compare(sample, [released(settings, "gpx-2", tick, 45.77, 14.36)], settings, SECRET)
    ids = [user_id(subkey(SECRET, b"user-id"), user) for user in truth.user.tolist()]
    windows_mm = np.array([means[window] for window in zip(ids, truth.tick.tolist(), strict=True)])
    true_mm = plane.to_mm(*(np.rint(truth.true * 1e7).astype(np.int64).T))
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
    found = compare(made_sample(), rows, settings, SECRET)
    assert list(zip(found.user.tolist(), found.tick.tolist(), strict=True)) == [("a", tick), ("a", tick + 1), ("b", tick)]
    assert found.distance_m == pytest.approx([0, np.nan, 1112.5], abs=0.1, nan_ok=True)
    assert len(found.displacements()) == 2
    assert (found.r50_m, found.r95_m) == (R50, R95)


def test_a_release_of_nobody_is_an_error(settings: Settings) -> None:
    with pytest.raises(UserError, match="somebody who sent none"):
        compare(made_sample(), [released(settings, "b", START_MS // 60_000 + 1, 51.0, 20.0)], settings, SECRET)


def test_counts_add_up() -> None:
    ledger = [{"released": 2, "absent": 1, "withheld": 0}, {"released": 0, "absent": 0, "withheld": 1}]
    traces = [{"status": status} for status in ("released", "released", "absent", "withheld")]
    parts = [balance(used=7, rejected=2), balance(late=2, control=1), balance("density", used=1, merged=6, rejected=2, late=2, control=1)]
    counts = count(12, parts, ledger, traces)
    assert counts.records == sum(counts.outcomes["traces"].values()) == sum(counts.outcomes["density"].values()) == 12
    assert counts.reasons == {"malformed": 2}
    assert counts.rows == {"released": 2, "absent": 1, "withheld": 1}


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
    with pytest.raises(UserError, match=message):
        count(sent, [row, balance("density", used=sent)], [{**dict.fromkeys(STATUSES, 0), "released": ledger}], [{"status": "released"}])


class Loads(HTMLParser):
    """Collects what a page loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}" for name, _ in attrs if name in ("src", "srcset", "href", "data", "action", "background")]


def test_pictures_are_written_and_load_nothing(sample: Sample, settings: Settings, tmp_path: Path) -> None:
    tick = START_MS // 60_000
    places = {"gpx-2": (45.77, 14.36), **{f"car-{i}": (60.17, 24.95) for i in range(4)}}
    found = compare(sample, [released(settings, user, tick, *place) for user, place in places.items()], settings, SECRET)
    write_picture(tmp_path / "traces.png", sample, found)
    assert (tmp_path / "traces.png").read_bytes().startswith(b"\x89PNG")
    write_map(tmp_path / "map.html", sample, found)
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert "gpx-2" in page
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
    assert {path.name for path in folder.iterdir()} == {
        MARK,
        "broker",
        "checkpoints",
        "density.png",
        "map.html",
        "secret.txt",
        "tiling.parquet",
        "traces.png",
        "wayveil.toml",
    }
    for picture in ("traces.png", "density.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert not Broker(folder / "broker").status().running
    assert str(folder / "map.html") in done.stdout
