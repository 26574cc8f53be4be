"""The runner: cells are done once, failures are kept and the rest goes on, tables say what the cells say."""

import json
import math
import os
import signal
import sys
import types

import numpy as np
import pytest
from scipy import stats

from collabnets.cli import main
from collabnets.datasets import heteroskedastic_gaussian, paper_splits, sinusoid
from collabnets.distribution import ScipyDistribution, Unavailable
from collabnets.paper import experiments, figures, grid, methods, published, settings, tables
from collabnets.paper import reproduce as reproduce_module
from collabnets.paper import sinusoid as sinusoid_module
from collabnets.paper.grid import Experiment, Job, Split
from collabnets.paper.reproduce import METHODS, TARGETS, reproduce
from collabnets.paper.store import Key, Store
from collabnets.paper.target import NothingAsked, Report
from collabnets.training import loop


class Shifted:
    """A model that knows the truth but for a shift; what it was fitted on is remembered."""

    def __init__(self, truth, shift):
        self.truth, self.shift = truth, shift

    def predict_dist(self, X):
        p = self.truth.parameters
        return ScipyDistribution(stats.norm, loc=p["loc"] + self.shift, scale=p["scale"])


def split(replication):
    rng = np.random.default_rng(replication)
    X = rng.normal(size=(60, 2))
    truth = ScipyDistribution(stats.norm, loc=X[:, 0], scale=np.ones(60))
    return Split(X, X[:, 0], X, truth.sample(1, rng=rng)[0], truth)


EXPERIMENT = Experiment("toy", split, experiments.measure, lambda dist, s: {"median": dist.median().tolist()})


class Counter:
    """Jobs that count their fits, and fail where they are told to."""

    def __init__(self):
        self.fits = []

    def job(self, name, shift=0.0, *, fails=(), together=False, number=1):
        def fit(splits, seeds, checkpoint, progress):
            self.fits.append((name, *seeds))
            if set(seeds) & set(fails):
                raise RuntimeError(f"no {name} today")
            return [{name: Shifted(s.truth, shift)} for s in splits]

        return Job(name, (name,), {"shift": shift, "number": number}, fit, together)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


# ------------------------------------------------------------ the grid


def test_every_cell_is_done_once_and_read_again(store):
    counter = Counter()
    jobs = [counter.job("A"), counter.job("B", 0.5, together=True)]
    assert grid.run(EXPERIMENT, jobs, 3, store) == []
    assert counter.fits == [("A", 0), ("A", 1), ("A", 2), ("B", 0, 1, 2)]
    again = Store(store.path.parent)
    assert grid.run(EXPERIMENT, jobs, 3, again) == []
    assert len(counter.fits) == 4
    cells = again.find(key for job in jobs for key in grid.keys(EXPERIMENT, job, 3))
    assert [(c["method"], c["replication"]) for c in cells] == [(m, r) for m in "AB" for r in range(3)]
    for cell in cells:
        s = split(cell["replication"])
        dist = Shifted(s.truth, cell["settings"]["shift"]).predict_dist(None)
        assert cell["metrics"] == pytest.approx(experiments.measure(dist, s))
        assert set(cell["versions"]) >= {"python", "jax", "collabnets"}
        assert cell["seed"] == cell["replication"]
        assert cell["fit_seconds"] >= 0


def test_more_replications_do_only_what_is_missing(store):
    counter = Counter()
    jobs = [counter.job("A"), counter.job("B", together=True)]
    grid.run(EXPERIMENT, jobs, 1, store)
    grid.run(EXPERIMENT, jobs, 3, store)
    assert counter.fits == [("A", 0), ("B", 0), ("A", 1), ("A", 2), ("B", 1, 2)]


def test_other_settings_are_other_cells(store):
    counter = Counter()
    grid.run(EXPERIMENT, [counter.job("A")], 1, store)
    grid.run(EXPERIMENT, [counter.job("A", number=2)], 1, store)
    assert len(counter.fits) == 2
    assert len(store.path.read_text().splitlines()) == 2


