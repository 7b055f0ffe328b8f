"""What a release can do to somebody's belief: the bound that a loss guarantees, whatever they knew before."""

import math

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["amplification", "belief_bound"]


def belief_bound(belief: float, loss: float) -> float:
    """Return how sure somebody can become, at most, of something that they believe already.

    Guarantee
        If every output is at most exp(loss) times as likely under one candidate as under any other, then nobody who gives a set of
        candidates the probability `belief` gives it more than the returned one after seeing the output. Turned round, they give it at
        least ``belief_bound(belief, -loss)``.
    Formula
        γ ρ / (1 + (γ - 1) ρ), γ = exp(loss): the odds grow by at most γ.
    Source
        Evfimievski, Gehrke, Srikant, "Limiting privacy breaches in privacy preserving data mining" (PODS 2003): amplification.

    For metric privacy the loss is ε_m · D, where D is the largest distance between two of the candidates; k releases add their losses.

    Parameters
    ----------
    belief : float
        ρ, the probability before, from 0 to 1.
    loss : float
        Natural logarithm of γ; infinity, where nothing is promised, gives 1 (unless `belief` is 0).

    Returns
    -------
    float
        The probability after, at most.

    Raises
    ------
    ValueError
        If `belief` is outside its range, or `loss` is no number.
    """
    if not 0 <= belief <= 1:
        raise ValueError("`belief` should be a probability from 0 to 1.")
    if math.isnan(loss):
        raise ValueError("`loss` should be a number.")
    if belief in {0, 1}:
        return float(belief)
    log_odds = math.log(belief) - math.log1p(-belief) + loss
    # Whichever exponential cannot overflow.
    return 1 / (1 + math.exp(-log_odds)) if log_odds >= 0 else 1 - 1 / (1 + math.exp(log_odds))


def amplification(channel: ArrayLike) -> float:
    """Return γ of a randomiser: how much likelier an output can be under one input than under another.

    Formula
        max over outputs y of (max over x of P(y | x)) / (min over x of P(y | x)); outputs that no input gives do not count.

    Parameters
    ----------
    channel : array_like with shape (inputs, outputs)
        P(y | x): a row for each input, not negative, each adding up to 1 (to 1e-9).

    Returns
    -------
    float
        At least 1; infinity if some output excludes some input, so that no bound holds.

    Raises
    ------
    ValueError
        If `channel` is no such table.
    """
    table = np.asarray(channel, dtype=np.float64)
    if table.ndim != 2 or not table.size:  # noqa: PLR2004
        raise ValueError("`channel` should have a row for each input and a column for each output.")
    if not (np.all(table >= 0) and np.allclose(table.sum(axis=1), 1, rtol=0, atol=1e-9)):
        raise ValueError("`channel` should hold probabilities, and each row should add up to 1.")
    most, least = table.max(axis=0), table.min(axis=0)
    given = most > 0
    if np.any(least[given] == 0):
        return math.inf
    return float(np.max(most[given] / least[given]))
