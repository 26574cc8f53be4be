"""The baselines that are networks: their formulas in plain NumPy, their distributions against SciPy, their searches."""

import copy
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats
from scipy.special import expit, logit
from sklearn.utils._param_validation import InvalidParameterError
from variants import fitted, model, table

from collabnets import metrics
from collabnets.baselines import (
    DeepEnsembleRegressor,
    MCDropoutRegressor,
    MeanNetworkRegressor,
    MixtureDistribution,
    QuantileNetworkRegressor,
    concrete_dropout,
    descent,
    dropout,
    ensemble,
    perceptron,
    quantile_network,
    selection,
)
from collabnets.baselines.quantile_network import spline_through
from collabnets.distribution import ScipyDistribution, SplineDistribution
from collabnets.estimator import Table

X, Y = table()


def features(of):
    return of.columns_.transform(X).astype(float)


def forward(layers, h, masks=None, heads=1):
    """A perceptron with elu, one row, in float64."""
    masks = [1.0] * len(layers) if masks is None else masks
    pairs = list(zip(layers, masks, strict=True))
    for (w, b), m in pairs[:-heads]:
        a = (h * m) @ w.astype(float) + b
        h = np.where(a > 0, a, np.expm1(np.minimum(a, 0.0)))
    return np.concatenate([(h * m) @ w.astype(float) + b for (w, b), m in pairs[-heads:]])


def read(model, y=Y, weight=None):
    return Table.read(model, X, y, weight)


# ------------------------------------------------------------ MC dropout


@pytest.mark.parametrize("drop_inputs", [True, False])
def test_dropout_masks_are_0_with_the_rate_and_else_keep_the_mean(drop_inputs):
    rate, count, widths = 0.05, 4000, (3, 20, 10)
    masks = dropout.dropout_masks(jax.random.key(7), rate, widths, count, drop_inputs=drop_inputs)
    assert [m.shape for m in masks] == [(count, w) for w in widths]
    for k, mask in enumerate(np.asarray(m, float) for m in masks):
        if k == 0 and not drop_inputs:
            assert np.all(mask == 1)
            continue
        np.testing.assert_allclose(np.unique(mask), [0, 1 / (1 - rate)], rtol=1e-6)
        dropped = (mask == 0).mean(axis=0)
        assert np.all(np.abs(dropped - rate) < 5 * np.sqrt(rate * (1 - rate) / count))  # every input by itself
        pairs = np.corrcoef(mask.T) - np.eye(mask.shape[1])
        assert np.abs(pairs).max() < 5 / np.sqrt(count)  # and none with another


def test_mc_dropout_is_the_gaussian_of_the_moments_of_its_passes():
    of = fitted("DP").__class__(**{**fitted("DP").get_params(), "dropout_rates": 0.1}).fit(X, Y)
    widths = [w.shape[0] for w, _ in of.network_]
    key = jax.random.key(of.pass_seed_)
    masks = [np.asarray(m, float) for m in dropout.dropout_masks(key, of.dropout_rate_, widths, of.n_passes)]
    rows = features(of)[:5]
    passes = np.array([[forward(of.network_, x, [m[t] for m in masks])[0] for x in rows] for t in range(of.n_passes)])
    dist, scale = of.predict_dist(X[:5]), of.outcome_.scale
    np.testing.assert_allclose(dist.mean(), of.outcome_.loc + scale * passes.mean(0), atol=1e-5 * scale)
    np.testing.assert_allclose(dist.variance(), scale**2 * (passes.var(0) + 1 / of.tau_), rtol=1e-5)
    assert np.all(passes.var(0) > 1e-3)
    np.testing.assert_allclose(dist.icdf(0.95), stats.norm.ppf(0.95, dist.mean(), dist.standard_deviation()))


def test_the_noise_found_is_that_of_the_data():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (600, 1))
    of = model("DP", precisions=2.0 ** np.arange(-2, 8), dropout_rates=(0.01, 0.05), standardize=False)
    of.fit(x, 2 * x[:, 0] + 0.25 * rng.normal(size=600))
    assert of.tau_ in (8.0, 16.0, 32.0)  # 1 / 0.25^2 = 16
    assert of.search_["tau"].shape == of.search_["gof"].shape == (20,)


# ------------------------------------------------------------ losses, in NumPy