def test_a_failed_cell_is_kept_the_others_go_on_and_it_is_tried_again(store):
    counter = Counter()
    failed = grid.run(EXPERIMENT, [counter.job("A", fails=[1]), counter.job("B")], 2, store)
    assert [(c["method"], c["replication"], c["error"]) for c in failed] == [("A", 1, "RuntimeError: no A today")]
    assert "no A today" in failed[0]["traceback"]
    again = Store(store.path.parent)
    assert grid.run(EXPERIMENT, [counter.job("A"), counter.job("B")], 2, again) == []
    assert counter.fits[-1] == ("A", 1)
    assert len(counter.fits) == 5


def test_one_of_several_that_fails_together_leaves_the_others(store):
    counter = Counter()
    failed = grid.run(EXPERIMENT, [counter.job("A", fails=[1], together=True)], 3, store)
    assert counter.fits == [("A", 0, 1, 2), ("A", 0), ("A", 1), ("A", 2)]
    assert [(c["method"], c["replication"]) for c in failed] == [("A", 1)]
    done = store.find(grid.keys(EXPERIMENT, counter.job("A"), 3))
    assert [(c["replication"], c["together"]) for c in done] == [(0, 1), (2, 1)]


def test_a_checkpoint_of_other_versions_is_not_taken(store, monkeypatch):
    seen = []

    def fit(splits, seeds, checkpoint, progress):
        seen.append(checkpoint)
        assert not checkpoint.exists()
        checkpoint.write_bytes(b"half")
        raise KeyboardInterrupt

    job = Job("A", ("A",), {}, fit)
    for version in ("1", "2"):
        monkeypatch.setattr(grid, "versions", lambda version=version: {"python": version})
        with pytest.raises(KeyboardInterrupt):
            grid.run(EXPERIMENT, [job], 1, store)
    assert seen[0] != seen[1]
    assert list(store.path.parent.glob(".*.ckpt")) == [seen[1]]


def test_what_decides_a_result_is_in_its_cell_and_in_its_key(store):
    job = Counter().job("A")
    for rows in (1, 2):
        grid.run(Experiment("toy", split, experiments.measure, settings={"rows": rows}), [job], 1, store)
    lines = [json.loads(line) for line in store.path.read_text().splitlines()]
    assert [c["data"] for c in lines] == [{"rows": 1}, {"rows": 2}]


def test_a_prediction_that_fails_leaves_the_other_methods_of_the_fit(store):
    def fit(splits, seeds, checkpoint, progress):
        return [{"good": Shifted(s.truth, 0.0), "bad": Shifted(None, 0.0)} for s in splits]

    failed = grid.run(EXPERIMENT, [Job("both", ("good", "bad"), {}, fit)], 1, store)
    assert [c["method"] for c in failed] == ["bad"]
    assert "AttributeError" in failed[0]["error"]


def test_an_interruption_keeps_what_was_done(store):
    counter = Counter()

    def stop(splits, seeds, checkpoint, progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grid.run(EXPERIMENT, [counter.job("A"), Job("B", ("B",), {}, stop)], 2, store)
    again = Store(store.path.parent)
    assert [again.done(key) for key in grid.keys(EXPERIMENT, counter.job("A"), 2)] == [True, True]


def test_ctrl_c_in_a_fit_stores_nothing_and_the_next_run_goes_on(store, monkeypatch, capsys):
    """The training loop keeps an interrupted model for its user; a grid must not take it for a whole one."""
    names = {"CN-g": "cn-g", "CN-f": "cn-f"}
    job = methods.collaborating(names, pretrain_iter=700, max_iter=700, batch_size=32)
    real, chunks = loop.run_chunk, []

    def pressed(*arguments):
        chunks.append(arguments)
        if len(chunks) == 2:
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "run_chunk", pressed)
        patch.setattr(methods, "comparison", lambda *a, **k: [job])
        assert main(["reproduce", "table1", "--replications", "2", "--out", str(store.path.parent)]) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert not store.path.exists()
    (checkpoint,) = store.path.parent.glob(".*.ckpt")
    fits = []
    monkeypatch.setattr(loop, "run_chunk", lambda *a: fits.append(a) or real(*a))
    assert grid.run(experiments.GAUSSIAN, [job], 2, store) == []
    assert not checkpoint.exists()
    resumed, again = store.find(grid.keys(experiments.GAUSSIAN, job, 2)), Store(store.path.parent / "whole")
    n_resumed = len(fits)
    grid.run(experiments.GAUSSIAN, [job], 2, again)
    assert len(fits) - n_resumed > n_resumed  # the second one started anew
    for one, whole in zip(resumed, again.find(grid.keys(experiments.GAUSSIAN, job, 2)), strict=True):
        assert one["metrics"] == whole["metrics"]


