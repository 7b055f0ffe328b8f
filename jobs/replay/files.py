"""First step of a replay: the paths that a person names -> files to read, unpacked on the way, each with the user whom it stands for."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from jobs.errors import UserError
from jobs.replay.fixes import DamagedError

__all__ = ["HEAD_BYTES", "InputFile", "Meter", "UserFrom", "find_files"]

HEAD_BYTES = 65_536
BUFFER_BYTES = 1 << 20
DAMAGE = (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError, NotImplementedError)
"""What the standard library raises where packed content is broken, locked or packed in a way it does not know."""

UserFrom = Literal["path", "file"]


@dataclass
class Meter:
    """How far a file has been read.

    Attributes
    ----------
    done, size : int
        Bytes read of its content as it is stored, and how many there are; of a member of an archive, unpacked.
    """

    done: int = 0
    size: int = 0


@dataclass(frozen=True)
class InputFile:
    """One file of fixes, or one member of a `.zip`.

    Attributes
    ----------
    path : Path
        The file on disk.
    member : str or None
        Name of the member, if the file is a `.zip`.
    user : str
        Who it is about if it does not say so itself.
    meter : Meter
        How far it has been read.
    """

    path: Path
    member: str | None
    user: str
    meter: Meter = field(default_factory=Meter, compare=False)

    @property
    def name(self) -> str:
        """What reports call it."""
        return str(self.path) if self.member is None else f"{self.path}!{self.member}"

    @property
    def inner_name(self) -> str:
        """The name that tells its format: without folders in an archive, and without `.gz`."""
        return Path(self.member or self.path.name).name.removesuffix(".gz")

    @property
    def parents(self) -> tuple[str, ...]:
        """Names of the folders above it, outermost first; inside an archive, those in there."""
        return (Path(self.member) if self.member is not None else self.path.absolute()).parts[:-1]

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open its unpacked bytes, buffered, from the beginning; what is packed in it is unpacked as it is read.

        Raises
        ------
        DamagedError
            Also by every read, if what is packed is broken.
        """
        with ExitStack() as opened:
            try:
                if self.member is None:
                    raw: BinaryIO = opened.enter_context(self.path.open("rb"))
                else:
                    archive = opened.enter_context(zipfile.ZipFile(self.path))
                    raw = cast(BinaryIO, opened.enter_context(archive.open(self.member)))
            except DAMAGE as error:
                raise DamagedError(_how(error)) from error
            packed = (self.member or self.path.name).lower().endswith(".gz")
            yield io.BufferedReader(_Guarded(gzip.GzipFile(fileobj=raw) if packed else raw, raw, self.meter), BUFFER_BYTES)

    def head(self) -> bytes:
        """Return its first bytes, unpacked, at most `HEAD_BYTES`."""
        with self.open() as content:
            return content.read(HEAD_BYTES)


def find_files(paths: list[Path], user: str | None, user_from: UserFrom) -> list[InputFile]:
    """List the files below some paths, in the order of their names.

    Parameters
    ----------
    paths
        Files, folders (searched to the bottom; names that begin with a dot are left out) and `.zip` archives.
    user
        Who all files are about that do not say so themselves.
    user_from
        Otherwise: `path`, one user for each of `paths`, called by its name without endings; or `file`, one for each file.

    Raises
    ------
    UserError
        If a path does not exist, or there is no file.
    """
    found: dict[tuple[Path, str | None], InputFile] = {}
    for path in paths:
        if not path.exists():
            raise UserError(f"`{path}` does not exist: name files or folders of fixes.")
        inside = sorted(_below(path)) if path.is_dir() else [path]
        for file in inside:
            for member, size in _members(file):
                name = user or (_bare(path.resolve().name) if user_from == "path" else _bare(Path(member or file.name).name))
                found.setdefault((file.resolve(), member), InputFile(file, member, name, Meter(size=size)))
    if not found:
        raise UserError("There is no file below these paths: name files or folders of fixes.")
    return list(found.values())


def _below(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if not path.name.startswith("."):
            if path.is_dir():
                yield from _below(path)
            else:
                yield path


def _members(file: Path) -> list[tuple[str | None, int]]:
    """Return the members of an archive with their sizes; another file is its own and only one."""
    if file.name.lower().endswith(".zip"):
        with suppress(*DAMAGE), zipfile.ZipFile(file) as archive:
            inside = [info for info in archive.infolist() if not info.is_dir() and not _is_hidden(info.filename)]
            return [(info.filename, info.file_size) for info in sorted(inside, key=lambda info: info.filename)]
    return [(None, file.stat().st_size)]


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in Path(name).parts)


def _bare(name: str) -> str:
    """Return a name without its endings, however many; one that is all ending stays."""
    return name.split(".", maxsplit=1)[0] or name


def _how(error: Exception) -> str:
    return getattr(error, "strerror", None) or "its packing is broken"


class _Guarded(io.RawIOBase):
    """A stream whose failures to unpack are told apart from all other errors."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, raw: BinaryIO, meter: Meter) -> None:
        self._stream, self._raw, self._meter = stream, raw, meter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            # `readinto` would lose what it has by then when unpacking fails
            count: int = self._stream.readinto1(buffer)  # type: ignore[union-attr]
            self._meter.done = max(self._meter.done, self._raw.tell())
        except DAMAGE as error:
            raise DamagedError(_how(error)) from error
        return count