def small_batch(seed=0, n=12):
    rng = np.random.default_rng(seed)
    parts = rng.normal(size=(n, 3)), rng.normal(size=n), rng.uniform(0.1, 3, n)
    return tuple(a.astype(np.float32) for a in parts)


def squares(layers):
    return np.array([(w.astype(float) ** 2).sum() for w, _ in layers])


def dropout_loss(layers, batch, key, n):
    x, y, w = batch
    rate, tau, length = 0.3, 5.0, 0.7
    masks = [np.asarray(m, float) for m in dropout.dropout_masks(key, rate, [3, 6, 4], len(y))]
    f = np.array([forward(layers, row, [m[i] for m in masks])[0] for i, row in enumerate(x)])
    ours = {"rate": np.float32(rate), "tau": np.float32(tau), "lengthscale": np.float32(length)}
    by_hand = np.mean(w * (y - f) ** 2) + length**2 * (1 - rate) / (2 * n * tau) * squares(layers).sum()
    return dropout._loss("elu", True)(layers, ours, batch, key, n), by_hand


def concrete_loss(layers, batch, key, n):
    x, y, w = batch
    p, length, temperature = np.array([0.1, 0.3, 0.5, 0.05]), 0.7, 0.1
    u = np.split(np.asarray(dropout.draws(key, (len(y), 17)), float), [3, 9, 13], axis=1)
    masks = [expit(-(logit(q) + logit(v)) / temperature) / (1 - q) for q, v in zip(p, u, strict=True)]
    both = np.array([forward(layers, row, [m[i] for m in masks], heads=2) for i, row in enumerate(x)])
    mean, s = both.T
    penalty = 0.0
    for k, (weight, _) in enumerate(layers):
        penalty += length**2 / n * (weight.astype(float) ** 2).sum() / (1 - p[k])
        penalty += 2 / n * weight.shape[0] * (p[k] * np.log(p[k]) + (1 - p[k]) * np.log(1 - p[k]))
    parameters = {"layers": layers, "rate_logits": jnp.asarray(logit(p), jnp.float32)}
    ours = {"lengthscale": np.float32(length), "temperature": np.float32(temperature)}
    by_hand = np.mean(w * (np.exp(-s) * (y - mean) ** 2 + s)) + penalty
    return concrete_dropout._loss("elu")(parameters, ours, batch, key, n), by_hand


def ensemble_loss(layers, batch, key, n):
    x, y, w = batch
    mean, t = np.array([forward(layers, row) for row in x]).T
    deviation = np.log1p(np.exp(0.3 * t)) + 1e-3
    by_hand = -np.mean(w * (stats.norm.logpdf(y, mean, deviation) + 0.5 * np.log(2 * np.pi)))
    return ensemble._loss("elu")(layers, np.float32(0.3), batch, key, n), by_hand


def pinball_loss(layers, batch, key, n):
    x, y, w = batch
    f = np.array([forward(layers, row)[0] for row in x])
    by_hand = np.mean(w * (0.2 - (y < f)) * (y - f))
    return quantile_network._pinball_loss("elu")(layers, np.float32(0.2), batch, key, n), by_hand


def squared_loss(layers, batch, key, n):
    x, y, w = batch
    f = np.array([forward(layers, row)[0] for row in x])
    return quantile_network._squared_loss("elu")(layers, np.float32(0), batch, key, n), np.mean(w * (y - f) ** 2)


LOSSES = {
    "MC dropout": (dropout_loss, {}),
    "concrete dropout": (concrete_loss, {"heads": 2}),
    "ensemble": (ensemble_loss, {"outputs": 2}),
    "pinball": (pinball_loss, {}),
    "squared": (squared_loss, {}),
}


