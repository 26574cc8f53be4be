"""The committed results: they are of the settings that the code has, the pages show them, and what is claimed holds."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from collabnets.paper import methods, published, real, synthetic, tables
from collabnets.paper.reproduce import reproduce

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGES = ROOT / "results", ROOT / "docs" / "experiments"
# Target -> its page, and the figures of the same results.
SHOWN = {
    "table1": ("gaussian.md", ("fig4", "fig5")),
    "table2": ("weibull.md", ("fig6", "fig7")),
    "fig2": ("few_rows.md", ()),
    "fig3": ("few_rows.md", ()),
    "table3": ("real.md", ()),
    "table4": ("real.md", ("fig8", "figS3")),
    "table5": ("real.md", ("fig9", "figS4")),
    "figS1": ("losses.md", ("figS2",)),
}
SMALL, LARGE = ("cpu", "energy", "mpg", "crime"), ("airline", "ehr")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Every table and figure, from the committed cells alone."""
    out = tmp_path_factory.mktemp("results")
    for name in ("cells.jsonl", "data.json"):
        shutil.copy(RESULTS / name, out)
    targets = [name for first, (_, more) in SHOWN.items() for name in (first, *more)]
    reports = {name: reproduce(name, out, fit=False) for name in targets}
    assert (out / "cells.jsonl").read_bytes() == (RESULTS / "cells.jsonl").read_bytes()
    return out, reports


@pytest.mark.parametrize("target", SHOWN)
def test_no_result_of_the_present_settings_is_missing(drawn, target):
    _, reports = drawn
    for name in (target, *SHOWN[target][1]):
        assert reports[name].files
        assert reports[name].failed == []
    figures = [name for name in (target, *SHOWN[target][1]) if name.startswith("fig")]
    assert all((PAGES / f"{name}.png").exists() for name in figures)


@pytest.mark.parametrize("target", ["table1", "table2", "table3", "table4", "table5"])
def test_tables_are_those_of_the_cells_and_stand_on_the_page(drawn, target):
    table = (RESULTS / f"{target}.md").read_text()
    assert table == (drawn[0] / f"{target}.md").read_text()
    page = (PAGES / SHOWN[target][0]).read_text()
    for line in table.splitlines():
        assert line in page


@pytest.mark.parametrize("target", ["fig2", "fig3"])
def test_numbers_of_the_figures_stand_on_the_page(drawn, target):
    page = (PAGES / SHOWN[target][0]).read_text()
    numbers = re.findall(r"-?\d+\.\d{3}", drawn[1][target].text)
    assert len(numbers) >= 20
    assert [number for number in numbers if number not in page] == []


# ------------------------------------------------------------ what is claimed


def cells(drawn, target, data=None):
    content = json.loads((drawn[0] / f"{target}.json").read_text())
    return content["cells"] if data is None else content["data"][data]["cells"]


def means(found, metric):
    return {
        method: float(np.mean([c["metrics"][metric] for c in found if c["method"] == method]))
        for method in dict.fromkeys(c["method"] for c in found)
        if any(metric in c["metrics"] for c in found if c["method"] == method)
    }


@pytest.mark.parametrize("method", ["CN-g", "CN-f"])
@pytest.mark.parametrize(("target", "paper"), [("table1", published.TABLE_1), ("table2", published.TABLE_2)])
def test_cn_is_not_worse_than_printed_by_two_standard_errors(drawn, target, paper, method):
    row = tables.summarise(cells(drawn, target), methods.ORDER, synthetic.METRICS, paper)[method]
    assert -row["gof"].difference < 2.0
    assert row["cal"].difference < 2.0
    assert row["mae"].difference < 2.0
    coverage = row["coverage90"]
    error = np.hypot(coverage.sd / coverage.n**0.5, coverage.paper.sd / published.N_PUBLISHED**0.5)
    assert abs(coverage.mean - 90.0) - abs(coverage.paper.mean - 90.0) < 2.0 * error


