"""``collabnets reproduce``: the targets by name, and how one is run."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from collabnets.paper.methods import ORDER
from collabnets.paper.store import Store
from collabnets.paper.target import Options, Report

# Target -> module and function, in the order of the paper; a target's module is imported when it is asked for.
TARGETS = {
    "fig2": ("sinusoid", "fig2"),
    "fig3": ("sinusoid", "fig3"),
    "table1": ("synthetic", "table1"),
    "fig4": ("synthetic", "fig4"),
    "fig5": ("synthetic", "fig5"),
    "table2": ("synthetic", "table2"),
    "fig6": ("synthetic", "fig6"),
    "fig7": ("synthetic", "fig7"),
    "table3": ("real", "table3"),
    "table4": ("real", "table4"),
    "table5": ("real", "table5"),
    "fig8": ("real", "fig8"),
    "fig9": ("real", "fig9"),
    "figS1": ("losses", "fig_s1"),
    "figS2": ("losses", "fig_s2"),
    "figS3": ("real", "fig_s3"),
    "figS4": ("real", "fig_s4"),
}


# Every method that some target has.
METHODS = (*ORDER, "T-g", "U-g", "N-g", "QR", "MSE")


def reproduce(
    target: str,
    out: Path,
    *,
    replications: int | None = None,
    quick: bool = False,
    methods: tuple[str, ...] | None = None,
    data: tuple[str, ...] | None = None,
    lenient: bool = False,
    fit: bool = True,
    progress: bool = False,
) -> Report:
    """Run one target: do the cells that are missing in ``out``, then write its table or figure there.

    Parameters
    ----------
    target
        A name in ``TARGETS``.
    out
        Folder of the results, ``cells.jsonl``, and of the tables and figures.
    replications
        How many; None for the target's own number.
    quick
        Few replications and short training: to see that it works, not to compare with the paper.
    methods
        Only these; None for all.
    data
        Of the real data sets only these, such as ``("cpu", "mpg")``; None for all that the target has.
    lenient
        Leave out methods that this target does not have, instead of refusing them.
    fit
        False uses only results that are there.
    progress
        Show bars.
    """
    if target not in TARGETS:
        raise ValueError(f"unknown target {target!r}; there are: {', '.join(TARGETS)}.")
    if replications is not None and replications < 1:
        raise ValueError(f"replications is a whole number of at least 1, not {replications}.")
    unknown = [m for m in methods or () if m not in METHODS]
    if unknown and lenient:
        raise ValueError(f"unknown method {', '.join(unknown)}; there are: {', '.join(METHODS)}.")
    if data is not None:
        from collabnets.paper.real import SOURCES

        if strange := [name for name in data if name not in SOURCES]:
            raise ValueError(f"unknown data {', '.join(strange)}; there are: {', '.join(SOURCES)}.")
    module, function = TARGETS[target]
    options = Options(Store(out), out, replications, quick, methods, data, lenient, fit, progress)
    return getattr(import_module(f"collabnets.paper.{module}"), function)(options)
