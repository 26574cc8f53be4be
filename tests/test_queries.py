"""Where training looks: tables against SciPy, and strata."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, polygamma

from collabnets import queries
from collabnets.queries import LEVELS, QuantileTable, empirical_quantiles, level_quantiles, logit_moments

SPECS = {
    "uniform": ("uniform", stats.uniform()),
    "tails": (("beta", 0.5, 0.5), stats.beta(0.5, 0.5)),
    "centre": (("beta", 3, 2), stats.beta(3, 2)),
    "scipy": (stats.beta(2, 5), stats.beta(2, 5)),
}


def interpolate(values, u):
    table = QuantileTable(jnp.asarray(LEVELS, jnp.float32), jnp.asarray(values, jnp.float32)[None])
    return np.asarray(table(jnp.asarray(u, jnp.float32), jnp.zeros(len(u), jnp.int32)))


@pytest.mark.parametrize("name", SPECS)
def test_levels_are_drawn_from_their_distribution(name):
    spec, reference = SPECS[name]
    q = level_quantiles(spec)
    assert q.min() >= queries.EDGE
    assert q.max() <= 1 - queries.EDGE
    u = (np.arange(20_000) + 0.5) / 20_000
    drawn = interpolate(q, u)
    assert np.abs(np.sort(drawn) - reference.ppf(u)).max() < 1e-3  # the table is linear between its levels
    assert stats.kstest(drawn, reference.cdf).statistic < 1e-4 + 1 / 20_000 + 2e-3 * (name == "tails")


def test_moments_of_the_logit_of_a_uniform_level():
    mean, deviation = logit_moments("uniform")
    assert mean == 0
    assert deviation**2 == pytest.approx(np.pi**2 / 3)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (0.5, 0.5), (2, 2), (3, 1), (2, 5)])
def test_moments_of_the_logit_of_a_beta_level(a, b):
    mean, deviation = logit_moments(("beta", a, b))
    clipped = 0.03 if min(a, b) < 1 else 2e-3  # levels are kept 1e-6 away from 0 and 1
    assert mean == pytest.approx(digamma(a) - digamma(b), abs=2e-3)
    assert deviation**2 == pytest.approx(polygamma(1, a) + polygamma(1, b), rel=clipped)


def test_thresholds_of_each_kind():
    y, X = np.array([1.0, 2.0, 5.0, 9.0]), np.zeros((4, 1))
    get = lambda spec, margin=0.25: queries.threshold_quantiles(spec, y, X, margin=margin)  # noqa: E731
    uniform = get("uniform")
    assert (uniform[0, 0], uniform[0, -1]) == (-1.0, 11.0)
    np.testing.assert_allclose(uniform[0], -1 + 12 * LEVELS)
    marginal = get("marginal")[0]
    assert (marginal[0], marginal[-1]) == (1.0, 9.0)
    np.testing.assert_allclose(interpolate(marginal, [0.125, 0.375, 0.625, 0.875]), y, rtol=2e-3)
    np.testing.assert_allclose(get(stats.norm(3, 2))[0, 1:-1], stats.norm(3, 2).ppf(LEVELS[1:-1]))
    rows = get(lambda q, X: np.arange(4)[:, None] + q)
    assert rows.shape == (4, len(LEVELS))
    np.testing.assert_allclose(rows[2], 2 + np.clip(LEVELS, 1e-6, 1 - 1e-6))


def test_empirical_quantiles_go_by_weight():
    y, weight = np.array([3.0, 1.0, 2.0]), np.array([1, 5, 2])
    u = np.linspace(0.05, 0.95, 19)
    weighted = empirical_quantiles(y, u, weight)
    assert np.all(np.diff(weighted) >= 0)
    assert empirical_quantiles(y, [5 / 16], weight) == [1.0]  # the middle of the step of 1.0
    np.testing.assert_array_equal(empirical_quantiles(y, u, 7.0 * weight), weighted)


def test_a_table_of_several_rows():
    table = QuantileTable(jnp.array([0.0, 0.5, 1.0]), jnp.array([[0.0, 1.0, 2.0], [0.0, 10.0, 30.0]]))
    found = table(jnp.array([0.25, 0.25, 0.75, 0.0, 1.0]), jnp.array([0, 1, 1, 1, 1]))
    np.testing.assert_allclose(found, [0.5, 5.0, 20.0, 0.0, 30.0])


def test_stratified_draws_are_one_in_each_stratum_and_uniform_in_it():
    u = np.asarray(queries.stratified(jnp.asarray(np.random.default_rng(0).random((4000, 5)), jnp.float32)))
    assert np.all(np.floor(u * 5) == np.arange(5))
    for k in range(5):
        assert stats.kstest(u[:, k] * 5 - k, "uniform").pvalue > 1e-3
