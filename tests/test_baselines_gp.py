"""Gaussian processes against scikit-learn, dense NumPy and closed forms."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor as Reference
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.utils._param_validation import InvalidParameterError
from variants import table

from collabnets.baselines import GaussianProcessRegressor, ParametricGPRegressor, gaussian_process, parametric_gp
from collabnets.baselines.blocks import BLOCK_ROWS
from collabnets.baselines.descent import Rows, adam, descend, in_float64
from collabnets.baselines.kernel import Hyperparameters, factor, free, log_marginal_likelihood
from collabnets.baselines.parametric_gp import (
    OBJECTIVES,
    Parameters,
    Setting,
    Variational,
    divergence,
    expected_log,
    function_moments,
    log_predictive,
    whiten,
)

X, Y = (a[:60] for a in table())
NEW = np.random.default_rng(2).normal(size=(20, 2))
RNG = np.random.default_rng(3)
FIXED = {"length_scale": 0.8, "signal_variance": 1.7, "noise_variance": 0.3, "max_iter": 0, "verbose": 0}


def gpr(**changes):
    return GaussianProcessRegressor(**{"max_iter": 20, "random_state": 0, "verbose": 0, **changes})


def ppgpr(**changes):
    small = {"n_inducing": 8, "max_iter": 5, "batch_size": 16, "random_state": 0, "verbose": 0}
    return ParametricGPRegressor(**{**small, **changes})


def standardised(model, X, y=None):
    features = model.columns_.transform(X).astype(float)
    return features if y is None else (features, (y - model.outcome_.loc) / model.outcome_.scale - model.mean_)


def reference(model, X, y, jitter=0.0):
    """Scikit-learn's Gaussian process of the same hyperparameters, on the same rows."""
    kernel = ConstantKernel(model.signal_variance_) * RBF(model.length_scale_) + WhiteKernel(model.noise_variance_)
    return Reference(kernel, alpha=jitter, optimizer=None).fit(*standardised(model, X, y))


def assert_agree(model, other, tolerance):
    mean, deviation = other.predict(standardised(model, NEW), return_std=True)
    dist = model.predict_dist(NEW)
    np.testing.assert_allclose(dist.mean(), model.outcome_.inverse(mean + model.mean_), rtol=0, atol=tolerance)
    np.testing.assert_allclose(dist.standard_deviation(), model.outcome_.scale * deviation, rtol=tolerance)
    assert model.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_value_, rel=tolerance)


# ------------------------------------------------------------ exact Gaussian processes


@pytest.mark.parametrize(
    "model", [gpr(**FIXED), gpr(**{**FIXED, "noise_variance": 1e-5, "ard": True}), gpr(), gpr(ard=True)]
)
def test_gpr_is_that_of_scikit_learn(model):
    model.fit(X, Y)
    assert_agree(model, reference(model, X, Y), 1e-8)
    assert model.jitter_ == 0.0


def test_given_hyperparameters_are_used_as_they_are():
    model = gpr(**FIXED).fit(X, Y)
    assert (model.length_scale_.tolist(), model.signal_variance_, model.noise_variance_) == ([0.8], 1.7, 0.3)
    assert (model.mean_, len(model.loss_curve_)) == (0.0, 0)


@pytest.mark.parametrize("repeats", [np.full(60, 3), np.random.default_rng(0).integers(0, 4, 60)], ids=["all", "some"])
def test_a_weight_is_a_repetition_in_a_dense_computation(repeats):
    model = gpr(**FIXED).fit(X, Y, sample_weight=repeats)
    assert_agree(model, reference(model, np.repeat(X, repeats, axis=0), np.repeat(Y, repeats)), 1e-8)


def test_half_a_weight_twice_is_a_row():
    halves = gpr(**FIXED).fit(np.repeat(X, 2, axis=0), np.repeat(Y, 2), sample_weight=np.full(120, 0.5))
    once = gpr(**FIXED).fit(X, Y)
    np.testing.assert_allclose(halves.predict(NEW), once.predict(NEW), rtol=1e-12)
    assert halves.log_marginal_likelihood_ == pytest.approx(once.log_marginal_likelihood_, rel=1e-12)


