"""Calibrated regression: the map against direct computations, the split, and what it does to a model."""

import numpy as np
import pandas as pd
import pytest
from linear_gaussian import LinearGaussian
from scipy import stats
from scipy.interpolate import interp1d
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from variants import TINY

from collabnets import CollaboratingRegressor, load_model, metrics
from collabnets.baselines import CalibratedRegressor
from collabnets.baselines.calibrated import CalibratedDistribution, Recalibration
from collabnets.distribution import PointMass, ScipyDistribution

RNG = np.random.default_rng


def linear(n, seed=0):
    rng = RNG(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] - 0.5 * X[:, 1] + 0.7 * rng.normal(size=n)


def learnt(p, weight=None, **keywords):
    return Recalibration.learn(p, 1.0 - p, np.ones(len(p)) if weight is None else weight, **keywords)


class Recording(LinearGaussian):
    """Keeps the rows of every fit."""

    fits: list = []  # noqa: RUF012  (shared by clones, on purpose)

    def fit(self, X, y, sample_weight=None):
        self.fits.append((np.array(X), np.array(y), sample_weight))
        return super().fit(X, y, sample_weight)


@pytest.fixture
def fits():
    Recording.fits.clear()
    return Recording.fits


# ------------------------------------------------------------ the map


def test_the_map_joins_ranks_of_pit_values():
    p = RNG(0).beta(2, 0.7, size=57)
    join = interp1d(np.r_[0, np.sort(p), 1], np.arange(59) / 58)
    at = RNG(1).random(500)
    below, above = learnt(p).forward(at, 1 - at)
    np.testing.assert_allclose(below, join(at), atol=1e-14)
    np.testing.assert_allclose(above, 1 - join(at), atol=1e-14)
    back = interp1d(np.arange(59) / 58, np.r_[0, np.sort(p), 1])
    np.testing.assert_allclose(learnt(p).backward(at)[0], back(at), atol=1e-14)


def test_isotonic_regression_finds_nothing_to_change():
    p = RNG(2).beta(0.5, 2, size=200)
    isotonic = IsotonicRegression().fit(p, (p[:, None] >= p).sum(1) / 201)
    np.testing.assert_allclose(learnt(p).forward(p, 1 - p)[0], isotonic.predict(p), atol=1e-14)


@pytest.mark.parametrize("n_levels", [None, 6])
def test_the_map_increases_strictly_and_there_is_a_way_back(n_levels):
    p = np.r_[RNG(3).beta(0.02, 0.02, size=80), 0.0, 1.0, 0.5]  # many of them 0 or 1 but for 1e-30
    recalibration = Recalibration.learn(p, np.r_[1 - p[:-2], 0.0, 0.5], np.ones(83), n_levels)
    assert np.all(np.diff(recalibration.empirical) > 0)
    assert recalibration.empirical[[0, -1]].tolist() == [0, 1]
    assert np.all((np.diff(recalibration.predicted[:, 0]) > 0) | (np.diff(recalibration.predicted[:, 1]) < 0))
    q = np.r_[0, np.geomspace(1e-12, 0.5, 50), 1 - np.geomspace(0.4, 1e-12, 50), 1]
    below, above = recalibration.forward(*recalibration.backward(q))
    np.testing.assert_allclose(below, q, rtol=1e-12)
    np.testing.assert_allclose(above, 1 - q, rtol=1e-12, atol=1e-16)


