"""Conformalized quantile regression: coverage on new rows, and each step against a direct computation."""

import math

import numpy as np
import pytest

from collabnets.baselines import ConformalQuantileRegressor
from collabnets.baselines.conformal import smallest_covering
from collabnets.baselines.forest import Forest
from collabnets.distribution import Unavailable

SMALL = {"n_estimators": 10, "min_samples_leaf": 5, "random_state": 0, "verbose": 0}


def draw(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, X[:, 0] + (0.2 + np.abs(X[:, 1])) * rng.gumbel(size=n)


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("tune", [False, True])
def test_marginal_coverage_over_200_simulated_splits_is_that_of_its_rank(level, tune):
    """With n held-out rows the k-th smallest score covers a new row with probability k / (n + 1), whatever the forest.

    New rows of one split share its interval, so the error of the mean is that of 200 independent splits.
    """
    coverages = []
    for split in range(200):
        X, y = draw(100, [7, split])
        model = ConformalQuantileRegressor(levels=[level], tune_levels=tune, **SMALL | {"random_state": split})
        X_new, y_new = draw(200, [8, split])
        low, high = model.fit(X, y).predict_interval(X_new, coverage=level).T
        coverages.append(np.mean((low <= y_new) & (y_new <= high)))
    expected = math.ceil(level * 51) / 51  # half of the rows are held out
    error = np.std(coverages, ddof=1) / math.sqrt(200)
    assert error < 0.006
    # the middle of the forest is inside every interval, which can only add to the coverage, and does so rarely
    assert np.mean(coverages) == pytest.approx(expected, abs=3.0 * error)


def test_the_correction_is_the_rank_of_the_scores():
    rng = np.random.default_rng(0)
    for n in (9, 19, 200):
        scores = rng.normal(size=n)
        for level in (0.1, 0.5, 0.9, 0.999):
            k = math.ceil(level * (n + 1) - 1e-9)
            expected = np.sort(scores)[k - 1] if k <= n else np.inf
            assert smallest_covering(scores, np.ones(n), level) == expected


def test_a_weight_is_a_repetition_in_the_correction():
    rng = np.random.default_rng(0)
    scores, weight = rng.normal(size=30), rng.integers(0, 4, 30)
    for level in (0.2, 0.5, 0.9):
        repeated = np.repeat(scores, weight)
        assert smallest_covering(scores, weight.astype(float), level) == smallest_covering(
            repeated, np.ones(len(repeated)), level
        )


def test_one_level_without_tuning_is_the_forest_moved_by_its_correction():
    X, y = draw(200, 0)
    model = ConformalQuantileRegressor(levels=[0.8], tune_levels=False, **SMALL).fit(X, y)
    np.testing.assert_allclose(model.lower_levels_, [0.1])
    dist = model.predict_dist(X)
    low, high = forest_of(model).quantiles(dist.features, np.array([0.1, 0.9])).T
    np.testing.assert_allclose(dist.interval(0.8), np.stack([low, high], 1) + model.corrections_ * [-1.0, 1.0])


def forest_of(model):
    return Forest(**model.forest_)


def test_the_median_is_the_middle_of_the_one_percent_interval():
    X, y = draw(200, 1)
    model = ConformalQuantileRegressor(**SMALL).fit(X, y)
    dist = model.predict_dist(X)
    middle = forest_of(model).quantiles(dist.features, np.array([0.495, 0.505])).mean(axis=1)
    np.testing.assert_array_equal(dist.median(), middle)
    np.testing.assert_array_equal(model.predict(X), middle)


def test_intervals_follow_the_spread_of_the_rows():
    X, y = draw(1000, 2)
    width = np.diff(ConformalQuantileRegressor(**SMALL).fit(X, y).predict_interval(X, coverage=0.8), axis=1)[:, 0]
    wide, narrow = np.abs(X[:, 1]) > 0.8, np.abs(X[:, 1]) < 0.2
    assert np.median(width[wide]) > 1.5 * np.median(width[narrow])


def test_tuning_narrows_a_forest_that_is_too_wide_and_never_crosses_its_middle():
    X, y = draw(300, 3)
    X = np.hstack([X, np.random.default_rng(3).normal(size=(300, 20))])  # leaves of noise mix rows that have no part
    tuned = ConformalQuantileRegressor(**SMALL | {"n_estimators": 100, "min_samples_leaf": 20}).fit(X, y)
    plain = (1.0 - tuned.levels_) / 2.0
    assert np.all(tuned.lower_levels_ >= plain)
    assert np.all(tuned.lower_levels_ < 0.5)
    assert np.any(tuned.lower_levels_ > plain + 0.01)


def test_a_coverage_that_the_rows_cannot_promise_is_infinite():
    X, y = draw(38, 4)  # 19 held-out rows promise 95 % at most
    model = ConformalQuantileRegressor(levels=[0.9, 0.95, 0.96], **SMALL).fit(X, y)
    np.testing.assert_array_equal(np.isfinite(model.corrections_), [True, True, False])
    assert np.isfinite(model.predict_interval(X, coverage=0.95)).all()
    assert np.isinf(model.predict_interval(X, coverage=0.96)).all()


def test_a_coverage_between_two_gets_the_higher_one():
    X, y = draw(200, 5)
    dist = ConformalQuantileRegressor(levels=[0.5, 0.8], **SMALL).fit(X, y).predict_dist(X)
    np.testing.assert_array_equal(dist.interval(0.6), dist.interval(0.8))
    assert np.isinf(dist.interval(0.81)).all()


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda d: d.cdf(0.0), "cdf"),
        (lambda d: d.pdf(0.0), "density"),
        (lambda d: d.mean(), "mean or variance"),
        (lambda d: d.sample(3), "samples"),
        (lambda d: d.support(), "support"),
    ],
)
def test_what_it_does_not_have_is_said(ask, what):
    X, y = draw(60, 6)
    dist = ConformalQuantileRegressor(**SMALL).fit(X, y).predict_dist(X)
    with pytest.raises(Unavailable, match=rf"has no {what}, only quantiles and intervals"):
        ask(dist)


@pytest.mark.parametrize("levels", [[], [0.0, 0.5], [1.0], [[0.5]], ["a"], [np.nan]])
def test_wrong_levels_are_refused(levels):
    X, y = draw(60, 6)
    with pytest.raises(ValueError, match="levels lists coverages between 0 and 1"):
        ConformalQuantileRegressor(levels=levels, **SMALL).fit(X, y)
