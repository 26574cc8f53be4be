"""Metrics against closed forms, scoringrules, and the laws each of them obeys."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scoringrules as sr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import GridSearchCV, cross_validate

from collabnets import metrics
from collabnets.distribution import PointMass, PredictiveDistribution, ScipyDistribution

N = 400


def _gaussian(n=N, seed=0):
    rng = np.random.default_rng(seed)
    mu, sigma = rng.normal(0, 2, n), rng.uniform(0.5, 2.5, n)
    return rng.normal(mu, sigma), ScipyDistribution(stats.norm, loc=mu, scale=sigma)


class Empirical(PredictiveDistribution):
    """Equal mass on the sorted atoms of a row; it has no density."""

    def __init__(self, atoms):
        self.atoms = np.sort(atoms, axis=1)

    def __len__(self):
        return len(self.atoms)

    def _take(self, index):
        return type(self)(self.atoms[index])

    def _cdf(self, z):
        return np.stack([np.searchsorted(a, at, "right") for a, at in zip(self.atoms, z, strict=True)]) / len(
            self.atoms[0]
        )

    def _icdf(self, q):
        last = self.atoms.shape[1] - 1
        return np.take_along_axis(self.atoms, np.clip(np.ceil(q * (last + 1)).astype(int) - 1, 0, last), axis=1)

    def _logpdf(self, z):
        raise NotImplementedError("an empirical distribution has no density.")


METRICS = {
    "calibration_error": metrics.calibration_error,
    "coverage": metrics.coverage,
    "coverages": lambda y, d, **k: metrics.coverage(y, d, [0.2, 0.9], **k),
    "gof": lambda y, d, **k: metrics.gof(y, d, **{"edges": metrics.gof_edges(_gaussian()[0]), **k}),
    "mae": metrics.mae,
    "rmse": metrics.rmse,
    "crps": metrics.crps,
    "log_score": metrics.log_score,
    "pinball": lambda y, d, **k: metrics.pinball(y, d, [0.1, 0.5], **k),
    "interval_score": metrics.interval_score,
    "interval_width": lambda y, d, **k: metrics.interval_width(y, d, [0.5, 0.9], **k),
    "pit_histogram": lambda y, d, **k: metrics.pit_histogram(y, d, **k).share,
    "calibration_curve": lambda y, d, **k: metrics.calibration_curve(y, d, **k).observed,
    "sharpness_curve": lambda y, d, **k: metrics.sharpness_curve(y, d, **k).width,
    "evaluate": lambda y, d, **k: [v for name, v in metrics.evaluate(y, d, **k).items() if name != "gof"],
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


# ------------------------------------------------------------------------------------------- laws of them all
@every_metric
def test_weights_equal_repetition(metric):
    y, d = _gaussian()
    times = np.random.default_rng(1).integers(0, 4, N)
    rows = np.repeat(np.arange(N), times)
    np.testing.assert_allclose(metric(y, d, sample_weight=times), metric(y[rows], d[rows]), rtol=1e-12)


@every_metric
def test_weights_have_no_scale_and_rows_no_order(metric):
    y, d = _gaussian()
    w = np.random.default_rng(2).uniform(0.1, 2, N)
    order = np.random.default_rng(3).permutation(N)
    value = metric(y, d, sample_weight=w)
    np.testing.assert_allclose(metric(y, d, sample_weight=8 * w), value, rtol=1e-12)
    np.testing.assert_allclose(metric(y[order], d[order], sample_weight=w[order]), value, rtol=1e-12)
    np.testing.assert_allclose(metric(pd.Series(y, index=order), d), metric(y, d), rtol=0)


@every_metric
def test_bad_rows_are_refused(metric):
    y, d = _gaussian()
    bad = {
        "rows but the distribution": (y[:-1], {}),
        "NaN or infinite": (np.where(np.arange(N) == 3, np.nan, y), {}),
        "shape": (y[:, None], {}),
        "one weight for each": (y, {"sample_weight": np.ones(3)}),
        "not negative": (y, {"sample_weight": -np.ones(N)}),
        "not all of it is zero": (y, {"sample_weight": np.zeros(N)}),
    }
    for message, (outcome, keywords) in bad.items():
        with pytest.raises(ValueError, match=message):
            metric(outcome, d, **keywords)
    with pytest.raises(ValueError, match="empty"):
        metric(y[:0], d[:0])


@pytest.mark.parametrize("a", [1e-9, 0.3, 1e9])
@pytest.mark.parametrize(
    ("name", "degree"),
    [
        ("calibration_error", 0),
        ("coverage", 0),
        ("gof", 0),
        ("pit_histogram", 0),
        ("calibration_curve", 0),
        ("mae", 1),
        ("rmse", 1),
        ("crps", 1),
        ("pinball", 1),
        ("interval_score", 1),
        ("interval_width", 1),
        ("sharpness_curve", 1),
    ],
)
def test_a_change_of_unit(name, degree, a):
    y, d = _gaussian()
    b = 3.7 * a
    moved = ScipyDistribution(stats.norm, loc=a * d.parameters["loc"] + b, scale=a * d.parameters["scale"])
    metric = metrics.gof if name == "gof" else METRICS[name]
    np.testing.assert_allclose(metric(a * y + b, moved), np.multiply(a**degree, metric(y, d)), rtol=1e-9)


@pytest.mark.parametrize("name", ["crps", "log_score", "gof", "pinball", "interval_score"])
def test_the_truth_scores_best(name):
    """A proper score: any other distribution is worse in the mean."""
    y, d = _gaussian(20_000, seed=5)
    sign = -1 if name == "gof" else 1
    mu, sigma = d.parameters["loc"], d.parameters["scale"]
    truth = sign * np.sum(METRICS[name](y, d))
    for loc, scale in [(mu + 0.3, sigma), (mu, 1.3 * sigma), (mu, 0.7 * sigma), (0 * mu, np.hypot(2, sigma))]:
        assert sign * np.sum(METRICS[name](y, ScipyDistribution(stats.norm, loc=loc, scale=scale))) > truth


# ------------------------------------------------------------------------------------ the paper's definitions
def test_calibration_error_from_its_formula():
    y, d = _gaussian()
    z = np.abs((y - d.parameters["loc"]) / d.parameters["scale"])
    q = np.linspace(0.02, 0.98, 8)
    covered = [np.mean(z < stats.norm.ppf(0.5 + level / 2)) for level in q]
    assert metrics.calibration_error(y, d) == pytest.approx(np.mean(np.abs(q - covered)), abs=1e-15)
    assert metrics.calibration_error(y, d, levels=[0.9]) == pytest.approx(abs(0.9 - metrics.coverage(y, d)), abs=1e-15)
    w = np.arange(8.0)
    assert metrics.calibration_error(y, d, weights=w) == pytest.approx(np.mean(w * np.abs(q - covered)), abs=1e-15)


def test_an_outcome_on_the_end_of_its_interval_is_not_covered():
    assert metrics.coverage([3.0], PointMass(np.array([3.0])), 0.9) == 0.0
    assert metrics.coverage([0.95], ScipyDistribution(stats.uniform, loc=[0.0]), 0.9) == 0.0


def test_calibration_of_the_truth_improves_like_the_root_of_n():
    error = [
        np.mean([metrics.calibration_error(*_gaussian(n, seed)) for seed in range(20)]) for n in (100, 1600, 25_600)
    ]
    ratio = np.array(error[:-1]) / error[1:]
    assert np.all((ratio > 2.5) & (ratio < 6.5)), error  # 4 is expected


def test_gof_from_its_formula():
    y, d = _gaussian()
    a = np.linspace(np.quantile(y, 0.05), np.quantile(y, 0.95), 9)
    np.testing.assert_array_equal(metrics.gof_edges(y), a)
    ends = np.concatenate([[-np.inf], a, [np.inf]])
    total = 0.0
    for i in range(N):
        j = np.sum(y[i] > a)
        total += np.log(np.diff(d[i].cdf(ends[j : j + 2])[0])[0] + 1e-10)
    assert metrics.gof(y, d) == pytest.approx(total / N, rel=1e-12)
    assert metrics.gof(y, d, edges=[0.0]) == pytest.approx(
        np.mean(np.log(np.where(y > 0, d.ccdf(0.0), d.cdf(0.0)) + 1e-10)), rel=1e-12
    )


def test_gof_of_an_impossible_bin_is_log_epsilon():
    value = metrics.gof([5.0], PointMass(np.array([0.0])), edges=[1.0, 2.0])
    assert value == pytest.approx(np.log(1e-10), rel=1e-12)
    assert metrics.gof([5.0], PointMass(np.array([0.0])), edges=[1.0], epsilon=0.0) == -np.inf


def test_gof_keeps_its_digits_in_the_upper_tail():
    d = ScipyDistribution(stats.norm, loc=[0.0])
    expected = np.log(stats.norm.sf(9.0) - stats.norm.sf(10.0))
    assert metrics.gof([9.5], d, edges=[9.0, 10.0], epsilon=0.0) == pytest.approx(expected, rel=1e-12)


def test_mae_and_rmse_use_median_and_mean():
    scale = np.array([1.0, 2.0, 5.0])
    d = ScipyDistribution(stats.expon, scale=scale)
    y = np.array([0.3, 4.0, 1.0])
    assert metrics.mae(y, d) == pytest.approx(np.mean(np.abs(y - scale * np.log(2))), rel=1e-12)
    assert metrics.rmse(y, d) == pytest.approx(np.sqrt(np.mean((y - scale) ** 2)), rel=1e-12)


def test_sharpness_curve():
    y, d = _gaussian()
    curve = metrics.sharpness_curve(y, d, levels=[0.5, 0.9])
    np.testing.assert_array_equal(curve.nominal, [0.5, 0.9])
    np.testing.assert_array_equal(curve.empirical, metrics.coverage(y, d, [0.5, 0.9]))
    width = 2 * stats.norm.ppf([0.75, 0.95]) * np.median(d.parameters["scale"])
    np.testing.assert_allclose(curve.width, width, rtol=1e-12)
    assert len(metrics.sharpness_curve(y, d).nominal) == 8


# ------------------------------------------------------------------------------------------------------- CRPS
def _weibull_crps(y, scale, shape):
    """Closed form from E|Y - y| and E|Y - Y'| of the Weibull distribution."""
    F, mean = -np.expm1(-((y / scale) ** shape)), scale * special.gamma(1 + 1 / shape)
    below = mean * special.gammainc(1 + 1 / shape, (y / scale) ** shape)
    return y * (2 * F - 1) - 2 * below + mean - mean * (1 - 2 ** (-1 / shape))


