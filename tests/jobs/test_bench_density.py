"""The density bench: contenders are what their papers say, the measure is what it claims, and the product is not worse than PrivTree."""

import io
import math
from itertools import product
from pathlib import Path

import numpy as np
import orjson
import pytest
from rich.console import Console

from geo.privacy.consistency import least_squares
from geo.tiling.tiling import OFF_ROAD
from geo.tiling.workload import range_workload
from geo.tree import Tree
from jobs.bench.density import contenders
from jobs.bench.density.contenders import CONTENDERS, Pieces, spread
from jobs.bench.density.ours import OURS, SMOOTHED, RoadTree
from jobs.bench.density.pictures import draw_histograms, draw_streams
from jobs.bench.density.places import Place, beijing, synthetic
from jobs.bench.density.program import QUICK, run_density_bench
from jobs.bench.density.protocol import SIZE_CLASSES, Mean, SummedArea, draw_rectangles, mean_of, relative_errors
from jobs.bench.density.report import DensityReport
from jobs.bench.density.roads import SIDE, covered_box, place_on_roads
from jobs.bench.density.streams import DENSE, SPARSE, ZEROS, Stream, measure_streams
from jobs.bench.density.streams import SMOOTHED as STREAM_SMOOTHED
from jobs.bench.density.trial import OWN_FORMS, ROAD_FORMS, Score, Setting, measure
from jobs.errors import UserError
from jobs.tiling.places import Places

HUGE = 1e9
"""An ε under which noise is nothing."""
USERS = 20_000


@pytest.fixture(scope="module")
def place() -> Place:
    return synthetic()


@pytest.fixture(scope="module")
def counts(place: Place) -> np.ndarray:
    return place.snapshot(USERS, np.random.default_rng(1))


def held(pieces: Pieces, counts: np.ndarray) -> np.ndarray:
    return np.bincount(pieces.piece.ravel(), counts.ravel(), minlength=len(pieces.count))


def node(parts: int) -> Tree:
    return Tree(np.array([-1, *[0] * parts]))


# ── protocol ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_summed_areas_equal_brute_force() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(9, 13))
    corners = [
        (x0, y0, x1, y1)
        for x0, x1 in product(range(10), repeat=2)
        for y0, y1 in product(range(0, 14, 3), repeat=2)
        if x0 <= x1 and y0 <= y1
    ]
    brute = [values[x0:x1, y0:y1].sum() for x0, y0, x1, y1 in corners]
    np.testing.assert_allclose(SummedArea(values).over(np.array(corners)), brute, atol=1e-12)
    lines = SummedArea(values).blocks(np.array([0, 4, 9]), np.array([0, 1, 13]))
    np.testing.assert_allclose(lines, [[values[:4, :1].sum(), values[:4, 1:].sum()], [values[4:, :1].sum(), values[4:, 1:].sum()]])


@pytest.mark.parametrize("name", SIZE_CLASSES)
@pytest.mark.parametrize("shape", [(256, 256), (64, 64), (100, 300)])
def test_rectangles_have_the_sizes_of_their_class_and_lie_inside(name: str, shape: tuple[int, int]) -> None:
    rectangles = draw_rectangles(np.random.default_rng(4), shape, SIZE_CLASSES[name], 500)
    x0, y0, x1, y1 = rectangles.T
    part = (x1 - x0) * (y1 - y0) / math.prod(shape)
    low, high = SIZE_CLASSES[name]
    assert rectangles.shape == (500, 4)
    assert ((part >= low) & (part < high)).all()
    assert ((x0 >= 0) & (y0 >= 0) & (x1 > x0) & (y1 > y0) & (x1 <= shape[0]) & (y1 <= shape[1])).all()
    assert len(np.unique(rectangles, axis=0)) > 100


def test_rectangles_reach_all_four_edges() -> None:
    x0, y0, x1, y1 = draw_rectangles(np.random.default_rng(5), (64, 64), SIZE_CLASSES["large"], 5_000).T
    assert (x0.min(), y0.min(), x1.max(), y1.max()) == (0, 0, 64, 64)


def test_small_truths_are_divided_by_a_thousandth_of_the_users() -> None:
    errors = relative_errors(np.array([5.0, 5.0, 300.0]), np.array([0.0, 10.0, 200.0]), 10_000)
    np.testing.assert_allclose(errors, [0.5, 0.5, 0.5])


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    rng = np.random.default_rng(6)
    means = [mean_of(rng.normal(1.0, 0.5, 50).tolist()) for _ in range(2_000)]
    covered = np.mean([abs(mean.mean - 1.0) <= mean.half_width for mean in means])
    assert 0.93 < covered < 0.96
    assert mean_of([3.0]) == Mean(3.0, math.inf)


