"""What the tests of readers share: files to read, and all that comes out of them."""

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

from jobs.replay.files import find_files
from jobs.replay.fixes import DamagedError, ReadOptions, Reason
from jobs.replay.formats import FORMATS, recognise

DATA = Path(__file__).parents[4] / "shared" / "data"


class Found:
    """All that a reader made of a file."""

    def __init__(self, path: Path, options: ReadOptions | None = None, format_: str | None = None) -> None:
        (file,) = find_files([path], None, "file")
        known = next(f for f in FORMATS if f.name == format_) if format_ else recognise(file, file.head())
        assert known is not None, "the file is not recognised"
        self.format = known.name
        self.fixes: list[dict[str, Any]] = []
        self.refused: Counter[Reason] = Counter()
        self.at: list[int] = []
        self.other = 0
        self.damage: str | None = None
        try:
            for batch in known.read(file, options or ReadOptions()):
                batch.fixes.validate(full=True)
                self.fixes += batch.fixes.to_pylist()
                self.refused.update(reason for _, reason in batch.refused)
                self.at += [at for at, _ in batch.refused]
                self.other += batch.other
        except DamagedError as error:
            self.damage = str(error)

    @property
    def places(self) -> list[tuple[float | None, float | None]]:
        return [(fix["lat"], fix["lon"]) for fix in self.fixes]

    @property
    def times(self) -> list[int]:
        return [fix["t_ms"] for fix in self.fixes]

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Fixes, those without a place, refused items, others."""
        return len(self.fixes), sum(fix["lat"] is None for fix in self.fixes), self.refused.total(), self.other


def write(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file; packed if its name says so."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(whole) if name.endswith(".gz") else whole)
    return path
