"""Every kind of wrong call gets one clear sentence: its class and its words."""

import functools
import re
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from scipy import stats
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import InvalidParameterError
from variants import fitted, model, table

from collabnets import fit_together, load_model
from collabnets.distribution import ScipyDistribution

X, Y = table()
NAN, INF = float("nan"), float("inf")
FRAME = pd.DataFrame(X, columns=["a", "b"])


def quick(**changes):
    return model(**{"pretrain_iter": 2, "max_iter": 2, **changes})


def replaced(array, value, at=(3,)):
    array = np.array(array, float)
    array[at] = value
    return array


class Matrix(eqx.Module):
    """An encoder that gives a matrix where a vector is needed."""

    def __init__(self, n_features, key):
        pass

    def __call__(self, x):
        return jnp.outer(x, x)


FIT = {
    "outcome with NaN": (lambda: quick().fit(X, replaced(Y, NAN)), ValueError, "Input y contains NaN"),
    "outcome with infinity": (lambda: quick().fit(X, replaced(Y, INF)), ValueError, "Input y contains infinity"),
    "outcome of text": (
        lambda: quick().fit(X, ["a"] * 100),
        ValueError,
        "y holds text, but a regression needs numbers",
    ),
    "outcome too short": (lambda: quick().fit(X, Y[:50]), ValueError, r"inconsistent numbers of samples: \[100, 50\]"),
    "outcome too short, frame": (lambda: quick().fit(FRAME, Y[:50]), ValueError, "inconsistent numbers of samples"),
    "outcome with two columns": (lambda: quick().fit(X, np.c_[Y, Y]), ValueError, "y should be a 1d array"),
    "no outcome": (lambda: quick().fit(X, None), ValueError, "requires y to be passed"),
    "features with infinity": (lambda: quick().fit(replaced(X, INF, (3, 1)), Y), ValueError, "contains infinity.*'x1'"),
    "empty frame": (lambda: quick().fit(FRAME[:0], Y[:0]), ValueError, "0 sample"),
    "frame without columns": (lambda: quick().fit(FRAME[[]], Y), ValueError, "0 feature"),
    "empty array": (lambda: quick().fit(X[:0], Y[:0]), ValueError, "0 sample"),
    "features as a vector": (lambda: quick().fit(X[:5, 0], Y[:5]), ValueError, "Expected 2D array, got 1D array"),
    "features in three dimensions": (lambda: quick().fit(X[:, :, None], Y), ValueError, "dim 3"),
    "complex features": (lambda: quick().fit(X[:3] + 1j, Y[:3]), ValueError, "Complex data not supported"),
    "column of dates": (
        lambda: quick().fit(FRAME.assign(day=pd.Timestamp("2024-01-01")), Y),
        TypeError,
        "'day' holds dates or times; turn them into numbers",
    ),
    "too many labels": (
        lambda: quick().fit(pd.DataFrame({"id": [f"n{i}" for i in range(1001)]}), np.arange(1001.0)),
        ValueError,
        "'id' has 1001 labels, more than the 1000",
    ),
    "text mixed with numbers": (
        lambda: quick().fit(pd.DataFrame({"m": ["a", 1] * 50}), Y),
        ValueError,
        "'m' mixes text with numbers",
    ),
    "column all missing": (lambda: quick().fit(FRAME.assign(b=NAN), Y), ValueError, "'b' is entirely missing"),
    "two columns of one name": (
        lambda: quick().fit(FRAME.set_axis(["a", "a"], axis=1), Y),
        ValueError,
        "more than one column named a; rename or drop copies",
    ),
    "negative weight": (lambda: quick().fit(X, Y, replaced(np.ones(100), -1)), ValueError, "Negative values"),
    "weight with NaN": (lambda: quick().fit(X, Y, replaced(np.ones(100), NAN)), ValueError, "contains NaN"),
    "weights all zero": (lambda: quick().fit(X, Y, np.zeros(100)), ValueError, "at least one non-zero"),
    "weights too short": (lambda: quick().fit(X, Y, np.ones(5)), ValueError, r"sample_weight.shape == \(5,\)"),
    "unknown method": (lambda: quick(method="cn").fit(X, Y), InvalidParameterError, "'method' parameter.*'cn-g'"),
    "unknown activation": (
        lambda: quick(activation="step").fit(X, Y),
        InvalidParameterError,
        "'activation' param.*'elu'",
    ),
    "unknown optimizer": (
        lambda: quick(optimizer="newton").fit(X, Y),
        InvalidParameterError,
        "'optimizer' param.*'adam'",
    ),
    "unknown point estimate": (
        lambda: quick(point_estimate="mode").fit(X, Y),
        InvalidParameterError,
        "'point_estimate'",
    ),
    "step of zero": (lambda: quick(learning_rate_init=0.0).fit(X, Y), InvalidParameterError, "'learning_rate_init'"),
    "validation fraction of one": (
        lambda: quick(validation_fraction=1.0).fit(X, Y),
        InvalidParameterError,
        "'validation_fr",
    ),
    "layer of no units": (
        lambda: quick(hidden_layer_sizes=(8, 0)).fit(X, Y),
        ValueError,
        "hidden_layer_sizes lists the wid",
    ),
    "no layers": (
        lambda: quick(hidden_layer_sizes_f=()).fit(X, Y),
        ValueError,
        "hidden_layer_sizes_f lists the widths",
    ),
    "unknown p(q)": (lambda: quick(q_distribution="normal").fit(X, Y), ValueError, "q_distribution is 'uniform'"),
    "beta with a negative parameter": (
        lambda: quick(q_distribution=("beta", -1, 1)).fit(X, Y),
        ValueError,
        "parameters of a Beta distribution are positive",
    ),
    "p(q) beyond one": (
        lambda: quick(q_distribution=stats.norm()).fit(X, Y),
        ValueError,
        "ppf of q_distribution must increase",
    ),
    "unknown p(Z)": (lambda: quick(z_distribution=3).fit(X, Y), ValueError, "z_distribution is 'uniform', 'marginal'"),
    "p(Z) of the wrong shape": (
        lambda: quick(z_distribution=lambda q, X: q).fit(X, Y),
        ValueError,
        r"one row of thresholds a row of X: shape \(100, 1025\) was expected, \(1025,\) came",
    ),
    "p(Z) that is not finite": (
        lambda: quick(z_distribution=lambda q, X: np.full((len(X), len(q)), INF)).fit(X, Y),
        ValueError,
        "thresholds that are not finite",
    ),
    "one fold": (
        lambda: quick(member_rows="folds").fit(X, Y),
        ValueError,
        "needs between 2 and 100 .* members, not 1",
    ),
    "more folds than rows": (
        lambda: quick(member_rows="folds", n_members=5).fit(X[:4], Y[:4]),
        ValueError,
        "needs between 2 and 4",
    ),
    "nothing left to train on": (
        lambda: quick(early_stopping=True, validation_fraction=0.9).fit(X[:2], Y[:2]),
        ValueError,
        "holds out 2 of 2 distinct rows and leaves none",
    ),
    "encoder that gives a matrix": (
        lambda: quick(encoder=Matrix).fit(X, Y),
        ValueError,
        r"shape \(2,\), to a vector; it gives shape \(2, 2\)",
    ),
    "together with other parameters": (
        lambda: fit_together([quick(), quick(n_draws=2)], [(X, Y), (X, Y)]),
        ValueError,
        r"these differ: \['n_draws'\]",
    ),
    "together with too few tables": (lambda: fit_together([quick(), quick()], [(X, Y)]), ValueError, "got 2 and 1"),
    "together with tables of other widths": (
        lambda: fit_together([quick(), quick()], [(X, Y), (X[:, :1], Y)]),
        ValueError,
        "same number of coded features",
    ),
}