def test_a_weight_is_as_many_equal_values():
    p, times = RNG(4).random(30), RNG(5).integers(1, 5, 30)
    for a, b in zip(learnt(p, times), learnt(np.repeat(p, times)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def test_fewer_levels_are_some_of_the_points():
    p = RNG(6).random(500)
    all_points, some = learnt(p), learnt(p, n_levels=9)
    assert len(some.empirical) == 11
    assert np.isin(some.predicted[:, 0], all_points.predicted[:, 0]).all()
    np.testing.assert_allclose(some.empirical, np.arange(11) / 10, atol=1 / 501)
    at = RNG(7).random(300)
    assert np.abs(some.forward(at, 1 - at)[0] - all_points.forward(at, 1 - at)[0]).max() < 0.05
    assert len(learnt(p[:5], n_levels=9).empirical) == 7


@pytest.mark.parametrize(("n", "spread"), [(1, 1.0), (40, 1.0), (300, 0.3), (300, 6.0), (3000, 1.0)])
def test_moments_are_those_of_truncated_normals(n, spread):
    """The calibrated distribution of a normal one is a mixture of truncated normals, one a segment of the map."""
    y = spread * RNG(n).normal(size=n)
    inner = ScipyDistribution(stats.norm, loc=np.zeros(n))
    recalibration = Recalibration.learn(stats.norm.cdf(y), stats.norm.sf(y), np.ones(n))
    p, s = recalibration.predicted.T
    z = np.where(p < 0.5, stats.norm.ppf(p), stats.norm.isf(s))
    width = np.where(p[1:] < 0.5, np.diff(p), -np.diff(s))
    share, density = np.diff(recalibration.empirical), stats.norm.pdf(z)
    mean = np.sum(share / width * -np.diff(density))
    square = np.sum(share / width * (width - np.diff(np.nan_to_num(z, posinf=0, neginf=0) * density)))
    dist = CalibratedDistribution(inner[:3], recalibration)
    np.testing.assert_allclose(dist.mean(), mean, atol=1e-8 * spread)
    np.testing.assert_allclose(dist.variance(), square - mean**2, rtol=1e-7)


def test_outcomes_that_the_model_thought_impossible_have_finite_quantiles():
    """Held-out outcomes at 30 standard deviations: 1 - p is 1e-198, which 1.0 - p cannot hold."""
    y = 10.0 * RNG(8).normal(size=400)
    recalibration = Recalibration.learn(stats.norm.cdf(y), stats.norm.sf(y), np.ones(400))
    dist = CalibratedDistribution(ScipyDistribution(stats.norm, loc=[0.0]), recalibration)
    q = np.linspace(0.0025, 0.9975, 300)
    np.testing.assert_allclose(dist.cdf(dist.icdf(q))[0], q, atol=1e-12)
    ranks = np.arange(1, 401) / 401
    k = np.searchsorted(ranks, q)
    assert np.all((np.sort(y)[k - 1] <= dist.icdf(q)[0]) & (dist.icdf(q)[0] <= np.sort(y)[k]))
    inside = np.abs(np.sort(y)) < 37  # where a normal probability is still above 1e-300
    np.testing.assert_allclose(dist.icdf(ranks)[0][inside], np.sort(y)[inside], rtol=1e-9)


# ------------------------------------------------------------ the split


def test_the_map_comes_from_the_rows_that_the_first_fit_did_not_see(fits):
    X, y = linear(50)
    model = CalibratedRegressor(Recording(), random_state=3).fit(X, y)
    (some, y_some, _), (every, y_every, _) = fits
    assert (len(some), len(every)) == (30, 50)
    held = ~np.isin(y, y_some)
    assert held.sum() == 20
    np.testing.assert_array_equal(np.sort(y_every), np.sort(y))
    dist = LinearGaussian().fit(some, y_some).predict_dist(X[held])
    np.testing.assert_allclose(model.predicted_levels_[1:-1, 0], np.sort(metrics.pit(y[held], dist)), rtol=1e-12)
    np.testing.assert_allclose(model.empirical_levels_, np.arange(22) / 21, rtol=1e-12)
    final = LinearGaussian().fit(X, y).predict_dist(X)
    np.testing.assert_array_equal(model.estimator_.predict_dist(X).icdf(0.3), final.icdf(0.3))


def test_other_outcomes_in_the_first_part_change_the_map_only_through_the_fit(fits):
    """With an inner model that learns nothing, the outcomes of the 60 % must not matter at all."""
    X, y = linear(40)
    first = CalibratedRegressor(Recording(ridge=1e15), random_state=0).fit(X, y)
    seen = np.isin(y, fits[0][1])
    pit = metrics.pit(y[~seen], first.estimator_.predict_dist(X[~seen]))
    assert len(first.predicted_levels_) == 2 + len(pit)


def test_the_split_respects_weights(fits):
    X, y = linear(200)
    weight = np.where(np.arange(200) < 20, 36.0, 1.0)  # 20 rows carry 4 parts of 5
    CalibratedRegressor(Recording(), random_state=0).fit(X, y, sample_weight=weight)
    share = weight[np.isin(y, fits[0][1])].sum() / weight.sum()
    assert 0.6 <= share <= 0.6 + 36 / weight.sum()
    of = dict(zip(y, weight, strict=True))
    np.testing.assert_allclose(fits[0][2] / fits[0][2].min(), [of[value] for value in fits[0][1]])


def test_another_seed_is_another_split(fits):
    X, y = linear(60)
    for seed in (0, 0, 1):
        CalibratedRegressor(Recording(), random_state=seed).fit(X, y)
    np.testing.assert_array_equal(fits[0][1], fits[2][1])
    assert np.any(fits[0][1] != fits[4][1])


def test_calibration_fraction(fits):
    X, y = linear(60)
    CalibratedRegressor(Recording(), calibration_fraction=0.25, random_state=0).fit(X, y)
    assert len(fits[0][1]) == 45


# ------------------------------------------------------------ what it does to a model


@pytest.mark.parametrize("widen", [0.2, 3.0])
def test_a_badly_calibrated_model_becomes_calibrated(widen):
    X, y = linear(2000)
    X_new, y_new = linear(4000, seed=1)
    before = LinearGaussian(widen=widen).fit(X, y).predict_dist(X_new)
    after = CalibratedRegressor(LinearGaussian(widen=widen), random_state=0).fit(X, y).predict_dist(X_new)
    assert metrics.calibration_error(y_new, before) > 0.2
    assert metrics.calibration_error(y_new, after) < 0.02
    assert metrics.gof(y_new, after) > metrics.gof(y_new, before) + 0.2
    truth = LinearGaussian().fit(X, y).predict_dist(X_new)
    assert abs(metrics.gof(y_new, after) - metrics.gof(y_new, truth)) < 0.05


def test_a_calibrated_model_is_hardly_changed():
    X, y = linear(10_000)
    model = CalibratedRegressor(LinearGaussian(), random_state=0).fit(X, y)
    inner = model.estimator_.predict_dist(X[:50])
    p = np.linspace(0.01, 0.99, 99)
    change = np.abs(model.predict_dist(X[:50]).cdf(inner.icdf(p)) - p)
    assert change.max() < stats.kstwo.ppf(0.999, 4000)  # the distance that 4000 uniform values have from uniform


def test_a_knot_at_every_row_costs_what_is_said_in_log_score_and_few_levels_do_not():
    X, y = linear(2500)
    X_new, y_new = linear(40_000, seed=1)
    scores = []
    for n_levels in (None, 20):
        model = CalibratedRegressor(LinearGaussian(), n_levels=n_levels, random_state=0).fit(X, y)
        best = metrics.log_score_values(y_new, model.estimator_.predict_dist(X_new))
        scores.append(metrics.log_score_values(y_new, model.predict_dist(X_new)).mean() - best.mean())
    # segments are Exp(1) times 1 / n, and -E[X ln X] = Euler's constant - 1; 1000 of them, standard deviation 0.9 each
    assert scores[0] == pytest.approx(1 - np.euler_gamma, abs=4 * 0.9 / np.sqrt(1000))
    assert abs(scores[1]) < 0.03


# ------------------------------------------------------------ an estimator of estimators


def test_nested_parameters():
    model = CalibratedRegressor(LinearGaussian(ridge=0.1), random_state=0)
    assert model.get_params()["estimator__ridge"] == 0.1
    assert clone(model).set_params(estimator__ridge=0.2).estimator.ridge == 0.2
    assert model.estimator.ridge == 0.1
    X, y = linear(300)
    search = GridSearchCV(
        model, {"estimator__ridge": [1e-6, 100.0]}, scoring=metrics.crps_scorer, cv=2, error_score="raise"
    ).fit(X, y)
    assert search.best_params_ == {"estimator__ridge": 1e-6}


def test_the_estimator_itself_is_left_alone():
    inner = LinearGaussian()
    model = CalibratedRegressor(inner, random_state=0).fit(*linear(40))
    assert not hasattr(inner, "coefficients_")
    assert inner.random_state is None
    assert isinstance(model.estimator_.random_state, int)  # both fits are to have the same seed
    kept = CalibratedRegressor(LinearGaussian(random_state=5), random_state=0).fit(*linear(40))
    assert kept.estimator_.random_state == 5


def test_frames_reach_the_estimator_as_they_are():
    X, y = linear(80)
    frame = pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(np.where(X[:, 1] > 0, "up", "down"))}, index=range(7, 87))
    frame.loc[9, "a"] = np.nan
    model = CalibratedRegressor(LinearGaussian(), random_state=0).fit(frame, y)
    assert model.estimator_.columns_.feature_names_out == ["a", "missingindicator_a", "b_down", "b_up"]
    assert list(model.feature_names_in_) == ["a", "b"]
    assert model.predict_interval(frame).index.equals(frame.index)
    with pytest.raises(ValueError, match="same order"):
        model.predict(frame[["b", "a"]])
    numbers = CalibratedRegressor(LinearGaussian(), random_state=0).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    with pytest.warns(UserWarning, match="but CalibratedRegressor was fitted with feature names") as caught:
        numbers.predict(X)
    assert len(caught) == 1