def test_the_gradient_of_the_marginal_likelihood_is_its_slope():
    weight = np.r_[RNG.integers(1, 4, 12), np.zeros(4)].astype(float)  # with padding
    x, y = np.r_[X[:12], np.zeros((4, 2))], np.r_[Y[:12], np.zeros(4)]

    def value(v):
        h = Hyperparameters(v[:2], v[2], v[3], v[4])
        with in_float64():
            return float(log_marginal_likelihood(h, x, y, weight)[0])

    def dense(v):
        index = np.repeat(np.arange(16), weight.astype(int))
        squared = ((x[index, None] - x[None, index]) ** 2 / v[:2] ** 2).sum(-1)
        covariance = v[2] * np.exp(-squared / 2) + v[3] * np.eye(len(index))
        return stats.multivariate_normal(np.full(len(index), v[4]), covariance).logpdf(y[index])

    at = np.array([0.7, 1.9, 1.3, 0.4, 0.2])
    assert value(at) == pytest.approx(dense(at), rel=1e-10)
    steps = 1e-5 * np.eye(5)
    slope = [(dense(at + step) - dense(at - step)) / 2e-5 for step in steps]
    with in_float64():
        h = Hyperparameters(*map(jnp.asarray, (at[:2], at[2], at[3], at[4])))
        gradient = jax.grad(lambda h: log_marginal_likelihood(h, x, y, weight)[0])(h)
        gradient = np.concatenate([np.ravel(g) for g in gradient])
    np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-7)


def test_training_ends_where_the_gradient_of_scikit_learn_is_zero():
    model = gpr(max_iter=500).fit(X, Y)
    other = reference(model, X, Y)
    gradient = other.log_marginal_likelihood(other.kernel_.theta, eval_gradient=True)[1]
    assert np.abs(gradient).max() < 1e-5
    assert model.loss_curve_[-1] == pytest.approx(-model.log_marginal_likelihood_ / 60, rel=1e-6)


def test_a_feature_without_influence_gets_a_long_length_scale():
    x = np.random.default_rng(1).normal(size=(60, 2))
    length = gpr(ard=True, max_iter=60).fit(x, np.sin(3 * x[:, 0])).length_scale_
    assert length[1] > 5 * length[0]


def test_jitter_is_the_first_power_of_ten_that_is_enough():
    q = np.linalg.qr(RNG.normal(size=(6, 6)))[0]
    for lowest, jitter in ((1e-3, 0.0), (-3e-7, 1e-6)):
        values = np.array([lowest, 1.0, 1.0, 1.0, 1.0, 1.0])
        matrix = q @ np.diag(values) @ q.T
        with in_float64():
            lower, added = map(np.asarray, factor(jnp.asarray(matrix)))
        assert added == pytest.approx(jitter * values.mean(), rel=1e-9)
        np.testing.assert_allclose(lower @ lower.T, matrix + added * np.eye(6), atol=1e-14)


def test_a_singular_covariance_gets_jitter_and_a_warning():
    x, y = np.repeat(X[:20], 2, axis=0), np.repeat(Y[:20], 2) + np.tile([-0.1, 0.1], 20)
    with pytest.warns(RuntimeWarning, match=r"not positive definite in float64: .* was added to its diagonal"):
        model = gpr(**{**FIXED, "noise_variance": 1e-18}).fit(x, y)
    assert 0 < model.jitter_ < 1e-8
    # without noise the two outcomes of a row can only be met half way
    np.testing.assert_allclose(model.predict(X[:20]), Y[:20], atol=1e-3)