def test_only_the_first_replication_keeps_series(store):
    grid.run(EXPERIMENT, [Counter().job("A", 1.0)], 2, store)
    first, second = store.find(grid.keys(EXPERIMENT, Counter().job("A", 1.0), 2))
    np.testing.assert_allclose(first["series"]["median"], split(0).truth.median() + 1.0)
    assert "series" not in second


def test_what_a_method_does_not_have_is_left_out(store):
    class QuantilesOnly(ScipyDistribution):
        def _cdf(self, z):
            raise Unavailable("only quantiles")

        _ccdf = _cdf

    class Model(Shifted):
        def predict_dist(self, X):
            return QuantilesOnly(stats.norm, **self.truth.parameters)

    fit = lambda splits, *rest: [{"Q": Model(s.truth, 0.0)} for s in splits]  # noqa: E731
    assert grid.run(EXPERIMENT, [Job("Q", ("Q",), {}, fit)], 1, store) == []
    (cell,) = store.find(grid.keys(EXPERIMENT, Job("Q", ("Q",), {}, fit), 1))
    assert set(cell["metrics"]) == {"cal", "coverage90", "mae"}


@pytest.mark.parametrize(("what", "words"), [("metrics", "gof is nan: the predictions"), ("series", "figures need")])
def test_a_value_that_is_no_number_is_a_failure_and_not_left_out(store, what, words):
    broken = {"metrics": {"measure": lambda dist, s: {"cal": 1.0, "gof": math.nan}}}
    broken["series"] = {"measure": experiments.measure, "draw": lambda dist, s: {"width": [1.0, math.inf]}}
    experiment = Experiment("toy", split, **broken[what])
    (cell,) = grid.run(experiment, [Counter().job("A")], 1, store)
    assert words in cell["error"]
    assert not any(store.done(key) for key in grid.keys(experiment, Counter().job("A"), 1))


# ------------------------------------------------------------ the file


KEY = Key("toy", "A", 0, "abc")


def test_a_line_cut_short_is_said_and_done_again(store):
    store.add(KEY, {"metrics": {"gof": 1.0}})
    store.add(KEY._replace(replication=1), {"metrics": {"gof": 2.0}})
    whole = store.path.read_bytes()
    store.path.write_bytes(whole[:-9])
    with pytest.warns(UserWarning, match="line 2 cannot be read as a result; what stood there is done again"):
        again = Store(store.path.parent)
    assert again.done(KEY)
    assert not again.done(KEY._replace(replication=1))
    again.add(KEY._replace(replication=1), {"metrics": {"gof": 3.0}})
    with pytest.warns(UserWarning, match="line 2 cannot"):
        last = Store(store.path.parent)
    assert last.get(KEY._replace(replication=1))["metrics"] == {"gof": 3.0}
    assert last.get(KEY)["metrics"] == {"gof": 1.0}


@pytest.mark.parametrize("line", ["[1, 2]", "{}", '"text"', '{"experiment": "toy"}', "nonsense", '{"replication": []'])
def test_a_line_that_is_no_result_is_passed_over(store, line):
    store.add(KEY, {"metrics": {}})
    with open(store.path, "a") as file:
        file.write(line + "\n")
    with pytest.warns(UserWarning, match="line 2 cannot be read"):
        assert Store(store.path.parent).done(KEY)