_loc, _scale = np.random.default_rng(7).normal(size=(2, N))
_scale = np.exp(_scale)
_shape = np.random.default_rng(8).uniform(0.6, 5, N)
CRPS = {
    "normal": (stats.norm, {"loc": _loc, "scale": _scale}, lambda y: sr.crps_normal(y, _loc, _scale)),
    "normal, integrated": (
        type("other", (type(stats.norm),), {})(name="norm"),
        {"loc": _loc, "scale": _scale},
        lambda y: sr.crps_normal(y, _loc, _scale),
    ),
    "logistic": (stats.logistic, {"loc": _loc, "scale": _scale}, lambda y: sr.crps_logistic(y, _loc, _scale)),
    "laplace": (stats.laplace, {"loc": _loc, "scale": _scale}, lambda y: sr.crps_laplace(y, _loc, _scale)),
    "t3": (stats.t, {"df": 3.0, "loc": _loc, "scale": _scale}, lambda y: sr.crps_t(y, 3.0, _loc, _scale)),
    "uniform": (
        stats.uniform,
        {"loc": _loc, "scale": _scale},
        lambda y: sr.crps_uniform(y, _loc, _loc + _scale),
    ),
    "exponential": (stats.expon, {"scale": _scale}, lambda y: sr.crps_exponential(y, 1 / _scale)),
    "gamma": (stats.gamma, {"a": _shape, "scale": _scale}, lambda y: sr.crps_gamma(y, _shape, 1 / _scale)),
    "lognormal": (
        stats.lognorm,
        {"s": 1.2, "scale": _scale},
        lambda y: sr.crps_lognormal(y, np.log(_scale), 1.2),
    ),
    "weibull": (
        stats.weibull_min,
        {"c": _shape, "scale": _scale},
        lambda y: _weibull_crps(y, _scale, _shape),
    ),
}


