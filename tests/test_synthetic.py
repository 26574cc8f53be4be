"""The synthetic data against their own truth, SciPy, and the numbers printed in the paper."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, special, stats

from collabnets import metrics
from collabnets.datasets import (
    BivariateGaussian,
    CircularAverage,
    bivariate_gaussian,
    circular,
    heteroskedastic_gaussian,
    paper_splits,
    sinusoid,
    weibull,
)
from collabnets.datasets import circle as module

ONE = {"sinusoid": sinusoid, "heteroskedastic_gaussian": heteroskedastic_gaussian, "weibull": weibull}
TWO = {"bivariate_gaussian": bivariate_gaussian, "circular": circular}
one_output = pytest.mark.parametrize("make", ONE.values(), ids=ONE.keys())
two_outputs = pytest.mark.parametrize("make", TWO.values(), ids=TWO.keys())
every_set = pytest.mark.parametrize("make", (ONE | TWO).values(), ids=(ONE | TWO).keys())


# -------------------------------------------------------------------------------------------------- every set
@every_set
def test_shapes_and_names(make):
    data = make(50)
    assert data.X.shape == (50, len(data.feature_names))
    assert data.X.dtype == data.y.dtype == np.float64
    assert len(data.y) == len(data.truth) == 50
    assert len(make().y) == {sinusoid: 100, bivariate_gaussian: 2000, circular: 5000}.get(make, 1000)


@every_set
def test_seeds_are_reproducible(make):
    first, again, other = make(40), make(40), make(40, random_state=1)
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.y, again.y)
    assert np.any(first.y != other.y)
    by_generator = make(40, random_state=np.random.RandomState(1))
    np.testing.assert_array_equal(other.y, by_generator.y)
    assert np.any(make(40, random_state=None).y != make(40, random_state=None).y)


@every_set
def test_truth_takes_any_rows_and_columns_by_name(make):
    data = make(30)
    rows = [3, 7, 7]
    point = np.zeros(2) if data.y.ndim == 2 else 0.4
    expected = data.truth.cdf(point)[rows]
    np.testing.assert_array_equal(data.truth_at(data.X[rows]).cdf(point), expected)
    frame = pd.DataFrame(data.X, columns=list(data.feature_names)).iloc[rows, ::-1]
    np.testing.assert_array_equal(data.truth_at(frame).cdf(point), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(data)).truth.cdf(point), data.truth.cdf(point))
    with pytest.raises(ValueError, match="no column"):
        data.truth_at(frame.rename(columns={data.feature_names[0]: "other"}))
    with pytest.raises(ValueError, match="columns"):
        data.truth_at(data.X[:, 0])
    with pytest.raises(ValueError, match="NaN"):
        data.truth_at(np.full_like(data.X, np.nan))


@pytest.mark.parametrize("n", [0, -1, 2.5, True])
def test_a_bad_number_of_rows_is_refused(n):
    with pytest.raises(ValueError, match="number of rows"):
        weibull(n)


# ------------------------------------------------------------------------------------------------- one output
@one_output
def test_truth_agrees_with_the_outcomes(make):
    data = make(20_000, random_state=4)
    assert stats.kstest(metrics.pit(data.y, data.truth), "uniform").pvalue > 0.01
    error = (data.y - data.truth.mean()) / data.truth.standard_deviation()
    assert abs(error.mean()) < 4 / np.sqrt(20_000)
    assert abs(np.mean(error**2) - 1) < 0.06
    observed = metrics.calibration_curve(data.y, data.truth, levels=[0.05, 0.5, 0.95]).observed
    np.testing.assert_allclose(observed, [0.05, 0.5, 0.95], atol=0.015)


@one_output
def test_truth_agrees_with_its_samples(make):
    truth = make(5).truth
    draws = truth.sample(40_000, rng=1)
    np.testing.assert_allclose(draws.mean(axis=0), truth.mean(), atol=0.05)
    np.testing.assert_allclose(np.quantile(draws, [0.1, 0.5, 0.9], axis=0).T, truth.icdf([0.1, 0.5, 0.9]), atol=0.08)


def test_sinusoid_grid():
    data = sinusoid()
    np.testing.assert_allclose(data.X[:, 0], np.linspace(-0.5, 0.5, 100))
    mean = np.sin(4 * np.pi * data.X[:, 0])
    np.testing.assert_allclose(data.truth.mean(), mean, atol=1e-15)
    np.testing.assert_allclose(data.truth.standard_deviation(), 0.5 + 0.3 * mean, rtol=1e-12)
    assert len(np.unique(np.diff(np.sort(sinusoid(equally_spaced=False).X[:, 0])).round(9))) > 50


def test_gaussian_rows_are_the_authors():
    """The authors' notebook prints these statistics of its 1,000 outcomes."""
    y = heteroskedastic_gaussian().y
    assert y.min() == pytest.approx(-7.80706614, abs=1e-8)
    assert y.max() == pytest.approx(9.29692822, abs=1e-8)
    assert y.mean() == pytest.approx(-0.05449282, abs=1e-8)
    assert y.var(ddof=1) == pytest.approx(5.94032471, abs=1e-8)