def test_a_full_disk_leaves_the_file_as_it_was(store, monkeypatch):
    store.add(KEY, {"metrics": {}})
    before = store.path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*all earlier ones are kept"):
        store.add(KEY._replace(replication=1), {"metrics": {}})
    assert store.path.read_bytes() == before
    assert not store.done(KEY._replace(replication=1))


def test_the_later_of_two_lines_counts(store):
    store.add(KEY, {"error": "no"})
    assert not store.done(KEY)
    store.add(KEY, {"metrics": {"gof": 1.0}})
    assert Store(store.path.parent).get(KEY)["metrics"] == {"gof": 1.0}


# ------------------------------------------------------------ tables


def cells(method, **columns):
    n = len(next(iter(columns.values())))
    return [{"method": method, "replication": r, "metrics": {k: v[r] for k, v in columns.items()}} for r in range(n)]


def test_means_deviations_and_differences_in_standard_errors():
    gof, truth, mae = [-1.70, -1.72, -1.65], [-1.66, -1.70, -1.66], [0.1, 0.2, 0.3]
    table = tables.summarise(
        cells("CN-g", gof=gof, mae=mae) + cells("TH", gof=truth),
        ("TH", "CN-g", "EN"),
        ("gof", "mae"),
        published.TABLE_1,
    )
    assert list(table) == ["TH", "CN-g"]
    entry = table["CN-g"]["mae"]
    assert (entry.mean, entry.sd, entry.n) == (pytest.approx(0.2), pytest.approx(0.1), 3)
    assert entry.difference == pytest.approx((0.2 - 0.064) / math.sqrt(0.1**2 / 3 + 0.029**2 / 10))
    apart = np.array(gof) - np.array(truth)
    expected = (apart.mean() - (-1.684 + 1.668)) / math.sqrt(apart.var(ddof=1) * (1 / 3 + 1 / 10))
    assert table["CN-g"]["gof"].difference == pytest.approx(expected)


def test_text_and_markdown_hold_the_numbers():
    table = tables.summarise(
        cells("CN-g", gof=[-1.7, -1.8]) + cells("DP", gof=[-1.9, -2.0]) + cells("EN", gof=[-1.6, -1.6]),
        methods.ORDER,
        ("gof",),
        published.TABLE_1,
    )
    text = tables.as_text(table, ("gof",))
    assert "CN-g" in text
    assert "-1.750 ± 0.071" in text
    assert "-1.684 ± 0.039" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    lines = tables.as_markdown(table, ("gof",)).splitlines()
    assert lines[2].startswith("| CN-g | **-1.750 ± 0.071** | -1.684 ± 0.039 |")
    assert lines[3].startswith("| DP | -1.950")
    assert {line.count("|") for line in lines} == {5}


def test_coverage_is_best_near_ninety():
    table = tables.summarise(
        cells("DP", coverage90=[98.0]) + cells("EN", coverage90=[89.0]) + cells("CDP", coverage90=[90.5]),
        methods.ORDER,
        ("coverage90",),
        {},
    )
    assert tables.best_two(table, "coverage90") == {"EN", "CDP"}


# ------------------------------------------------------------ the experiments


def test_the_splits_are_the_papers():
    data = heteroskedastic_gaussian()
    for r, (train, test) in enumerate(paper_splits(len(data.y), 3)):
        one = experiments.GAUSSIAN.split(r)
        np.testing.assert_array_equal(one.X_train, data.X[train])
        np.testing.assert_array_equal(one.y_test, data.y[test])
        np.testing.assert_array_equal(one.truth.median(), data.truth[test].median())


