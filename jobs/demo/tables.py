"""What the demo prints of its figures: every record's outcome, the rows, the displacement beside what is promised, and the cost."""

import math
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from jobs.demo.counts import Cost, Counts
from jobs.demo.measure import Comparison
from streaming.release import OUTCOMES, STATUSES
from streaming.settings import PRODUCTS

__all__ = ["show_anchored", "show_cost", "show_counts", "show_displacement"]

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
    "released": "a noisy position, or a public place near one",
    "absent": "enrolled, but no fix in the tick",
    "withheld": "budget spent",
}
NEVER = "health"
"""A category that the demo's policy never offers."""

TWO_SIDED_95 = 1.96
MICRO = 1e6


def show_counts(console: Console, counts: Counts) -> None:
    """Print what became of every input record, and the rows of each audience.

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

    table = Table(
        title="What each audience is told: rows of its topic, one a user and minute in which its view is due", title_justify="left"
    )
    table.add_column("status")
    for audience in counts.rows:
        table.add_column(audience, justify="right")
    table.add_column("")
    for name in STATUSES:
        table.add_row(name, *(f"{rows[name]:,}" for rows in counts.rows.values()), STATUS_TEXT[name])
    table.add_section()
    totals = (f"{sum(rows.values()):,}" for rows in counts.rows.values())
    table.add_row("all", *totals, "each status as in the public ledger, topic `releases`", style="bold")
    console.print(table)


def show_displacement(console: Console, comparisons: Sequence[Comparison]) -> None:
    """Print the distance of released positions from the truth beside the radii that they state.

    Parameters
    ----------
    console : Console
        Where to.
    comparisons : sequence of Comparison
        Of the audiences that are told positions.
    """
    table = Table(title="Distance of a released position from the true mean of its minute", title_justify="left")
    table.add_column("audience")
    table.add_column("share")
    for name in ("promised", "measured", "releases within the promised radius"):
        table.add_column(name, justify="right")
    for comparison in comparisons:
        distance, whose = comparison.displacements(), f"{comparison.audience}, {comparison.radius_m:.0f} m"
        for title, share, radius_m in (("50 % (median)", 0.5, comparison.r50_m), ("95 %", 0.95, comparison.r95_m)):
            within = float(np.mean(distance <= radius_m))
            chance = TWO_SIDED_95 * math.sqrt(share * (1 - share) / len(distance))
            measured = f"{np.quantile(distance, share):.0f} m"
            table.add_row(whose, title, f"{radius_m:.0f} m", measured, f"{within:.1%} (by chance ± {chance:.1%})")
        table.add_section()
    console.print(table)
    releases = " and ".join(f"{len(comparison.displacements()):,} to {comparison.audience}" for comparison in comparisons)
    console.print(
        f"{releases}. The truth is known here only because the demo holds the secret and the raw fixes: nobody who reads the topics can "
        "make this comparison.",
        soft_wrap=True,
    )


def show_anchored(console: Console, comparison: Comparison) -> None:
    """Print how often an audience is told a public place, a category, or neither.

    Parameters
    ----------
    console : Console
        Where to.
    comparison : Comparison
        Of an audience that is told public places.
    """
    released, named, placed = comparison.form != "", comparison.category != "", comparison.placed
    title = f"What {comparison.audience} is told instead of positions: the nearest public place that the policy offers"
    table = Table(title=title, title_justify="left")
    table.add_column("told")
    for name in ("rows", "share"):
        table.add_column(name, justify="right")
    table.add_column("")
    rows = (
        ("place", placed, f"by name; half within {np.median(comparison.displacements()):.0f} m of the true mean"),
        ("category", named & ~placed, "without the place: it is too private to be named"),
        ("unanchored", released & ~named, f"none within {comparison.r95_m:.0f} m of the noisy position: no position, no category"),
    )
    for name, chosen, text in rows:
        table.add_row(name, f"{chosen.sum():,}", f"{chosen.sum() / released.sum():.1%}", text)
    table.add_section()
    never = int((comparison.category == NEVER).sum())
    table.add_row("any category", f"{named.sum():,}", f"{named.sum() / released.sum():.1%}", f"of them {NEVER}, never offered: {never}")
    console.print(table)


def show_cost(console: Console, cost: Cost) -> None:
    """Print that all audiences together cost no more than the finest one.

    Parameters
    ----------
    console : Console
        Where to.
    cost : Cost
        What was charged and stated.
    """
    alone = ", ".join(f"{name} {micro / MICRO:,.1f}" for name, micro in cost.stated.items())
    console.print(
        f"The ledger charged ε {cost.charged / MICRO:,.1f} for {cost.looks:,} looks, all users and minutes added up: exactly what the "
        f"releases to {cost.finest} cost alone, since the others are these with more noise. Each for itself would cost: {alone}.",
        soft_wrap=True,
    )