def test_too_many_rows():
    with pytest.raises(
        ValueError, match=r"at most max_rows=50 distinct rows, but the table has 60; pass too_many_rows"
    ):
        gpr(max_rows=50).fit(X, Y)
    parts = []
    for seed in (0, 0, 1):
        with pytest.warns(UserWarning, match=r"60 distinct rows; .* fitted to a random max_rows=50 of them"):
            parts.append(gpr(**FIXED, max_rows=50, too_many_rows="subsample", random_state=seed).fit(X, Y))
    same, again, other = (model.rows_ for model in parts)
    np.testing.assert_array_equal(same, again)
    assert np.any(same != other)
    # what is left is the Gaussian process of those rows
    everything = standardised(parts[0], X)
    kept = [np.flatnonzero((everything == row).all(1))[0] for row in same]
    assert len(set(kept)) == 50
    assert_agree(parts[0], reference(parts[0], X[kept], Y[kept]), 1e-8)
    gpr(max_rows=60).fit(X, Y)


def test_a_search_by_some_rows_finds_what_a_fit_to_them_finds_and_is_conditioned_on_all(monkeypatch):
    given, real = [], GaussianProcessRegressor._search

    def search(self, *rows):
        given.append(rows)
        return real(self, *rows)

    monkeypatch.setattr(GaussianProcessRegressor, "_search", search)
    model = gpr(search_rows=40, standardize=False).fit(X, Y)
    ((x, _, weight),) = given
    some = np.flatnonzero((standardised(model, X)[:, None] == x[None, weight > 0, :2]).all(2).any(1))
    assert (len(some), int((weight > 0).sum())) == (40, 40)
    part = gpr(standardize=False).fit(X[some], Y[some])
    assert len(model.loss_curve_) == 20
    np.testing.assert_allclose(model.loss_curve_, part.loss_curve_, rtol=1e-10)
    np.testing.assert_allclose(hyperparameters(model).length_scale, hyperparameters(part).length_scale, rtol=1e-10)
    assert len(model.rows_) == 60
    assert_agree(model, reference(model, X, Y), 1e-8)
    everything = gpr(standardize=False).fit(X, Y)
    np.testing.assert_array_equal(
        gpr(search_rows=60, standardize=False).fit(X, Y).predict(NEW), everything.predict(NEW)
    )


# ------------------------------------------------------------ inducing points


def hyperparameters(model):
    return Hyperparameters.of(model.length_scale_, model.signal_variance_, model.noise_variance_, model.mean_)


def dense_kernel(h, a, b):
    squared = ((a[:, None] - b[None]) ** 2 / h.length_scale**2).sum(-1)
    return h.signal_variance * np.exp(-squared / 2)


def raw_parameters(h, q):
    with in_float64():
        raw = free(h, parametric_gp.NOISE_FLOOR)
        lower = np.tril(q.factor, -1) if q.factor.ndim == 2 else None
        diagonal = np.diag(q.factor) if q.factor.ndim == 2 else q.factor
        return jax.tree.map(jnp.asarray, Parameters(raw, q.inducing, q.mean, np.log(diagonal), lower))


def objective(name, h, q, x, y, weight, *, beta=1.0, jitter=0.0, n=None):
    """The objective of a whole table, from rows of it."""
    with in_float64():
        setting = Setting(beta, 1.0, jitter)
        rows = tuple(jnp.asarray(a) for a in (x, y, weight))
        return -float(OBJECTIVES[name](raw_parameters(h, q), setting, rows, None, len(y) if n is None else n))


@pytest.mark.parametrize("weighted", [False, True])
def test_all_rows_inducing_and_the_best_q_are_the_exact_gaussian_process(weighted):
    weight = RNG.integers(1, 4, 60) if weighted else np.ones(60)
    model = gpr(ard=True).fit(X, Y, sample_weight=weight)
    h = hyperparameters(model)
    x, residual = standardised(model, X, Y)
    covariance = dense_kernel(h, x, x) + 1e-9 * h.signal_variance * np.eye(60)
    lower = np.linalg.cholesky(covariance)
    # q(v) is normal with precision I + L' W L / noise and mean S L' W y / noise: Bayes' rule for u = L v
    S = np.linalg.inv(np.eye(60) + lower.T @ np.diag(weight / h.noise_variance) @ lower)
    q = Variational(x, S @ lower.T @ (weight * residual) / h.noise_variance, np.linalg.cholesky(S))
    with in_float64():
        mean, variance = map(np.asarray, function_moments(h, q, standardised(model, NEW), 1e-9))
    dist = model.predict_dist(NEW)
    np.testing.assert_allclose(model.outcome_.inverse(mean), dist.mean(), rtol=0, atol=1e-6)
    exact = dist.variance() / model.outcome_.scale**2
    np.testing.assert_allclose(variance + h.noise_variance, exact, rtol=1e-6)
    bound = objective("elbo", h, q, x, residual + model.mean_, weight, jitter=1e-9)
    # a weight w is w outcomes: the marginal likelihood of the repeated table
    assert bound == pytest.approx(model.log_marginal_likelihood_, rel=1e-6)
    # any other q is below
    moved = q._replace(mean=q.mean + 0.1)
    assert objective("elbo", h, moved, x, residual + model.mean_, weight, jitter=1e-9) < bound - 0.1


