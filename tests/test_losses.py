"""The paper's equations against direct formulas, and what minimises them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from collabnets.losses import f_loss, g_loss, pinball_loss

EXTREME = jnp.array([-1e30, -1e4, -90.0, -1.0, 0.0, 1.0, 90.0, 1e4, 1e30])
Z = np.linspace(-4, 4, 81)


def test_g_loss_is_binary_cross_entropy():
    values = np.linspace(-8, 8, 33)
    for below in (True, False):
        p = expit(values) if below else expit(-values)
        found = g_loss(jnp.asarray(values, jnp.float32), jnp.full(33, below))
        np.testing.assert_allclose(found, -np.log(p), rtol=1e-5)


def test_f_loss_and_pinball_loss_are_their_formulas():
    values, q = jnp.linspace(-5, 5, 11), jnp.linspace(0.05, 0.95, 11)
    np.testing.assert_allclose(f_loss(values, q), (np.asarray(q) - expit(np.asarray(values))) ** 2, atol=1e-6)
    z, y = jnp.linspace(-2, 2, 11), jnp.zeros(11)
    expected = [(1 - b) * a if a > 0 else -b * a for a, b in zip(np.asarray(z), np.asarray(q), strict=True)]
    np.testing.assert_allclose(pinball_loss(z, y, q), expected, rtol=1e-5)


@pytest.mark.parametrize("below", [True, False])
def test_losses_and_gradients_are_finite_for_any_logit(below):
    below, q = jnp.full(EXTREME.shape, below), jnp.full(EXTREME.shape, 0.999999)
    for loss in (lambda values: g_loss(values, below), lambda values: f_loss(values, q)):
        gradient = jax.vmap(jax.grad(lambda value, i, loss=loss: loss(EXTREME.at[i].set(value))[i]))(
            EXTREME, jnp.arange(len(EXTREME))
        )
        assert np.isfinite(loss(EXTREME)).all()
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() <= 1
        assert np.all(loss(EXTREME) >= 0)


def expected_g_loss(values, p):
    """Mean of Eq. (gloss) when 1[y < z] has probability p."""
    values = jnp.asarray(values, jnp.float32)
    both = [np.asarray(g_loss(values, jnp.full(values.shape, b)), float) for b in (True, False)]
    return p * both[0] + (1 - p) * both[1]


def test_the_expected_g_loss_is_least_at_the_true_cdf():
    truth = stats.norm.cdf(Z)
    best = expected_g_loss(logit(truth), truth)
    for change in (-1.0, -0.1, 0.1, 1.0):
        assert np.all(expected_g_loss(logit(truth) + change, truth) > best)


def test_the_expected_gradient_of_the_g_loss_vanishes_at_the_truth_and_nowhere_else():
    truth = jnp.asarray(stats.norm.cdf(Z), jnp.float32)

    def mean(values):
        yes, no = (g_loss(values, jnp.full(values.shape, b)) for b in (True, False))
        return (truth * yes + (1 - truth) * no).sum()

    at_truth = jax.grad(mean)(jnp.log(truth) - jnp.log1p(-truth))
    np.testing.assert_allclose(at_truth, 0, atol=2e-6)
    assert np.abs(jax.grad(mean)(jnp.zeros(81)))[[0, -1]].min() > 0.4


def test_the_f_loss_is_zero_at_the_true_quantile_and_nowhere_else():
    q = np.linspace(0.05, 0.95, 19)
    at = lambda z: np.asarray(f_loss(jnp.asarray(logit(stats.norm.cdf(z)), jnp.float32), jnp.asarray(q, jnp.float32)))  # noqa: E731
    np.testing.assert_allclose(at(stats.norm.ppf(q)), 0, atol=1e-12)
    assert np.all(at(stats.norm.ppf(q) + 0.1) > 1e-5)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_the_expected_pinball_loss_is_least_at_the_quantile(q):
    y = jnp.asarray(stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000), jnp.float32)
    mean = [float(pinball_loss(jnp.full(y.shape, z), y, jnp.full(y.shape, q)).mean()) for z in Z]
    assert abs(Z[np.argmin(mean)] - stats.norm.ppf(q)) <= 0.06
