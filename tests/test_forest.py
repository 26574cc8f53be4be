"""The quantile forest against Meinshausen's weights computed row by row, and against another implementation."""

import numpy as np
import pytest
from quantile_forest import RandomForestQuantileRegressor
from sklearn.tree import DecisionTreeRegressor

from collabnets.baselines import forest as forest_module
from collabnets.baselines.forest import GRID, Forest, grow, in_bag

SETTINGS = {"seed": 3, "n_estimators": 12, "max_features": 1.0, "min_samples_leaf": 4, "max_samples": None}


def rows(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = np.round(8 * rng.normal(size=(n, 3))).astype(np.float32) / 8  # with ties
    y = np.round(8 * (X[:, 0] + np.abs(X[:, 1]) * rng.normal(size=n))) / 8
    return X, y, rng.integers(1, 4, n).astype(float)


def scikit_learns(X, y, weight, settings):
    """The same trees as scikit-learn has them, and how often each of them saw each row."""
    cumulative = np.cumsum(weight) / weight.sum()
    loc = np.average(y, weights=weight)
    target = np.round((y - loc) / np.sqrt(np.average((y - loc) ** 2, weights=weight)) / GRID) * GRID
    for t in range(settings["n_estimators"]):
        count = in_bag(cumulative, settings["max_samples"] or len(y), settings["seed"], t)
        seed = int(np.random.SeedSequence([settings["seed"], t]).generate_state(2)[1])
        tree = DecisionTreeRegressor(
            min_samples_leaf=settings["min_samples_leaf"], max_features=settings["max_features"], random_state=seed
        )
        yield tree.fit(X[count > 0], target[count > 0], sample_weight=count[count > 0]), count


def meinshausen(trees, X, y, x):
    """Sorted outcomes and their weights for one row, tree by tree and training row by training row."""
    weight = np.zeros(len(y))
    for tree, count in trees:
        together = count * (tree.apply(X) == tree.apply(x[None])[0])
        weight += together / together.sum() / len(trees)
    order = np.argsort(y)
    return y[order], weight[order]


def quantile(outcomes, weight, level):
    return next(value for value, total in zip(outcomes, np.cumsum(weight), strict=True) if total >= level - 1e-12)


@pytest.mark.parametrize("changes", [{}, {"min_samples_leaf": 1}, {"max_features": 0.4}, {"max_samples": 30}], ids=str)
def test_quantiles_are_those_of_meinshausens_weights(changes):
    settings, (X, y, weight) = {**SETTINGS, **changes}, rows()
    found = grow(X, y, weight, **settings)
    trees, levels = list(scikit_learns(X, y, weight, settings)), np.array([0.013, 0.317, 0.5, 0.941])
    new = rows(20, seed=1)[0]
    expected = [[quantile(*meinshausen(trees, X, y, x), level) for level in levels] for x in new]
    np.testing.assert_array_equal(found.quantiles(new, levels), expected)


def test_levels_0_and_1_are_the_ends():
    X, y, weight = rows()
    settings = {**SETTINGS, "min_samples_leaf": 10}
    trees = list(scikit_learns(X, y, weight, settings))
    new = rows(5, seed=1)[0]
    ends = [y[np.argsort(y)][meinshausen(trees, X, y, x)[1] > 0][[0, -1]] for x in new]
    np.testing.assert_array_equal(grow(X, y, weight, **settings).quantiles(new, np.array([0.0, 1.0])), ends)


def test_out_of_bag_probabilities_use_the_trees_that_did_not_see_the_row():
    X, y, weight = rows()
    found, trees = grow(X, y, weight, **SETTINGS), list(scikit_learns(X, y, weight, SETTINGS))
    unseen = np.stack([count == 0 for _, count in trees], axis=1)
    got = found.probabilities(X, y, unseen)
    assert unseen.any(axis=1).sum() > 40
    for i in range(len(y)):
        others = [tree for tree, free in zip(trees, unseen[i], strict=True) if free]
        if not others:
            assert np.isnan(got[i]).all()
            continue
        outcomes, share = meinshausen(others, X, y, X[i])
        expected = [share[outcomes < y[i]].sum(), share[outcomes <= y[i]].sum()]
        np.testing.assert_allclose(got[i], expected, atol=1e-12)


def test_thresholds_separate_neighbouring_numbers():
    """A threshold between two adjacent float32 is no float32 itself."""
    low = np.float32(5.0)
    X = np.array([[low], [np.nextafter(low, np.float32(6))]] * 10)
    y = np.tile([0.0, 1.0], 10) + np.linspace(0, 1e-3, 20)
    found = grow(X, y, np.ones(20), **{**SETTINGS, "min_samples_leaf": 3})
    assert np.all(np.abs(found.quantiles(X[:2], np.array([0.5])) - [[0.0], [1.0]]) <= 1e-3)


@pytest.mark.parametrize(("a", "b"), [(1e-9, 0.0), (7.0, -100.0), (1e9, -1e12)])
def test_another_unit_grows_the_same_trees(a, b):
    """Small nodes have many ties between splits; a rounding error would decide them at random."""
    X, y, weight = rows(200)
    settings = {**SETTINGS, "min_samples_leaf": 1, "n_estimators": 50}
    first, second = grow(X, y, weight, **settings), grow(X, a * y + b, weight, **settings)
    for name in ("roots", "feature", "threshold", "child", "first", "rank", "share"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_threads_change_nothing():
    X, y, weight = rows()
    for one, two in zip(grow(X, y, weight, **SETTINGS), grow(X, y, weight, **SETTINGS, n_jobs=2), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_weight_is_how_often_a_row_is_drawn():
    weight = np.array([0.0, 1.0, 2.0, 5.0])
    count = np.sum([in_bag(np.cumsum(weight) / 8, 4, 0, t) for t in range(4000)], axis=0)
    expected = 16_000 * weight / 8
    assert np.all(np.abs(count - expected) <= 4 * np.sqrt(expected * (1 - weight / 8)))


def test_max_samples_bounds_the_trees():
    X, y, weight = rows(500)
    found = grow(X, y, weight, **{**SETTINGS, "min_samples_leaf": 1, "max_samples": 20})
    assert len(found.feature) <= 12 * (2 * 20 - 1)
    assert len(found.rank) <= 12 * 20


def test_an_outcome_that_does_not_vary_is_one_leaf_a_tree():
    X = rows()[0]
    found = grow(X, np.full(80, 3.0), np.ones(80), **SETTINGS)
    assert len(found.feature) == 12
    assert np.all(found.quantiles(X, np.array([0.0, 0.3, 1.0])) == 3.0)


def test_blocks_change_nothing(monkeypatch):
    X, y, weight = rows()
    found = grow(X, y, weight, **SETTINGS)
    whole = found.quantiles(X, np.array([0.2, 0.7]))
    monkeypatch.setattr(forest_module, "BYTE_BUDGET", 100_000)
    assert len(list(found._blocks(80))) > 3
    np.testing.assert_array_equal(found.quantiles(X, np.array([0.2, 0.7])), whole)
    np.testing.assert_array_equal(Forest(*found).quantiles(X[7:8], np.array([0.2, 0.7])), whole[7:8])


def test_another_implementation_differs_no_more_than_another_seed():
    """quantile-forest grows the same trees from other draws; so do we with another seed."""
    rng = np.random.default_rng(0)
    X, new = (rng.normal(size=(n, 2)).astype(np.float32) for n in (250, 1000))
    y = X[:, 0] + np.exp(0.5 * X[:, 1]) * rng.normal(size=250)
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    settings, seeds = {**SETTINGS, "min_samples_leaf": 5, "n_estimators": 100}, range(5)
    ours = [grow(X, y, np.ones(250), **{**settings, "seed": s}).quantiles(new, np.array(levels)) for s in seeds]
    theirs = [
        RandomForestQuantileRegressor(100, min_samples_leaf=5, max_samples_leaf=None, random_state=s)
        .fit(X, y)
        # Meinshausen's weights are not its default
        .predict(new, quantiles=levels, interpolation="higher", weighted_leaves=True)
        for s in seeds
    ]

    def distance(some, others):
        pairs = [(a, b) for i, a in enumerate(some) for j, b in enumerate(others) if some is not others or i < j]
        return np.mean([np.abs(a - b).mean(axis=0) for a, b in pairs], axis=0)

    ratio = distance(ours, theirs) / (0.5 * (distance(ours, ours) + distance(theirs, theirs)))
    assert np.all(np.abs(ratio - 1.0) < 0.15), ratio