def some_parameters(kind):
    m = 7
    h = Hyperparameters.of([0.9, 1.4], 1.2, 0.25, 0.3)
    full = np.tril(0.2 * RNG.normal(size=(m, m)), -1) + np.diag(RNG.uniform(0.3, 1.5, m))
    return h, Variational(RNG.normal(size=(m, 2)), RNG.normal(size=m), full if kind == "full" else np.diag(full))


@pytest.mark.parametrize("kind", ["full", "mean-field"])
def test_the_objectives_are_those_of_a_dense_computation(kind):
    h, q = some_parameters(kind)
    jitter, beta, weight = 1e-6, 0.7, RNG.uniform(0.5, 3, 20)
    x, y = X[:20], Y[:20]
    inside = dense_kernel(h, q.inducing, q.inducing) + jitter * h.signal_variance * np.eye(7)
    lower = np.linalg.cholesky(inside)
    spread = q.factor if kind == "full" else np.diag(q.factor)
    # in the units of the function: q(u) = N(a, B), against the prior N(c, K)
    a, B = h.mean + lower @ q.mean, lower @ spread @ spread.T @ lower.T
    inverse, cross = np.linalg.inv(inside), dense_kernel(h, q.inducing, x)
    mean = h.mean + cross.T @ inverse @ (a - h.mean)
    variance = h.signal_variance + np.einsum("mi,ml,li->i", cross, inverse @ (B - inside) @ inverse, cross)
    dets = np.linalg.slogdet(inside)[1] - np.linalg.slogdet(B)[1]
    apart = 0.5 * (np.trace(inverse @ B) + (a - h.mean) @ inverse @ (a - h.mean) - 7 + dets)
    with in_float64():
        np.testing.assert_allclose(function_moments(h, q, x, jitter), (mean, variance), rtol=1e-8)
        assert float(divergence(q)) == pytest.approx(apart, rel=1e-8)
    predictive = stats.norm(mean, np.sqrt(variance + h.noise_variance)).logpdf(y)
    noise = stats.norm(mean, np.sqrt(h.noise_variance)).logpdf(y) - variance / (2 * h.noise_variance)
    for name, values in (("predictive", predictive), ("elbo", noise)):
        whole = 3 * (weight @ values) - beta * apart  # the 20 rows stand for 60
        found = objective(name, h, q, x, y, weight, beta=beta, jitter=jitter, n=60)
        assert found == pytest.approx(whole, rel=1e-8)


def test_what_the_objectives_add_up_are_expectations_over_the_function():
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    y, mean, variance, noise = 0.4, -0.3, 0.6, 0.5
    density = stats.norm(mean + np.sqrt(variance) * nodes, np.sqrt(noise))
    weights = weights / weights.sum()
    with in_float64():
        inside = float(log_predictive(y, mean, variance, noise))
        outside = float(expected_log(y, mean, variance, noise))
    assert inside == pytest.approx(np.log(weights @ density.pdf(y)), rel=1e-10)
    assert outside == pytest.approx(weights @ density.logpdf(y), rel=1e-10)