def test_methods_are_on_the_papers_side_on_the_weibull_data(drawn):
    found = cells(drawn, "table2")
    assert means(found, "coverage90")["DP"] > 97.0
    gof, mae = means(found, "gof"), means(found, "mae")
    assert gof["CN-g"] > max(gof[m] for m in ("CN-f", "g-only", "DP", "CDP", "GPR", "PPGPR", "EN"))
    assert max(mae, key=mae.__getitem__) == "CQR"


def test_methods_with_one_spread_are_worst_on_the_heteroskedastic_data(drawn):
    gof = means(cells(drawn, "table1"), "gof")
    assert min(gof[m] for m in ("CN-g", "g-only", "CDP", "PPGPR", "EN")) > max(gof["DP"], gof["GPR"])


def test_the_variants_of_g_agree_and_come_to_the_truth_with_many_rows(drawn):
    found = json.loads((drawn[0] / "fig3.json").read_text())["cells"]

    def gof(n, method):
        some = [c for c in found if c["experiment"] == f"sinusoid-{n}" and c["method"] == method]
        return np.mean([c["metrics"]["gof"] for c in some])

    of_g = ("T-g", "CN-g", "U-g", "N-g")
    for n in (50, 100, 200, 400, 800, 1600):
        assert gof(n, "CN-f") < min(gof(n, m) for m in of_g)
        assert max(gof(n, m) for m in of_g) - min(gof(n, m) for m in of_g) < 0.02
    assert all(gof(1600, "TH") - gof(1600, m) < 0.015 for m in of_g)
    assert gof(1600, "TH") - gof(1600, "CN-f") < 0.1


def test_point_networks_collapse_and_cn_does_not(drawn):
    found = json.loads((drawn[0] / "fig2.json").read_text())["cells"]
    residual, iqr, median = (means(found, name) for name in ("residual", "iqr", "median_error"))
    assert residual["QR"] < 0.7 * residual["TH"]
    assert residual["MSE"] < 0.5 * residual["TH"]
    assert iqr["QR"] < 0.5 * iqr["TH"]
    assert all(iqr[m] > 0.8 * iqr["TH"] for m in ("T-g", "CN-g", "CN-f", "U-g", "N-g"))
    assert median["CN-g"] < min(median["T-g"], median["U-g"], median["N-g"])


@pytest.mark.parametrize("data", SMALL)
@pytest.mark.parametrize("method", ["CN-g", "g-only"])
def test_cal_and_mae_on_the_small_sets_are_not_worse_than_printed(drawn, data, method):
    paper = real._in_our_units(published.REAL[data], real.SOURCES[data].unit)
    for target, metric in (("table4", "cal"), ("table5", "mae")):
        row = tables.summarise(cells(drawn, target, data), real.METHODS, (metric,), paper)[method]
        assert row[metric].difference < 2.0


def test_g_is_among_the_best_two_in_fit_on_five_sets_and_in_calibration_on_four(drawn):
    """The paper claims gof on at least four of the six, which holds, and cal on at least five, which does not."""

    def held(target, metric, best):
        sets = []
        for data in (*SMALL, *LARGE):
            found = means(cells(drawn, target, data), metric)
            sets += [data] if {"CN-g", "g-only"} & set(sorted(found, key=found.__getitem__)[best]) else []
        return sets

    assert held("table5", "gof", slice(-2, None)) == ["energy", "mpg", "crime", "airline", "ehr"]
    assert held("table4", "cal", slice(2)) == ["cpu", "mpg", "airline", "ehr"]


@pytest.mark.parametrize("data", LARGE)
def test_on_the_large_sets_g_is_calibrated_and_fits_best(drawn, data):
    cal, gof = means(cells(drawn, "table4", data), "cal"), means(cells(drawn, "table5", data), "gof")
    assert max(cal["CN-g"], cal["g-only"]) < 1.0
    assert set(sorted(cal, key=cal.__getitem__)[:2]) == {"CN-g", "g-only"}
    assert max(gof, key=gof.__getitem__) == "CN-g"
