"""The k-d tree finds exactly what comparing all pairs finds, whatever the points."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.anchors.search import PlaneSearch

KINDS = ("spread", "clusters", "one spot", "a line", "a lattice")


def points(kind: str, count: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if kind == "spread":
        return generator.uniform(-1000, 1000, (count, 2))
    if kind == "clusters":
        return generator.integers(-3, 3, (count, 2)) * 5000.0 + generator.normal(0, 20, (count, 2))
    if kind == "one spot":
        return np.full((count, 2), 7.0)
    if kind == "a line":
        return np.stack([generator.integers(0, 50, count) * 10.0, np.zeros(count)], axis=1)
    return generator.integers(-5, 5, (count, 2)) * 100.0


@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(1, 300),
    queries=st.integers(0, 40),
    k=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_search_agrees_with_all_pairs(kind: str, count: int, queries: int, k: int, seed: int) -> None:
    at = points(kind, count, seed)
    generator = np.random.default_rng(seed + 1)
    asked = np.concatenate([at[generator.integers(0, count, queries)], generator.uniform(-2000, 2000, (queries, 2))])
    search = PlaneSearch(at)
    apart = np.hypot(*(asked[:, None, axis] - at[None, :, axis] for axis in (0, 1)))
    bound = search.kth_distance(asked, k)
    if k > count:
        assert np.isinf(bound).all()
        bound = np.full(len(asked), 500.0)
    else:
        assert (bound >= np.sort(apart, axis=1)[:, k - 1] - 1e-9).all()
    row, point, distance = search.within(asked, bound + 1e-9)
    assert set(zip(row.tolist(), point.tolist(), strict=True)) >= set(
        zip(*map(np.ndarray.tolist, np.nonzero(apart <= bound[:, None])), strict=True)
    )
    assert len({*zip(row.tolist(), point.tolist(), strict=True)}) == len(row)
    assert distance == pytest.approx(apart[row, point], abs=1e-9)
    assert (distance <= bound[row] + 1e-6).all()
