"""Pictures of predictive distributions: each function draws on one Matplotlib Axes, its own or yours, and returns it.

Matplotlib is imported when a picture is drawn and not before; it comes with the extra ``collabnets[plots]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from collabnets import metrics
from collabnets.distribution import PredictiveDistribution
from collabnets.training import Losses

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRUTH = "0.15"
INSIDE, OUTSIDE = "tab:blue", "tab:red"
MOST_CURVES = 10


def new_figure(width: float, height: float) -> Figure:
    """Give an empty figure, in inches, that needs no display."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plots need Matplotlib, which is not installed; install it with: pip install 'collabnets[plots]'"
        ) from error
    return Figure((width, height), layout="constrained")


def plot_cdf(
    dist: PredictiveDistribution,
    truth: PredictiveDistribution | None = None,
    *,
    labels: Sequence[str] | None = None,
    unit: str = "y",
    ax: Axes | None = None,
) -> Axes:
    """Draw the CDF of each row; take a few rows, ``dist[:3]``.

    Parameters
    ----------
    dist
        Distributions of at most 10 rows.
    truth
        True distributions of the same rows, drawn dashed.
    labels
        One name a row for the legend.
    unit
        Name, and unit, of the outcome.
    ax
        Where to draw.
    """
    if len(dist) > MOST_CURVES:
        raise ValueError(f"{len(dist)} curves cannot be told apart; pick at most {MOST_CURVES} rows, such as dist[:3].")
    _same_length(dist, truth, "truth")
    labels = [f"row {i}" for i in range(len(dist))] if labels is None else labels
    _same_length(dist, labels, "labels")
    ax = _axes(ax)
    z = np.linspace(dist.icdf(0.002).min(), dist.icdf(0.998).max(), 401)
    for i, (curve, label) in enumerate(zip(dist.cdf(z), labels, strict=True)):
        ax.plot(z, curve, color=f"C{i}", label=label)
    if truth is not None:
        for i, curve in enumerate(truth.cdf(z)):
            ax.plot(z, curve, color=TRUTH, linestyle="--", linewidth=1.2, label="truth" if i == 0 else None)
    ax.set(xlabel=unit, ylabel=f"P({_name(unit)} ≤ value)", ylim=(-0.02, 1.02))
    ax.legend()
    return ax


def plot_intervals(
    y: ArrayLike,
    dist: PredictiveDistribution,
    truth: PredictiveDistribution | None = None,
    *,
    coverage: float = 0.9,
    unit: str = "y",
    ax: Axes | None = None,
) -> Axes:
    """Draw the interval of each row, sorted by predicted median, with its outcome.

    Parameters
    ----------
    y
        Outcomes (n,).
    dist
        Their predicted distributions.
    truth
        True distributions; the ends of their intervals are drawn as dashes.
    coverage
        Level of the intervals.
    unit
        Name, and unit, of the outcome.
    ax
        Where to draw.
    """
    y = np.asarray(y, float)
    _same_length(dist, y, "y")
    _same_length(dist, truth, "truth")
    ax = _axes(ax)
    median = dist.median()
    order = np.argsort(median, kind="stable")
    low, high = dist.interval(coverage)[order].T
    y, at = y[order], np.arange(len(order))
    inside = (low < y) & (y < high)
    ax.vlines(at, low, high, color=INSIDE, alpha=0.35, linewidth=2.0, label=f"predicted {_percent(coverage)} interval")
    ax.plot(at, median[order], color=INSIDE, linewidth=1.2, label="predicted median")
    if truth is not None:
        for k, end in enumerate(truth.interval(coverage)[order].T):
            label = f"ends of the true {_percent(coverage)} interval" if k == 0 else None
            ax.plot(at, end, color=TRUTH, marker="_", linestyle="none", markersize=4, label=label)
    ax.plot(
        at[inside], y[inside], color=INSIDE, marker=".", linestyle="none", label=f"inside: {_percent(inside.mean())}"
    )
    ax.plot(
        at[~inside],
        y[~inside],
        color=OUTSIDE,
        marker=".",
        linestyle="none",
        label=f"outside: {_percent(1.0 - inside.mean())}",
    )
    ax.set(xlabel="rows, sorted by predicted median", ylabel=unit)
    ax.legend()
    return ax


def plot_width(
    dist: PredictiveDistribution,
    truth: PredictiveDistribution,
    *,
    coverage: float = 0.9,
    label: str | None = None,
    unit: str = "y",
    ax: Axes | None = None,
) -> Axes:
    """Draw predicted against true interval widths, one point a row (Figure 4 of the paper).

    Parameters
    ----------
    dist, truth
        Predicted and true distributions of the same rows.
    coverage
        Level of the intervals.
    label
        Name of the method for the legend.
    unit
        Name, and unit, of the outcome.
    ax
        Where to draw.
    """
    _same_length(dist, truth, "truth")
    ax = _axes(ax)
    predicted, true = (np.diff(d.interval(coverage), axis=1)[:, 0] for d in (dist, truth))
    ends = [min(predicted.min(), true.min()), max(predicted.max(), true.max())]
    ax.plot(ends, ends, color=TRUTH, linestyle="--", linewidth=1.2, label="predicted = true")
    ax.plot(true, predicted, marker=".", linestyle="none", alpha=0.6, label=label or "one row each")
    ax.set(
        xlabel=f"true width of the {_percent(coverage)} interval of {unit}",
        ylabel=f"predicted width of the {_percent(coverage)} interval of {unit}",
    )
    ax.legend()
    return ax


