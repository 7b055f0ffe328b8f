"""The program `wayveil bench-density`: measure all methods on all places, the schedules on the streams, and report."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from jobs.bench.density.pictures import draw_histograms, draw_streams
from jobs.bench.density.places import beijing
from jobs.bench.density.report import DensityReport
from jobs.bench.density.roads import helsinki, san_francisco
from jobs.bench.density.streams import DENSE, SPARSE, measure_streams
from jobs.bench.density.trial import Score, measure
from jobs.errors import UserError

__all__ = ["DEFAULT_DATA", "FULL", "QUICK", "DensityPlan", "run_density_bench"]

DEFAULT_DATA = Path("../shared/data")
USERS = (10_000, 100_000)
EPSILONS = (0.1, 1.0)
SEED = 987_654
"""Of the snapshots: not that under which the product's constants were chosen."""


@dataclass(frozen=True)
class DensityPlan:
    """How much is measured.

    Parameters
    ----------
    runs
        Snapshots of each setting, at least 1.
    rectangles
        Rectangles of each size class in a run.
    stream_runs
        Weeks of each stream, at least 1.
    stream_pairs
        w and ε of each stream.
    """

    runs: int
    rectangles: int
    stream_runs: int
    stream_pairs: tuple[tuple[int, float], ...]


QUICK = DensityPlan(20, 1_000, 1, ((40, 1.0), (120, 1.0), (200, 1.0)))
FULL = DensityPlan(100, 1_000, 3, (*((w, 1.0) for w in (40, 80, 120, 160, 200)), (120, 0.1), (120, 0.5)))


def run_density_bench(plan: DensityPlan, data: Path, folder: Path) -> DensityReport:
    """Run the density bench and print what it found; the same is in `density.json`, `density.md` and two pictures in its folder.

    Parameters
    ----------
    plan
        How much to measure.
    data
        Folder of the samples.
    folder
        Folder for the files; made if it is not there, those of an earlier bench are replaced.

    Raises
    ------
    UserError
        If a sample is missing.
    """
    if not data.is_dir():
        raise UserError(f"There is no folder {data} with the samples of the density bench: name theirs with --data.")
    console = Console()
    scores: list[Score] = []
    for place in (beijing(data), helsinki(data), san_francisco(data)):
        for users in USERS:
            for epsilon in EPSILONS:
                scores += measure(place, users, epsilon, plan.runs, plan.rectangles, SEED)
        console.print(f"measured {plan.runs} snapshots of each setting on {place.name}")
    streams = measure_streams((DENSE, SPARSE), plan.stream_pairs, plan.stream_runs)
    console.print("measured the streams")
    report = DensityReport(scores, streams, plan.runs, plan.rectangles)
    folder.mkdir(parents=True, exist_ok=True)
    report.write(folder)
    draw_histograms(folder / "density.png", report)
    draw_streams(folder / "streams.png", report)
    report.show(console)
    console.print(f"All figures and pictures are in {folder.resolve()}.", soft_wrap=True)
    return report