@pytest.mark.parametrize(("family", "parameters", "closed_form"), CRPS.values(), ids=CRPS.keys())
def test_crps_against_closed_forms(family, parameters, closed_form):
    d = ScipyDistribution(family, **parameters)
    y = d.sample(1, rng=3)[0]
    y[:20] = np.abs(y[:20]) + 50 * _scale[:20]  # far in the tail
    np.testing.assert_allclose(metrics.crps_values(y, d), closed_form(y), rtol=1e-9)
    assert metrics.crps(y, d) == pytest.approx(np.mean(closed_form(y)), rel=1e-9)


@pytest.mark.parametrize("atoms", [1, 2, 5, 40])
def test_crps_of_steps_against_the_ensemble_formula(atoms):
    rng = np.random.default_rng(atoms)
    sample, y = rng.normal(size=(30, atoms)), rng.normal(size=30)
    np.testing.assert_allclose(metrics.crps_values(y, Empirical(sample)), sr.crps_ensemble(y, sample), rtol=1e-6)


def test_crps_of_a_point_is_the_absolute_error():
    y = np.array([0.0, 1.0, -4.0])
    np.testing.assert_allclose(metrics.crps_values(y, PointMass(np.ones(3))), np.abs(y - 1), rtol=1e-12)


def test_crps_of_a_gaussian_by_default_parameters():
    d = ScipyDistribution(stats.norm, loc=np.zeros(2))
    np.testing.assert_allclose(metrics.crps_values([0.3, 2.0], d), sr.crps_normal(np.array([0.3, 2.0]), 0, 1))


