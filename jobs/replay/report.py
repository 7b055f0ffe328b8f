"""What became of every item of every file of a replay."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from jobs.replay.fixes import Batch, Reason

__all__ = ["FileReport", "show_report", "write_report"]

PLACES_KEPT = 1000
PLACES_SHOWN = 3


@dataclass
class FileReport:
    """One file.

    Attributes
    ----------
    name, format : str
        The file, and what it turned out to be.
    fixes, without_place : int
        Fixes that go into the log, and how many of them say no usable place.
    other : int
        Items that are no positions by their nature.
    moved : int
        Fixes whose time was moved by 1024 weeks.
    refused : Counter of Reason
        Items that nothing could be made of.
    places : dict of Reason to list of int
        Where in the file they are: the first thousand of each reason.
    damage : str or None
        Why it could not be read to its end.
    sum_ms : int
        Sum of all times of the fixes, by which a resumed replay knows that it reads the same again.
    """

    name: str
    format: str
    fixes: int = 0
    without_place: int = 0
    other: int = 0
    moved: int = 0
    refused: Counter[Reason] = field(default_factory=Counter)
    places: dict[Reason, list[int]] = field(default_factory=dict)
    damage: str | None = None
    sum_ms: int = 0

    def add(self, batch: Batch, moved: int) -> None:
        """Count a batch."""
        self.fixes += len(batch.fixes)
        self.sum_ms += sum(batch.fixes["t_ms"].to_pylist())
        self.without_place += batch.fixes["lat"].null_count
        self.other += batch.other
        self.moved += moved
        for index, reason in batch.refused:
            self.refused[reason] += 1
            places = self.places.setdefault(reason, [])
            if len(places) < PLACES_KEPT:
                places.append(index)

    @property
    def is_whole(self) -> bool:
        """Whether all of it has been read, and nothing was refused."""
        return not self.refused and self.damage is None

    def as_document(self, sent: bool) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "file": self.name,
            "format": self.format,
            "read": self.fixes + self.refused.total(),
            "sent": self.fixes if sent else 0,
            "without_place": self.without_place,
            "other": self.other,
            "moved_1024_weeks": self.moved,
            "refused": {reason.value: {"count": count, "at": self.places[reason]} for reason, count in sorted(self.refused.items())},
            "damage": self.damage,
        }


def show_report(console: Console, reports: Sequence[FileReport]) -> None:
    """Print a table with a row a format, and a line for each file that is not whole or whose times were moved."""
    table = Table("format", *("files", "read", "sent", "without place", "refused", "other"), title="Files")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in dict.fromkeys(report.format for report in reports):
        same = [report for report in reports if report.format == name]
        fixes, refused = sum(report.fixes for report in same), sum(report.refused.total() for report in same)
        nowhere, other = sum(report.without_place for report in same), sum(report.other for report in same)
        table.add_row(name, *(f"{count:,}" for count in (len(same), fixes + refused, fixes, nowhere, refused, other)))
    console.print(table)
    for report in reports:
        parts = [f"{count:,} {reason.value} (at {_shown(report.places[reason], count)})" for reason, count in report.refused.most_common()]
        if report.damage is not None:
            parts.append(f"the rest cannot be read: {report.damage}")
        if report.moved:
            parts.append(f"{report.moved:,} times moved by 1024 weeks")
        if parts:
            console.print(f"{report.name}: {'; '.join(parts)}", markup=False, soft_wrap=True)


def write_report(path: Path, reports: Sequence[FileReport], sent: bool) -> None:
    """Write all reports as one JSON document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps([report.as_document(sent) for report in reports], option=orjson.OPT_INDENT_2) + b"\n")


def _shown(places: Sequence[int], count: int) -> str:
    return ", ".join(map(str, places[:PLACES_SHOWN])) + (" …" if count > PLACES_SHOWN else "")
