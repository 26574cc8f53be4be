"""Figures S1 and S2: losses of both phases, on the first synthetic data and, where they can be read, on the flights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collabnets.paper import figures, real
from collabnets.paper.experiments import GAUSSIAN
from collabnets.paper.synthetic import series_of
from collabnets.paper.target import NoResults, Options, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD = "CN-g"
FLIGHTS = "airline"


def fig_s1(options: Options) -> Report:
    """Figure S1: losses of the first 1,000 iterations."""
    return _draw("figS1", figures.losses_first, options)


def fig_s2(options: Options) -> Report:
    """Figure S2: losses of the whole fit."""
    return _draw("figS2", figures.losses_whole, options)


def _draw(target: str, figure: Callable[[Sequence[tuple[str, Mapping[str, Any]]]], Figure], options: Options) -> Report:
    series, failed = series_of(GAUSSIAN, options, (METHOD,))
    options.need(series, METHOD, target, failed)
    panels, text = [("Synthetic example 1", series[METHOD])], ""
    if options.data is None or FLIGHTS in options.data:
        found, wrong = real.at_hand([FLIGHTS], options)
        failed = failed + wrong
        for name, facts in found.items():
            label = real.title(name, facts)
            try:
                cells, wrong = real.cells_of(name, facts, options, 1, (METHOD,))
            except NoResults as error:
                text = f"{target} without {label}: {error}"
                continue
            failed = failed + wrong
            panels += [(label, c["series"]) for c in cells if c["method"] == METHOD]
    return Report(text, [options.save(figure(panels), target)], failed)