def test_collaborating_networks_are_the_default():
    with pytest.warns(UserWarning, match="constant"):
        model = CalibratedRegressor(random_state=0).fit(linear(20)[0], np.zeros(20))
    assert type(model.estimator_) is CollaboratingRegressor


def test_a_checkpoint_serves_both_fits(tmp_path):
    inner = CollaboratingRegressor(**{**TINY, "pretrain_iter": 20, "max_iter": 20}, checkpoint=tmp_path / "c")
    X, y = linear(60)
    first = CalibratedRegressor(inner, random_state=0).fit(X, y)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "c.part"]
    again = CalibratedRegressor(inner, random_state=0).fit(X, y)
    np.testing.assert_array_equal(first.predict(X), again.predict(X))


def test_a_model_file_holds_the_estimator_and_the_map(tmp_path):
    X, y = linear(60)
    inner = CollaboratingRegressor(**{**TINY, "pretrain_iter": 20, "max_iter": 20})
    model = CalibratedRegressor(CalibratedRegressor(inner, random_state=1), n_levels=5, random_state=0).fit(X, y)
    model.save(tmp_path / "m.cn")
    loaded = load_model(tmp_path / "m.cn")
    assert loaded.estimator.estimator.get_params()["batch_size"] == TINY["batch_size"]
    assert loaded.n_levels == 5
    z = np.linspace(-3, 3, 9)
    np.testing.assert_array_equal(loaded.predict_dist(X).logpdf(z), model.predict_dist(X).logpdf(z))
    np.testing.assert_array_equal(loaded.predict_dist(X).mean(), model.predict_dist(X).mean())
    with pytest.raises(ValueError, match="is code and not data"):
        CalibratedRegressor(LinearGaussian(), random_state=0).fit(X, y).save(tmp_path / "other.cn")