@pytest.mark.parametrize(("loss", "shape"), LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("init", ["glorot", "uniform"])
def test_a_loss_is_its_formula_with_the_weights_of_the_rows(loss, shape, init):
    layers = perceptron.start([3], (3, 6, 4), init=init, **shape)
    ours, by_hand = loss(layers, small_batch(), jax.random.key(11), 12)
    np.testing.assert_allclose(float(ours), by_hand, rtol=2e-5)


def test_networks_start_as_in_keras_and_pytorch():
    for init, bound in (("glorot", np.sqrt(6 / 500)), ("uniform", 0.05)):
        (weight, bias), (readout, _) = perceptron.start([0], (400, 100), init=init)
        assert weight.dtype == np.float32
        assert 0.99 * bound < np.abs(weight).max() <= bound
        np.testing.assert_allclose(weight.std(), bound / np.sqrt(3), rtol=0.01)
        assert np.abs(bias).max() <= (0 if init == "glorot" else bound)
        assert readout.shape == (100, 1)


# ------------------------------------------------------------ concrete dropout


def test_concrete_masks_become_bernoulli_masks_as_the_temperature_falls():
    p = 0.2
    u = (np.arange(2000) + 0.5) / 2000
    sharp = np.asarray(concrete_dropout.concrete_masks(u, logit(p), 1e-6))
    np.testing.assert_allclose(sharp, (u < 1 - p) / (1 - p), rtol=1e-6)
    soft = np.asarray(concrete_dropout.concrete_masks(u, logit(p), 0.1))
    assert np.all(np.diff(soft) <= 0)
    assert np.all((soft >= 0) & (soft <= (1 + 1e-6) / (1 - p)))
    np.testing.assert_allclose(soft.mean(), 1, atol=0.02)  # the relaxation is nearly unbiased


def test_the_penalty_prefers_a_rate_of_one_half_where_weights_cost_nothing():
    layers = perceptron.start([0], (3, 6), init="glorot")
    at = [float(concrete_dropout.concrete_penalty(layers, jnp.full(2, logit(p)), 0.0, 10)) for p in (0.3, 0.5, 0.7)]
    np.testing.assert_allclose(at[1], -2 / 10 * (3 + 6) * np.log(2), rtol=1e-6)
    assert at[1] < at[0]
    np.testing.assert_allclose(at[0], at[2], rtol=1e-6)


def test_concrete_dropout_is_the_gaussian_of_the_moments_of_its_passes():
    of = fitted("CDP")
    widths = [w.shape[0] for w, _ in of.network_]
    u = np.asarray(dropout.draws(jax.random.key(of.pass_seed_), (of.n_passes, sum(widths))), float)
    parts = np.split(u, np.cumsum(widths)[:-1], axis=1)
    masks = [expit(-(logit(p) + logit(v)) / 0.1) / (1 - p) for p, v in zip(of.dropout_rates_, parts, strict=True)]
    rows = features(of)[:5]
    passes = [[forward(of.network_, x, [m[t] for m in masks], heads=2) for x in rows] for t in range(of.n_passes)]
    mean, variance = np.array(passes)[:, :, 0], np.exp(np.array(passes)[:, :, 1])
    dist, scale = of.predict_dist(X[:5]), of.outcome_.scale
    np.testing.assert_allclose(dist.mean(), of.outcome_.loc + scale * mean.mean(0), atol=2e-5 * scale)
    np.testing.assert_allclose(dist.variance(), scale**2 * (variance.mean(0) + mean.var(0)), rtol=1e-4)
    noise = copy.copy(of).set_params(model_variance=False).predict_dist(X[:5])
    np.testing.assert_allclose(noise.variance(), scale**2 * variance.mean(0), rtol=1e-4)
    np.testing.assert_array_equal(noise.mean(), dist.mean())


def test_dropout_rates_are_learnt():
    rates = fitted("CDP").dropout_rates_
    assert rates.shape == (3,)  # inputs, mean, log variance
    assert np.all((rates > 0) & (rates < 1))
    assert np.all(np.abs(rates - 0.1) > 1e-3)
    assert np.isfinite(fitted("CDP").predict_dist(1e6 * X).variance()).all()


# ------------------------------------------------------------ ensembles and mixtures


def members_by_hand(of, rows):
    out = []
    for k in range(of.n_members):
        layers = [(w[k], b[k]) for w, b in of.networks_]
        mean, t = np.array([forward(layers, x) for x in rows]).T
        out.append((mean, np.log1p(np.exp(of.damping_ * t)) + 1e-3))
    mean, deviation = np.swapaxes(out, 0, 1)
    return of.outcome_.loc + of.outcome_.scale * mean, of.outcome_.scale * deviation


def test_ensemble_moments_are_those_of_section_2_4():
    of = fitted("EN")
    mean, deviation = members_by_hand(of, features(of)[:8])
    centre = mean.mean(0)
    variance = (deviation**2 + mean**2).mean(0) - centre**2
    dist = of.predict_dist(X[:8])
    np.testing.assert_allclose(dist.mean(), centre, atol=1e-5)
    np.testing.assert_allclose(dist.variance(), variance, rtol=1e-5)
    np.testing.assert_allclose(dist.cdf(1.0), stats.norm.cdf(1.0, centre, np.sqrt(variance)), rtol=1e-4)


def test_the_mixture_has_the_moments_of_the_gaussian_and_is_the_mean_of_the_members():
    of = fitted("EN, mixture")
    mean, deviation = members_by_hand(of, features(of)[:8])
    dist, z = of.predict_dist(X[:8]), np.array([-3.0, 0.0, 1.0, 6.0])
    by_hand = stats.norm.cdf(z[:, None, None], mean, deviation).mean(1).T
    np.testing.assert_allclose(dist.cdf(z), by_hand, atol=1e-5)
    gaussian = of.set_params(combine="moments").predict_dist(X[:8])
    of.set_params(combine="mixture")
    np.testing.assert_allclose(dist.mean(), gaussian.mean(), rtol=1e-12)
    np.testing.assert_allclose(dist.variance(), gaussian.variance(), rtol=1e-12)


LOC = np.array([[0.0, 1.0, -2.0], [-50.0, 50.0, 50.0], [3.0, 3.0, 3.0], [0.0, 1e-9, 1e6]])
SCALE = np.array([[1.0, 0.1, 3.0], [0.1, 0.1, 20.0], [2.0, 2.0, 2.0], [1e-3, 1e-3, 1.0]])


def gaussians(loc=LOC, scale=SCALE):
    return MixtureDistribution(
        [ScipyDistribution(stats.norm, loc=m, scale=s) for m, s in zip(loc.T, scale.T, strict=True)]
    )


@pytest.mark.parametrize("row", [0, 1])
def test_a_mixture_against_quadrature(row):
    one = gaussians(LOC[[row]], SCALE[[row]])

    def integral(of, end=200.0):
        points = [m for m in LOC[row] if m < end]
        density = lambda z: of(z) * np.exp(one.logpdf(z)[0])  # noqa: E731
        return integrate.quad(density, -200, end, points=points, limit=200, epsabs=1e-12)[0]

    mean = integral(lambda z: z)
    assert integral(lambda z: 1.0) == pytest.approx(1, abs=1e-9)
    assert one.mean()[0] == pytest.approx(mean, abs=1e-7)
    assert one.variance()[0] == pytest.approx(integral(lambda z: (z - mean) ** 2), rel=1e-8)
    assert one.cdf(0.7)[0] == pytest.approx(integral(lambda z: 1.0, end=0.7), abs=1e-9)


LEVELS = [1e-300, 1e-14, 1e-6, 0.01, 1 / 3, 0.34, 0.5, 0.66, 0.9, 1 - 1e-6, 1 - 1e-13]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("row", range(len(LOC)))
def test_mixture_quantiles_against_brentq(row, level):
    """Both solve for the logarithm of the nearer tail's probability, which keeps its digits."""
    dist = gaussians(LOC[[row]], SCALE[[row]])
    tail = min(level, 1 - level)

    def off(z):
        p = stats.norm.cdf(z, LOC[row], SCALE[row]) if level <= 0.5 else stats.norm.sf(z, LOC[row], SCALE[row])
        return np.log(p.mean()) - np.log(tail)

    ends = stats.norm.ppf(level, LOC[row], SCALE[row])
    expected = optimize.brentq(off, ends.min() - 1e-6, ends.max() + 1e-6, xtol=1e-300, rtol=9e-16)
    # roundings: of the quantile itself, and of the logarithm divided by its slope
    slope = np.exp(dist.logpdf(expected)[0]) / tail
    allowed = 2.2e-16 * (abs(expected) + (1 - np.log(tail)) / slope)
    assert abs(dist.icdf(level)[0] - expected) <= 16 * allowed


def test_a_mixture_of_equals_is_each_of_them():
    one = ScipyDistribution(stats.gumbel_r, loc=[0.0, 2.0], scale=[1.0, 5.0])
    dist, levels = MixtureDistribution([one] * 4), np.linspace(0, 1, 21)
    np.testing.assert_array_equal(dist.icdf(levels), one.icdf(levels))
    np.testing.assert_allclose(dist.cdf([-1.0, 3.0]), one.cdf([-1.0, 3.0]), rtol=1e-15)
    np.testing.assert_allclose(dist.variance(), one.variance(), rtol=1e-15)
    assert np.all(dist.support().lower == -np.inf)


def test_the_step_of_an_ensemble_falls_over_a_hundred_epochs(monkeypatch):
    seen = []
    real = ensemble.descend
    monkeypatch.setattr(ensemble, "descend", lambda *a, **k: seen.append((a[1], k)) or real(*a, **k))
    model("EN", dampings=1.0, n_members=1, max_iter=2, batch_size=32).fit(X, Y)
    ((optimizer, _),) = seen
    assert optimizer is descent.adam_with_inverse_time_decay(2e-2, 1.0, 100 * (100 // 32))
    # a loss of constant slope moves by exactly the step of Adam
    rows = descent.Rows.of(np.zeros((32, 1), np.float32), np.zeros(32, np.float32), np.ones(32, np.float32))
    start = {"seeds": np.array([0]), "epochs": 600, "batch_size": 32}
    end = descent.descend(slope, optimizer, np.zeros(1, np.float32), np.zeros(1, np.float32), rows, **start).parameters
    np.testing.assert_allclose(-end[0], (2e-2 / (1 + np.arange(600) / 300)).sum(), rtol=1e-4)


def slope(parameters, hyper, batch, key, n):
    return parameters


def test_a_member_that_diverged_is_an_error_and_not_a_prediction_of_nan(monkeypatch):
    real = perceptron.start

    def start(seed, *arguments, **options):
        layers = real(seed, *arguments, **options)
        return jax.tree.map(lambda a: a * np.float32(np.nan), layers) if seed[-1] == 1 else layers

    monkeypatch.setattr(perceptron, "start", start)
    with pytest.raises(FloatingPointError, match=r"infinite or NaN for 1 of 3 networks; try a smaller"):
        model("EN", dampings=1.0, max_iter=2).fit(X, Y)


@pytest.mark.parametrize("step", [np.nan, np.inf])
def test_a_search_goes_on_without_candidates_that_diverged_and_a_fit_does_not(step):
    rows = descent.Rows.of(np.zeros((8, 1), np.float32), np.zeros(8, np.float32), np.ones(8, np.float32))
    at, hyper = np.zeros(2, np.float32), np.array([1.0, step], np.float32)
    options = {"seeds": np.array([0, 1]), "epochs": 1, "batch_size": 8}  # one step, after the only loss
    scaled = lambda parameters, hyper, batch, key, n: hyper * (parameters + 1.0)  # noqa: E731
    sgd = descent.optax.sgd(1.0)
    found = descent.descend(scaled, sgd, at, hyper, rows, **options, some_may_diverge=True)
    np.testing.assert_array_equal(np.isfinite(found.parameters), [True, False])
    with pytest.raises(FloatingPointError, match="1 of 2 networks"):
        descent.descend(scaled, sgd, at, hyper, rows, **options)


def test_a_search_whose_candidates_partly_diverge_takes_one_of_the_others(monkeypatch):
    real = DeepEnsembleRegressor._train

    def train(self, table, dampings, *rest, **options):
        trained = real(self, table, dampings, *rest, **options)
        if len(dampings) == 1:
            return trained
        lost = np.repeat(dampings == 0.1, self.n_members)
        spoilt = lambda a: np.where(lost.reshape(-1, *[1] * (a.ndim - 1)), np.float32(np.nan), a)  # noqa: E731
        return trained._replace(parameters=jax.tree.map(spoilt, trained.parameters))

    monkeypatch.setattr(DeepEnsembleRegressor, "_train", train)
    fit = model("EN", max_iter=2).fit(X, Y)
    assert fit.damping_ == 1.0
    np.testing.assert_array_equal(np.isnan(fit.search_["gof"]), [True, False])


# ------------------------------------------------------------ quantile networks


def test_a_quantile_network_finds_the_quantiles_of_a_known_distribution():
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (4000, 1))
    of = QuantileNetworkRegressor(
        hidden_layer_sizes=(32,), learning_rate_init=3e-3, batch_size=256, max_iter=80, random_state=0, verbose=0
    )
    of.fit(x, 1 + x[:, 0] + (1.5 + x[:, 0]) * rng.gumbel(size=4000))
    new = np.linspace(-0.9, 0.9, 50)[:, None]
    truth = stats.gumbel_r(loc=1 + new, scale=1.5 + new)
    met = truth.cdf(of.predict_quantiles(new, of.levels))
    # with some eight degrees of freedom, the standard error of a level is at most sqrt(8 / 4000) / 2 = 0.022
    assert np.abs(met - of.levels).mean() < 0.015
    assert np.abs(met - of.levels).max() < 0.06


def test_quantiles_at_the_levels_are_the_sorted_answers_of_the_networks():
    of = fitted("QR")
    layers = [[(w[k], b[k]) for w, b in of.networks_] for k in range(5)]
    rows = features(of)[:20]

    def relu(layers, h):
        (w, b), (readout, bias) = layers
        return (np.maximum(h @ w.astype(float) + b, 0) @ readout.astype(float) + bias)[0]

    raw = np.array([[relu(net, x) for net in layers] for x in rows])
    expected = of.outcome_.loc + of.outcome_.scale * np.sort(raw, axis=1)
    np.testing.assert_allclose(of.predict_quantiles(X[:20], of.levels_), expected, atol=2e-6 * of.outcome_.scale)


def test_the_spline_goes_through_the_sorted_quantiles_and_says_how_far_it_moved_them():
    rng = np.random.default_rng(0)
    levels = np.array([0.02, 0.1, 0.4, 0.45])  # none above the middle
    sorted_ = np.sort(rng.normal(size=(50, 4)), axis=1)
    crossed = sorted_[:, [1, 0, 2, 3]]
    tied = np.repeat(sorted_[:, :1], 4, axis=1)
    for z in (sorted_, crossed, tied):
        knots = spline_through(levels, z)
        dist = SplineDistribution(knots, 0.0, 1.0)
        np.testing.assert_allclose(dist.icdf(levels), np.sort(z, axis=1), atol=4e-6)
        np.testing.assert_allclose(dist.cdf(dist.icdf(levels)), np.tile(levels, (50, 1)), rtol=1e-9)
        assert np.all(np.diff(dist.icdf(np.linspace(0.001, 0.999, 500)), axis=1) > 0)
    np.testing.assert_allclose(spline_through(levels, sorted_).correction, 0, atol=1e-12)
    np.testing.assert_allclose(spline_through(levels, crossed).correction, 0.08, atol=1e-4)


# ------------------------------------------------------------ mean networks


def test_the_noise_around_a_mean_is_the_weighted_variance_of_the_residuals():
    weight = np.random.default_rng(0).uniform(0.2, 4, 100)
    of = model("MSE").fit(X, Y, sample_weight=weight)
    residual = Y - of.predict(X)
    np.testing.assert_allclose(of.deviation_, np.sqrt(np.average(residual**2, weights=weight)), rtol=1e-5)
    np.testing.assert_allclose(of.predict_dist(X).standard_deviation(), of.deviation_)


@pytest.mark.parametrize("standardize", [True, False])
def test_a_mean_network_that_leaves_no_residuals_has_a_thousandth_of_the_deviation(standardize):
    x = np.array([[0.0], [0.0], [1.0]])
    y = np.array([2.0, 2.0, 5.0])
    of = model("MSE", max_iter=1500, learning_rate_init=3e-3, standardize=standardize).fit(x, y)
    assert of.deviation_ == pytest.approx(1e-3 * np.std(y), rel=1e-12)
    np.testing.assert_allclose(of.predict(x), y, atol=5e-3)
    assert np.isfinite(of.predict_dist(x).logpdf(y[:, None])).all()


def test_large_networks_collapse_onto_the_data():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5)), rng.normal(size=40)  # nothing to learn
    of = {"hidden_layer_sizes": (200, 200), "batch_size": 40, "max_iter": 1500, "random_state": 0, "verbose": 0}
    quantiles = QuantileNetworkRegressor(levels=(0.25, 0.5, 0.75), **of).fit(x, y)
    mean = MeanNetworkRegressor(**of).fit(x, y)
    ends = quantiles.predict_interval(x, 0.5)
    assert np.median(ends[:, 1] - ends[:, 0]) < 0.1 * 2 * stats.norm.ppf(0.75)  # against the true quartiles
    for net in (quantiles, mean):
        assert np.abs(y - net.predict(x)).mean() < 0.1 * np.abs(y).mean()
    assert mean.deviation_ < 0.1


