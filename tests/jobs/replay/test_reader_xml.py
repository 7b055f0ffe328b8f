"""XML in bounded memory, and all of a packed file that is whole before its damage."""

import gzip
import zlib
from pathlib import Path
from random import Random

import pytest

from jobs.replay.files import InputFile
from jobs.replay.fixes import DamagedError
from jobs.replay.readers.xml import elements
from tests.jobs.replay.inputs import Found, write

POINT = '<trkpt lat="48.5" lon="11.25"><ele>1</ele><time>2024-01-01T00:00:00Z</time></trkpt>'
UNDECLARED = POINT.replace("<ele>1</ele>", "<extensions><gpxtpx:hr>60</gpxtpx:hr></extensions>")


@pytest.mark.parametrize(
    "text",
    [
        f"<gpx><trk><trkseg>{POINT * 2_000}</trkseg></trk></gpx>",
        f"<gpx><trk>{f'<trkseg>{POINT}</trkseg>' * 2_000}</trk></gpx>",
        f"<gpx>{f'<trk><name>a</name><trkseg>{POINT}</trkseg></trk><!-- b -->' * 2_000}</gpx>",
    ],
    ids=["points", "segments", "tracks"],
)
def test_the_tree_in_memory_stays_small(tmp_path: Path, text: str) -> None:
    file = InputFile(write(tmp_path, "a.gpx", text), None, "a")
    sizes = [sum(1 for _ in point.getroottree().iter()) for _, point in elements(file, ("trkpt",))]
    assert len(sizes) == 2_000
    assert sizes[-1] < 20


def test_megabytes_of_something_else_end_the_file(tmp_path: Path) -> None:
    found = Found(write(tmp_path, "a.gpx", f"<gpx><trk><trkseg>{POINT}{'<j/>' * 1_500_000}{POINT}</trkseg></trk></gpx>"))
    assert (len(found.fixes), found.damage) == (1, "megabytes of its XML are no positions")


def test_a_prefix_that_nobody_declared_is_no_damage_but_a_cut_is(tmp_path: Path) -> None:
    whole = f"<gpx><trk><trkseg>{UNDECLARED * 300}</trkseg></trk></gpx>"
    found = Found(write(tmp_path, "a.gpx", whole))
    assert (len(found.fixes), found.damage) == (300, None)
    for cut in range(len(whole) - 2 * len(UNDECLARED), len(whole)):
        found = Found(write(tmp_path, "a.gpx", whole[:cut]))
        assert (len(found.fixes), found.damage is None) == (whole[:cut].count("</trkpt>"), False), cut


@pytest.mark.parametrize(
    ("name", "begin", "item", "end"),
    [
        ("a.gpx.gz", "<gpx><trk><trkseg>", '<trkpt lat="{}" lon="2"><time>2024-01-01T00:00:00Z</time></trkpt>\n', "</trkseg></trk></gpx>"),
        ("a.nmea.gz", "", "$GPRMC,101500.00,A,48{:08.5f},N,01115.00,E,0.0,0.0,100324,,,A\n", ""),
    ],
)
def test_a_packed_file_cut_off_gives_all_that_is_whole(tmp_path: Path, name: str, begin: str, item: str, end: str) -> None:
    random = Random(7)
    content = begin + "".join(item.format(random.random() * 59) for _ in range(20_000)) + end
    packed = gzip.compress(content.encode())
    for part in (0.1, 0.5, 0.9):
        cut = packed[: int(len(packed) * part)]
        (tmp_path / name).write_bytes(cut)
        found = Found(tmp_path / name)
        assert len(found.fixes) == zlib.decompressobj(31).decompress(cut).count(b"\n")
        assert found.damage == "its packing is broken"


def test_a_document_that_is_empty_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DamagedError):
        list(elements(InputFile(write(tmp_path, "a.gpx", ""), None, "a"), ("trkpt",)))
