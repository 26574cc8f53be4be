"""Splines against closed forms; what is not a CDF becomes one, and what is stays as it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from collabnets import inversion
from collabnets.inversion import TOLERANCE, adaptive_knots, evaluate_logit, invert_logit, make_monotone

LEVELS = np.linspace(0.001, 0.999, 999)


class Mixture:
    """Two normal distributions."""

    def __init__(self, weight, one, other):
        self.parts = ((weight, one), (1 - weight, other))

    def cdf(self, z):
        return sum(w * part.cdf(z) for w, part in self.parts)

    def sf(self, z):
        return sum(w * part.sf(z) for w, part in self.parts)

    def pdf(self, z):
        return sum(w * part.pdf(z) for w, part in self.parts)


def grid(low, high):
    return np.linspace(low, high, 41)


# name: (a distribution, or one a row; the points a search starts with)
CASES = {
    "normal": (stats.norm(0.3, 0.8), grid(-4, 4)),
    "logistic": (stats.logistic(-0.5, 0.3), grid(-6, 6)),
    "skewed": (stats.gumbel_r(0, 0.5), grid(-3, 8)),
    "two modes": (Mixture(0.3, stats.norm(-2, 0.3), stats.norm(1, 0.5)), grid(-5, 5)),
    "peaked": (stats.norm(0.123, 0.01), grid(-4, 4)),
    "very peaked": (stats.norm(0.123, 0.001), grid(-4, 4)),
    # an outlier at 1000 sd stretches the range; the outcomes' own quantiles say where most of the others are
    "outlier": (stats.norm(0, 1), inversion.coarse_points(-100, 1100, stats.norm.ppf(np.linspace(0.01, 0.99, 17)))),
}


def as_logits(dist):
    """What a network would say: logit and slope (rows, K), one distribution for all rows."""

    def evaluate(rows, z):
        log = np.log if isinstance(dist, Mixture) else None
        below = log(np.maximum(dist.cdf(z), 1e-300)) if log else dist.logcdf(z)
        above = log(np.maximum(dist.sf(z), 1e-300)) if log else dist.logsf(z)
        logit = np.clip(below - above, -500, 500)
        density = dist.pdf(z)
        slope = density * np.exp(np.clip(-below - above, None, 600))
        return logit, np.where(np.abs(logit) < 500, slope, 0.0)

    return evaluate


@pytest.fixture(scope="module")
def splines():
    return {name: adaptive_knots(as_logits(dist), start, 2) for name, (dist, start) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_the_spline_is_the_distribution_within_tolerance(name, splines):
    dist, knots = CASES[name][0], splines[name]
    z = invert_logit(knots, np.broadcast_to(special.logit(LEVELS), (2, 999)))
    error = np.abs(dist.cdf(z) - LEVELS)
    assert error.max() < TOLERANCE
    np.testing.assert_array_equal(z[0], z[1])


@pytest.mark.parametrize("name", ["normal", "logistic", "skewed", "peaked", "very peaked"])
def test_quantiles_against_closed_forms(name, splines):
    dist = CASES[name][0]
    z = invert_logit(splines[name], np.broadcast_to(special.logit(LEVELS), (2, 999)))[0]
    # an error of TOLERANCE in probability is this much in the quantile
    np.testing.assert_array_less(np.abs(z - dist.ppf(LEVELS)), 1.01 * TOLERANCE / dist.pdf(dist.ppf(LEVELS)))


@pytest.mark.parametrize("name", CASES)
def test_the_spline_is_never_further_than_a_hundredth_of_a_percent(name, splines):
    dist, knots = CASES[name][0], splines[name]
    z = invert_logit(knots, np.broadcast_to(special.logit(LEVELS), (2, 999)))
    assert np.abs(dist.cdf(z) - LEVELS).max() < 1e-4


def test_a_gap_between_two_modes_is_bridged_and_reported():
    gap = Mixture(0.5, stats.norm(-3, 0.05), stats.norm(3, 0.05))  # exactly level in float64 in between
    knots = adaptive_knots(as_logits(gap), grid(-5, 5), 1)
    z = invert_logit(knots, special.logit(LEVELS)[None])
    assert np.all(np.diff(z) > 0)
    assert np.abs(gap.cdf(z) - LEVELS).max() <= knots.correction[0] + 1e-4
    assert 0 < knots.correction[0] < 1e-2


@pytest.mark.parametrize("name", CASES)
def test_the_inverse_is_exact(name, splines):
    logit = np.broadcast_to(np.linspace(-15, 15, 301), (2, 301))
    z = invert_logit(splines[name], logit)
    assert np.all(np.diff(z, axis=1) > 0)
    back, slope = evaluate_logit(splines[name], z)
    np.testing.assert_allclose(back, logit, atol=1e-9 + 1e-15 * slope.max())


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_corrected_where_the_input_increases(name, splines):
    # where the logit of a distribution is level in float64 it has to be tilted, by less than shows in a probability
    assert splines[name].correction.max() < TOLERANCE


@pytest.mark.parametrize("name", ["normal", "logistic", "skewed", "outlier"])
def test_moments_against_scipy(name, splines):
    mean, variance = inversion.moments(splines[name])
    dist = CASES[name][0]
    np.testing.assert_allclose(mean, dist.mean(), atol=2e-4 * dist.std())
    np.testing.assert_allclose(variance, dist.var(), rtol=2e-3)


def test_moments_of_a_logistic_are_exact():
    # two knots, tails included, are all of a logistic distribution: its logit is a line
    z = np.array([[-1.0, 0.5, 3.0]])
    knots = make_monotone(z, (z - 0.4) / 0.3, np.full((1, 3), 1 / 0.3))
    mean, variance = inversion.moments(knots)
    np.testing.assert_allclose(mean, 0.4, atol=1e-3)
    np.testing.assert_allclose(variance, stats.logistic(0.4, 0.3).var(), rtol=2e-2)
    np.testing.assert_allclose(
        special.expit(evaluate_logit(knots, np.array([[-9.0, 0.1, 9.0]]))[0][0]),
        stats.logistic(0.4, 0.3).cdf([-9.0, 0.1, 9.0]),
        rtol=1e-12,
    )


# ------------------------------------------------------------ monotone


def test_an_increasing_input_is_not_changed_at_all():
    z = np.linspace(-2, 2, 30)[None]
    knots = make_monotone(z, z**3 + z, 3 * z**2 + 1)
    np.testing.assert_array_equal(knots.logit, z**3 + z)
    np.testing.assert_array_equal(knots.slope, 3 * z**2 + 1)
    assert knots.correction == 0


def test_a_dip_is_lifted_and_reported_and_the_rest_is_left_alone():
    z = np.linspace(-3, 3, 61)[None]
    dip = np.exp(-(((z - 1) / 0.2) ** 2))
    knots = make_monotone(z, 2 * z - 2 * dip, 2 + 100 * (z - 1) * dip)
    assert np.all(np.diff(knots.logit) > 0)
    np.testing.assert_array_equal(knots.logit[z < -0.1], (2 * z - 2 * dip)[z < -0.1])
    assert 0.01 < knots.correction[0] < 0.5
    changed = np.abs(special.expit(knots.logit) - special.expit(2 * z - 2 * dip)).max()
    np.testing.assert_allclose(knots.correction, changed)


@pytest.mark.parametrize("value", [0.0, 3.0, -700.0])
def test_a_flat_input_becomes_a_distribution(value):
    z = np.linspace(-3, 3, 20)[None]
    knots = make_monotone(z, np.full((1, 20), value), np.zeros((1, 20)))
    assert np.all(np.diff(knots.logit) > 0)
    assert np.all(knots.slope > 0)
    assert np.all(knots.tail > 0)
    assert np.isfinite(inversion.moments(knots)).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    logit=st.lists(st.floats(-40, 40), min_size=2, max_size=12),
    slope=st.floats(-50, 50),
)
def test_anything_becomes_a_distribution(logit, slope):
    z = np.arange(len(logit), dtype=float)[None]
    raw = np.array([logit])
    knots = make_monotone(z, raw, np.full(z.shape, slope))
    assert np.all(np.diff(knots.logit) > 0)
    assert np.all(knots.slope > 0)
    assert np.all(knots.tail > 0)
    at = np.linspace(-3, len(logit) + 3, 200)[None]
    assert np.all(np.diff(evaluate_logit(knots, at)[0]) > 0)
    p = np.linspace(-30, 30, 50)[None]
    found = invert_logit(knots, p)
    assert np.all(np.diff(found) > 0)
    back, steep = evaluate_logit(knots, found)
    np.testing.assert_allclose(back, p, atol=1e-8 + 1e-13 * steep.max())
    agrees = np.all(np.diff(raw) > 1e-6)
    assert not agrees or knots.correction[0] == 0


# ------------------------------------------------------------ from quantiles


@pytest.mark.parametrize("dist", [stats.norm(2, 0.5), stats.logistic(-1, 2), stats.gumbel_r(0, 1)])
def test_a_spline_through_quantiles(dist):
    q = special.expit(np.linspace(-7.6, 7.6, 129))
    z = dist.ppf(q)[None]
    knots = inversion.knots_from_quantiles(q, z, 1 / dist.pdf(z))
    np.testing.assert_allclose(
        special.expit(evaluate_logit(knots, dist.ppf(LEVELS)[None])[0])[0], LEVELS, atol=TOLERANCE
    )
    assert knots.correction == 0


def test_quantiles_that_cross_are_put_right_and_reported():
    q = special.expit(np.linspace(-7, 7, 101))
    u = special.logit(q)[None]
    z = np.concatenate([u, u + 3 * np.exp(-(((u - 1) / 0.3) ** 2))])
    knots = inversion.knots_from_quantiles(q, z, np.ones_like(z) / (q * (1 - q)))
    assert np.all(np.diff(knots.z) > 0)
    assert knots.correction[0] == 0
    assert 0.01 < knots.correction[1] < 0.6


# ------------------------------------------------------------ averages


def test_the_average_of_distributions_is_their_mixture():
    one, other = stats.norm(-1, 0.5), stats.norm(1, 1.0)
    parts = [adaptive_knots(as_logits(d), grid(-6, 6), 3) for d in (one, other)]
    knots = inversion.average(parts)
    z = np.broadcast_to(np.linspace(-4, 4, 501), (3, 501))
    found = special.expit(evaluate_logit(knots, z)[0])
    np.testing.assert_allclose(found, (one.cdf(z) + other.cdf(z)) / 2, atol=3 * TOLERANCE)


def test_average_logits_against_the_direct_formula_also_far_out():
    rng = np.random.default_rng(0)
    logits, slopes = rng.normal(0, 3, (4, 5)), rng.uniform(0.1, 2, (4, 5))
    logit, slope = inversion.average_logits(logits, slopes)
    p = special.expit(logits)
    np.testing.assert_allclose(special.expit(logit), p.mean(0))
    np.testing.assert_allclose(slope * p.mean(0) * (1 - p.mean(0)), (p * (1 - p) * slopes).mean(0))
    far, _ = inversion.average_logits(np.array([[800.0, -800.0], [800.0, -800.0]]), np.ones((2, 2)))
    np.testing.assert_allclose(far, [800.0, -800.0])


def test_coarse_points_increase_and_cover_the_range():
    points = inversion.coarse_points(-1.0, 5.0, np.array([0.0, 0.0, 1e-9, 4.9999999, 9.0]))
    assert np.all(np.diff(points) > 0)
    assert (points[0], points[-1]) == (-1.0, 5.0)
