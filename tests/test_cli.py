"""The command line: what it prints, what it writes, and how it fails."""

import re
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest

import collabnets
from collabnets import demo
from collabnets.cli import format_table, main
from collabnets.datasets import heteroskedastic_gaussian


@pytest.fixture(scope="module")
def short_demo(tmp_path_factory):
    """One short run of the command, shared: its output and its folder."""
    out = tmp_path_factory.mktemp("demo") / "made" / "on the way"
    with redirect_stdout(StringIO()) as text:
        status = main(["demo", "--out", str(out), "--pretrain-iter", "300", "--max-iter", "100", "--seed", "3"])
    return status, text.getvalue(), out


def test_demo_prints_a_table_of_four_metrics_beside_the_truth(short_demo):
    status, text, _ = short_demo
    assert status == 0
    assert "400 iterations on 700 rows" in text
    assert "On 300 test rows" in text
    rows = re.findall(r"^(.*?) {2,}(-?\d+\.\d+) {2,}(-?\d+\.\d+)$", text, re.MULTILINE)
    assert [name for name, *_ in rows] == [
        "calibration error [%]",
        "coverage of the 90 % interval [%]",
        "goodness of fit, gof",
        "MAE to the true median",
    ]
    truth = [float(value) for *_, value in rows]
    assert truth == [1.55, 87.7, -1.698, 0.0]  # of the paper's first split, whatever the model


def test_demo_says_how_far_it_is_from_the_paper(short_demo):
    _, text, _ = short_demo
    assert "300 pre-training and 100 joint iterations (the paper has 20,000 and 20,000)" in text


def test_demo_writes_one_picture(short_demo):
    _, text, out = short_demo
    assert [p.name for p in out.iterdir()] == ["demo.png"]
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert str(out / "demo.png") in text


def test_scores_of_the_truth_equal_the_truths():
    data = heteroskedastic_gaussian(200)
    for score in demo.scores(data.y, data.truth, data.truth):
        assert score.model == pytest.approx(score.truth)
        assert np.isfinite(score.truth)


def test_table_columns_line_up():
    table = format_table([demo.Score("short", 1.0, 2.0, 1), demo.Score("a longer name", -10.0, 0.25, 3)])
    assert len({len(row) for row in table.splitlines()}) == 1


def test_defaults_are_the_demos_own(monkeypatch, capsys):
    seen = {}

    def stop(out, **options):
        seen.update(options)
        raise ValueError("enough")

    monkeypatch.setattr(demo, "run", stop)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "collabnets: error: enough\n"
    assert (seen["pretrain_iter"], seen["max_iter"]) == (demo.PRETRAIN_ITER, demo.MAX_ITER)


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"collabnets {collabnets.__version__}\n"


def test_no_command_shows_the_help(capsys):
    assert main([]) == 2
    assert "demo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dmo"], "invalid choice: 'dmo'"),
        (["demo", "--seed", "-1"], "expected a whole number from 0 to 4294967295, not '-1'"),
        (["demo", "--seed", "one"], "not 'one'"),
        (["demo", "--max-iter", "1.5"], "expected a whole number of at least 0, not '1.5'"),
        (["demo", "--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_wrong_arguments_are_refused_with_the_reason(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_said_before_the_fit(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file")]) == 1
    assert "collabnets: error:" in capsys.readouterr().err


def test_ctrl_c_stops_without_a_traceback(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupted)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "collabnets: stopped.\n"
