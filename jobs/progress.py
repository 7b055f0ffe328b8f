"""A bar with counts, rate and time left, for programs that work through many records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(console: Console, title: str, total: int, *, counts: bool = True) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; yields a function that takes how much of `total` is done.

    Parameters
    ----------
    console : Console
        Where to.
    title : str
        What goes on.
    total : int
        How much there is.
    counts : bool
        Whether to show counts and the rate, or only the share that is done.
    """
    shown = (MofNCompleteColumn(), _Rate()) if counts else (TaskProgressColumn(),)
    with Progress(TextColumn(title), BarColumn(), *shown, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)


class _Rate(ProgressColumn):
    """Records a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")