# ── contenders ───────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", CONTENDERS)
def test_without_noise_every_piece_is_exact(name: str, counts: np.ndarray) -> None:
    pieces = CONTENDERS[name](counts, USERS, HUGE, np.random.default_rng(7))
    true = held(pieces, counts)
    np.testing.assert_allclose(pieces.count, true, atol=1e-3)
    np.testing.assert_allclose(pieces.nonnegative, true, atol=1e-3)


@pytest.mark.parametrize("name", CONTENDERS)
def test_pieces_cover_the_lattice_and_the_two_forms_are_what_they_say(name: str, counts: np.ndarray) -> None:
    rng = np.random.default_rng(8)
    runs = [CONTENDERS[name](counts, USERS, 0.5, rng) for _ in range(200)]
    for pieces in runs[:20]:
        assert set(np.unique(pieces.piece)) == set(range(len(pieces.count)))
        assert (pieces.nonnegative >= 0).all()
    totals = np.array([pieces.count.sum() for pieces in runs])
    assert abs(totals.mean() - USERS) < 4 * totals.std() / math.sqrt(len(totals))
    quarter = np.array([spread(pieces.piece, pieces.count, np.ones(counts.shape))[:32, :32].sum() for pieces in runs])
    assert abs(quarter.mean() - counts[:32, :32].sum()) < 4 * quarter.std() / math.sqrt(len(runs)) + 0.01 * USERS


@pytest.mark.parametrize(
    ("users", "epsilon", "side"), [(10_000, 0.1, 10), (10_000, 1.0, 32), (100_000, 1.0, 100), (1, 0.1, 1), (10**9, 1.0, 256)]
)
def test_size_of_the_uniform_grid(users: int, epsilon: float, side: int) -> None:
    assert contenders.uniform_grid_size(users, epsilon, 256) == side


@pytest.mark.parametrize(
    ("users", "epsilon", "side"), [(10_000, 0.1, 10), (100_000, 1.0, 25), (1_000_000, 1.0, 80), (1, 0.1, 10), (10**9, 1.0, 256)]
)
def test_size_of_the_adaptive_grid(users: int, epsilon: float, side: int) -> None:
    assert contenders.adaptive_grid_size(users, epsilon, 256) == side


@pytest.mark.parametrize(
    ("noisy", "epsilon", "side"), [(-3.0, 1.0, 1), (0.0, 1.0, 1), (10.0, 1.0, 1), (10.1, 1.0, 2), (1_000.0, 1.0, 10), (1_000.0, 0.1, 4)]
)
def test_size_of_the_adaptive_grids_second_level(noisy: float, epsilon: float, side: int) -> None:
    assert contenders.second_level_size(noisy, epsilon) == side


@pytest.mark.parametrize("parts", [1, 4, 9, 49])
def test_inference_of_the_adaptive_grid_is_least_squares(parts: int) -> None:
    rng = np.random.default_rng(9)
    first, second = rng.normal(100, 30), rng.normal(10, 30, parts)
    share = contenders.FIRST_LEVEL_SHARE
    noise = np.array([2 / share**2, *[2 / (1 - share) ** 2] * parts])
    wanted = least_squares(node(parts), np.array([first, *second]), noise).value
    total, fitted = contenders.infer_block(first, second)
    np.testing.assert_allclose([total, *fitted], wanted, atol=1e-9)


def test_quadtree_budgets_are_geometric_and_sum_to_the_whole() -> None:
    budgets = contenders.quadtree_budgets(5, 0.7)
    assert budgets.sum() == pytest.approx(0.7)
    np.testing.assert_allclose(budgets[1:] / budgets[:-1], 2 ** (1 / 3))


@pytest.mark.parametrize(
    ("users", "epsilon", "height"), [(1, 0.1, 1), (10_000, 0.1, 4), (10_000, 1.0, 6), (100_000, 1.0, 8), (10**9, 1.0, 8)]
)
def test_height_of_the_quadtree(users: int, epsilon: float, height: int) -> None:
    assert contenders.quadtree_height(users, epsilon, 256) == height