def test_crps_does_not_depend_on_the_chunks(monkeypatch):
    y, d = _gaussian()
    d = ScipyDistribution(stats.logistic, **d.parameters)
    whole = metrics.crps_values(y, d)
    monkeypatch.setattr(metrics.checks, "BYTE_BUDGET", 2**16)
    np.testing.assert_array_equal(metrics.crps_values(y, d), whole)


def test_crps_of_endless_tails_is_refused():
    class Endless(Empirical):
        def _icdf(self, q):
            return np.where(q < 1e-5, -np.inf, super()._icdf(q))

    with pytest.raises(ValueError, match="finite quantiles"):
        metrics.crps([0.0], Endless(np.zeros((1, 3))))


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 30), st.integers(0, 2**31))
def test_crps_from_quantiles_is_exact_for_straight_lines(n_levels, seed):
    rng = np.random.default_rng(seed)
    u = np.sort(rng.uniform(size=n_levels))
    Q = np.sort(rng.normal(size=(1, n_levels)).round(1), axis=1)  # with ties: mass on a point
    y = rng.normal(size=1).round(1)
    level = (np.arange(400_000) + 0.5) / 400_000
    over = y - np.interp(level, u, Q[0])
    by_sum = 2 * np.mean(np.maximum(level * over, (level - 1) * over))
    np.testing.assert_allclose(metrics.crps_from_quantiles(y, Q, u), by_sum, rtol=1e-6, atol=1e-9)


def test_crps_from_quantiles_reaches_the_closed_form():
    y, d = _gaussian(100)
    u = 1 / (1 + np.exp(-np.linspace(-18, 18, 4001)))
    np.testing.assert_allclose(metrics.crps_from_quantiles(y, d.icdf(u), u), metrics.crps_values(y, d), rtol=2e-5)


def test_crps_from_bad_quantiles_is_refused():
    y = np.zeros(2)
    with pytest.raises(ValueError, match="shape"):
        metrics.crps_from_quantiles(y, np.zeros((2, 3)), [0.1, 0.5])
    with pytest.raises(ValueError, match="strictly increasing"):
        metrics.crps_from_quantiles(y, np.zeros((2, 2)), [0.5, 0.5])
    with pytest.raises(ValueError, match="do not decrease"):
        metrics.crps_from_quantiles(y, np.array([[1.0, 0.0]] * 2), [0.1, 0.5])