def test_gaussian_features_have_variance_four_and_the_range_of_the_text():
    X = heteroskedastic_gaussian(50_000).X
    assert X[:, 0].var() == pytest.approx(4, rel=0.03)
    assert 0.5 <= X[:, 1].min() < 0.51
    assert 2.49 < X[:, 1].max() <= 2.5


def test_weibull_features():
    data = weibull(50_000)
    for column, (low, high) in zip(data.X.T, [(0.5, 2.0), (1.0, 5.0)], strict=True):
        assert low <= column.min() < low + 0.01
        assert high - 0.01 < column.max() <= high
    np.testing.assert_allclose(
        weibull(5).truth.ccdf(1.0), np.exp(-((1 / weibull(5).X[:, 0]) ** weibull(5).X[:, 1])), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("make", "paper"),
    [
        (
            heteroskedastic_gaussian,
            {"gof": (-1.668, 0.037), "cal": (1.535, 0.388), "coverage": (87.767, 1.651)},
        ),
        (weibull, {"gof": (-1.816, 0.032), "cal": (2.169, 0.874), "coverage": (86.700, 1.402)}),
    ],
)
def test_the_truth_of_tables_1_and_2(make, paper):
    """TH over ten splits stays near the paper's mean: its splits are not ours, its rows are."""
    data = make()
    ours = {"gof": [], "cal": [], "coverage": []}
    for _, test in paper_splits(1000):
        y, truth = data.y[test], data.truth[test]
        ours["gof"].append(metrics.gof(y, truth))
        ours["cal"].append(100 * metrics.calibration_error(y, truth))
        ours["coverage"].append(100 * metrics.coverage(y, truth))
    for name, (mean, spread) in paper.items():
        assert abs(np.mean(ours[name]) - mean) < spread, (name, np.mean(ours[name]), np.std(ours[name]))


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="sigma is positive"):
        heteroskedastic_gaussian().truth_at([[0.0, -1.0]])
    with pytest.raises(ValueError, match="scale is positive"):
        weibull().truth_at([[0.0, 1.0]])
    with pytest.raises(ValueError, match="kappa is positive"):
        circular(3).truth_at([[0.0, 1.0]])
    with pytest.raises(ValueError, match="rho"):
        bivariate_gaussian(3, rho=1.0)


# ------------------------------------------------------------------------------------------------ two outputs
POINTS = np.array([[0.3, 0.2], [-0.2, 0.5], [0.0, 0.0], [0.7, -0.3], [0.9, 0.9], [0.0, 0.6], [-0.8, -0.7]])


@two_outputs
def test_joint_cdf_against_samples(make):
    truth = make(4).truth
    draws = truth.sample(60_000, rng=2)
    assert draws.shape == (60_000, 4, 2)
    frequency = np.mean(np.all(draws[:, :, None, :] <= POINTS, axis=-1), axis=0)
    np.testing.assert_allclose(truth.cdf(POINTS), frequency, atol=4.5 * 0.5 / np.sqrt(60_000))
    np.testing.assert_array_equal(draws, truth.sample(60_000, rng=2))
    np.testing.assert_allclose(draws.mean(axis=0), truth.mean(), atol=0.04)
    for i in range(4):
        np.testing.assert_allclose(np.cov(draws[:, i].T), truth.covariance()[i], atol=0.06)


@two_outputs
def test_marginals_are_the_limits_of_the_joint_cdf(make):
    truth = make(4).truth
    z = np.array([-0.6, 0.05, 0.4])
    for output in (0, 1):
        points = np.full((3, 2), 1e6)
        points[:, output] = z
        np.testing.assert_allclose(truth.cdf(points), truth.marginal(output).cdf(z), atol=1e-10)