def predict(what="predict", *arguments, of=None):
    return lambda: getattr(fitted() if of is None else of(), what)(*arguments)


def on_frame():
    return quick().fit(FRAME, Y)


def dist():
    return fitted().predict_dist(X[:4])


PREDICT = {
    "predict before fit": (lambda: quick().predict(X), NotFittedError, "not fitted yet"),
    "save before fit": (lambda: quick().save("nowhere.cn"), NotFittedError, "not fitted yet"),
    "too many columns": (predict("predict", np.zeros((2, 3))), ValueError, "X has 3 features, but .* expecting 2"),
    "row as a vector": (predict("predict", np.zeros(2)), ValueError, "Expected 2D array"),
    "no rows": (predict("predict", np.zeros((0, 2))), ValueError, "0 sample"),
    "infinite feature": (predict("predict", [[1.0, INF]]), ValueError, "contains infinity"),
    "missing column": (lambda: on_frame().predict(FRAME[["a"]]), ValueError, "yet now missing:\n- b"),
    "extra column": (lambda: on_frame().predict(FRAME.assign(c=1)), ValueError, "unseen at fit time:\n- c"),
    "renamed column": (lambda: on_frame().predict(FRAME.rename(columns={"b": "B"})), ValueError, "unseen.*\n- B"),
    "reordered columns": (lambda: on_frame().predict(FRAME[["b", "a"]]), ValueError, "must be in the same order"),
    "text where numbers were": (lambda: on_frame().predict(FRAME.assign(a="x")), ValueError, "'a' held numbers at fit"),
    "level in percent": (
        predict("predict_quantiles", X, [5, 95]),
        ValueError,
        "between 0 and 1, got 5; write 90 % as 0.9",
    ),
    "level below zero": (predict("predict_quantiles", X, -0.1), ValueError, "between 0 and 1, got -0.1"),
    "level of NaN": (predict("predict_quantiles", X, [0.5, NAN]), ValueError, "between 0 and 1, got nan"),
    "level of text": (predict("predict_quantiles", X, ["a"]), ValueError, "between 0 and 1, got an array of dtype"),
    "levels as a matrix": (predict("predict_quantiles", X, [[0.5]]), ValueError, r"number or a vector.*shape \(1, 1\)"),
    "coverage in percent": (predict("predict_interval", X, 90), ValueError, "a coverage lies between 0 and 1, got 90"),
    "coverage as a matrix": (predict("predict_interval", X, [[0.9]]), ValueError, "coverage is a number or a vector"),
    "points of NaN": (lambda: dist().cdf([0.0, NAN]), ValueError, "contain NaN; drop or fill"),
    "points of text": (lambda: dist().pdf("high"), ValueError, "expected numbers"),
    "points with rows of others": (lambda: dist().cdf(np.zeros((3, 2))), ValueError, r"needs 4 rows.*shape \(3, 2\)"),
    "points in three dimensions": (lambda: dist().cdf(np.zeros((4, 2, 2))), ValueError, "scalar, a vector or a matrix"),
    "ends the wrong way round": (lambda: dist().cdf(1.0, 0.0), ValueError, "needs a <= b; swap"),
    "end of NaN": (lambda: dist().cdf(0.0, NAN), ValueError, "contain NaN"),
    "negative sample": (lambda: dist().sample(-1), ValueError, "whole number >= 0, not -1"),
    "half a sample": (lambda: dist().sample(0.5), ValueError, "whole number >= 0, not 0.5"),
    "row that is not there": (lambda: dist()[4], IndexError, "out of bounds"),
    "parameters as a matrix": (
        lambda: ScipyDistribution(stats.norm, loc=np.zeros((2, 2))),
        ValueError,
        "scalar or a vector with one value a row",
    ),
}
ALL = {**FIT, **PREDICT}