# ----------------------------------------------------------------------------------------------- other scores
def test_scores_against_scoringrules():
    y, d = _gaussian()
    mu, sigma = d.parameters["loc"], d.parameters["scale"]
    np.testing.assert_allclose(metrics.log_score_values(y, d), sr.logs_normal(y, mu, sigma), rtol=1e-6)
    assert metrics.log_score(y, d) == pytest.approx(-np.mean(stats.norm.logpdf(y, mu, sigma)), rel=1e-12)
    low, high = d.interval(0.8).T
    winkler = sr.interval_score(y, low, high, 0.2)
    np.testing.assert_allclose(metrics.interval_score_values(y, d, 0.8), winkler, rtol=1e-6)
    assert metrics.interval_score(y, d, 0.8) == pytest.approx(winkler.mean(), rel=1e-12)
    for q in (0.1, 0.5, 0.95):
        pinball = sr.quantile_score(y, d.icdf(q), q)
        np.testing.assert_allclose(metrics.pinball_values(y, d, q), pinball, rtol=1e-6)
        assert metrics.pinball(y, d, q) == pytest.approx(pinball.mean(), rel=1e-12)


def test_one_level_gives_a_number_several_a_vector():
    y, d = _gaussian()
    for metric in (metrics.coverage, metrics.pinball, metrics.interval_score, metrics.interval_width):
        one, several = metric(y, d, 0.8), metric(y, d, [0.8, 0.3])
        assert isinstance(one, float)
        assert several.shape == (2,)
        assert several[0] == pytest.approx(one, rel=1e-14)
    for values in (metrics.pinball_values, metrics.interval_score_values):
        assert values(y, d, 0.8).shape == (N,)
        assert values(y, d, [0.8]).shape == (N, 1)


def test_pit_and_its_histogram():
    y, d = _gaussian(5000)
    u = metrics.pit(y, d)
    assert stats.kstest(u, "uniform").pvalue > 0.01
    histogram = metrics.pit_histogram(y, d, bins=20)
    assert histogram.share.sum() == pytest.approx(1.0, abs=1e-12)
    assert histogram.expected == 0.05
    np.testing.assert_array_equal(histogram.share, np.histogram(u, bins=histogram.edges)[0] / 5000)
    assert np.abs(histogram.share - 0.05).max() < 5 * np.sqrt(0.05 * 0.95 / 5000)


def test_calibration_curve_of_the_truth_is_the_diagonal():
    y, d = _gaussian(20_000)
    curve = metrics.calibration_curve(y, d)
    assert len(curve.nominal) == 99
    assert np.all(np.abs(curve.observed - curve.nominal) < 5 * np.sqrt(curve.nominal * (1 - curve.nominal) / 20_000))
    one = metrics.calibration_curve(y, d, levels=[0.3])
    assert one.observed[0] == pytest.approx(np.mean(metrics.pit(y, d) <= 0.3), abs=1e-4)


def test_what_a_distribution_cannot_do_is_its_own_error():
    d = Empirical(np.random.default_rng(0).normal(size=(5, 9)))
    y = np.zeros(5)
    with pytest.raises(NotImplementedError, match="no density"):
        metrics.log_score(y, d)
    assert 0 <= metrics.calibration_error(y, d) <= 1


@pytest.mark.parametrize("bad", [-0.1, 90, [0.5, 1.1], [], [[0.5]], "half"])
def test_bad_levels_are_refused(bad):
    y, d = _gaussian()
    for metric in (metrics.coverage, metrics.pinball, metrics.interval_score, metrics.interval_width):
        with pytest.raises(ValueError, match="level"):
            metric(y, d, bad)


