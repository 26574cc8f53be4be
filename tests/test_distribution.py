"""The distributions that are not networks, against SciPy, and the face that all of them have."""

import numpy as np
import pytest
from scipy import stats

from collabnets.distribution import PointMass, PredictiveDistribution, ScipyDistribution

MU, SIGMA = np.array([0.0, 5.0, -3.0]), np.array([1.0, 0.1, 7.0])
FAMILIES = {
    "normal": (stats.norm, {"loc": MU, "scale": SIGMA}),
    "t": (stats.t, {"df": np.array([3.0, 5.0, 30.0]), "loc": MU}),
    "gamma": (stats.gamma, {"a": np.array([0.5, 2.0, 9.0]), "scale": 2.0}),
    "weibull": (stats.weibull_min, {"c": np.array([1.0, 2.0, 3.0]), "scale": SIGMA}),
    "uniform": (stats.uniform, {"loc": MU, "scale": SIGMA}),
}
every_family = pytest.mark.parametrize("name", FAMILIES)


class ByQuantiles(PredictiveDistribution):
    """Only what must be implemented; everything else is the base class's."""

    def __init__(self, other):
        self.other = other

    def __len__(self):
        return len(self.other)

    def _take(self, index):
        return type(self)(self.other[index])

    def _cdf(self, z):
        return self.other._cdf(z)

    def _icdf(self, q):
        return self.other._icdf(q)

    def _logpdf(self, z):
        return self.other._logpdf(z)


def both(name):
    family, parameters = FAMILIES[name]
    return ScipyDistribution(family, **parameters), family(**parameters)


@every_family
def test_the_verbs_are_those_of_scipy(name):
    dist, reference = both(name)
    z = reference.ppf(0.3)[:, None] + np.array([[0.0, 0.05, 0.1]])
    columns = {k: np.broadcast_to(v, 3)[:, None] for k, v in FAMILIES[name][1].items()}
    frozen = FAMILIES[name][0](**columns)
    for verb, other in (("cdf", "cdf"), ("ccdf", "sf"), ("pdf", "pdf"), ("logpdf", "logpdf")):
        np.testing.assert_allclose(getattr(dist, verb)(z), getattr(frozen, other)(z), rtol=1e-12)
    np.testing.assert_allclose(dist.icdf([0.1, 0.9]), frozen.ppf([0.1, 0.9]))
    np.testing.assert_allclose(dist.mean(), reference.mean())
    np.testing.assert_allclose(dist.variance(), reference.var())
    np.testing.assert_allclose(dist.median(), reference.median())
    np.testing.assert_allclose(np.stack(dist.support()), np.broadcast_to(np.stack(reference.support()), (2, 3)))


@every_family
def test_moments_that_the_base_class_integrates(name):
    dist, reference = both(name)
    heavy = name == "t"
    np.testing.assert_allclose(ByQuantiles(dist).mean(), reference.mean(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ByQuantiles(dist).variance(), reference.var(), rtol=0.02 if heavy else 1e-5)


@every_family
def test_samples_are_draws_from_the_distribution(name):
    dist, _ = both(name)
    draws = dist.sample(4000, rng=0)
    u = dist.cdf(draws.T)
    assert min(stats.kstest(row, "uniform").pvalue for row in u) > 1e-4


def test_samples_differ_by_seed_row_and_draw():
    dist, _ = both("normal")
    a, b = dist.sample(5, rng=0), dist.sample(5, rng=1)
    assert a.shape == (5, 3)
    assert len(np.unique(np.concatenate([a, b]))) == 30
    generator = np.random.default_rng(0)
    np.testing.assert_array_equal(dist.sample(5, rng=generator), a)
    assert np.any(dist.sample(5, rng=generator) != a)
    assert dist.sample(0).shape == (0, 3)
    assert dist.sample().shape == (1, 3)


def test_probabilities_between_two_points_keep_their_digits_in_both_tails():
    dist = ScipyDistribution(stats.norm, loc=np.zeros(2))
    for a, b in ((-11.0, -10.0), (10.0, 11.0)):
        np.testing.assert_allclose(dist.cdf(a, b), stats.norm.cdf(-10) - stats.norm.cdf(-11), rtol=1e-10)
    assert dist.cdf(1.0, 1.0).tolist() == [0, 0]
    assert dist.cdf([-1.0, 0.0], [1.0, 0.5]).shape == (2, 2)
    assert dist.cdf([-1.0, 0.0], 0.5).shape == (2, 2)
    assert dist.cdf(np.zeros((2, 1)), 0.5).shape == (2, 1)


def test_a_point_mass():
    dist = PointMass(np.array([2.0, -1.0]))
    assert dist.cdf([-1.0, 1.9, 2.0]).tolist() == [[0, 0, 1], [1, 1, 1]]
    assert dist.ccdf(2.0).tolist() == [0, 0]
    assert dist.cdf(1.0, 2.0).tolist() == [1, 0]
    assert dist.icdf([0.0, 0.5, 1.0]).tolist() == [[2, 2, 2], [-1, -1, -1]]
    assert dist.mean().tolist() == dist.median().tolist() == [2, -1]
    assert dist.variance().tolist() == [0, 0]
    assert dist.interval(0.9).tolist() == [[2, 2], [-1, -1]]
    assert dist.sample(3).tolist() == [[2, -1]] * 3
    assert [end.tolist() for end in dist.support()] == [[2, -1], [2, -1]]
    assert dist.pdf(2.0).tolist() == [np.inf, 0]
    assert dist[1].value.tolist() == [-1]


def test_lengths_and_rows():
    dist, _ = both("gamma")
    assert len(dist) == 3
    assert len(dist[0]) == len(dist[np.int64(2)]) == len(dist[-1]) == 1
    assert len(dist[np.array([False, False, False])]) == 0
    assert repr(dist) == "ScipyDistribution(3 rows)"
    with pytest.raises(IndexError):
        dist[3]
