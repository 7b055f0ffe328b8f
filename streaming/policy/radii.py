"""The public ladder of protected radii, and the blurring function that turns a preference into a radius."""

import math
from collections.abc import Sequence

__all__ = ["LADDER_STEPS", "blur_m", "ladder_m", "rung_m"]

LADDER_STEPS = 20
"""Rungs above the finest radius: the coarsest radius is 1024 times the finest."""

_SAME = 1 - 1e-9
"""What exceeds a rung by less than this share counts as that rung, so that the last bit of a power decides nothing."""


def ladder_m(full_radius_m: float) -> tuple[float, ...]:
    """Return the radii that releases may have: full_radius_m · 2^(i / 2) for i = 0 .. `LADDER_STEPS`.

    Few rungs mean few mechanisms: each is one level of a refinement chain.

    Parameters
    ----------
    full_radius_m : float
        The operator's finest protected radius in ground metres, more than 0.

    Raises
    ------
    ValueError
        If it is outside its range.
    """
    if not (math.isfinite(full_radius_m) and full_radius_m > 0):
        raise ValueError("`full_radius_m` should be a finite number of metres above 0.")
    return tuple(full_radius_m * 2.0 ** (i // 2) * (math.sqrt(2) if i % 2 else 1.0) for i in range(LADDER_STEPS + 1))


def rung_m(radius_m: float, ladder: Sequence[float]) -> float:
    """Return the smallest radius of a ladder that is at least `radius_m` (but for a share of 1e-9).

    Raises
    ------
    ValueError
        If there is none, or `radius_m` is below the ladder.
    """
    if not ladder[0] * _SAME <= radius_m <= ladder[-1] / _SAME:
        raise ValueError(f"`radius_m` should be from {ladder[0]:g}, the operator's finest radius, to {ladder[-1]:g} metres.")
    return next(rung for rung in ladder if radius_m * _SAME <= rung)


def blur_m(preference: float, full_radius_m: float, max_radius_m: float) -> float:
    """Return the radius of a preference: max_radius_m^(1 - L) · full_radius_m^L, before the ladder rounds it up.

    The blurring function of Ray et al., "Context-aware privacy policies for location sharing" (SPRINGL 2008), in its geometric form:
    L = 0 gives the coarsest radius, 1 the finest.

    Parameters
    ----------
    preference : float
        L, from 0 to 1.
    full_radius_m, max_radius_m : float
        Public radii in ground metres, above 0.
    """
    return float(max_radius_m ** (1 - preference) * full_radius_m**preference)
