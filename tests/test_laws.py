"""What must always hold, for every variant and every baseline: a row of ``variants`` inherits every law."""

import dataclasses
import pickle

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit
from variants import BASELINES, ESTIMATORS, QUANTILES_ONLY, VARIANTS, fitted, model, table

from collabnets import CollaboratingRegressor, distribution, load_model
from collabnets.distribution import NetworkDistribution, PointMass, Unavailable
from collabnets.inversion import N_KNOTS

every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
every_variant = pytest.mark.parametrize("name", VARIANTS)
with_a_cdf = pytest.mark.parametrize("name", [n for n in ESTIMATORS if n not in QUANTILES_ONLY])
SOME = ["cn-g", "cn-f", "g-only", "moments of the batch", "ensemble, folds", "batch normalisation"]
some_variants = pytest.mark.parametrize("name", SOME)
some_estimators = pytest.mark.parametrize("name", [*SOME, *BASELINES])
LEVELS = np.concatenate([np.geomspace(1e-9, 1e-2, 8), np.linspace(0.02, 0.98, 49), 1 - np.geomspace(1e-2, 1e-9, 8)])
ROWS = slice(0, 7)


@pytest.fixture
def dist(name):
    return fitted(name).predict_dist(table()[0][ROWS])


def scale():
    return table()[1].std()


def same_bytes(a, b):
    networks = [(m.g_, m.f_) if hasattr(m, "g_") else () for m in (a, b)]
    for one, other in zip(*map(jax.tree.leaves, networks), strict=True):
        np.testing.assert_array_equal(one, other)
    X = table()[0]
    np.testing.assert_array_equal(a.predict_quantiles(X, LEVELS), b.predict_quantiles(X, LEVELS))


# ------------------------------------------------------------ one source of truth


@with_a_cdf
def test_the_quantile_of_a_probability_is_the_point(dist):
    z = dist.icdf(np.linspace(1e-6, 1 - 1e-6, 50)) + 0.01 * scale()
    p = dist.cdf(z)
    ok = (p > 1e-9) & (p < 1 - 1e-9)
    assert ok.mean() > 0.8
    # a probability near 1 is rounded to 1e-16, which moves its quantile by 1e-16 / density
    allowed = 1e-9 * scale() + 4e-16 / dist.pdf(z)
    assert np.all(np.abs(dist.icdf(np.where(ok, p, 0.5)) - z)[ok] <= allowed[ok])


@with_a_cdf
def test_the_probability_of_a_quantile_is_the_level(dist):
    np.testing.assert_allclose(dist.cdf(dist.icdf(LEVELS)), np.broadcast_to(LEVELS, (7, len(LEVELS))), atol=1e-12)
    np.testing.assert_allclose(dist.cdf(dist.icdf([1e-9])), 1e-9, rtol=1e-6)


@with_a_cdf
def test_the_density_is_the_derivative_of_the_cdf(dist):
    z, h = dist.icdf(LEVELS[8:-8]), 1e-7 * scale()
    slope = (dist.cdf(z + h) - dist.cdf(z - h)) / (2 * h)
    np.testing.assert_allclose(dist.pdf(z), slope, rtol=2e-3, atol=1e-7 / scale())
    np.testing.assert_allclose(np.log(dist.pdf(z)), dist.logpdf(z), rtol=1e-12)


@with_a_cdf
def test_the_density_integrates_to_differences_of_the_cdf(dist):
    ends = dist.icdf([0.001, 0.5, 0.999])
    for left, right in ((0, 1), (1, 2)):
        z = np.linspace(ends[:, left], ends[:, right], 20_001, axis=1)
        np.testing.assert_allclose(np.trapezoid(dist.pdf(z), z, axis=1), 0.499, rtol=1e-3)


@with_a_cdf
def test_quantiles_increase_strictly_from_minus_to_plus_infinity(dist):
    q = dist.icdf(np.linspace(0, 1, 401))
    assert np.all(np.diff(q, axis=1) > 0)
    assert np.all(q[:, 0] == -np.inf)
    assert np.all(q[:, -1] == np.inf)
    assert np.isfinite(q[:, 1:-1]).all()


