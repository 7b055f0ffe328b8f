"""What a zero-concentrated guarantee means as (ε, δ)-differential privacy, and how much ρ a wanted (ε, δ) allows."""

import math

__all__ = ["delta_of_rho", "epsilon_of_rho", "rho_nano"]

_NANO = 1e9
_MARGIN = 1e-9
_STEPS = 200
_MIN_ALPHA = 1.01


def delta_of_rho(rho: float, epsilon: float) -> float:
    """Return the least δ known such that ρ-zCDP implies (ε, δ)-differential privacy.

    inf over α > 1 of exp((α - 1)(α ρ - ε)) / (α - 1) · (1 - 1/α)^α (Canonne, Kamath, Steinke, "The discrete Gaussian for differential
    privacy", NeurIPS 2020, Corollary 13). Each α gives a valid bound, so an inexact search only makes the result larger.

    Parameters
    ----------
    rho, epsilon : float
        At least 0.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    if not (math.isfinite(rho) and rho >= 0 and math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError("`rho` and `epsilon` should be finite and at least 0.")
    if rho == 0:
        return 0.0
    low, high = _MIN_ALPHA, max(2 * _MIN_ALPHA, (epsilon + 1) / (2 * rho) + 2)
    for _ in range(_STEPS):
        alpha = (low + high) / 2
        # The derivative of the logarithm of the bound.
        if (2 * alpha - 1) * rho - epsilon + math.log1p(-1 / alpha) < 0:
            low = alpha
        else:
            high = alpha
    log = (high - 1) * (high * rho - epsilon) - math.log(high - 1) + high * math.log1p(-1 / high)
    return min(1.0, math.exp(min(log, 0.0)) * (1 + _MARGIN))


def epsilon_of_rho(rho: float, delta: float) -> float:
    """Return an ε, the least known but for rounding up, such that ρ-zCDP implies (ε, δ)-differential privacy.

    Parameters
    ----------
    rho : float
        At least 0.
    delta : float
        More than 0 and less than 1.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    _check_delta(delta)
    if not (math.isfinite(rho) and rho >= 0):
        raise ValueError("`rho` should be finite and at least 0.")
    low, high = 0.0, rho + 2 * math.sqrt(rho * math.log(1 / delta))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if delta_of_rho(rho, middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def rho_nano(epsilon: float, delta: float) -> int:
    """Return the largest ρ, in whole units of 1e-9, that keeps a release (ε, δ)-differentially private.

    At least the closed form (√(ln(1/δ) + ε) - √ln(1/δ))² of Bun and Steinke (2016), and up to a third more by `delta_of_rho`.

    Parameters
    ----------
    epsilon : float
        More than 0.
    delta : float
        More than 0 and less than 1.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the result is below 1e-9.
    """
    _check_delta(delta)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError("`epsilon` should be finite and more than 0.")
    low, high = 0, math.ceil(_NANO * (epsilon + 1))
    while high - low > 1:
        middle = (low + high) // 2
        if delta_of_rho(middle / _NANO, epsilon) <= delta:
            low = middle
        else:
            high = middle
    if low < 1:
        raise ValueError("`epsilon` should be larger: the result is below 1e-9.")
    return low


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError("`delta` should be more than 0 and less than 1.")