# ------------------------------------------------------------ grid search


def test_held_out_rows_are_a_part_of_the_rows_chosen_by_the_seed():
    weight = np.random.default_rng(1).uniform(0.5, 2, 100)
    whole = read(model("DP"), weight=weight)
    train, held = selection.hold_out(whole, 0.2)
    assert (len(train.y), len(held.y)) == (80, 20)
    np.testing.assert_array_equal(np.sort(np.concatenate([train.values, held.values])), np.sort(whole.values))
    for part in (train, held):
        index = np.array([np.flatnonzero(whole.values == v)[0] for v in part.values])
        for name in ("features", "y", "rows"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[index])
        np.testing.assert_allclose(part.weight, whole.weight[index] / whole.weight[index].mean())
    assert np.array_equal(selection.hold_out(whole, 0.2)[1].values, held.values)
    assert not np.array_equal(selection.hold_out(whole._replace(seed=5), 0.2)[1].values, held.values)
    two = whole._replace(**{k: getattr(whole, k)[:2] for k in ("rows", "values", "features", "y", "weight")})
    assert [len(part.y) for part in selection.hold_out(two, 0.01)] == [1, 1]


def test_the_search_takes_the_best_gof_on_rows_the_candidates_did_not_learn_from():
    whole = read(model("DP"), weight=np.random.default_rng(1).uniform(0.5, 2, 100))
    scales = {"scale": (0.5, np.nan, 2.0, 1.5, 10.0), "shift": (0.0, 0.7)}
    asked = []

    def trial(part, candidates, features):
        asked.append((part, features))
        pairs = zip(candidates["scale"], candidates["shift"], strict=True)
        return [ScipyDistribution(stats.norm, loc=2.0 * features[:, 0] + shift, scale=scale) for scale, shift in pairs]

    best, record = selection.search(whole, scales, trial, 0.25)
    train, held = selection.hold_out(whole, 0.25)
    ((part, features),) = asked
    np.testing.assert_array_equal(part.values, train.values)
    np.testing.assert_array_equal(features, held.features)
    assert not set(part.values) & set(held.values)
    dists = trial(train, {k: record[k] for k in scales}, held.features)
    expected = [metrics.gof(held.values, d, sample_weight=held.weight) for d in dists]
    np.testing.assert_array_equal(record["gof"], expected)
    first = int(np.nanargmax(expected))
    assert best == {"scale": record["scale"][first], "shift": record["shift"][first]}
    assert (record["n_train"], record["n_held_out"]) == (75, 25)