@with_a_cdf
def test_the_cdf_never_decreases_and_goes_from_0_to_1(dist):
    far = 1e6 * scale()
    near = np.linspace(-30, 30, 4001) * scale()
    p = dist.cdf(np.concatenate([[-np.inf, -far], near, [far, np.inf]]))
    assert np.all(np.diff(p, axis=1) >= 0)
    assert np.all(p[:, :2] == 0)
    assert np.all(p[:, -2:] == 1)


@with_a_cdf
def test_tails_go_on_beyond_the_searched_range(name, dist):
    y = table()[1]
    low, high = getattr(fitted(name), "search_range_", (y.min(), y.max()))
    assert np.isfinite(dist.logpdf([low - 3 * scale(), high + 3 * scale()])).all()
    left, right = dist.icdf([1e-14, 1e-12]), dist.icdf([1 - 1e-12, 1 - 1e-14])
    assert np.all(np.diff(dist.logpdf(left), axis=1) > 0)
    assert np.all(np.diff(dist.logpdf(right), axis=1) < 0)


@every_estimator
def test_intervals_are_nested(name, dist):
    ends = dist.interval([0.1, 0.5, 0.9, 0.99])
    assert ends.shape == (7, 2, 4)
    assert np.all(np.diff(ends[:, 0], axis=1) <= 0)
    assert np.all(np.diff(ends[:, 1], axis=1) >= 0)
    assert np.all((ends[:, 0, 0] <= dist.median()) & (dist.median() <= ends[:, 1, 0]))
    np.testing.assert_array_equal(dist.interval(0.9), ends[:, :, 2])
    np.testing.assert_array_equal(dist.icdf([0.25, 0.75]), ends[:, :, 1])
    if name not in QUANTILES_ONLY:
        assert np.all(np.diff(ends, axis=2) != 0)


@every_estimator
def test_quantiles_never_cross(dist):
    q = dist.icdf(np.linspace(0, 1, 1001))
    assert np.all(q[:, 1:] >= q[:, :-1])
    assert np.all(q[:, 0] == -np.inf)
    assert np.all(q[:, -1] == np.inf)


@with_a_cdf
def test_intervals_are_equal_tailed(dist):
    coverages = [0.1, 0.5, 0.9, 0.99]
    ends = dist.interval(coverages)
    np.testing.assert_allclose(dist.cdf(ends[:, 0], ends[:, 1]), np.broadcast_to(coverages, (7, 4)), rtol=1e-9)


@with_a_cdf
def test_samples_follow_the_cdf(dist):
    draws = dist.sample(2000, rng=3)
    assert draws.shape == (2000, 7)
    np.testing.assert_array_equal(draws, dist.sample(2000, rng=3))
    for row in range(7):
        one = dist[row]
        assert stats.kstest(draws[:, row], lambda z, one=one: one.cdf(z)[0]).pvalue > 1e-4


@with_a_cdf
def test_mean_and_variance_are_the_integrals_of_the_quantile_function(dist):
    t = np.linspace(-34, 34, 40_001)  # the substitution u = expit(t) makes both tails short
    u = expit(t)
    z, density = dist.icdf(u), u * expit(-t)
    mean = np.trapezoid(z * density, t, axis=1)
    np.testing.assert_allclose(dist.mean(), mean, atol=2e-6 * scale())
    variance = np.trapezoid((z - mean[:, None]) ** 2 * density, t, axis=1)
    np.testing.assert_allclose(dist.variance(), variance, rtol=1e-4)
    np.testing.assert_allclose(dist.standard_deviation() ** 2, dist.variance())


@with_a_cdf
def test_mean_and_variance_are_those_of_samples(dist):
    draws = dist.sample(20_000, rng=1)
    assert np.all(np.abs(draws.mean(0) - dist.mean()) < 5 * dist.standard_deviation() / np.sqrt(20_000))
    fourth = ((draws - draws.mean(0)) ** 4).mean(0)
    error = np.sqrt((fourth - draws.var(0) ** 2) / 20_000)
    assert np.all(np.abs(draws.var(0) - dist.variance()) < 6 * error)


