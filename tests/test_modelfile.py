"""Model files: data only, and whole or refused."""

import json

import numpy as np
import optax
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from scipy import stats
from variants import fitted, model, normal_thresholds, table

from collabnets import load_model

X, Y = table()


@pytest.fixture
def path(tmp_path):
    fitted("ensemble").save(tmp_path / "m.cn")
    return tmp_path / "m.cn"


def description(path):
    with safe_open(path, "numpy") as file:
        return json.loads(file.metadata()["model"], parse_constant=pytest.fail)


def test_a_loaded_model_is_the_saved_one(path):
    loaded, saved = load_model(path), fitted("ensemble")
    for name in ("hidden_layer_sizes", "method", "n_members", "learning_rate_init", "n_draws", "q_distribution"):
        assert loaded.get_params()[name] == saved.get_params()[name]
    assert loaded.columns_ == saved.columns_
    assert loaded.outcome_ == saved.outcome_
    assert loaded.search_range_ == saved.search_range_
    assert loaded.n_iter_ == saved.n_iter_
    np.testing.assert_array_equal(loaded.history_.joint_f, saved.history_.joint_f)
    np.testing.assert_array_equal(loaded.predict_dist(X).logpdf(0.3), saved.predict_dist(X).logpdf(0.3))
    loaded.save(path.with_name("again.cn"))
    assert load_file(path).keys() == load_file(path.with_name("again.cn")).keys()


def test_a_model_of_a_frame_keeps_names_labels_and_gaps(tmp_path):
    frame = pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(np.where(X[:, 1] > 0, "up", "down"))})
    frame.loc[4, "a"] = np.nan
    fit = model().fit(frame, Y)
    fit.save(tmp_path / "m.cn")
    loaded = load_model(tmp_path / "m.cn")
    assert list(loaded.feature_names_in_) == ["a", "b"]
    pd.testing.assert_frame_equal(loaded.predict_quantiles(frame, [0.1]), fit.predict_quantiles(frame, [0.1]))
    with pytest.raises(ValueError, match="same order"):
        loaded.predict(frame[["b", "a"]])


def test_the_description_is_strict_json(path):
    assert description(path)["parameters"]["hidden_layer_sizes"] == [8]


def test_a_failed_save_leaves_the_old_file(path):
    before = path.read_bytes()
    broken = load_model(path).set_params(n_draws=lambda step: None)
    with pytest.raises(ValueError, match=r"is code and not data .*n_draws"):
        broken.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["m.cn"]


CODE = {
    "p(q)": {"q_distribution": stats.beta(0.5, 0.5)},
    "p(q), moments of the batch": {"q_distribution": stats.beta(0.5, 0.5), "moment_matching": "batch"},
    "p(q), cn-f": {"q_distribution": stats.beta(2, 3), "method": "cn-f"},
    "p(Z)": {"z_distribution": stats.norm(0, 6)},
    "p(Z) of each row": {"z_distribution": normal_thresholds},
    "optimizer": {"optimizer": optax.sgd},
}


@pytest.mark.parametrize("changes", CODE.values(), ids=CODE)
def test_what_only_a_fit_needs_is_left_out_and_the_prediction_is_the_same(changes, tmp_path):
    fit = model(pretrain_iter=20, max_iter=20, **changes).fit(X, Y)
    for change in ({}, {"q_distribution": "uniform", "z_distribution": "uniform", "optimizer": "adam"}):
        fit.set_params(**change).save(tmp_path / "m.cn")
        loaded = load_model(tmp_path / "m.cn")
        np.testing.assert_array_equal(loaded.predict_quantiles(X, [0.01, 0.5]), fit.predict_quantiles(X, [0.01, 0.5]))
        assert (loaded.q_distribution, loaded.z_distribution, loaded.optimizer) == ("uniform", "uniform", "adam")


def test_a_file_of_the_format_before_predicts_the_same(tmp_path):
    fit = fitted("q beta")
    fit.save(tmp_path / "m.cn")
    rewritten(tmp_path / "m.cn", lambda tensors, text: text["state"].pop("logit_moments"), "collabnets-model-2")
    np.testing.assert_array_equal(load_model(tmp_path / "m.cn").predict(X), fit.predict(X))


def rewritten(path, change, form=None):
    tensors = load_file(path)
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    text = json.loads(metadata["model"])
    change(tensors, text)
    save_file(tensors, path, {**metadata, "model": json.dumps(text), "format": form or metadata["format"]})


DAMAGE = {
    "a weight is missing": lambda tensors, text: tensors.pop("g.2"),
    "a weight has another shape": lambda tensors, text: tensors.update({"g.2": tensors["g.2"][:, :-1].copy()}),
    "a weight has another type": lambda tensors, text: tensors.update({"f.1": tensors["f.1"].astype(np.float64)}),
    "the layers are others": lambda tensors, text: text["parameters"].update(hidden_layer_sizes=[9]),
    "a parameter is not legal": lambda tensors, text: text["parameters"].update(method="magic"),
    "a parameter is not known": lambda tensors, text: text["parameters"].update(magic=1),
    "the columns are damaged": lambda tensors, text: text["columns"]["columns"][0].update(kind="magic"),
    "a column is missing": lambda tensors, text: text["columns"]["columns"].pop(),
    "the history is missing": lambda tensors, text: tensors.pop("history.pretrain"),
    "the start is missing": lambda tensors, text: tensors.pop("start"),
    "a part of the description is missing": lambda tensors, text: text.pop("outcome"),
}


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_refused_in_words(change, path):
    rewritten(path, change)
    with pytest.raises(ValueError, match=r"damaged|parameter of CollaboratingRegressor must be"):
        load_model(path)