@pytest.mark.parametrize("experiment", [experiments.GAUSSIAN, experiments.WEIBULL], ids=lambda e: e.name)
def test_the_truth_measures_as_the_truth(experiment):
    s = experiment.split(0)
    assert experiment.measure(s.truth, s)["mae"] == 0
    series = experiment.draw(s.truth, s)
    assert len(series["width90"]) == len(s.y_test)
    for x, z, cdf in zip(*(series["shown"][k] for k in ("x", "z", "cdf")), strict=True):
        row = int(np.square(s.X_test - np.array(x)).sum(1).argmin())
        np.testing.assert_allclose(cdf, s.truth[row].cdf(z)[0], atol=1e-5)
    if experiment.name == "weibull":
        np.testing.assert_allclose(series["survival"], s.truth.ccdf(1.0), rtol=1e-5)


def test_the_fixed_f_of_t_g_is_the_truth():
    data, q = sinusoid(7), np.array([0.2, 0.9])
    np.testing.assert_array_equal(sinusoid_module.true_thresholds(q, data.X), data.truth.icdf(q))


def test_a_digest_is_the_same_in_every_process():
    jobs = {m: job for job in sinusoid_module.few_rows_jobs(False) for m in job.methods}
    assert jobs["T-g"].settings["z_distribution"] == "true_thresholds"
    assert jobs["U-g"].settings["z_distribution"] == "uniform(-2.5, 6.0)"
    assert "0x" not in json.dumps([dict(j.settings) for j in [*jobs.values(), *methods.comparison(False)]])


def test_every_method_of_a_figure_can_be_named_for_all_targets():
    of_figures = sinusoid_module.few_rows_jobs(True) + sinusoid_module.convergence_jobs(50, True)
    jobs = of_figures + methods.comparison(True)
    assert {m for job in jobs for m in job.methods} | set(methods.ORDER) == set(METHODS)


def test_every_method_of_the_tables_has_a_job():
    assert [m for job in methods.comparison(False) for m in job.methods] == list(published.TABLE_1)
    assert set(methods.ORDER) >= set(published.TABLE_1)


def test_all_methods_are_trained_in_the_units_of_the_data():
    units = {j.name: j.settings["standardize"] for j in methods.comparison(False) if "standardize" in j.settings}
    assert units == dict.fromkeys(("CN", "g-only", "DP", "CDP", "GPR", "PPGPR", "EN"), False)


def test_jobs_of_some_methods():
    assert [j.name for j in methods.comparison(True, ["CN-f"])] == ["TH", "CN"]
    assert [j.name for j in methods.comparison(True, None, ["g-only"])] == ["TH", "g-only"]


def test_the_cn_job_gives_g_and_f_of_one_fit_at_the_papers_settings():
    job = methods.collaborating({"CN-g": "cn-g", "CN-f": "cn-f"})
    assert {k: v for k, v in job.settings.items() if k in ("max_iter", "batch_size", "init")} == {
        "max_iter": settings.PAPER["max_iter"],
        "batch_size": 128,
        "init": "tiny",
    }
    assert not job.settings["standardize"]  # the units of the data, in the synthetic experiments
    job = methods.collaborating({"CN-g": "cn-g", "CN-f": "cn-f"}, pretrain_iter=60, max_iter=60, batch_size=32)
    s = experiments.GAUSSIAN.split(0)
    (models,) = job.fit([s], [0], None, False)
    g, f = models["CN-g"], models["CN-f"]
    assert (g.method, f.method) == ("cn-g", "cn-f")
    assert g.g_ is f.g_
    assert np.any(g.predict(s.X_test) != f.predict(s.X_test))
    curves = job.extra(g)
    assert len(curves["loss_joint_g_first"]) == 60
    np.testing.assert_allclose(curves["loss_pretrain"]["mean"], g.history_.pretrain[:, 0], atol=1e-5)


# ------------------------------------------------------------ figures