# ------------------------------------------------------------ edges


def test_a_constant_outcome_is_the_estimators_own_answer():
    X = linear(20)[0]
    with pytest.warns(UserWarning, match="constant") as caught:
        model = CalibratedRegressor(LinearGaussian(), random_state=0).fit(X, np.full(20, 2.0))
    assert len(caught) == 1
    assert isinstance(model.predict_dist(X), PointMass)
    assert np.all(model.predict(X) == 2.0)


def test_two_rows_are_too_few_for_a_map():
    X = np.array([[0.0], [1.0]])
    with pytest.warns(UserWarning, match="2 distinct rows are too few to hold some out"):
        model = CalibratedRegressor(LinearGaussian(), random_state=0).fit(X, [0.0, 1.0])
    q = [0.01, 0.4, 0.99]
    inner = model.estimator_.predict_dist(X)
    np.testing.assert_allclose(model.predict_dist(X).icdf(q), inner.icdf(q), rtol=1e-12)
    np.testing.assert_allclose(model.predict_dist(X).mean(), inner.mean(), atol=1e-8)


def test_the_first_part_gets_an_outcome_that_varies():
    X, y = linear(50)[0], np.zeros(50)
    y[7] = 1.0
    for seed in range(5):
        model = CalibratedRegressor(LinearGaussian(), random_state=seed).fit(X, y)  # without a warning
        assert np.isfinite(model.predict_dist(X).icdf([0.1, 0.9])).all()


class NoWeights(LinearGaussian):
    def fit(self, X, y):
        return super().fit(X, y)


def test_an_estimator_without_weights_is_asked_for_none():
    X, y = linear(30)
    CalibratedRegressor(NoWeights(), random_state=0).fit(X, y, sample_weight=np.full(30, 2.0))
    with pytest.raises(ValueError, match=r"NoWeights\.fit takes no sample_weight"):
        CalibratedRegressor(NoWeights(), random_state=0).fit(X, y, sample_weight=np.arange(1.0, 31.0))


def test_what_is_not_an_estimator_of_distributions_is_refused():
    with pytest.raises(ValueError, match=r"'estimator' parameter .* must be an object implementing 'fit' and 'predict"):
        CalibratedRegressor(LinearRegression()).fit(*linear(10))