def test_the_gradient_of_whitening_is_that_of_its_parts():
    with in_float64():
        a, cross, target = (jnp.asarray(RNG.normal(size=shape)) for shape in ((9, 9), (9, 4), (9, 4)))
        covariance = a @ a.T + jnp.eye(9)

        def parts(covariance, cross):
            return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(covariance), cross, lower=True)

        found, expected = (
            jax.grad(lambda *args, f=f: jnp.sum(jnp.sin(f(*args)) * target), (0, 1))(covariance, cross)
            for f in (whiten, parts)
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_training_closes_the_gap_between_the_evidence_bound_and_the_evidence():
    x = X[:16]
    y = np.sin(2 * x[:, 0]) + 0.2 * np.random.default_rng(0).normal(size=16)
    model = ppgpr(objective="elbo", n_inducing=16, max_iter=4000, learning_rate_init=0.02).fit(x, y)
    assert model.signal_variance_ > 5 * model.noise_variance_
    h = hyperparameters(model)
    features, residual = standardised(model, x, y)
    with in_float64():
        evidence = float(log_marginal_likelihood(h, features, residual + model.mean_, np.ones(16))[0])
    q = Variational(model.inducing_, model.variational_mean_, model.variational_factor_)
    bound = objective("elbo", h, q, features, residual + model.mean_, np.ones(16), jitter=parametric_gp.JITTER)
    assert evidence - 0.01 < bound < evidence
    assert model.loss_curve_[-1] == pytest.approx(-bound / 16, rel=1e-2)


def test_only_the_predictive_objective_learns_a_noise_that_depends_on_the_row():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, 1))
    y = np.where(x[:, 0] > 0, 1.0, 0.1) * rng.normal(size=300)
    ratio = {}
    for name in OBJECTIVES:
        model = ppgpr(objective=name, n_inducing=20, max_iter=60, batch_size=64, learning_rate_init=0.03).fit(x, y)
        quiet, noisy = model.predict_dist([[-0.5], [0.5]]).standard_deviation()
        ratio[name] = noisy / quiet
    assert ratio["predictive"] > 4
    assert ratio["elbo"] < 1.3


def test_inducing_points_start_at_rows_of_the_table():
    model = ppgpr(max_iter=1, learning_rate_init=1e-12).fit(X, Y)
    rows = standardised(model, X)
    nearest = np.abs(model.inducing_[:, None] - rows[None]).max(-1).min(1)
    assert nearest.max() < 1e-10
    assert len(np.unique(model.inducing_, axis=0)) == 8
    twice = np.r_[X[:5], X[:5]]
    assert len(ppgpr(max_iter=1).fit(twice, np.arange(10.0)).inducing_) == 5


def test_options_of_ppgpr_shape_what_is_learnt():
    plain, ard, diagonal = ppgpr().fit(X, Y), ppgpr(ard=True).fit(X, Y), ppgpr(variational="mean-field").fit(X, Y)
    assert (plain.length_scale_.shape, plain.variational_factor_.shape) == ((1,), (8, 8))
    assert np.all(np.triu(plain.variational_factor_, 1) == 0)
    assert (ard.length_scale_.shape, diagonal.variational_factor_.shape) == ((2,), (8,))
    assert np.any(plain.predict(NEW) != ppgpr(random_state=1).fit(X, Y).predict(NEW))


def test_beta_holds_q_to_the_prior():
    apart = []
    for beta in (0.0, 1.0, 10.0, 100.0):
        model = ppgpr(beta=beta).fit(X, Y)
        q = Variational(model.inducing_, model.variational_mean_, model.variational_factor_)
        with in_float64():
            apart.append(float(divergence(q)))
    assert np.all(np.diff(apart) < 0)


# ------------------------------------------------------------ both


BAD = {
    "negative length scale": ({"length_scale": -1.0}, {}),
    "noise variance of zero": ({"noise_variance": 0.0}, {}),
    "signal variance as text": ({"signal_variance": "large"}, {}),
    "unknown answer to too many rows": ({"too_many_rows": "drop"}, {}),
    "no rows at most": ({"max_rows": 0}, {}),
    "no rows to search by": ({"search_rows": 0}, {}),
    "negative steps": ({"max_iter": -1}, {"max_iter": 0}),
    "step of zero": ({"learning_rate_init": 0.0}, {"learning_rate_init": 0.0}),
    "ard that is no boolean": ({"ard": "yes"}, {"ard": "yes"}),
    "unknown objective": ({}, {"objective": "vfe"}),
    "unknown covariance": ({}, {"variational": "diagonal"}),
    "negative beta": ({}, {"beta": -0.5}),
    "no inducing points": ({}, {"n_inducing": 0}),
    "empty batch": ({}, {"batch_size": 0}),
}
CALLS = [
    pytest.param(make, changes, id=f"{make.__name__}, {name}")
    for name, both in BAD.items()
    for make, changes in zip((gpr, ppgpr), both, strict=True)
    if changes
]


