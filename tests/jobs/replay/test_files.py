"""Which files there are below the paths that a person names, and whom they are about."""

import zipfile
from pathlib import Path

import pytest

from jobs.errors import UserError
from jobs.replay.files import find_files
from jobs.replay.fixes import DamagedError
from tests.jobs.replay.inputs import write


def names(paths: list[Path], user: str | None = None, user_from: str = "path") -> list[tuple[str, str]]:
    return [(file.inner_name, file.user) for file in find_files(paths, user, user_from)]  # type: ignore[arg-type]


def test_a_path_is_one_person_unless_files_are_said_to_be(tmp_path: Path) -> None:
    for name in ("anna/2023.gpx", "anna/deep/2024.gpx", "anna/.hidden/x.gpx", "anna/.DS_Store", "bert.gpx.gz"):
        write(tmp_path, name, "x")
    paths = [tmp_path / "anna", tmp_path / "bert.gpx.gz"]
    assert names(paths) == [("2023.gpx", "anna"), ("2024.gpx", "anna"), ("bert.gpx", "bert")]
    assert names(paths, user_from="file") == [("2023.gpx", "2023"), ("2024.gpx", "2024"), ("bert.gpx", "bert")]
    assert {user for _, user in names(paths, user="me")} == {"me"}


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path, "a.gpx", "x")
    assert len(names([path, tmp_path, path])) == 1


def test_archives_are_looked_into_and_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "takeout.zip", "w") as archive:
        for name in ("Takeout/b.json", "Takeout/a.json", "__MACOSX/._a.json", "Takeout/.x"):
            archive.writestr(name, "content")
    files = find_files([tmp_path / "takeout.zip"], None, "path")
    assert [(file.inner_name, file.user, file.parents) for file in files] == [
        ("a.json", "takeout", ("Takeout",)),
        ("b.json", "takeout", ("Takeout",)),
    ]
    assert files[0].head() == b"content"
    packed = write(tmp_path, "a.csv.gz", "x" * 1_000_000)
    assert len(find_files([packed], None, "path")[0].head()) == 65_536


def test_what_is_missing_or_broken_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        find_files([tmp_path / "nowhere"], None, "path")
    with pytest.raises(UserError, match="no file below"):
        find_files([tmp_path], None, "path")
    for name in ("broken.gz", "broken.zip"):
        (file,) = find_files([write(tmp_path, "x" + name, b"").with_name("x" + name)], None, "path")
        file.path.write_bytes(b"PK\x03\x04 or \x1f\x8b nothing")
        if name.endswith(".gz"):
            with pytest.raises(DamagedError):
                file.head()