def test_fit_of_the_quadtree_is_least_squares() -> None:
    rng = np.random.default_rng(10)
    levels = [rng.normal(50, 20, (2**level, 2**level)) for level in range(4)]
    variance = np.array([9.0, 4.0, 2.0, 1.0])
    # Numbered breadth-first: the children of each block follow those of the blocks before it.
    place, parent, order = [(0, 0)], [-1], [[(0, 0)]]
    for _ in range(3):
        below = [(2 * x + dx, 2 * y + dy) for x, y in order[-1] for dx, dy in product(range(2), repeat=2)]
        parent += np.repeat(np.arange(len(place) - len(order[-1]), len(place)), 4).tolist()
        place += below
        order.append(below)
    tree = Tree(np.array(parent))
    noisy = np.array([levels[level][at] for level, at in zip(tree.level, place, strict=True)])
    wanted = least_squares(tree, noisy, variance[tree.level]).value
    fitted = contenders.fit_quadtree(levels, variance)
    np.testing.assert_allclose([fitted[level][at] for level, at in zip(tree.level, place, strict=True)], wanted, atol=1e-9)


def test_priv_tree_stops_at_empty_land_and_cuts_crowds_to_single_cells() -> None:
    crowded = np.zeros((64, 64), np.int64)
    crowded[10, 20] = 10**6
    pieces = contenders.priv_tree(crowded, 10**6, 10.0, np.random.default_rng(11))
    assert 1 + 3 * 6 <= len(pieces.count) < 40
    assert (pieces.piece == pieces.piece[10, 20]).sum() == 1
    assert (pieces.piece == pieces.piece[60, 60]).sum() >= 16 * 16


def test_priv_tree_splits_an_empty_root_as_often_as_its_noise_says() -> None:
    # The root has b = 0 and is split if Lap > 0; a child at depth 1 of an empty root has b = -δ: P(Lap > δ) = exp(-ln 4) / 2 = 1/8.
    rng = np.random.default_rng(12)
    sizes = np.array([len(contenders.priv_tree(np.zeros((2, 2), np.int64), 0, 1.0, rng).count) for _ in range(4_000)])
    assert set(sizes) == {1, 4}
    assert abs((sizes == 4).mean() - 0.5) < 0.035
    sizes = np.array([len(contenders.priv_tree(np.zeros((4, 4), np.int64), 0, 1.0, rng).count) for _ in range(4_000)])
    assert abs((sizes > 4).mean() - 0.5 * (1 - (7 / 8) ** 4)) < 0.03


def test_projection_is_the_nearest_point() -> None:
    rng = np.random.default_rng(13)
    for _ in range(50):
        values, total = rng.normal(0, 3, 8), float(rng.uniform(0.1, 10))
        nearest = contenders.project(values, total)
        assert (nearest >= 0).all()
        assert nearest.sum() == pytest.approx(total)
        others = rng.dirichlet(np.ones(8), 500) * total
        assert ((values - nearest) ** 2).sum() <= ((others - values) ** 2).sum(axis=1).min()
        toward = others - nearest
        assert (toward @ (values - nearest) <= 1e-9).all()
    assert not contenders.project(np.array([1.0, -2.0]), -1.0).any()


def test_spreading_keeps_each_count_on_the_roads_of_its_piece() -> None:
    piece = np.array([[0, 0, 1], [0, 2, 2]])
    weight = np.array([[1.0, 0.0, 0.0], [3.0, 1.0, 1.0]])
    density = spread(piece, np.array([8.0, 5.0, -2.0]), weight)
    np.testing.assert_allclose(density, [[2.0, 0.0, 5.0], [6.0, -1.0, -1.0]])


# ── the product ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_without_noise_the_product_keeps_what_its_tiles_hold(place: Place, counts: np.ndarray) -> None:
    tree = RoadTree(place, USERS, 1.0)
    exact = RoadTree(place, USERS, 40.0)
    assert len(exact.tree.leaves) > len(tree.tree.leaves)
    for form, density in exact.release(counts, 0, 0):
        assert density.sum() == pytest.approx(USERS, abs=5), form
        assert (density[place.road == 0] == 0).all()
        tiles = np.bincount(exact.leaf.ravel(), density.ravel() - counts.ravel())
        assert np.abs(tiles).max() < 10


def test_the_tree_has_the_leaves_and_the_noise_of_one_and_the_same_neighbouring_relation(place: Place) -> None:
    tree = RoadTree(place, 10_000, 0.1)
    assert 100 <= len(tree.tree.leaves) - 1 <= 140  # 10,000 · 0.1 / 8 for add-remove, and elsewhere
    assert tree.mechanism.neighbours == "add-remove"
    assert tree.mechanism.loss == 100_000