@with_a_cdf
def test_complements_differences_and_the_median(dist):
    z = dist.icdf([0.001, 0.3, 0.8, 0.999])
    np.testing.assert_allclose(dist.ccdf(z), 1 - dist.cdf(z), atol=1e-14)
    np.testing.assert_allclose(dist.cdf(z[:, :3], z[:, 1:]), np.diff(dist.cdf(z), axis=1), rtol=1e-9)
    np.testing.assert_array_equal(dist.median(), dist.icdf(0.5))
    near = dist.icdf([1 - 1e-6, 1 - 1e-9])
    far = near[:, 1:] + 3.0 * np.diff(near, axis=1)
    assert np.all(dist.cdf(far) == 1)
    assert np.all((dist.ccdf(far) > 0) & (dist.ccdf(far) < 1e-16))  # no cancellation in the upper tail


# ------------------------------------------------------------ rows


@pytest.mark.parametrize("name", sorted(QUANTILES_ONLY))
def test_what_a_distribution_cannot_do_is_said(dist):
    z = np.zeros(7)
    for ask in (dist.cdf, dist.ccdf, dist.pdf, dist.logpdf):
        with pytest.raises(Unavailable, match="quantiles"):
            ask(z[:, None])
    for ask in (dist.mean, dist.variance, dist.standard_deviation, dist.sample, dist.support):
        with pytest.raises(Unavailable, match="quantiles"):
            ask()


@every_estimator
def test_rows_of_a_distribution(name, dist):
    mask = np.array([True, False, True, True, False, False, False])
    q = dist.icdf([0.2, 0.7])
    assert (len(dist), len(dist[2]), len(dist[mask]), len(dist[1:4]), len(dist[[0, 5]])) == (7, 1, 3, 3, 2)
    for index in (2, -1, mask, slice(1, 4), [5, 0]):
        np.testing.assert_array_equal(dist[index].icdf([0.2, 0.7]), q[index].reshape(-1, 2))
        if name not in QUANTILES_ONLY:
            np.testing.assert_array_equal(dist[index].mean(), dist.mean()[index].reshape(-1))


@every_estimator
def test_shapes_go_by_dimension_and_never_by_length(name, dist):
    three = dist[:3]
    levels = np.array([0.1, 0.5, 0.9])
    others = () if name in QUANTILES_ONLY else (three.cdf, three.ccdf, three.pdf, three.logpdf)
    for verb in (three.icdf, *others):
        table = verb(levels)
        assert verb(0.1).shape == (3,)
        assert table.shape == (3, 3)
        assert verb(levels[:0]).shape == (3, 0)
        np.testing.assert_array_equal(verb(0.1), table[:, 0])
        np.testing.assert_array_equal(verb(levels[:, None])[:, 0], np.diagonal(table))


@every_estimator
def test_a_row_is_predicted_the_same_alone_and_among_others(name):
    model, X = fitted(name), table()[0]
    together, quantiles = model.predict(X), model.predict_quantiles(X, [0.01, 0.6])
    for i in (0, 31, 32, 99):
        np.testing.assert_array_equal(model.predict(X[i : i + 1]), together[i : i + 1])
        np.testing.assert_array_equal(model.predict_quantiles(X[i : i + 1], [0.01, 0.6]), quantiles[i : i + 1])


def test_a_row_is_predicted_the_same_among_a_thousand():
    X = np.random.default_rng(0).normal(size=(1100, 2))
    together = fitted().predict(X)
    for part in (slice(0, 1), slice(500, 540), slice(1050, 1100)):
        np.testing.assert_array_equal(fitted().predict(X[part]), together[part])


@some_variants
def test_memory_at_prediction_is_bounded_by_the_budget_and_not_by_the_rows(name, monkeypatch):
    X = np.random.default_rng(0).normal(size=(300, 2))
    whole, pieces, real = fitted(name).predict_quantiles(X, [0.1, 0.9]), [], NetworkDistribution._make_knots

    def recorded(self, rows):
        pieces.append(len(self.features[rows]))
        return real(self, rows)

    monkeypatch.setattr(NetworkDistribution, "_make_knots", recorded)
    monkeypatch.setattr(distribution, "BYTE_BUDGET", 2**21)
    np.testing.assert_array_equal(fitted(name).predict_quantiles(X, [0.1, 0.9]), whole)
    assert sum(pieces) == 300
    assert max(pieces) * 8 * 8 * 4 * N_KNOTS <= 2**21  # eight tables of float64, four numbers a knot