@two_outputs
def test_outcomes_agree_with_marginals_and_conditionals(make):
    """y_1 given x, and y_2 given y_1 and x: the two steps of the paper's chain."""
    data = make(1500, random_state=11)
    for output in (0, 1):
        y, other = data.y[:, output], data.y[:, 1 - output]
        assert stats.kstest(metrics.pit(y, data.truth.marginal(output)), "uniform").pvalue > 0.01
        assert stats.kstest(metrics.pit(y, data.truth.conditional(output, other)), "uniform").pvalue > 0.01


@two_outputs
def test_parts_keep_the_laws_of_a_distribution(make):
    truth = make(4).truth
    q = np.array([0.001, 0.2, 0.5, 0.77, 0.999])
    for output in (0, 1):
        for part in (truth.marginal(output), truth.conditional(output, np.array([0.1, -0.4, 0.8, -1e-3]))):
            z = part.icdf(q)
            np.testing.assert_allclose(part.cdf(z), np.tile(q, (4, 1)), atol=1e-9)
            at = part.icdf(np.array([0.1, 0.4, 0.8]))
            h = 1e-6 * (part.support().upper - part.support().lower)[:, None]
            h = np.where(np.isfinite(h), h, 1e-5)
            slope = (part.cdf(at + h) - part.cdf(at - h)) / (2 * h)
            np.testing.assert_allclose(part.pdf(at), slope, rtol=1e-4)
            low, high = np.broadcast_arrays(part.icdf(1e-12)[:, None], part.icdf(1 - 1e-12)[:, None])
            grid = np.linspace(low[:, 0], high[:, 0], 50, axis=1)
            assert np.all(np.diff(part.cdf(grid), axis=1) >= -1e-12)
            np.testing.assert_allclose(part[[2]].cdf(0.3), part.cdf(0.3)[[2]], rtol=1e-12)


@two_outputs
def test_moments_of_the_marginals_are_those_of_the_joint(make):
    truth = make(3).truth
    for output in (0, 1):
        part = truth.marginal(output)
        np.testing.assert_allclose(part.mean(), truth.mean()[:, output], atol=1e-12)
        np.testing.assert_allclose(part.variance(), truth.covariance()[:, output, output], rtol=1e-12)


@two_outputs
def test_density_times_marginal_is_joint(make):
    truth = make(3).truth
    for output in (0, 1):
        other = truth.marginal(1 - output).pdf(POINTS[:, 1 - output])
        for t, z in enumerate(POINTS):
            if np.all(z != 0):
                part = truth.conditional(output, z[1 - output]).pdf(z[output])
                np.testing.assert_allclose(part * other[:, t], truth.pdf(z), rtol=1e-9)


@two_outputs
def test_points_go_by_dimension(make):
    truth = make(3).truth
    assert truth.cdf([0.1, 0.2]).shape == (3,)
    assert truth.cdf([[0.1, 0.2]]).shape == (3, 1)
    own = np.random.default_rng(0).uniform(-0.5, 0.5, (3, 2))
    np.testing.assert_allclose(
        truth.cdf(own[:, None, :])[:, 0], [truth[i].cdf(own[i])[0] for i in range(3)], rtol=1e-12
    )
    assert repr(truth).endswith("(3 rows)")
    for bad in ([1.0], np.zeros((2, 1, 2)), np.zeros((1, 1, 1, 2))):
        with pytest.raises(ValueError, match="points have shape"):
            truth.cdf(bad)
    with pytest.raises(ValueError, match="NaN"):
        truth.cdf([0.0, np.nan])
    with pytest.raises(ValueError, match="output is 0 or 1"):
        truth.marginal(2)
    with pytest.raises(ValueError, match="given output"):
        truth.conditional(0, [0.1, 0.2])


@pytest.mark.parametrize("rho", [-0.95, 0.0, 0.5, 0.99])
def test_bivariate_gaussian_against_scipy(rho):
    truth = bivariate_gaussian(3, rho=rho).truth
    points = np.array([[0.0, 0.0], [1.0, -1.0], [-2.0, 3.0], [8.0, 1.0], [-3.0, -2.0]])
    for i in range(3):
        reference = stats.multivariate_normal(truth.mean()[i], truth.covariance()[i])
        np.testing.assert_allclose(truth[i].cdf(points)[0], [reference.cdf(z) for z in points], atol=1e-9)
        np.testing.assert_allclose(truth[i].logpdf(points)[0], reference.logpdf(points), rtol=1e-10)
    np.testing.assert_allclose(truth.cdf([np.inf, np.inf]), 1.0)
    np.testing.assert_allclose(truth.cdf([-np.inf, np.inf]), 0.0, atol=1e-15)