def test_workload_equals_the_nodes_that_random_squares_use() -> None:
    rng = np.random.default_rng(15)
    side = 64
    boxes, parents = [(0, 0, side, side)], [-1]
    for x, y in product(range(0, side, 8), repeat=2):
        boxes.append((x, y, x + 8, y + 8))
        parents.append(0)
    for at in range(1, 65):
        x, y = boxes[at][:2]
        boxes += [(x + dx, y + dy, x + dx + 4, y + dy + 2) for dx, dy in product((0, 4), (0, 2, 4, 6))]
        parents += [at] * 8
    tree, box = Tree(np.array(parents)), np.array(boxes)
    used = np.zeros(3)
    draws = 4_000
    for _ in range(draws):
        length = math.sqrt(10 ** rng.uniform(-4, -1)) * side
        corner = rng.uniform(0, side - length, 2)
        inside = (box[:, :2] >= corner).all(axis=1) & (box[:, 2:] <= corner + length).all(axis=1)
        met = (box[:, :2] < corner + length).all(axis=1) & (box[:, 2:] > corner).all(axis=1)
        free = np.array([True, *~inside[tree.parent[1:]]])
        uses = free & np.where(tree.children == 0, met, inside)
        used += np.bincount(tree.level, uses)
    claimed = np.array(range_workload(tree, box, (side, side)))
    assert claimed[0] == 0
    np.testing.assert_allclose(claimed[1:], used[1:] / draws, rtol=0.1)


def test_the_product_is_not_worse_than_priv_tree_nor_any_other(place: Place) -> None:
    for users, epsilon in ((10_000, 0.1), (10_000, 1.0)):
        scores = measure(place, users, epsilon, 6, 200, seed=1)
        report = DensityReport(scores, [], 6, 200)
        setting = Setting(place.name, users, epsilon)
        for rival, name in product(CONTENDERS, SIZE_CLASSES):
            theirs = report.best(setting, rival, name)
            assert report.best(setting, OURS, name).mean <= theirs.mean + theirs.half_width, (rival, name, epsilon)


def test_equal_seeds_give_equal_scores(place: Place) -> None:
    assert measure(place, 1_000, 0.5, 2, 20) == measure(place, 1_000, 0.5, 2, 20)
    assert measure(place, 1_000, 0.5, 2, 20) != measure(place, 1_000, 0.5, 2, 20, seed=1)


# ── places ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_missing_sample_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pass the folder of the samples with --data"):
        beijing(tmp_path)
    with pytest.raises(UserError, match="name theirs with --data"):
        run_density_bench(QUICK, tmp_path / "none", tmp_path)


def town(lines: int = 100) -> Places:
    """Return a grid of streets from 24.0 to 24.1 E and 60.0 to 60.05 N, each in pieces."""
    roads = Places("town", "nobody", "none")
    for number in range(lines + 1):
        for piece in range(lines):
            part, after, across = piece / lines, (piece + 1) / lines, number / lines
            roads.add_line(0, [(24.0 + part / 10, 60.0 + across / 20), (24.0 + after / 10, 60.0 + across / 20)])
            roads.add_line(0, [(24.0 + across / 10, 60.0 + part / 20), (24.0 + across / 10, 60.0 + after / 20)])
    roads.features = 1
    return roads


def test_one_long_road_does_not_stretch_the_box() -> None:
    roads = town()
    roads.add_line(0, [(24.05, 60.02), (24.15, 60.02), (24.2, 60.02)])
    box = covered_box(roads)
    assert (box.south, box.west, box.north, box.east) == pytest.approx((60.0, 24.0, 60.05, 24.1), abs=0.002)


def test_a_place_on_roads_has_its_users_and_weighs_the_neighbourhood_of_roads() -> None:
    place = place_on_roads("town", town(10), np.array([(24.05, 60.025), (24.05, 60.025), (10.0, 10.0)]))
    assert place.road.shape == place.crowd.shape == (SIDE, SIDE)
    assert place.crowd.max() == place.crowd.sum() == 2
    assert place.road.sum() == pytest.approx(1)
    inside = place.road > 0
    ((x, y),) = np.argwhere(place.crowd > 0)
    assert place.road[x, y] > 10 * place.road[inside].min()
    assert (place.road[inside].min() * inside.sum()) == pytest.approx(OFF_ROAD, rel=0.01)


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_streams_look_like_those_they_stand_for() -> None:
    dense = DENSE.counts(np.random.default_rng(16), 672)
    assert dense.shape == (672, 100)
    assert 39_000 < dense.max() < 41_000
    assert 1_200 < np.quantile(dense, 0.9) < 2_200
    sparse = SPARSE.counts(np.random.default_rng(17), 672)
    assert np.quantile(sparse, 0.9) == 2
    by_hour = dense[:, -1].reshape(7, 96).mean(axis=0)
    assert by_hour.max() > 2 * by_hour.min()


