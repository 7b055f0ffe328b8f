"""Pictures of the density bench: the errors of all methods, and those of the schedules."""

from pathlib import Path
from typing import Any

from jobs.bench.density.contenders import CONTENDERS
from jobs.bench.density.ours import OURS
from jobs.bench.density.protocol import SIZE_CLASSES
from jobs.bench.density.report import BARS, DensityReport

__all__ = ["draw_histograms", "draw_streams"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#666666")
COLUMNS = 4


def draw_histograms(path: Path, report: DensityReport) -> None:
    """Draw for each setting the mean relative error of each method in its best form, with confidence intervals, and the bars.

    Parameters
    ----------
    path : Path
        PNG file to write.
    report : DensityReport
    """
    rows = -(-len(report.settings) // COLUMNS)
    figure, panels = _panels(rows, COLUMNS, 4.2)
    methods = (OURS, *CONTENDERS)
    for panel, setting in zip(panels, report.settings, strict=False):
        for number, (method, colour) in enumerate(zip(methods, COLOURS, strict=False)):
            means = [report.best(setting, method, name) for name in SIZE_CLASSES]
            at = [place + (number - len(methods) / 2 + 0.5) * 0.16 for place in range(len(SIZE_CLASSES))]
            panel.bar(at, [mean.mean for mean in means], 0.15, yerr=[mean.half_width for mean in means], color=colour, label=method)
        for place, name in enumerate(SIZE_CLASSES):
            if setting in BARS:
                panel.hlines(BARS[setting][name], place - 0.45, place + 0.45, colors="black", linestyles="dashed")
        panel.set_xticks(range(len(SIZE_CLASSES)), list(SIZE_CLASSES))
        panel.set_yscale("log")
        panel.set_title(f"{setting.place}, {setting.users:,} users, ε {setting.epsilon:g}")
    for panel in panels[len(report.settings) :]:
        panel.axis("off")
    panels[0].set_ylabel("mean relative error")
    panels[0].legend()
    figure.savefig(path, dpi=110)


def draw_streams(path: Path, report: DensityReport) -> None:
    """Draw the mean absolute error of each schedule over w at the largest ε.

    Parameters
    ----------
    path : Path
        PNG file to write.
    report : DensityReport
        With at least one stream.
    """
    names = list(dict.fromkeys(score.stream for score in report.streams))
    figure, panels = _panels(1, len(names), 5.0)
    epsilon = max(score.epsilon for score in report.streams)
    for panel, name in zip(panels, names, strict=True):
        mine = [score for score in report.streams if score.stream == name and score.epsilon == epsilon]
        for schedule, colour in zip(dict.fromkeys(score.schedule for score in mine), COLOURS, strict=True):
            line = sorted((score.window_ticks, score.error.mean) for score in mine if score.schedule == schedule)
            panel.plot(*zip(*line, strict=True), "o-", color=colour, label=schedule)
        panel.set_yscale("log")
        panel.set_xlabel("w, ticks")
        panel.set_title(f"{name} stream, ε {epsilon:g} in any w ticks")
    panels[0].set_ylabel("mean absolute error per cell")
    panels[0].legend()
    figure.savefig(path, dpi=110)


def _panels(rows: int, columns: int, width: float) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, 3.6 * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())