@every_variant
def test_diagnostics_are_probabilities(dist):
    assert dist.correction().shape == (7,)
    assert dist.round_trip_error([0.1, 0.9]).shape == (7, 2)
    for value in (dist.correction(), dist.round_trip_error([0.1, 0.9])):
        assert np.all((value >= 0) & (value <= 1))


@every_estimator
def test_a_fit_learns_the_outcome(name):
    if name == "untrained":
        pytest.skip("learnt nothing, on purpose")
    X, y = table()
    assert np.corrcoef(fitted(name).predict(X), y)[0, 1] > 0.6
    assert 0.3 < np.mean(y < fitted(name).predict(X)) < 0.7


# ------------------------------------------------------------ files and pickles


@every_estimator
def test_a_pickle_predicts_the_same_bytes(name):
    same_bytes(pickle.loads(pickle.dumps(fitted(name))), fitted(name))


@every_estimator
def test_a_saved_model_predicts_the_same_bytes(name, tmp_path):
    fitted(name).save(tmp_path / "m.cn")
    same_bytes(load_model(tmp_path / "m.cn"), fitted(name))


# ------------------------------------------------------------ fits


AFFINE = [(1e-9, 0.0), (1e-9, 1e-6), (1e-3, 5.0), (7.0, -100.0), (1e9, 0.0), (1e9, -1e12)]


@pytest.mark.parametrize(("a", "b"), AFFINE)
@some_estimators
def test_another_unit_of_y_is_another_unit_of_the_answer(name, a, b):
    X, y = table()
    other = model(name).fit(X, a * y + b)
    q = fitted(name).predict_quantiles(X, LEVELS)
    np.testing.assert_allclose((other.predict_quantiles(X, LEVELS) - b) / a, q, atol=2e-3 * scale())
    if name not in QUANTILES_ONLY:
        np.testing.assert_allclose(
            other.predict_dist(X).variance() / a**2, fitted(name).predict_dist(X).variance(), rtol=0.01
        )


@pytest.mark.parametrize("a", [2.0**-30, 2.0**30])
def test_a_power_of_two_changes_not_one_bit(a):
    X, y = table()
    other = model().fit(X, a * y)
    np.testing.assert_array_equal(other.predict_quantiles(X, LEVELS), a * fitted().predict_quantiles(X, LEVELS))


@settings(max_examples=8, deadline=None, derandomize=True)
@given(exponent=st.floats(-9, 9), shift=st.floats(-100, 100))
def test_any_unit_of_y(exponent, shift):
    X, y = table()
    a = 10.0**exponent
    q = model().fit(X, a * (y + shift)).predict_quantiles(X, LEVELS) / a - shift
    np.testing.assert_allclose(q, fitted().predict_quantiles(X, LEVELS), atol=2e-3 * scale())


@some_estimators
def test_the_order_of_rows_changes_not_one_bit(name):
    X, y = table()
    order = np.random.default_rng(5).permutation(len(y))
    same_bytes(model(name).fit(X[order], y[order]), fitted(name))


@some_estimators
def test_a_weight_is_a_repetition_to_the_last_bit(name):
    X, y = table()
    weight = np.random.default_rng(6).integers(0, 4, len(y))
    weighted = model(name).fit(X, y, sample_weight=weight)
    repeated = model(name).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    same_bytes(weighted, repeated)


@some_estimators
def test_the_same_seed_gives_the_same_bytes(name):
    same_bytes(model(name).fit(*table()), fitted(name))


def test_another_seed_gives_another_model():
    assert np.any(model(random_state=1).fit(*table()).predict(table()[0]) != fitted().predict(table()[0]))


