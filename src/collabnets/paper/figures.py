"""The paper's figures, drawn from cells: each function takes series by method and gives a Matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collabnets.plots import TRUTH, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {
    "CN-g": "tab:blue",
    "CN-f": "tab:orange",
    "g-only": "tab:green",
    "DP": "tab:red",
    "DP-CR": "tab:pink",
    "CDP": "tab:purple",
    "GPR": "tab:brown",
    "PPGPR": "tab:olive",
    "EN": "tab:cyan",
    "CQR": "0.45",
    "U-g": "tab:red",
    "N-g": "tab:pink",
    "T-g": "tab:green",
}
# The panels of Figures 4 and 6.
WIDTH_PANELS = (("CN-g", "CN-f"), ("g-only",), ("DP", "CDP"), ("GPR", "PPGPR"), ("EN",), ("CQR",))
SURVIVAL_PANELS = (("CN-g",), ("CN-f",), ("g-only",), ("DP", "CDP"), ("GPR", "PPGPR"), ("EN",))

Series = Mapping[str, Mapping[str, Any]]


def scatter(
    series: Series, what: str, panels: Sequence[Sequence[str]], labels: tuple[str, str], title: str, *, limit: float
) -> Figure:
    """Predicted against true values of the test rows, one point a row, in panels (Figures 4 and 6).

    Parameters
    ----------
    series
        By method; the truth is TH.
    what
        Name of the series.
    panels
        Methods of each panel; those without the series are left out.
    labels
        Of the two axes.
    title
        Of the figure.
    limit
        Largest value shown; points beyond are drawn at the edge, with their number in the legend.
    """
    truth = np.array(series["TH"][what])
    shown = [[m for m in panel if what in series.get(m, {})] for panel in panels]
    shown = [panel for panel in shown if panel]
    figure = new_figure(4.2 * min(len(shown), 3), 4.1 * -(-len(shown) // 3))
    axes = np.atleast_1d(figure.subplots(-(-len(shown) // 3), min(len(shown), 3), sharex=True, sharey=True)).ravel()
    for ax, panel in zip(axes, shown, strict=False):
        ax.plot([0, limit], [0, limit], color=TRUTH, linestyle="--", linewidth=1.0)
        for method in panel:
            value = np.array(series[method][what])
            beyond = int((value > limit).sum())
            label = method + (f" ({beyond} above the frame)" if beyond else "")
            ax.plot(
                truth,
                np.minimum(value, limit),
                marker=".",
                linestyle="none",
                markersize=4,
                alpha=0.6,
                color=COLORS[method],
                label=label,
            )
        ax.set(xlim=(0, limit), ylim=(0, limit), aspect="equal", title=" and ".join(panel))
        ax.legend(loc="upper left", markerscale=2)
    for ax in axes[len(shown) :]:
        ax.set_axis_off()
    figure.supxlabel(labels[0])
    figure.supylabel(labels[1])
    figure.suptitle(title)
    return figure


def cdfs(series: Series, names: tuple[str, str], title: str) -> Figure:
    """CDFs of two test rows above, their differences to the truth below (Figures 5 and 7).

    Parameters
    ----------
    series
        By method; the truth is TH.
    names
        Of the two features.
    title
        Of the figure.
    """
    figure = new_figure(12.0, 8.0)
    axes = figure.subplots(2, 2, sharex="col", sharey="row")
    shown = series["TH"]["shown"]
    for column, x in enumerate(shown["x"]):
        z, truth = np.array(shown["z"][column]), np.array(shown["cdf"][column])
        for method, content in series.items():
            if "cdf" not in content.get("shown", {}):
                continue
            curve = np.array(content["shown"]["cdf"][column])
            if method == "TH":
                axes[0, column].plot(z, curve, color=TRUTH, linestyle="--", linewidth=1.6, label="TH (truth)", zorder=9)
                continue
            width = 2.2 if method in ("CN-g", "CN-f", "g-only") else 1.2
            axes[0, column].plot(z, curve, color=COLORS[method], linewidth=width, label=method)
            axes[1, column].plot(z, curve - truth, color=COLORS[method], linewidth=width, label=method)
        axes[1, column].axhline(0.0, color=TRUTH, linestyle="--", linewidth=1.2)
        axes[0, column].set_title(f"{names[0]} = {x[0]:.2f}, {names[1]} = {x[1]:.2f}")
        axes[1, column].set_xlabel("z")
    axes[0, 0].set_ylabel("P(Y ≤ z)")
    axes[1, 0].set_ylabel("difference to the true CDF")
    axes[0, 0].legend(loc="upper left", fontsize="small")
    figure.suptitle(title)
    return figure


def losses_first(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Figure:
    """Losses of the first iterations of both phases, one row of panels a data set (Figure S1)."""
    figure = new_figure(11.0, 3.6 * len(rows))
    axes = figure.subplots(len(rows), 2, squeeze=False)
    for (left, right), (name, content) in zip(axes, rows, strict=True):
        _curve(left, content["loss_pretrain_first"], "g", "tab:blue")
        left.set(title=f"{name}: pre-training", xlabel="iteration", ylabel="loss", ylim=(0, None))
        _curve(right, content["loss_joint_g_first"], "g", "tab:blue")
        _curve(right, content["loss_joint_f_first"], "f", "tab:orange")
        right.axhline(0.5, color=TRUTH, linestyle="--", linewidth=1.0, label="0.5")
        right.set(title=f"{name}: joint training", xlabel="iteration of the joint phase", ylim=(0, 0.95))
        for ax in (left, right):
            ax.legend(loc="upper right", ncols=3)
    return figure


def _curve(ax: Axes, loss: Sequence[float], label: str, color: str) -> None:
    ax.plot(np.arange(1, len(loss) + 1), loss, color=color, linewidth=0.8, label=label)


def losses_whole(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Figure:
    """Losses of a whole fit, means of some iterations a point, one panel a data set (Figure S2)."""
    figure = new_figure(11.0, 3.6 * len(rows))
    axes = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for ax, (name, content) in zip(axes, rows, strict=True):
        first = 0
        for what, label, color in (
            ("pretrain", "g, pre-training (as g-only)", "tab:blue"),
            ("joint_g", "g, joint", "tab:green"),
            ("joint_f", "f, joint", "tab:orange"),
        ):
            curve = content[f"loss_{what}"]
            at = first + curve["every"] * np.arange(1, len(curve["mean"]) + 1)
            ax.plot(at, curve["mean"], color=color, linewidth=0.9, label=f"{label}, mean of {curve['every']}")
            first = at[-1] if what == "pretrain" else first
        ax.axhline(0.5, color=TRUTH, linestyle="--", linewidth=1.0, label="0.5")
        ax.set(title=name, xlabel="iteration", ylabel="loss", ylim=(0, 0.95))
        ax.legend(loc="upper right", ncols=2)
    return figure


def sinusoid(series: Series, y: Sequence[float]) -> Figure:
    """The five panels of Figure 2, collapse of MSE and quantile regression, U-g, T-g, CN-g, CN-f, and one of N-g."""
    figure = new_figure(15.0, 8.0)
    axes = figure.subplots(2, 3, sharex=True, sharey=True).ravel()
    truth = series["TH"]
    x = np.array(truth["x"])
    for ax, method in zip(axes[1:], ("U-g", "T-g", "CN-g", "CN-f", "N-g"), strict=True):
        if method not in series:
            ax.set_axis_off()
            continue
        _band(ax, x, truth, TRUTH, "true", alpha=0.15, linestyle="--")
        _band(ax, x, series[method], COLORS[method], method, alpha=0.3, linestyle="-")
        ax.plot(x, y, color="0.35", marker=".", linestyle="none", markersize=3, label="training rows")
        ax.set_title(f"{method}: median and interquartile range")
        ax.legend(loc="upper right", fontsize="small")
    ax = axes[0]
    ax.plot(x, truth["median"], color=TRUTH, linestyle="--", label="true median")
    for method, what, label, color in (
        ("QR", "low", "QR 0.25", "tab:green"),
        ("QR", "median", "QR 0.5", "tab:orange"),
        ("QR", "high", "QR 0.75", "tab:red"),
        ("MSE", "median", "MSE", "tab:blue"),
    ):
        if method in series:
            ax.plot(x, series[method][what], color=color, linewidth=1.1, label=label)
    ax.plot(x, y, color="0.35", marker=".", linestyle="none", markersize=3, label="training rows")
    ax.set_title("MSE and quantile regression collapse onto the rows")
    ax.legend(loc="upper right", fontsize="small")
    for ax in axes:
        ax.set(xlabel="x", ylabel="y")
        ax.tick_params(labelbottom=True, labelleft=True)
    figure.suptitle("100 rows of y ~ N(sin 4πx, (0.5 + 0.3 sin 4πx)²), overparameterised networks")
    return figure


def _band(ax: Axes, x: np.ndarray, content: Mapping[str, Any], color: str, name: str, *, alpha: float, linestyle: str):
    ax.fill_between(x, content["low"], content["high"], color=color, alpha=alpha, label=f"{name} interquartile range")
    ax.plot(x, content["median"], color=color, linestyle=linestyle, label=f"{name} median")


def convergence(curves: Mapping[str, Mapping[int, tuple[float, float]]]) -> Figure:
    """Goodness of fit over the number of training rows, mean and standard error (Figure 3).

    Parameters
    ----------
    curves
        method -> number of rows -> mean and standard error.
    """
    figure = new_figure(9.0, 5.2)
    ax = figure.subplots()
    for method, values in curves.items():
        n = sorted(values)
        mean, error = np.array([values[k] for k in n]).T
        if method == "TH":
            ax.plot(n, mean, color=TRUTH, linestyle="--", label="TH (truth)")
        else:
            ax.errorbar(n, mean, error, color=COLORS[method], marker="o", markersize=4, capsize=3, label=method)
    ax.set_xscale("log")
    n = sorted({k for values in curves.values() for k in values})
    ax.set_xticks(n, [f"{k:,}" for k in n])
    ax.minorticks_off()
    ax.set(xlabel="training rows N", ylabel="gof on test rows (higher is better)")
    ax.set_title("Convergence with the number of rows; bars are standard errors")
    ax.legend(loc="lower right")
    return figure


def calibration(panels: Sequence[tuple[str, Series]]) -> Figure:
    """Empirical minus nominal coverage of central intervals, one panel a data set (Figures 8 and S3)."""
    figure, axes = _grid_of(len(panels))
    for ax, (name, series) in zip(axes, panels, strict=False):
        ax.axhline(0.0, color=TRUTH, linestyle="--", linewidth=1.2)
        for method, content in series.items():
            apart = 100.0 * (np.array(content["empirical"]) - np.array(content["nominal"]))
            ax.plot(100.0 * np.array(content["nominal"]), apart, **_line(method))
        ax.set(title=name, xlabel="nominal coverage [%]", ylabel="empirical minus nominal coverage [points]")
    axes[0].legend(loc="best", fontsize="small", ncols=2)
    figure.suptitle("Calibration of central intervals on test rows: nearer to 0 is better")
    return figure


def sharpness(panels: Sequence[tuple[str, Series]]) -> Figure:
    """Median width over empirical coverage, one panel a data set (Figures 9 and S4)."""
    figure, axes = _grid_of(len(panels))
    for ax, (name, series) in zip(axes, panels, strict=False):
        top = 0.0
        for method, content in series.items():
            width = np.array(content["width"])
            ax.plot(100.0 * np.array(content["empirical"]), width, **_line(method))
            if method in ("CN-g", "g-only", "CDP"):
                top = max(top, float(width[np.isfinite(width)].max()))
        if top > 0:
            ax.set_ylim(0, 1.3 * top)
        ax.set(title=name, xlabel="empirical coverage [%]", ylabel="median width of the interval", xlim=(0, 100))
    axes[0].legend(loc="upper left", fontsize="small", ncols=2)
    figure.suptitle("Sharpness: at the same coverage the lower curve is better")
    return figure


def _line(method: str) -> dict[str, Any]:
    strong = method in ("CN-g", "CN-f", "g-only")
    return {"color": COLORS[method], "linewidth": 2.2 if strong else 1.2, "label": method, "zorder": 3 if strong else 2}


def _grid_of(count: int) -> tuple[Figure, Any]:
    columns = min(count, 2)
    rows = -(-count // columns)
    figure = new_figure(6.2 * columns, 4.6 * rows)
    return figure, np.atleast_1d(figure.subplots(rows, columns)).ravel()