def test_of_equal_candidates_the_first_is_taken_and_one_candidate_needs_no_search():
    whole = read(model("DP"))
    same = lambda part, c, x: [ScipyDistribution(stats.norm, loc=np.zeros(len(x)), scale=1.0)] * 3  # noqa: E731
    assert selection.search(whole, {"a": (3.0, 1.0, 2.0)}, same, 0.2)[0] == {"a": 3.0}
    best, record = selection.search(whole, {"a": (3.0,)}, lambda *_: pytest.fail("searched"), 0.2)
    assert best == {"a": 3.0}
    assert (record["n_train"], record["n_held_out"]) == (100, 0)
    assert np.isnan(record["gof"]).all()


def test_a_search_where_every_candidate_fails_says_so():
    lost = lambda part, c, x: [ScipyDistribution(stats.norm, loc=np.full(len(x), np.nan), scale=1.0)] * 2  # noqa: E731
    with pytest.raises(FloatingPointError, match=r"every candidate of the grid search.*smaller learning_rate_init"):
        selection.search(read(model("DP")), {"a": (1.0, 2.0)}, lost, 0.2)


@pytest.mark.parametrize(("name", "module"), [("DP", dropout), ("EN", ensemble)])
def test_candidates_never_see_the_held_out_rows_and_the_chosen_one_sees_all(name, module, monkeypatch):
    seen = []
    real = module.descend
    monkeypatch.setattr(module, "descend", lambda *a, **k: seen.append(a[4]) or real(*a, **k))
    of = model(name, max_iter=1).fit(X, Y)
    whole = read(of)
    train, held = selection.hold_out(whole, of.validation_fraction)
    search, final = (np.asarray(rows.y)[: int(rows.n)] for rows in seen)
    np.testing.assert_array_equal(search, train.y)
    assert not np.isin(held.y, search).any()
    np.testing.assert_array_equal(final, whole.y)
    assert of.search_["n_held_out"] == len(held.y) == 20
    grid = [v for k, v in of.search_.items() if k not in ("gof", "n_train", "n_held_out")]
    chosen = [of.tau_, of.dropout_rate_] if name == "DP" else [of.damping_]
    assert [column[int(np.argmax(of.search_["gof"]))] for column in grid] == chosen