def test_the_bivariate_example_of_the_paper_has_standard_deviation_two():
    """The paper's N(0, 2): its printed example is seed 2021 with 2 as the standard deviation."""
    X = bivariate_gaussian(1, random_state=2021).X[0]
    np.testing.assert_allclose(X, [2.977, 1.352, 1.139, 1.312], atol=1e-3)
    assert bivariate_gaussian(50_000).X[:, 0].std() == pytest.approx(2, rel=0.02)


def test_the_circular_example_of_the_paper_is_seed_2021():
    rng = np.random.RandomState(2021)
    np.testing.assert_allclose(rng.uniform(0.5, 2.0, 2), [1.409, 1.600], atol=1e-3)
    assert circular(5).X[0, 0] == pytest.approx(1.409, abs=1e-3)


def test_circular_outcomes_stay_in_the_disc():
    y = circular(3000).y
    assert np.hypot(*y.T).max() <= 1
    truth = circular(3).truth
    assert np.all(truth.logpdf([0.9, 0.9]) == -np.inf)
    assert np.all(truth.logpdf([0.0, 0.0]) == np.inf)
    np.testing.assert_allclose(truth.cdf([1.0, 1.0]), 1.0, rtol=1e-12)
    np.testing.assert_allclose(truth.cdf([-1.0, 1.0]), 0.0, atol=1e-12)


@pytest.mark.parametrize("z", [(0.3, 0.2), (-0.3, 0.6), (0.6, -0.1)])
def test_circular_joint_cdf_against_its_density(z):
    """The cdf comes from the angles, the density from the change of variables: two ways to one number."""
    truth = CircularAverage(np.array([[1.409, 1.6]]))

    def mass(y1):
        return truth.marginal(0).pdf(y1)[0] * truth.conditional(1, y1).cdf(z[1])[0]

    ends = [-1 + 1e-13, min(z[0], -1e-13)] + ([1e-13, z[0]] if z[0] > 0 else [])
    total = sum(integrate.quad(mass, *ends[i : i + 2], epsabs=1e-8, limit=100)[0] for i in range(0, len(ends), 2))
    assert total == pytest.approx(truth.cdf(z)[0], abs=1e-7)


def test_circular_cdf_has_converged(monkeypatch):
    truth = circular(2).truth
    z = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    z[:50] *= [0.01, 1.0]
    value = truth.cdf(z)
    monkeypatch.setattr(module, "_SEGMENT_NODES", 150)
    np.testing.assert_allclose(value, truth.cdf(z), atol=1e-9)


def test_circular_conditionals_near_the_centre():
    part = CircularAverage(np.array([[1.2, 0.6]])).conditional(1, 1e-7)
    np.testing.assert_allclose(part.cdf(part.icdf([0.1, 0.3, 0.8])), [[0.1, 0.3, 0.8]], atol=1e-9)
    assert part.cdf(0.0)[0] == pytest.approx(0.5, abs=1e-9)
    for given in (0.0, 1.0, -1.5):
        with pytest.raises(ValueError, match="strictly between"):
            circular(2).truth.conditional(0, given)


def test_amplitude_against_scipy():
    w, given = np.linspace(0, 3, 40)[None], np.array([[0.9], [0.3], [0.01]])
    np.testing.assert_allclose(module._amplitude(w, given), special.ellipj(w, 1 - given**2)[3], atol=1e-10)


def test_gaussian_conditional_from_the_formula():
    truth = BivariateGaussian(np.array([[1.0, 2.0]]), np.array([[1.0, 3.0]]), 0.5)
    part = truth.conditional(1, 2.0)
    assert part.mean()[0] == pytest.approx(2 + 0.5 * 3 * 1.0)
    assert part.variance()[0] == pytest.approx(9 * 0.75)


# ----------------------------------------------------------------------------------------------------- splits
def test_paper_splits():
    splits = list(paper_splits(1000))
    assert len(splits) == 10
    for train, test in splits:
        assert len(train) == 700
        assert len(test) == 300
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(1000))
    np.testing.assert_array_equal(splits[0][1], np.random.RandomState(2021).permutation(1000)[:300])
    for (a, _), (b, _) in zip(splits, paper_splits(1000), strict=True):
        np.testing.assert_array_equal(a, b)
    assert [len(test) for _, test in paper_splits(7, 2, train=0.6)] == [2, 2]


def test_bad_splits_are_refused():
    with pytest.raises(ValueError, match="share of rows"):
        paper_splits(10, train=1.0)
    with pytest.raises(ValueError, match="take more rows"):
        paper_splits(1)
