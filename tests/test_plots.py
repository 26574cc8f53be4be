"""Every picture: what is drawn is what the distribution says, and axes and legend say what it is."""

import builtins

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from collabnets import metrics, plots
from collabnets.distribution import ScipyDistribution
from collabnets.training import Losses

N = 40
MU = np.linspace(-3.0, 3.0, N)
SIGMA = np.linspace(0.5, 2.0, N)
TRUTH = ScipyDistribution(stats.norm, loc=MU, scale=SIGMA)
DIST = ScipyDistribution(stats.norm, loc=MU[::-1] / 2, scale=1.2 * SIGMA)
Y = TRUTH.sample(1, rng=0)[0]


def history(n_pretrain=250, n_joint=130, members=2, looks=0):
    rng = np.random.default_rng(0)
    return Losses(
        rng.random((n_pretrain, members)),
        rng.random((n_joint, members)),
        rng.random((n_joint, members)),
        rng.random((looks, members)),
        np.arange(1, looks + 1) * 50,
    )


PICTURES = {
    "cdf": lambda **more: plots.plot_cdf(DIST[:3], TRUTH[:3], **more),
    "intervals": lambda **more: plots.plot_intervals(Y, DIST, TRUTH, **more),
    "width": lambda **more: plots.plot_width(DIST, TRUTH, **more),
    "calibration": lambda **more: plots.plot_calibration(Y, DIST, **more),
    "sharpness": lambda **more: plots.plot_sharpness(Y, DIST, **more),
    "pit": lambda **more: plots.plot_pit(Y, DIST, **more),
    "losses": lambda **more: plots.plot_losses(history(looks=3), **more),
}


def line(ax, label):
    """Give the data of the one line with a label."""
    (found,) = [a for a in ax.lines if a.get_label() == label]
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


@pytest.mark.parametrize("name", PICTURES)
def test_axes_are_labelled_and_have_a_legend(name):
    ax = PICTURES[name]()
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert len(ax.get_legend().get_texts()) >= 1


@pytest.mark.parametrize("name", PICTURES)
def test_draws_on_the_axes_it_is_given_and_can_be_saved(name, tmp_path):
    figure = Figure()
    mine = figure.subplots()
    assert PICTURES[name](ax=mine) is mine
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 0


def test_cdf_draws_the_cdf_of_each_row_and_of_the_truth():
    ax = plots.plot_cdf(DIST[[4, 9]], TRUTH[[4, 9]], labels=["a", "b"], unit="time [s]")
    for i, label in enumerate(["a", "b"]):
        z, p = line(ax, label)
        np.testing.assert_allclose(p, DIST[[4, 9]].cdf(z)[i])
    z, p = line(ax, "truth")
    np.testing.assert_allclose(p, TRUTH[4].cdf(z)[0])
    assert ax.get_xlabel() == "time [s]"
    assert ax.get_ylabel() == "P(time ≤ value)"


def test_intervals_are_the_distributions_sorted_by_median():
    ax = plots.plot_intervals(Y, DIST, TRUTH, coverage=0.8, unit="y [m]")
    order = np.argsort(DIST.median())
    drawn = np.array([segment[:, 1] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(drawn, DIST.interval(0.8)[order])
    np.testing.assert_allclose(line(ax, "predicted median")[1], DIST.median()[order])
    np.testing.assert_allclose(line(ax, "ends of the true 80 % interval")[1], TRUTH.interval(0.8)[order, 0])
    outside = N - round(N * metrics.coverage(Y, DIST, 0.8))
    assert len(line(ax, f"outside: {100 * outside / N:.3g} %")[1]) == outside
    assert len(line(ax, f"inside: {100 * (N - outside) / N:.3g} %")[1]) == N - outside
    assert ax.get_ylabel() == "y [m]"


def test_width_puts_the_true_width_across_and_the_predicted_one_up():
    ax = plots.plot_width(DIST, TRUTH, coverage=0.5, label="mine")
    across, up = line(ax, "mine")
    np.testing.assert_allclose(across, np.diff(TRUTH.interval(0.5), axis=1)[:, 0])
    np.testing.assert_allclose(up, np.diff(DIST.interval(0.5), axis=1)[:, 0])
    across, up = line(ax, "predicted = true")
    np.testing.assert_array_equal(across, up)


def test_calibration_and_sharpness_draw_the_metrics_and_compare_methods():
    ax = plots.plot_calibration(Y, DIST, label="one")
    plots.plot_calibration(Y, TRUTH, label="two", ax=ax)
    for label, dist in {"one": DIST, "two": TRUTH}.items():
        np.testing.assert_allclose(line(ax, label), metrics.calibration_curve(Y, dist))
    assert len(ax.get_legend().get_texts()) == 4  # the diagonal and the band once, two methods
    ax = plots.plot_sharpness(Y, DIST, label="one")
    plots.plot_sharpness(Y, TRUTH, label="two", ax=ax)
    for label, dist in {"one": DIST, "two": TRUTH}.items():
        curve = metrics.sharpness_curve(Y, dist)
        np.testing.assert_allclose(line(ax, label), (curve.empirical, curve.width))


def test_pit_draws_the_shares():
    ax = plots.plot_pit(Y, DIST)
    (stairs,) = ax.patches
    np.testing.assert_allclose(stairs.get_data().values, metrics.pit_histogram(Y, DIST).share)


def test_losses_are_means_over_windows_and_members():
    losses = history()
    ax = plots.plot_losses(losses, window=100)
    at, value = line(ax, "g, pre-training")
    np.testing.assert_array_equal(at, [100, 200, 250])
    np.testing.assert_allclose(value, [losses.pretrain[a:b].mean() for a, b in ((0, 100), (100, 200), (200, 250))])
    at, value = line(ax, "f, joint")
    np.testing.assert_array_equal(at, [350, 380])
    np.testing.assert_allclose(value, [losses.joint_f[:100].mean(), losses.joint_f[100:].mean()])


def test_losses_of_g_alone_have_one_curve():
    labels = [text.get_text() for text in plots.plot_losses(history(n_joint=0)).get_legend().get_texts()]
    assert labels == ["g, pre-training"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.plot_cdf(DIST), "at most 10 rows"),
        (lambda: plots.plot_cdf(DIST[:3], TRUTH[:2]), "truth has 2 entries for 3"),
        (lambda: plots.plot_cdf(DIST[:3], labels=["a"]), "labels has 1 entries for 3"),
        (lambda: plots.plot_intervals(Y[:5], DIST), "y has 5 entries for 40"),
        (lambda: plots.plot_width(DIST, TRUTH[:5]), "truth has 5 entries for 40"),
        (lambda: plots.plot_losses(history(), window=0), "at least 1, not 0"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(ImportError, match=r"pip install 'collabnets\[plots\]'"):
        plots.plot_pit(Y, DIST)