def test_uniform_has_the_error_of_its_noise_and_sample_that_of_age() -> None:
    steady = Stream("steady", 40, 0.0, 5_000.0)
    scores = {(score.schedule, score.window_ticks): score for score in measure_streams([steady], [(10, 1.0), (20, 1.0)], 1, 60)}
    for window_ticks in (10, 20):
        assert scores["Uniform", window_ticks].error.mean == pytest.approx(window_ticks, rel=0.15)
        assert scores["Uniform", window_ticks].publications == 1
        assert scores["Sample", window_ticks].publications == pytest.approx(1 / window_ticks, abs=0.01)
    assert {schedule for schedule, _ in scores} == {"Uniform", STREAM_SMOOTHED, "Sample", "BA", "BD", ZEROS}
    assert scores[ZEROS, 10].error.mean == pytest.approx(steady.counts(np.random.default_rng([0, 0]), 60).mean())


# ── report ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def fake(ours: float, theirs: float, users: int = 10_000, place: str = "Beijing") -> DensityReport:
    setting = Setting(place, users, 0.1)
    scores = [Score(setting, OURS, SMOOTHED, {name: Mean(ours, 0.001) for name in SIZE_CLASSES})]
    for number, rival in enumerate(CONTENDERS):
        for form, worse in zip((*OWN_FORMS, *ROAD_FORMS), (0.0, 0.01, 0.0, -0.01), strict=True):
            scores.append(Score(setting, rival, form, {name: Mean(theirs + worse + number, 0.002) for name in SIZE_CLASSES}))
    return DensityReport(scores, [], 20, 1_000)


@pytest.mark.parametrize(
    ("ours", "theirs", "users", "missed"),
    [
        (0.05, 0.049, 10_000, set()),
        (0.05, 0.047, 10_000, {"UG"}),
        (0.065, 0.07, 10_000, set()),
        (0.067, 0.07, 10_000, {"bar"}),
        (0.05, 0.041, 100_000, set()),
        (0.05, 0.039, 100_000, {"UG"}),
    ],
)
def test_verdicts(ours: float, theirs: float, users: int, missed: set[str]) -> None:
    assert {verdict.promise for verdict in fake(ours, theirs, users).verdicts() if not verdict.kept} == missed


def test_a_contender_ahead_with_borrowed_roads_breaks_no_promise_but_is_named() -> None:
    report = fake(0.05, 0.055)
    assert all(verdict.kept for verdict in report.verdicts())
    assert len(list(report.ahead_on_roads())) == len(SIZE_CLASSES)
    assert "UG on roads 0.0450" in report.markdown()
    assert not list(fake(0.05, 0.065).ahead_on_roads())


def test_bars_are_for_beijing_alone() -> None:
    assert all(verdict.promise != "bar" for verdict in fake(0.9, 1.0, place="Helsinki").verdicts())


def test_report_files_tables_and_pictures(tmp_path: Path, place: Place) -> None:
    streams = measure_streams([Stream("tiny", 5, 1.0, 50.0)], [(4, 1.0), (8, 1.0)], 2, 20)
    report = DensityReport(measure(place, 1_000, 1.0, 2, 20), streams, 2, 20)
    report.write(tmp_path)
    read = orjson.loads((tmp_path / "density.json").read_bytes())
    assert len(read["scores"]) == 4 * len(CONTENDERS) + 3
    assert len(read["streams"]) == 12
    markdown = (tmp_path / "density.md").read_text(encoding="utf-8")
    assert markdown.count("| PrivTree |") == 4
    assert "| Uniform, smoothed |" in markdown
    text = io.StringIO()
    report.show(Console(file=text, width=120))
    assert f"of {len(list(report.verdicts()))} promises are kept" in text.getvalue()
    draw_histograms(tmp_path / "density.png", report)
    draw_streams(tmp_path / "streams.png", report)
    assert (tmp_path / "density.png").stat().st_size > 10_000
    assert (tmp_path / "streams.png").stat().st_size > 10_000