def test_figures_hold_what_they_are_given():
    z = np.linspace(0, 1, 5)
    shown = {"x": [[1.0, 2.0], [3.0, 4.0]], "z": [z, z], "cdf": [z, z]}
    series = {"TH": {"w": [1.0, 2.0], "shown": shown}, "CN-g": {"w": [1.1, 9.0], "shown": shown}, "CQR": {"w": [1, 2]}}
    figure = figures.scatter(series, "w", (("CN-g",), ("DP", "CQR"), ("EN",)), ("a", "b"), "t", limit=5.0)
    drawn = [ax for ax in figure.axes if ax.has_data()]
    assert [ax.get_title() for ax in drawn] == ["CN-g", "CQR"]
    np.testing.assert_array_equal(drawn[0].lines[1].get_ydata(), [1.1, 5.0])
    assert "1 above the frame" in drawn[0].get_legend().get_texts()[0].get_text()
    figure = figures.cdfs(series, ("m", "s"), "t")
    assert [ax.get_title() for ax in figure.axes[:2]] == ["m = 1.00, s = 2.00", "m = 3.00, s = 4.00"]
    np.testing.assert_array_equal(figure.axes[2].lines[0].get_ydata(), np.zeros(5))
    figure = figures.convergence({"TH": {10: (1.0, 0.0)}, "T-g": {10: (0.5, 0.1), 20: (0.7, 0.1)}})
    assert len(figure.axes[0].get_legend().get_texts()) == 2


# ------------------------------------------------------------ the command


