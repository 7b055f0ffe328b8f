"""Last step of the density bench: the verdicts, as tables on the screen, as Markdown and as a file."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from jobs.bench.density.contenders import CONTENDERS
from jobs.bench.density.ours import OURS, SMOOTHED
from jobs.bench.density.protocol import SIZE_CLASSES, Mean
from jobs.bench.density.streams import StreamScore
from jobs.bench.density.trial import OWN_FORMS, ROAD_FORMS, Score, Setting

__all__ = ["BARS", "BAR_TOLERANCE", "DensityReport", "Verdict"]

BARS = {
    Setting("Beijing", 10_000, 0.1): {"small": 0.06, "medium": 0.18, "large": 0.28},
    Setting("Beijing", 10_000, 1.0): {"small": 0.037, "medium": 0.055, "large": 0.066},
}
"""Largest mean relative error that the product is to have."""
BAR_TOLERANCE = 0.1
"""Part by which a bar may be missed."""
FEW_USERS = 10_000
"""Up to so many users no contender may be better by more than its confidence interval; above, by no more than `LEAD`."""
LEAD = 0.2


_Rows = tuple[str, list[str], list[list[str]]]
"""Title, headings and rows of a table."""


@dataclass(frozen=True)
class Verdict:
    """Whether the product holds one promise.

    Parameters
    ----------
    setting, size_class
        Where.
    promise
        "bar", or the contender that is not to be better.
    ours
        The product's error.
    limit
        The largest error that keeps the promise.
    """

    setting: Setting
    size_class: str
    promise: str
    ours: float
    limit: float

    @property
    def kept(self) -> bool:
        """Whether the promise is kept."""
        return self.ours <= self.limit

    def __str__(self) -> str:
        """Return one line."""
        outcome = "kept" if self.kept else "MISSED"
        return f"{self.setting}, {self.size_class}: {self.ours:.4f} against {self.promise}, at most {self.limit:.4f}: {outcome}"


@dataclass(frozen=True)
class DensityReport:
    """What the density bench found.

    Parameters
    ----------
    scores
        Of all methods and forms.
    streams
        Of all schedules.
    runs
        Snapshots of each setting.
    rectangles
        Rectangles of each size class in a run.
    """

    scores: Sequence[Score]
    streams: Sequence[StreamScore]
    runs: int
    rectangles: int

    @property
    def settings(self) -> list[Setting]:
        """The settings in the order they were measured."""
        return list(dict.fromkeys(score.setting for score in self.scores))

    def best(self, setting: Setting, method: str, size_class: str, forms: Sequence[str] = OWN_FORMS) -> Mean:
        """Return the error of the product, or that of a contender in whichever of its forms has the least.

        Parameters
        ----------
        setting, method, size_class
            Where.
        forms
            Of a contender.
        """
        allowed = (SMOOTHED,) if method == OURS else forms
        found = (score for score in self.scores if (score.setting, score.method) == (setting, method) and score.form in allowed)
        return min((score.errors[size_class] for score in found), key=lambda error: error.mean)

    def verdicts(self) -> Iterator[Verdict]:
        """Yield all promises, those on bars first."""
        cells = [(setting, name) for setting in self.settings for name in SIZE_CLASSES]
        for setting, name in cells:
            if setting in BARS:
                limit = BARS[setting][name] * (1 + BAR_TOLERANCE)
                yield Verdict(setting, name, "bar", self.best(setting, OURS, name).mean, limit)
        for setting, name in cells:
            ours = self.best(setting, OURS, name).mean
            for rival in CONTENDERS:
                theirs = self.best(setting, rival, name)
                limit = theirs.mean + theirs.half_width if setting.users <= FEW_USERS else theirs.mean / (1 - LEAD)
                yield Verdict(setting, name, rival, ours, limit)

    def ahead_on_roads(self) -> Iterator[str]:
        """Yield a line for each cell where a contender that spread its counts over the public roads would be ahead by its interval."""
        for setting in self.settings:
            for name in SIZE_CLASSES:
                ours = self.best(setting, OURS, name).mean
                for rival in CONTENDERS:
                    theirs = self.best(setting, rival, name, ROAD_FORMS)
                    if theirs.mean + theirs.half_width < ours:
                        yield f"{setting}, {name}: {rival} on roads {_shown(theirs)}, the product {ours:.4f}"

    def document(self) -> dict[str, Any]:
        """Return everything as the content of the report's file."""
        return {
            "runs": self.runs,
            "rectangles": self.rectangles,
            "scores": [asdict(score) for score in self.scores],
            "streams": [asdict(score) for score in self.streams],
            "verdicts": [{**asdict(verdict), "kept": verdict.kept} for verdict in self.verdicts()],
        }

    def write(self, folder: Path) -> None:
        """Write `density.json` and `density.md`.

        Parameters
        ----------
        folder
            Existing folder.
        """
        (folder / "density.json").write_bytes(orjson.dumps(self.document(), option=orjson.OPT_INDENT_2))
        (folder / "density.md").write_text(self.markdown(), encoding="utf-8")

    def markdown(self) -> str:
        """Return the tables and verdicts as Markdown."""
        parts = []
        for title, heads, rows in (*self._all_forms(), *self._schedules()):
            lines = [heads, ["---"] * len(heads), *rows]
            parts.append(f"### {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
        parts.append("### Promises\n\n" + "\n".join(f"- {verdict}" for verdict in self.verdicts()))
        ahead = "\n".join(f"- {line}" for line in self.ahead_on_roads()) or "nowhere"
        parts.append(f"### Where a contender with the product's roads would be ahead\n\n{ahead}")
        return "\n\n".join(parts) + "\n"

    def show(self, console: Console) -> None:
        """Print the tables and the verdict.

        Parameters
        ----------
        console
            Where to print.
        """
        for title, heads, rows in (*self._best_forms(), *self._schedules()):
            table = Table(title=title, box=SIMPLE_HEAD)
            for number, head in enumerate(heads):
                table.add_column(head, justify="right" if number else "left")
            for row in rows:
                table.add_row(*row)
            console.print(table)
        verdicts = list(self.verdicts())
        missed = [verdict for verdict in verdicts if not verdict.kept]
        console.print(f"{len(verdicts) - len(missed)} of {len(verdicts)} promises are kept.")
        for verdict in missed:
            console.print(str(verdict), soft_wrap=True)
        for line in self.ahead_on_roads():
            console.print(f"Ahead with the product's roads: {line}", soft_wrap=True)

    def _all_forms(self) -> Iterator[_Rows]:
        for setting in self.settings:
            mine = [score for score in self.scores if score.setting == setting]
            rows = [[score.method, score.form, *(_shown(score.errors[name]) for name in SIZE_CLASSES)] for score in mine]
            yield f"{setting}: mean relative error ± 95 %, {self.runs} runs", ["method", "form", *SIZE_CLASSES], rows

    def _best_forms(self) -> Iterator[_Rows]:
        for setting in self.settings:
            rows = [[OURS, *(_shown(self.best(setting, OURS, name)) for name in SIZE_CLASSES)]]
            for suffix, forms in (("", OWN_FORMS), (" on roads", ROAD_FORMS)):
                rows += [
                    [rival + suffix, *(_shown(self.best(setting, rival, name, forms)) for name in SIZE_CLASSES)] for rival in CONTENDERS
                ]
            yield f"{setting}", ["mean relative error", *SIZE_CLASSES], rows

    def _schedules(self) -> Iterator[_Rows]:
        for stream in dict.fromkeys(score.stream for score in self.streams):
            mine = [score for score in self.streams if score.stream == stream]
            pairs = list(dict.fromkeys((score.epsilon, score.window_ticks) for score in mine))
            rows = [
                [schedule, *(f"{score.error.mean:.1f} ({score.publications:.0%})" for score in mine if score.schedule == schedule)]
                for schedule in dict.fromkeys(score.schedule for score in mine)
            ]
            heads = ["schedule", *(f"ε {epsilon:g}, w {window_ticks}" for epsilon, window_ticks in pairs)]
            yield f"{stream} stream: mean absolute error (part of ticks published)", heads, rows


def _shown(mean: Mean) -> str:
    return f"{mean.mean:.4f} ± {mean.half_width:.4f}"
