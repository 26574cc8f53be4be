"""Model files: data only, and whole or refused."""

import json

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from variants import fitted, model, table

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
    broken = load_model(path).set_params(optimizer=lambda step: None)
    with pytest.raises(ValueError, match=r"is code and not data .*optimizer"):
        broken.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["m.cn"]


def rewritten(path, change):
    tensors = load_file(path)
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    text = json.loads(metadata["model"])
    change(tensors, text)
    save_file(tensors, path, {**metadata, "model": json.dumps(text)})


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
