"""What the demo prints of its figures: every record's outcome, the rows, and the displacement beside what is promised."""

import math

import numpy as np
from rich.console import Console
from rich.table import Table

from jobs.demo.measure import Comparison, Counts
from streaming.release import OUTCOMES, STATUSES
from streaming.settings import PRODUCTS

__all__ = ["show_counts", "show_displacement"]

OUTCOME_TEXT = {
    "used": "part of a released mean, or counted in a published tree",
    "merged": "valid and not used: too many or too fast; in density, all fixes of a user's minute but the first",
    "duplicate": "same user and time once more",
    "late": "its tick had closed",
    "rejected": "",
    "withheld": "of a user, or of a minute, that has no budget left",
    "control": "heartbeats",
}
STATUS_TEXT = {
    "released": "a noisy position",
    "absent": "enrolled, but no fix in the tick",
    "withheld": "budget spent",
}
TWO_SIDED_95 = 1.96


def show_counts(console: Console, counts: Counts) -> None:
    """Print what became of every input record, and the rows of `traces`.

    Parameters
    ----------
    console : Console
        Where to.
    counts : Counts
        Counts that add up.
    """
    table = Table(title="What became of the input", title_justify="left")
    table.add_column("outcome")
    for product in PRODUCTS:
        table.add_column(product, justify="right")
    table.add_column("")
    reasons = ", ".join(f"{reason} {number}" for reason, number in sorted(counts.reasons.items()))
    for name in OUTCOMES:
        table.add_row(name, *(f"{counts.outcomes[product][name]:,}" for product in PRODUCTS), OUTCOME_TEXT[name] or reasons)
    table.add_section()
    table.add_row("in", *[f"{counts.records:,}"] * len(PRODUCTS), "= the sum of the above = records sent", style="bold")
    console.print(table)

    table = Table(title="What was published: rows of `traces`, one a user and minute", title_justify="left")
    table.add_column("status")
    table.add_column("rows", justify="right")
    table.add_column("")
    for name in STATUSES:
        table.add_row(name, f"{counts.rows[name]:,}", STATUS_TEXT[name])
    table.add_section()
    table.add_row("all", f"{sum(counts.rows.values()):,}", "each status as in the public ledger, topic `releases`", style="bold")
    console.print(table)


def show_displacement(console: Console, comparison: Comparison) -> None:
    """Print the distance of releases from the truth beside the radii that they state.

    Parameters
    ----------
    console : Console
        Where to.
    comparison : Comparison
        Truth and releases.
    """
    distance = comparison.displacements()
    table = Table(title="Distance of a release from the true mean of its minute", title_justify="left")
    table.add_column("share")
    for name in ("promised", "measured", "releases within the promised radius"):
        table.add_column(name, justify="right")
    for title, share, radius_m in (("50 % (median)", 0.5, comparison.r50_m), ("95 %", 0.95, comparison.r95_m)):
        within = float(np.mean(distance <= radius_m))
        chance = TWO_SIDED_95 * math.sqrt(share * (1 - share) / len(distance))
        table.add_row(title, f"{radius_m:.0f} m", f"{np.quantile(distance, share):.0f} m", f"{within:.1%} (by chance ± {chance:.1%})")
    console.print(table)
    console.print(
        f"{len(distance):,} releases. The truth is known here only because the demo holds the secret and the raw fixes: nobody who reads "
        "the topics can make this comparison.",
        soft_wrap=True,
    )