QUICK = ["--quick", "--methods", "CN-g", "--replications", "1"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One short run of the command, shared."""
    out = tmp_path_factory.mktemp("paper")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "QUICK", {"pretrain_iter": 40, "max_iter": 40})
        assert main(["reproduce", "table1", "--out", str(out), *QUICK]) == 0
        assert main(["reproduce", "figS1", "--out", str(out), *QUICK, "--draw-only"]) == 0
    return out


def test_a_table_is_printed_written_and_kept(made, capsys):
    assert (made / "figS1.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((made / "table1.json").read_text())
    assert {c["method"] for c in summary["cells"]} == {"TH", "CN-g", "CN-f"}
    assert summary["quick"]
    assert summary["data_seed"] == 2020
    assert (made / "table1.md").read_text().startswith("| method | cal [%] | paper |")


WRONG = {
    "unknown target": (["reproduce", "table9"], 2, "invalid choice: 'table9'"),
    "unknown method": (["reproduce", "table1", "--methods", "magic"], 1, "unknown method magic; this target has: TH"),
    "no replications": (["reproduce", "table1", "--replications", "0"], 2, "whole number of at least 1"),
    "a figure without its data": (["reproduce", "fig4", "--draw-only"], 1, "there are no results of gaussian in"),
}


@pytest.mark.parametrize(("arguments", "status", "words"), WRONG.values(), ids=WRONG)
def test_wrong_calls_are_answered_in_words(arguments, status, words, tmp_path, capsys):
    try:
        found = main([*arguments, "--out", str(tmp_path)])
    except SystemExit as exit:
        found = exit.code
    assert found == status
    assert words in capsys.readouterr().err


def test_a_figure_without_the_truth_names_the_command(tmp_path):
    store = Store(tmp_path)
    job = methods.comparison(False, ["CN-g"])[1]
    mark = grid.digest(experiments.GAUSSIAN, job)
    store.add(Key("gaussian", "CN-g", 0, mark), {"metrics": {}, "series": {}})
    with pytest.raises(ValueError, match=r"fig5 needs the results of TH.*collabnets reproduce fig5"):
        reproduce("fig5", tmp_path, fit=False, methods=("CN-g",))


def test_without_fits_what_is_missing_is_said(made, tmp_path, capsys):
    (tmp_path / "cells.jsonl").write_bytes((made / "cells.jsonl").read_bytes())
    more = ["--quick", "--methods", "CN-g", "EN", "--replications", "2", "--out", str(tmp_path), "--draw-only"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "QUICK", {"pretrain_iter": 40, "max_iter": 40})
        assert main(["reproduce", "table1", *more]) == 1
    out, error = capsys.readouterr()
    assert "Replications are missing; there are, of 2: TH 1, CN-g 1, CN-f 1." in out
    assert "missing: gaussian, EN, replications 0, 1: there is no result of these settings in" in error
    assert "missing: gaussian, CN-g, replication 1:" in error
    assert "done by the same command without --draw-only" in error


def test_a_figure_whose_methods_have_nothing_to_show_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"fig6 shows CN-g, .*, and the results of none of them are there"):
        reproduce("fig6", tmp_path, methods=("TH",))


def test_a_figure_whose_fit_failed_says_why(tmp_path, monkeypatch):
    def broken(splits, seeds, checkpoint, progress):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(methods, "comparison", lambda *a, **k: [Job("CN", ("CN-g",), {}, broken)])
    with pytest.raises(ValueError, match="figS1 needs the results of CN-g, which failed: RuntimeError: out of luck"):
        reproduce("figS1", tmp_path, data=("cpu",))


def test_a_full_disk_leaves_tables_and_figures_as_they_were(made, tmp_path, monkeypatch, capsys):
    for name in ("cells.jsonl", "table1.md", "figS1.png"):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(methods, "QUICK", {"pretrain_iter": 40, "max_iter": 40})
    monkeypatch.setattr(os, "fsync", full)
    for target, file in (("table1", "table1.md"), ("figS1", "figS1.png")):
        assert main(["reproduce", target, "--out", str(tmp_path), *QUICK, "--draw-only"]) == 1
        error = capsys.readouterr().err
        assert f"error: {target}: " in error
        assert f"No space left on device; what stood there before is kept: '{tmp_path / file}'" in error
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_all_goes_on_after_a_target_that_cannot_be_made(tmp_path, monkeypatch, capsys):
    order = []

    def target(name, error=None):
        def run(options):
            order.append(name)
            options.chosen(("CN-g",))
            if error:
                raise error
            return Report(f"this is {name}", [], [])

        return run

    module = types.SimpleNamespace(
        a=target("a", ValueError("no luck")), b=target("b", NothingAsked("not about cpu")), c=target("c")
    )
    monkeypatch.setitem(sys.modules, "collabnets.paper.made_up", module)
    monkeypatch.setattr(reproduce_module, "TARGETS", {name: ("made_up", name) for name in "abc"})
    assert main(["reproduce", "all", "--out", str(tmp_path), "--methods", "CN-g", "EN"]) == 1
    out, error = capsys.readouterr()
    assert order == ["a", "b", "c"]
    assert "this is c" in out
    assert error.splitlines() == ["collabnets: error: a: no luck", "collabnets: b: not about cpu"]
    assert main(["reproduce", "all", "--out", str(tmp_path), "--methods", "CN-g", "magic"]) == 1
    assert "unknown method magic; there are: TH, CN-g" in capsys.readouterr().err


def test_names_of_data_are_checked_by_every_target(tmp_path):
    with pytest.raises(ValueError, match="unknown data iris; there are: cpu"):
        reproduce("table1", tmp_path, data=("iris",))


def test_an_unknown_target_is_refused_in_words(tmp_path):
    with pytest.raises(ValueError, match="unknown target 'fig99'; there are: fig2, fig3, table1"):
        reproduce("fig99", tmp_path)
    with pytest.raises(ValueError, match="at least 1"):
        reproduce("fig2", tmp_path, replications=0)


def test_failures_are_told_and_the_status_says_so(tmp_path, monkeypatch, capsys):
    def broken(splits, seeds, checkpoint, progress):
        raise RuntimeError("out of luck")

    job = Job("CN", ("CN-g",), {}, broken)
    monkeypatch.setattr(methods, "comparison", lambda *a, **k: [methods.truth(), job])
    assert main(["reproduce", "table1", "--quick", "--replications", "1", "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "failed: gaussian, CN-g, replication 0: RuntimeError: out of luck" in error
    assert "tried again by the same command" in error


def test_all_targets_can_be_found():
    from importlib import import_module

    for module, function in TARGETS.values():
        assert callable(getattr(import_module(f"collabnets.paper.{module}"), function))