def test_other_bad_arguments_are_refused():
    y, d = _gaussian()
    with pytest.raises(ValueError, match="below 1"):
        metrics.interval_score(y, d, 1.0)
    with pytest.raises(ValueError, match="weights has one number"):
        metrics.calibration_error(y, d, weights=[1.0])
    with pytest.raises(ValueError, match="weights has one number"):
        metrics.calibration_error(y, d, weights=-np.ones(8))
    for edges in ([2.0, 1.0], [], [np.nan], [[1.0]]):
        with pytest.raises(ValueError, match="edges"):
            metrics.gof(y, d, edges=edges)
    with pytest.raises(ValueError, match="epsilon"):
        metrics.gof(y, d, epsilon=-1.0)
    with pytest.raises(ValueError, match="bins"):
        metrics.pit_histogram(y, d, bins=0)
    with pytest.raises(ValueError, match="numbers"):
        metrics.mae(np.array(["a"] * N), d)
    with pytest.raises(ValueError, match="not numbers"):
        metrics.mae(np.array([object()] * N), d)


# ----------------------------------------------------------------------------------------- tables and scorers
def test_by_group():
    y, d = _gaussian()
    groups = pd.Series(np.where(np.arange(N) % 3 == 0, "b", "a"))
    groups[5] = None
    table = metrics.by_group(metrics.crps, y, d, groups)
    assert list(table.columns) == ["group", "n", "value"]
    assert list(table["group"][:2]) == ["a", "b"]
    assert table["group"].isna().sum() == 1
    assert table["n"].sum() == N
    of_b = np.flatnonzero(groups == "b")
    assert table["value"][1] == pytest.approx(metrics.crps(y[of_b], d[of_b]), rel=1e-12)
    assert np.average(table["value"], weights=table["n"]) == pytest.approx(metrics.crps(y, d), rel=1e-12)


def test_by_group_passes_weights_and_keywords():
    y, d = _gaussian()
    w, groups = np.linspace(0.1, 1, N), np.arange(N) % 2
    table = metrics.by_group(metrics.coverage, y, d, groups, sample_weight=w, level=0.5)
    odd = groups == 1
    assert table["value"][1] == metrics.coverage(y[odd], d[odd], 0.5, sample_weight=w[odd])
    with pytest.raises(ValueError, match="one number"):
        metrics.by_group(metrics.coverage, y, d, groups, level=[0.5, 0.9])
    with pytest.raises(ValueError, match="one label"):
        metrics.by_group(metrics.crps, y, d, groups[1:])


def test_evaluate():
    y, d = _gaussian()
    result = metrics.evaluate(y, d)
    assert list(result) == ["cal", "coverage90", "gof", "mae", "crps", "log_score", "width90"]
    assert result["gof"] == metrics.gof(y, d)
    assert result["coverage90"] == metrics.coverage(y, d, 0.9)
    assert all(type(value) is float for value in result.values())


class GaussianAround(RegressorMixin, BaseEstimator):
    """Predicts a Gaussian around the first column."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict_dist(self, X):
        return ScipyDistribution(stats.norm, loc=X[:, 0], scale=self.scale)


SCORERS = {
    metrics.crps_scorer: lambda y, d: -metrics.crps(y, d),
    metrics.gof_scorer: metrics.gof,
    metrics.log_score_scorer: lambda y, d: -metrics.log_score(y, d),
    metrics.calibration_scorer: lambda y, d: -metrics.calibration_error(y, d),
    metrics.mae_scorer: lambda y, d: -metrics.mae(y, d),
}


@pytest.mark.parametrize(("scorer", "value"), SCORERS.items(), ids=lambda s: getattr(s, "__name__", ""))
def test_scorers(scorer, value):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 1))
    y = rng.normal(X[:, 0], 1.0)
    model = GaussianAround().fit(X, y)
    again = pickle.loads(pickle.dumps(scorer))
    assert again(model, X, y) == value(y, model.predict_dist(X))
    search = GridSearchCV(GaussianAround(), {"scale": [0.3, 1.0, 3.0]}, scoring=scorer, cv=3).fit(X, y)
    assert search.best_params_["scale"] == 1.0 or scorer is metrics.mae_scorer


def test_scorers_together():
    X = np.arange(30.0)[:, None]
    result = cross_validate(
        GaussianAround(), X, X[:, 0] + 0.5, scoring={"crps": metrics.crps_scorer, "gof": metrics.gof_scorer}
    )
    assert result["test_crps"] == pytest.approx(np.full(5, -sr.crps_normal(0.5, 0, 1)), rel=1e-9)