@pytest.mark.parametrize(("make", "changes"), CALLS)
def test_a_wrong_parameter_is_named(make, changes):
    (name,) = changes
    with pytest.raises(InvalidParameterError, match=f"The '{name}' parameter of {type(make()).__name__} must be"):
        make(**changes).fit(X, Y)


def test_a_search_that_diverges_says_what_to_try():
    with pytest.raises(FloatingPointError, match="try a larger noise_variance or a smaller learning_rate_init"):
        gpr(learning_rate_init=1e308).fit(X, Y)
    with pytest.warns(ConvergenceWarning, match="ended below where it started; try a smaller learning_rate_init"):
        gpr(learning_rate_init=30.0).fit(X, Y)
    with pytest.raises(FloatingPointError, match="try a smaller learning_rate_init"):
        ppgpr(learning_rate_init=1e200).fit(X, Y)


@pytest.mark.parametrize("make", [gpr, ppgpr])
def test_float64_is_inside_only(make):
    model = make().fit(X, Y)
    model.predict(NEW)
    assert not jax.config.jax_enable_x64
    assert jnp.ones(1).dtype == jnp.float32
    arrays = [v for v in model._state().values() if isinstance(v, np.ndarray)]
    assert {a.dtype for a in arrays} <= {np.dtype(np.float64), np.dtype(np.float32)}
    assert model.length_scale_.dtype == np.float64


def test_several_candidates_descend_in_float64_as_each_alone():
    x, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40.0)
    setting = Setting(*(np.array([v, v]) for v in (1.0, 40.0, 1e-6)))
    with in_float64():
        starts = [Parameters.start(x[a : a + 6], ard=False, full=True) for a in (0, 6)]
        rows = Rows.of(x, y, np.ones(40))

        def train(some):
            parameters = jax.tree.map(lambda *a: jnp.asarray(np.stack(a)), *[starts[i] for i in some])
            hyper = jax.tree.map(lambda a: jnp.asarray(a[some]), setting)
            loss, seeds = OBJECTIVES["predictive"], np.array([5, 6])[some]
            return descend(loss, adam(0.01), parameters, hyper, rows, seeds=seeds, epochs=4, batch_size=8)

        together, apart = train([0, 1]), [train([0]), train([1])]
    assert {a.dtype for a in jax.tree.leaves(together)} == {np.dtype(np.float64)}
    for k, alone in enumerate(apart):
        np.testing.assert_array_equal(together.losses[:, k], alone.losses[:, 0])


@pytest.mark.parametrize(
    ("make", "module", "name"), [(gpr, gaussian_process, "moments"), (ppgpr, parametric_gp, "_predict")]
)
def test_prediction_takes_a_bounded_number_of_rows_at_a_time(make, module, name, monkeypatch):
    model, predict, seen = make().fit(X, Y), getattr(module, name), []

    def counting(*arguments):
        seen.append(len(arguments[-1]))
        return predict(*arguments)

    monkeypatch.setattr(module, name, counting)
    assert model.predict(np.zeros((1000, 2))).shape == (1000,)
    assert seen == [BLOCK_ROWS] * 8


def test_ctrl_c_ends_a_search(monkeypatch):
    step, count = gaussian_process._step, []

    def interrupted(*arguments):
        count.append(1)
        if len(count) == 3:
            signal.raise_signal(signal.SIGINT)
        return step(*arguments)

    monkeypatch.setattr(gaussian_process, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gpr(max_iter=50).fit(X, Y)
    assert len(count) == 3