@pytest.mark.parametrize("name", ["cn-g", "ensemble, folds"])
def test_the_chunk_size_changes_not_one_bit(name, monkeypatch):
    schedule = CollaboratingRegressor._schedule
    shorter = lambda self, *a: dataclasses.replace(schedule(self, *a), chunk=77)  # noqa: E731
    monkeypatch.setattr(CollaboratingRegressor, "_schedule", shorter)
    same_bytes(model(name).fit(*table()), fitted(name))


# ------------------------------------------------------------ the caller's data


@pytest.mark.parametrize("frame", [True, False])
def test_the_callers_data_is_not_changed(frame):
    X, y, weight = table()[0].copy(), table()[1].copy(), np.arange(100.0)
    if frame:
        X, y = pd.DataFrame(X, columns=["a", "b"]), pd.Series(y)
        X["c"] = pd.Categorical(np.where(X["a"] > 0, "up", "down"))
        X.loc[3, "a"] = np.nan
    else:
        for a in (X, y, weight):
            a.setflags(write=False)
    before = pickle.dumps((X, y, weight))
    model(pretrain_iter=10, max_iter=10).fit(X, y, sample_weight=weight).predict_dist(X).sample(3)
    assert pickle.dumps((X, y, weight)) == before


@pytest.fixture(scope="module")
def of_frame():
    X, y = table()
    frame = pd.DataFrame(X, columns=["a", "b"], index=pd.Index(np.arange(100) * 7, name="id"))
    return model().fit(frame, pd.Series(y, index=frame.index)), frame


def test_a_frame_gives_a_frame_with_its_index_and_named_columns(of_frame):
    fit, X = of_frame
    quantiles = fit.predict_quantiles(X, [0.1, 0.5])
    assert quantiles.index.equals(X.index)
    assert list(quantiles.columns) == [0.1, 0.5]
    assert quantiles.columns.name == "quantile"
    one = fit.predict_quantiles(X, 0.5)
    assert isinstance(one, pd.Series)
    pd.testing.assert_series_equal(one, quantiles[0.5], check_names=False)
    interval = fit.predict_interval(X, 0.9)
    assert list(interval.columns) == ["lower", "upper"]
    several = fit.predict_interval(X, [0.5, 0.9])
    assert several.columns.names == ["coverage", "bound"]
    pd.testing.assert_frame_equal(several[0.9], interval, check_names=False)
    assert isinstance(fit.predict(X), np.ndarray)


def test_a_frame_and_an_array_give_the_same_bytes(of_frame):
    np.testing.assert_array_equal(
        of_frame[0].predict_quantiles(of_frame[1], LEVELS), fitted().predict_quantiles(table()[0], LEVELS)
    )


def test_columns_in_another_order_are_refused(of_frame):
    fit, X = of_frame
    with pytest.raises(ValueError, match="must be in the same order"):
        fit.predict(X[["b", "a"]])


def test_array_in_array_out():
    X = table()[0]
    for answer in (fitted().predict_quantiles(X, [0.1, 0.5]), fitted().predict_interval(X), fitted().predict(X)):
        assert type(answer) is np.ndarray
    assert fitted().predict_quantiles(X, 0.5).shape == (100,)
    assert fitted().predict_interval(X, [0.5, 0.9]).shape == (100, 2, 2)


def test_predict_is_the_median_or_the_mean():
    X = table()[0]
    np.testing.assert_array_equal(fitted().predict(X), fitted().predict_dist(X).median())
    mean = pickle.loads(pickle.dumps(fitted())).set_params(point_estimate="mean")
    np.testing.assert_array_equal(mean.predict(X), fitted().predict_dist(X).mean())


@some_estimators
def test_a_constant_outcome_is_a_point_mass_with_a_warning(name, tmp_path):
    X = table()[0]
    with pytest.warns(UserWarning, match=r"outcome is constant \(5\)"):
        fit = model(name).fit(X, np.full(100, 5.0))
    assert isinstance(fit.predict_dist(X), PointMass)
    assert np.all(fit.predict_quantiles(X, [0.01, 0.99]) == 5.0)
    fit.save(tmp_path / "m.cn")
    assert np.all(load_model(tmp_path / "m.cn").predict(X) == 5.0)