def test_the_table_is_long_enough():
    assert len(ALL) >= 25


@pytest.mark.parametrize(("call", "error", "words"), ALL.values(), ids=ALL)
def test_a_wrong_call_says_what_is_wrong(call, error, words):
    with pytest.raises(error, match=re.compile(words, re.DOTALL)) as caught:
        call()
    assert type(caught.value) is error
    assert len(str(caught.value)) < 1000


# ------------------------------------------------------------ files


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "m.cn"
    fitted().save(path)
    return path.read_bytes()


DAMAGE = {
    "text": (lambda whole: b"hello", "not a model file, or a damaged one"),
    "empty": (lambda whole: b"", "not a model file, or a damaged one"),
    "truncated": (lambda whole: whole[: len(whole) // 2], "not a model file, or a damaged one"),
    "another version": (lambda whole: whole.replace(b"collabnets-model-3", b"collabnets-model-9"), "of this version"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE)
def test_a_file_that_is_not_a_model_is_refused(damage, words, saved, tmp_path):
    (tmp_path / "m.cn").write_bytes(damage(saved))
    with pytest.raises(ValueError, match=words):
        load_model(tmp_path / "m.cn")


def test_a_model_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.cn"):
        load_model(tmp_path / "nothing.cn")


def test_checkpoints_that_are_not_of_this_fit(tmp_path):
    path = Path(tmp_path / "c")
    path.write_text("hello")
    with pytest.raises(ValueError, match="not a checkpoint, or a damaged one; delete it"):
        quick(checkpoint=path).fit(X, Y)
    path.unlink()
    quick(checkpoint=path).fit(X, Y)
    for other in (quick(checkpoint=path, random_state=1), quick(checkpoint=path, n_draws=2)):
        with pytest.raises(ValueError, match="belongs to another fit"):
            other.fit(X, Y)
    with pytest.raises(ValueError, match="belongs to another fit"):
        quick(checkpoint=path).fit(X, Y + replaced(np.zeros(100), 0.1))
    fitted().save(path)
    with pytest.raises(ValueError, match="not a checkpoint of this version"):
        quick(checkpoint=path).fit(X, Y)


def step_of(factor):
    return lambda rate: optax.sgd(factor * rate)


OTHER_FITS = {
    "sizes as arrays": lambda size: {"hidden_layer_sizes": np.array([size, 8])},
    "a number of NumPy": lambda size: {"max_iter": np.int64(size)},
    "arguments of a partial": lambda size: {"encoder": functools.partial(dict, width=size)},
    "what a function has around it": lambda size: {"optimizer": step_of(size)},
    "a default of a function": lambda size: {"optimizer": lambda rate, factor=size: optax.sgd(factor * rate)},
    "a frozen distribution": lambda size: {"q_distribution": stats.beta(size, 2.0)},
}


@pytest.mark.parametrize("make", OTHER_FITS.values(), ids=OTHER_FITS)
def test_parameters_of_another_value_are_another_fit(make):
    """A checkpoint is taken for a fit of the same description only."""
    assert quick(**make(3))._describe() == quick(**make(3))._describe()
    assert quick(**make(3))._describe() != quick(**make(4))._describe()


def test_a_fit_that_diverges_twice_says_what_to_try():
    with (
        pytest.warns(RuntimeWarning, match="became infinite or NaN; training goes on"),
        pytest.raises(FloatingPointError, match="try a smaller learning_rate_init"),
    ):
        model(optimizer="sgd", learning_rate_init=1e30).fit(X, Y)