# ------------------------------------------------------------ wrong calls

DP, EN, QR = MCDropoutRegressor, DeepEnsembleRegressor, QuantileNetworkRegressor
INVALID = InvalidParameterError
WRONG = {
    "no precision": (lambda: DP(precisions=()), ValueError, r"precisions lists one or more numbers > 0; got \(\)"),
    "precision 0": (lambda: DP(precisions=(1.0, 0.0)), ValueError, "precisions lists one or more numbers > 0"),
    "infinite precision": (lambda: DP(precisions=(1.0, np.inf)), ValueError, "precisions lists one or more numbers"),
    "precision of text": (lambda: DP(precisions=("a",)), ValueError, "precisions lists one or more numbers > 0"),
    "one negative precision": (lambda: DP(precisions=-1.0), INVALID, "'precisions' parameter.*must be"),
    "no rate": (lambda: DP(dropout_rates=[]), ValueError, "dropout_rates lists one or more numbers >= 0 and < 1"),
    "rate 1": (
        lambda: DP(dropout_rates=(0.1, 1.0)),
        ValueError,
        "dropout_rates lists one or more numbers >= 0 and < 1",
    ),
    "rate NaN": (lambda: DP(dropout_rates=(np.nan,)), ValueError, "dropout_rates lists one or more numbers"),
    "grid of grids": (lambda: DP(dropout_rates=((0.1,),)), ValueError, "dropout_rates lists one or more numbers"),
    "no damping": (lambda: EN(dampings=()), ValueError, "dampings lists one or more numbers > 0"),
    "unknown combination": (lambda: EN(combine="mean"), INVALID, "'combine' parameter.*'mixture'"),
    "no member": (lambda: EN(n_members=0), INVALID, "'n_members' parameter"),
    "one pass": (lambda: DP(n_passes=1), INVALID, "'n_passes' parameter"),
    "no hidden layer": (lambda: EN(hidden_layer_sizes=()), ValueError, "hidden_layer_sizes lists the widths of one or"),
    "hidden layer of 0": (lambda: QR(hidden_layer_sizes=(3, 0)), ValueError, "hidden_layer_sizes lists the widths"),
    "one level": (lambda: QR(levels=(0.5,)), ValueError, r"levels lists two or more numbers.*got \(0.5,\)"),
    "levels of text": (lambda: QR(levels=("a", "b")), ValueError, "levels lists two or more numbers"),
    "level NaN": (lambda: QR(levels=(0.1, np.nan)), ValueError, "levels lists two or more numbers"),
    "level 0": (lambda: QR(levels=(0.0, 0.5)), ValueError, r"a level lies inside \(0, 1\), got 0.0"),
    "level in percent": (lambda: QR(levels=(5, 95)), ValueError, r"inside \(0, 1\), got 5; write 90 % as 0.9"),
    "levels that fall": (lambda: QR(levels=(0.5, 0.25)), ValueError, "levels increase, without repetitions"),
    "a level twice": (lambda: QR(levels=(0.5, 0.5)), ValueError, "levels increase, without repetitions"),
    "levels not a list": (lambda: QR(levels=0.5), INVALID, "'levels' parameter.*array-like"),
}


@pytest.mark.parametrize(("make", "error", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_call_says_what_is_wrong(make, error, words):
    with pytest.raises(error, match=re.compile(words, re.DOTALL)) as caught:
        make().fit(X, Y)
    assert type(caught.value) is error


def test_a_wrong_mixture_says_what_is_wrong():
    one, other = (ScipyDistribution(stats.norm, loc=np.zeros(n), scale=1.0) for n in (2, 3))
    for parts in ([], [one, other]):
        with pytest.raises(ValueError, match="one or more components with the same number of rows"):
            MixtureDistribution(parts)


def test_a_fit_that_diverges_says_what_to_try():
    with pytest.raises(FloatingPointError, match="try a smaller learning_rate_init"):
        model("CDP", learning_rate_init=1e30).fit(X, Y)
