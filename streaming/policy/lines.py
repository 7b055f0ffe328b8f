"""Where in a TOML text each entry stands, so that an error can name its line."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

__all__ = ["Path", "line_numbers", "line_of"]

Path = tuple[str | int, ...]
"""Keys from the document's root to an entry; numbers count the items of an array of tables from 0."""

_TOKEN = re.compile(
    r'(?P<text>"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<comment>\#[^\n]*)|(?P<open>[\[{])|(?P<close>[\]}])|(?P<line>\n)|(?P<rest>[^\[\]{}\"'\#\n]+)",
    re.DOTALL,
)
_KEY = re.compile(r"""((?:"(?:\\.|[^"\\])*"|'[^']*'|[^="'])+)=""")


def line_numbers(text: str) -> dict[Path, int]:
    """Return the line, counted from 1, of every header and every key outside inline tables.

    Parameters
    ----------
    text : str
        A document that `tomllib` reads.
    """
    lines: dict[Path, int] = {}
    arrays: dict[Path, int] = {}
    table: Path = ()
    for line, statement in _statements(text):
        if statement.startswith("["):
            table = _header(statement, arrays)
            lines.setdefault(table, line)
        elif found := _KEY.match(statement):
            lines[table + _keys(found[1])] = line
    return lines


def line_of(lines: Mapping[Path, int], path: Path) -> int | None:
    """Return the line of an entry or, if it has none of its own, of the nearest entry around it.

    A number in `path` may count one table that stands where an array of tables could.
    """
    found: Path = ()
    line = None
    for part in path:
        if not isinstance(part, int) or (*found, part) in lines:
            found = (*found, part)
            line = lines.get(found, line)
    return line


def _statements(text: str) -> list[tuple[int, str]]:
    """Split a document at the line ends that are in no string, array or inline table."""
    out = []
    line = start = 1
    depth, parts = 0, list[str]()
    for token in _TOKEN.finditer(text.replace("\r\n", "\n") + "\n"):
        kind, part = token.lastgroup, token[0]
        if kind == "line" and depth == 0:
            statement = "".join(parts).strip()
            if statement:
                out.append((start, statement))
            parts.clear()
            start = line + 1
        elif kind != "comment":
            depth += (kind == "open") - (kind == "close")
            parts.append(part)
        line += part.count("\n")
    return out


def _header(statement: str, arrays: dict[Path, int]) -> Path:
    """Return the path that a header opens; `arrays` counts the items of the arrays of tables, and changes."""
    is_item = statement.startswith("[[")
    keys = _keys(statement[2:-2] if is_item else statement[1:-1])
    path: Path = ()
    for depth, key in enumerate(keys, 1):
        path = (*path, key)
        if depth == len(keys) and is_item:
            arrays[path] = arrays.get(path, -1) + 1
        if path in arrays:
            path = (*path, arrays[path])
    return path


def _keys(dotted: str) -> Path:
    """Return the parts of a dotted key."""
    found: Any = tomllib.loads(f"{dotted.strip()} = 0")
    out: Path = ()
    while found != 0:
        key, found = next(iter(found.items()))
        out = (*out, key)
    return out