def plot_calibration(
    y: ArrayLike, dist: PredictiveDistribution, *, label: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw how many outcomes stay below each predicted quantile; the diagonal is calibration.

    The band holds 95 % of what a calibrated model would show at each level on this many independent rows.

    Parameters
    ----------
    y
        Outcomes (n,).
    dist
        Their predicted distributions.
    label
        Name of the method for the legend.
    ax
        Where to draw; call again on the same one to compare methods.
    """
    fresh = ax is None or not ax.has_data()
    ax = _axes(ax)
    curve = metrics.calibration_curve(y, dist)
    if fresh:
        n, q = len(dist), np.linspace(0.0, 1.0, 201)
        low, high = stats.binom(n, q).interval(0.95)
        ax.fill_between(q, low / n, high / n, color="0.9", label=f"95 % of calibrated models, {n} rows")
        ax.plot([0, 1], [0, 1], color=TRUTH, linestyle="--", linewidth=1.2, label="calibrated")
    ax.plot(curve.nominal, curve.observed, marker=".", label=label or "model")
    ax.set(xlabel="quantile level", ylabel="share of outcomes at or below the quantile")
    ax.legend()
    return ax


def plot_sharpness(
    y: ArrayLike, dist: PredictiveDistribution, *, label: str | None = None, unit: str = "y", ax: Axes | None = None
) -> Axes:
    """Draw median interval width over empirical coverage; of two methods the sharper one has the lower curve.

    Parameters
    ----------
    y
        Outcomes (n,).
    dist
        Their predicted distributions.
    label
        Name of the method for the legend.
    unit
        Name, and unit, of the outcome.
    ax
        Where to draw; call again on the same one to compare methods.
    """
    ax = _axes(ax)
    curve = metrics.sharpness_curve(y, dist)
    ax.plot(curve.empirical, curve.width, marker=".", label=label or "model")
    ax.set(xlabel="share of outcomes inside the interval", ylabel=f"median width of the interval of {unit}")
    ax.legend()
    return ax


def plot_pit(y: ArrayLike, dist: PredictiveDistribution, *, label: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw the histogram of F(y): flat when calibrated, a hump when too wide, a bowl when too narrow.

    Parameters
    ----------
    y
        Outcomes (n,).
    dist
        Their predicted distributions.
    label
        Name of the method for the legend.
    ax
        Where to draw.
    """
    fresh = ax is None or not ax.has_data()
    ax = _axes(ax)
    histogram = metrics.pit_histogram(y, dist)
    if fresh:
        ax.axhline(histogram.expected, color=TRUTH, linestyle="--", linewidth=1.2, label="calibrated")
    ax.stairs(histogram.share, histogram.edges, fill=True, alpha=0.5, label=label or "model")
    ax.set(xlabel="predicted probability of a smaller outcome, F(y)", ylabel="share of rows")
    ax.legend()
    return ax


def plot_losses(history: Losses, *, window: int = 100, ax: Axes | None = None) -> Axes:
    """Draw the losses of a fit, ``model.history_``, each averaged over ``window`` iterations and all members.

    Once f inverts g, the joint loss of g at uniform levels settles near 0.5, the mean of
    -q log q - (1 - q) log(1 - q).

    Parameters
    ----------
    history
        The attribute ``history_`` of a fitted model.
    window
        Iterations a point.
    ax
        Where to draw.
    """
    if window < 1:
        raise ValueError(f"window is a number of iterations, at least 1, not {window}.")
    ax = _axes(ax)
    n_pretrain = len(history.pretrain)
    curves = [
        ("g, pre-training", history.pretrain, 0, "tab:blue"),
        ("g, joint", history.joint_g, n_pretrain, "tab:green"),
        ("f, joint", history.joint_f, n_pretrain, "tab:orange"),
    ]
    for label, loss, first, color in curves:
        if len(loss):
            starts = np.arange(0, len(loss), window)
            size = np.diff(np.append(starts, len(loss)))
            ax.plot(
                first + starts + size,
                np.add.reduceat(loss.mean(1), starts) / size,
                color=color,
                label=label,
            )
    if len(history.held_out):
        at = history.held_out_iteration
        ax.plot(at, history.held_out.mean(1), color=TRUTH, linewidth=1.2, linestyle=":", label="held-out rows")
    if len(history.joint_g):
        ax.axhline(0.5, color="0.6", linestyle="--", linewidth=1.0, label="0.5")
    ax.set(xlabel="iteration", ylabel="loss")
    ax.legend()
    return ax


def _axes(ax: Axes | None) -> Axes:
    return new_figure(6.0, 4.5).subplots() if ax is None else ax


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"


def _name(unit: str) -> str:
    return unit.split(" [")[0].split(" (")[0]


def _same_length(dist: PredictiveDistribution, other, what: str) -> None:
    if other is not None and len(other) != len(dist):
        raise ValueError(f"{what} has {len(other)} entries for {len(dist)} distributions; one a row is needed.")
