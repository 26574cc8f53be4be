"""Laws of `Columns`, `Outcome` and `canonical_rows`, and what they say to bad input."""

import datetime
import json
import pickle
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import _check_feature_names, check_is_fitted, validate_data

from collabnets import preprocessing
from collabnets.preprocessing import Columns, Outcome, align, canonical_rows, feature_names

settings.register_profile("calm", deadline=None, max_examples=40)
settings.load_profile("calm")

NAN, INF = float("nan"), float("inf")


def table(n=60, seed=0):
    """One column of each kind, with gaps."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "real": rng.normal(3, 2, n),
            "gaps": np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
            "whole": rng.integers(0, 9, n),
            "nullable": pd.array(np.where(rng.random(n) < 0.2, None, rng.integers(0, 5, n)), dtype="Int64"),
            "flag": rng.random(n) < 0.5,
            "objects": pd.Series(rng.choice([1, 2.5, None, True], n), dtype=object),
            "text": rng.choice(["b", "a", "ü", ""], n),
            "level": pd.Categorical(rng.choice(["low", "high"], n), categories=["low", "mid", "high"]),
            "code": pd.Categorical(rng.choice([3, 1, 2], n)),
        }
    )
    frame.loc[::7, "text"] = None
    frame["text"] = frame["text"].astype(object)
    return frame


# --------------- numbers, by reference
@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_are_standardised_as_by_scikit_learn(weighted):
    rng = np.random.default_rng(1)
    X, weight = rng.normal(5, 3, (80, 4)), rng.random(80) if weighted else None
    expected = StandardScaler().fit(X, sample_weight=weight).transform(X)
    ours = Columns.fit(X, weight).transform(X)
    assert ours.dtype == np.float32
    assert ours.flags.c_contiguous
    assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


def test_missing_numbers_as_by_simple_imputer():
    X = table()[["gaps", "real"]]
    imputer = SimpleImputer(add_indicator=True).fit(X)
    reference = imputer.transform(X)
    columns = Columns.fit(X)
    assert columns.feature_names_out == ["gaps", "missingindicator_gaps", "real"]
    ours = columns.transform(X)
    assert_array_equal(ours[:, 1], reference[:, 2])
    observed = X["gaps"].dropna()
    assert_allclose(ours[:, 0], (reference[:, 0] - observed.mean()) / observed.std(ddof=0), atol=1e-6)
    assert (ours[X["gaps"].isna(), 0] == 0).all()


@pytest.mark.parametrize("X", [table(), table().assign(text="same"), table()[["text"]].fillna("x")])
def test_labels_as_by_one_hot_encoder_and_get_dummies(X):
    text = X[["text"]]
    columns = Columns.fit(text)
    ours = columns.transform(text)
    theirs = OneHotEncoder(sparse_output=False).fit(text)
    assert_array_equal(ours, theirs.transform(text))
    assert_array_equal(ours, pd.get_dummies(text["text"], dummy_na=bool(text["text"].isna().any())))
    assert columns.feature_names_out[0] == theirs.get_feature_names_out()[0]


@pytest.mark.parametrize(
    ("offset", "scale"),
    [(1e9, 1), (-1e9, 1e-3), (0, 1e-12), (1e-12, 1e-12), (0, 1e200), (3e307, 1e307), (0, 1e-300)],
)
def test_extreme_offsets_and_scales(offset, scale):
    noise = np.random.default_rng(2).normal(size=500)
    X = (offset + scale * noise)[:, None]
    exact = (X - offset) / scale  # what is left of the noise after rounding
    standard = Columns.fit(X).transform(X)[:, 0]
    assert_allclose(standard, (exact[:, 0] - exact.mean()) / exact.std(), rtol=1e-4, atol=1e-4)


def test_a_constant_column_is_centred_only():
    columns = Columns.fit(np.array([[0.1, 1e9], [0.1, 1e9], [0.1, 1e9]]))
    assert_array_equal(columns.transform([[0.1, 1e9], [2.1, 1e9 + 1]]), np.float32([[0, 0], [2, 1]]))


def test_far_values_stay_within_the_bound():
    columns = Columns.fit(np.array([[0.0], [1e-9]]))
    out = columns.transform([[1e300], [-1e300], [1.7e308]])
    assert_array_equal(out[:, 0], np.float32([1e6, -1e6, 1e6]))


def test_columns_and_outcomes_stay_in_their_units_when_asked():
    X = pd.DataFrame({"a": [1.0, 5.0, np.nan, 30.0], "b": list("uvuv")})
    columns = Columns.fit(X, [1.0, 1.0, 5.0, 2.0], standardize=False)
    out = columns.transform(X)
    assert_allclose(out[:, 0], [1.0, 5.0, (1 + 5 + 60) / 4, 30.0], rtol=1e-7)
    assert_array_equal(out[:, 1], [0, 0, 1, 0])
    assert_array_equal(out[:, 2], [1, 0, 1, 0])
    assert Columns.from_dict(columns.to_dict()) == columns
    outcome = Outcome.fit([3.0, 4.0, 8.0], standardize=False)
    assert (outcome.loc, outcome.scale) == (0.0, 1.0)
    assert Outcome.fit([3.0, 3.0], standardize=False).constant


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1, 2, 4], dtype="int8"),
        pd.Series([1, 2, 4], dtype="Int64"),
        pd.Series([1, 2, 4], dtype="Float32"),
        pd.Series([1, 2, 4], dtype=object),
        pd.Series([1, 2.0, np.float32(4)], dtype=object),
        pd.Series([Decimal(1), Decimal(2), Decimal(4)]),
        pd.Series([Decimal(1), 2.0, np.int64(4)], dtype=object),
        pd.Series([1, 2, 4], dtype=pd.SparseDtype("int64")),
        pd.Series([1.0, 2.0, 4.0], dtype="float16"),
        pd.Series([1, 2, 4], dtype="int64[pyarrow]"),
    ],
    ids=lambda values: str(values.dtype),
)
def test_every_way_to_write_numbers_is_the_same(values):
    reference = Columns.fit(pd.DataFrame({"a": [1.0, 2.0, 4.0]}))
    assert Columns.fit(pd.DataFrame({"a": values})) == reference
    assert_array_equal(reference.transform(pd.DataFrame({"a": values})), reference.transform([[1.0], [2.0], [4.0]]))


def test_object_arrays_go_column_by_column():
    X = np.array([[1, "a"], [2, "b"], [None, "a"]], dtype=object)
    columns = Columns.fit(X)
    assert columns.feature_names_out == ["x0", "missingindicator_x0", "x1_a", "x1_b"]
    assert columns.feature_names_in is None
    assert_array_equal(columns.transform(X), np.float32([[-1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0]]))
    assert Columns.fit(X.tolist()) == columns
    assert Columns.fit([["1", 2.5], ["2", 3.5]]).feature_names_out == ["x0_1", "x0_2", "x1"]
    assert Columns.fit(np.array([["b"], ["a"]])).feature_names_out == ["x0_a", "x0_b"]


# --------------- laws
def test_rows_are_transformed_one_by_one_and_the_data_stays():
    X = table()
    before = X.copy(deep=True)
    columns = Columns.fit(X)
    together = columns.transform(X)
    apart = np.vstack([columns.transform(X[i : i + 1]) for i in range(len(X))])
    assert_array_equal(together, apart)
    pd.testing.assert_frame_equal(X, before)
    fixed = np.arange(6.0).reshape(3, 2)
    fixed.flags.writeable = False
    Columns.fit(fixed).transform(fixed)


def test_order_of_columns_rows_and_categories_does_not_matter():
    X = table()
    columns = Columns.fit(X)
    assert_array_equal(columns.transform(X[X.columns[::-1]]), columns.transform(X))
    other = X.assign(level=X["level"].cat.reorder_categories(["high", "low", "mid"]), text=X["text"].astype("str"))
    again = Columns.fit(other)
    assert again == columns
    assert_array_equal(again.transform(other), columns.transform(X))
    assert "level_mid" not in columns.feature_names_out
    level = Columns.fit(X[["text", "level"]].iloc[::-1])
    assert level == Columns.fit(X[["text", "level"]])


def test_labels_are_compared_as_text():
    columns = Columns.fit(pd.DataFrame({"c": pd.Categorical([1, 2, 10])}))
    assert columns.feature_names_out == ["c_1", "c_10", "c_2"]
    expected = np.float32([[0, 0, 1], [1, 0, 0], [0, 0, 0]])
    for values in ([2, 1, 7], [2.0, 1.0, NAN], ["2", "1", "01"]):
        assert_array_equal(columns.transform(pd.DataFrame({"c": values})), expected)
    assert_array_equal(columns.transform(np.array([[2.0], [1.0], [1.5]])), expected)
    flags = Columns.fit(pd.DataFrame({"c": pd.Categorical([True, False])}))
    assert_array_equal(flags.transform(pd.DataFrame({"c": [False, True]})), np.float32([[1, 0], [0, 1]]))
    cut = pd.DataFrame({"c": pd.cut([1, 5, 9], 3)})
    assert_array_equal(Columns.fit(cut).transform(cut), np.eye(3, dtype=np.float32))


def test_missing_at_predict():
    columns = Columns.fit(pd.DataFrame({"a": [1.0, 3.0], "b": ["x", "y"], "c": ["x", None]}))
    assert columns.feature_names_out == ["a", "b_x", "b_y", "c_x", "missingindicator_c"]
    with pytest.warns(UserWarning, match="Missing values in a, which had none at fit") as caught:
        out = columns.transform(pd.DataFrame({"a": [None, 3.0], "b": [None, "z"], "c": [None, "nan"]}))
    assert len(caught) == 1
    assert_array_equal(out, np.float32([[0, 0, 0, 0, 1], [1, 0, 0, 0, 0]]))


@given(st.lists(st.integers(0, 3), min_size=60, max_size=60))
def test_a_weight_is_a_repetition(weight):
    assume(any(count for row, count in enumerate(weight) if row % 7))  # rows 0, 7, ... have no text
    X, weight = table()[["real", "text", "level"]], np.array(weight)
    repeated = X.iloc[np.repeat(np.arange(len(X)), weight)]
    weighted, repeated = Columns.fit(X, weight), Columns.fit(repeated)
    assert weighted.feature_names_out == repeated.feature_names_out
    assert_allclose(weighted.transform(X), repeated.transform(X), rtol=1e-5, atol=1e-5)


def test_description_survives_json_and_pickle():
    columns = Columns.fit(table())
    restored = Columns.from_dict(json.loads(json.dumps(columns.to_dict(), allow_nan=False)))
    assert restored == columns == pickle.loads(pickle.dumps(columns))
    assert_array_equal(restored.transform(table(seed=1)), columns.transform(table(seed=1)))


DAMAGE = {
    "nothing": lambda d: d.clear(),
    "top key missing": lambda d: d.pop("named"),
    "top key extra": lambda d: d.update(more=1),
    "named as a number": lambda d: d.update(named=1),
    "columns not a list": lambda d: d.update(columns={"kind": "number"}),
    "no columns": lambda d: d.update(columns=[]),
    "column not a mapping": lambda d: d["columns"].append(3),
    "same name twice": lambda d: d["columns"].append(d["columns"][0]),
    "unknown kind": lambda d: d["columns"][0].update(kind="date"),
    "unhashable kind": lambda d: d["columns"][0].update(kind=[]),
    "no kind": lambda d: d["columns"][0].pop("kind"),
    "field missing": lambda d: d["columns"][0].pop("loc"),
    "field extra": lambda d: d["columns"][0].update(code="x"),
    "field of the other kind": lambda d: d["columns"][0].update(labels=["x"]),
    "name not text": lambda d: d["columns"][0].update(name=0),
    "location not a float": lambda d: d["columns"][0].update(loc="1"),
    "location nan": lambda d: d["columns"][0].update(loc=NAN),
    "scale zero": lambda d: d["columns"][0].update(scale=0.0),
    "missing as a number": lambda d: d["columns"][0].update(missing=1),
    "labels text": lambda d: d["columns"][1].update(labels="ab"),
    "labels not text": lambda d: d["columns"][1].update(labels=[1, 2]),
    "labels unsorted": lambda d: d["columns"][1].update(labels=["b", "a"]),
    "labels repeated": lambda d: d["columns"][1].update(labels=["a", "a"]),
    "labels empty": lambda d: d["columns"][1].update(labels=[]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_description_is_refused(damage):
    data = Columns.fit(pd.DataFrame({"a": [1.0, 2.0], "b": ["a", "b"]})).to_dict()
    damage(data)
    with pytest.raises(ValueError, match="description of columns is damaged"):
        Columns.from_dict(data)


# --------------- bad tables
def frame(**columns):
    return pd.DataFrame(columns)


BAD_FIT = {
    "1-D": (np.arange(3.0), ValueError, "Expected 2D array, got 1D array instead"),
    "3-D": (np.zeros((2, 2, 2)), ValueError, "Found array with dim 3"),
    "sparse": (csr_array(np.eye(3)), TypeError, "[Ss]parse"),
    "complex": (np.ones((2, 1)) * 1j, ValueError, "Complex data not supported"),
    "complex column": (frame(a=[1j, 2.0]), ValueError, "Complex data not supported.*'a'"),
    "no rows": (np.empty((0, 3)), ValueError, r"Found array with 0 sample\(s\)"),
    "no rows, frame": (frame(a=[]), ValueError, r"Found array with 0 sample\(s\)"),
    "no columns": (
        np.empty((12, 0)),
        ValueError,
        r"0 feature\(s\) \(shape=\(\d*, 0\)\) while a minimum of \d* is req",
    ),
    "no columns, frame": (
        pd.DataFrame(index=range(12)),
        ValueError,
        r"0 feature\(s\) \(shape=\(\d*, 0\)\) while a minimum of \d* is required.",
    ),
    "infinite": (np.array([[1, 2], [3, INF]]), ValueError, "Input X contains infinity.*'x1'"),
    "infinite object": (frame(a=pd.Series([1, -INF], dtype=object)), ValueError, "infinity.*'a'"),
    "infinite nullable": (frame(a=pd.array([1, INF], dtype="Float64")), ValueError, "infinity.*'a'"),
    "huge integer": (frame(a=[10**400, 1]), ValueError, "infinity or a value too large.*'a'"),
    "all missing": (frame(a=[1, 2], b=[NAN, NAN]), ValueError, "'b' is entirely missing; drop it"),
    "all None": (frame(b=[None, None]), ValueError, "'b' is entirely missing; drop it"),
    "all missing category": (
        frame(b=pd.Categorical([None, None], ["x"])),
        ValueError,
        "'b' is entirely missing",
    ),
    "dates": (frame(when=pd.to_datetime(["2020-01-01"])), TypeError, "'when' holds dates.*days since"),
    "dates with a zone": (
        frame(when=pd.to_datetime(["2020-01-01"], utc=True)),
        TypeError,
        "'when' holds dates",
    ),
    "date objects": (frame(when=[datetime.date(2020, 1, 1)]), TypeError, "'when' holds dates"),
    "periods": (frame(when=pd.period_range("2020", periods=2)), TypeError, "'when' holds dates"),
    "durations": (frame(when=pd.to_timedelta([1, 2])), TypeError, "'when' holds dates"),
    "date array": (np.array([["2020-01-01"]], dtype="M8[D]"), TypeError, "'x0' holds dates"),
    "dict": (np.array([[1.0], [{}]], dtype=object), TypeError, "argument must be .* string.* number"),
    "bytes": (np.array([[b"a"], [b"b"]]), TypeError, "argument must be .* string.* number"),
    "text and numbers": (
        frame(a=[1, "1"]),
        ValueError,
        "'a' mixes text with numbers.*astype.str.*to_numeric",
    ),
    "text and reals": (frame(a=["1", 1.5]), ValueError, "'a' mixes text with numbers"),
    "labels that read alike": (
        frame(a=pd.Categorical([1, "1"])),
        ValueError,
        "'a' has different labels that read",
    ),
    "many labels": (
        frame(a=[f"id{i}" for i in range(1001)]),
        ValueError,
        "'a' has 1001 labels.*TargetEncoder.*drop",
    ),
    "same name twice": (
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        ValueError,
        "more than one column named a",
    ),
    "mixed names": (
        pd.DataFrame([[1, 2]], columns=["a", 1]),
        TypeError,
        "Feature names are only supported if all",
    ),
}


@pytest.mark.parametrize(("X", "error", "message"), BAD_FIT.values(), ids=BAD_FIT)
def test_bad_tables_at_fit(X, error, message):
    with pytest.raises(error, match=message):
        Columns.fit(X)


BAD_TRANSFORM = {
    "number now text": (frame(a=["x", "y"], b=["x", "y"]), "'a' held numbers at fit, but holds text"),
    "number now category": (frame(a=pd.Categorical([1, 2]), b=["x", "y"]), "'a' held numbers at fit"),
    "number now infinite": (frame(a=[1, INF], b=["x", "y"]), "infinity.*'a'"),
    "label now mixed": (frame(a=[1, 2], b=[1, "x"]), "'b' mixes text with numbers"),
    "column missing": (frame(a=[1]), "The feature names should match.*\n.*yet now missing:\n- b"),
    "column extra": (
        frame(a=[1], b=["x"], c=[1]),
        "The feature names should match.*\n.*unseen at fit time:\n- c",
    ),
    "too few": (np.zeros((2, 1)), r"X has 1 features, but \w+ is expecting 2 features as input"),
    "1-D": (np.zeros(2), "Reshape your data"),
}


@pytest.mark.parametrize(("X", "message"), BAD_TRANSFORM.values(), ids=BAD_TRANSFORM)
def test_bad_tables_at_predict(X, message):
    columns = Columns.fit(frame(a=[1.0, 2.0], b=["x", "y"]))
    with pytest.raises(ValueError, match=message):
        columns.transform(X)


def test_dates_at_predict_are_refused():
    columns = Columns.fit(frame(b=["x", "y"]))
    with pytest.raises(TypeError, match="holds dates"):
        columns.transform(frame(b=pd.to_datetime(["2020-01-01"])))


# --------------- column names
class FittedAs(BaseEstimator):
    """An estimator with nothing but names."""

    def __init__(self, names=None):
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)


def complaint(call, *args, **options):
    """What a call raises or warns: its class and text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call(*args, **options)
        except (TypeError, ValueError) as error:
            return type(error), str(error)
    return [(warning.category, str(warning.message)) for warning in caught]


@pytest.mark.parametrize("fitted", [None, list("abcdefgh")])
@pytest.mark.parametrize(
    "found",
    [None, list("abcdefgh"), list("hgfedcba"), list("abcdefgx"), list("stuvwxyz"), range(8), list("abc")],
)
def test_names_are_checked_as_in_scikit_learn(fitted, found):
    X = np.zeros((1, 8)) if found is None else pd.DataFrame(np.zeros((1, len(found))), columns=list(found))
    theirs = complaint(_check_feature_names, FittedAs(fitted), X, reset=False)
    names = None if fitted is None else np.asarray(fitted, dtype=object)
    assert complaint(align, X, names, estimator_name="FittedAs", reorder=False) == theirs


def test_align_puts_an_order_right_and_copies_nothing_else():
    X = pd.DataFrame({"b": [1], "a": ["x"]})
    assert list(align(X, ["a", "b"]).columns) == ["a", "b"]
    assert align(X, ["b", "a"]) is X
    assert list(X.columns) == ["b", "a"]
    assert feature_names(X) == ["b", "a"]
    assert feature_names(pd.DataFrame([[1, 2]])) is None
    assert feature_names(np.zeros((1, 2))) is None


def test_frames_without_text_names_go_by_position():
    columns = Columns.fit(pd.DataFrame([[1.0, 2.0], [3.0, 5.0]]))
    assert columns.feature_names_in is None
    assert columns.feature_names_out == ["x0", "x1"]
    named = Columns.fit(pd.DataFrame([[1.0, 2.0], [3.0, 5.0]], columns=["a", "b"]))
    X = np.array([[1.0, 2.0], [7.0, 8.0]])
    assert_array_equal(columns.transform(pd.DataFrame(X, columns=["b", "a"])), named.transform(X))


# --------------- outcome
@settings(max_examples=100)
@given(st.floats(-9, 9), st.sampled_from([-1, 1]), st.floats(-1e3, 1e3))
def test_outcome_is_equivariant(log_scale, sign, shift):
    y = np.random.default_rng(3).gamma(2, size=200)
    scale = sign * 10.0**log_scale
    moved = scale * y + shift * abs(scale)
    assert_allclose(Outcome.fit(moved).transform(moved), sign * Outcome.fit(y).transform(y), atol=1e-6)
    assert_allclose(Outcome.fit(moved).scale, abs(scale) * y.std(), rtol=1e-9)


def test_outcome_round_trip_and_weights():
    y, weight = np.array([1e9, 1e9 + 2, 1e9 + 5]), np.array([2, 0, 1])
    outcome = Outcome.fit(pd.Series(y, dtype="Float64"), weight)
    assert outcome == Outcome.fit([1e9, 1e9 + 5, 1e9]) == Outcome.fit(y, weight * 8)
    assert type(outcome.loc) is type(outcome.scale) is float
    assert outcome.transform(y).dtype == np.float32
    assert outcome.inverse(np.zeros((2, 3))).dtype == np.float64
    assert_allclose(outcome.inverse(outcome.transform(y)) - 1e9, y - 1e9, atol=1e-5)


@pytest.mark.parametrize(
    ("y", "constant"), [([0.1] * 3, True), ([1e9, 1e9 + 1e-6], True), ([7], True), ([0, 1e-300], False)]
)
def test_a_constant_outcome_is_a_point(y, constant):
    outcome = Outcome.fit(y)
    assert outcome.constant is constant
    if constant:
        assert_allclose(outcome.loc, y[0], rtol=1e-15)
        assert_array_equal(outcome.transform(y), np.zeros(len(y)))
        assert_array_equal(outcome.inverse([-3.0, 0.0, 3.0]), [outcome.loc] * 3)


BAD_OUTCOME = {
    "nan": ([1.0, NAN], ValueError, r"Input y contains NaN\..*[Dd]rop"),
    "missing": (pd.Series([1, None], dtype="Int64"), ValueError, r"Input y contains NaN\."),
    "infinite": (
        [1.0, INF],
        ValueError,
        r"Input y contains infinity or a value too large for dtype\('float64'\)",
    ),
    "text": (["a", "b"], ValueError, "y holds text.*to_numeric"),
    "dates": (np.array(["2020-01-01"] * 2, dtype="M8[D]"), TypeError, "'y' holds dates"),
    "complex": ([1j, 2.0], ValueError, "Complex data not supported"),
    "3-D": (np.zeros((2, 1, 1)), ValueError, "y should be a 1d array"),
    "empty": ([], ValueError, r"0 sample\(s\)"),
}


@pytest.mark.parametrize(("y", "error", "message"), BAD_OUTCOME.values(), ids=BAD_OUTCOME)
def test_bad_outcomes(y, error, message):
    with pytest.raises(error, match=message):
        Outcome.fit(y)
    with pytest.raises(error, match=message):
        canonical_rows(np.zeros((2, 1)), y)


BAD_WEIGHT = {
    "short": ([1.0], r"sample_weight should have shape \(3,\)"),
    "matrix": (np.ones((3, 2)), r"sample_weight should have shape \(3,\)"),
    "scalar": (2.0, r"sample_weight should have shape \(3,\)"),
    "nan": ([1, NAN, 1], "sample_weight contains NaN or infinity"),
    "infinite": ([1, INF, 1], "sample_weight contains NaN or infinity"),
    "negative": ([1, -1, 1], "Negative values in sample_weight"),
    "zero": ([0, 0, 0], "Sample weights must contain at least one non-zero number"),
}


@pytest.mark.parametrize(("weight", "message"), BAD_WEIGHT.values(), ids=BAD_WEIGHT)
def test_bad_weights(weight, message):
    X, y = np.eye(3), np.arange(3.0)
    for call in (
        lambda: canonical_rows(X, y, weight),
        lambda: Columns.fit(X, weight),
        lambda: Outcome.fit(y, weight),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# --------------- canonical rows
few = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-300, NAN])
small_table = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        arrays(np.float64, (n, 2), elements=few),
        arrays(np.float64, n, elements=st.sampled_from([0.0, 2.0])),
        arrays(np.float64, n, elements=st.sampled_from([0.0, 0.1, 0.3, 1.0, 1e9])),
        st.permutations(range(n)),
    )
)


def bits(X, y, index):
    return (np.column_stack([X, y])[index] + 0.0).tobytes()


@pytest.mark.parametrize("hashing", ["good", "useless", "poor"])
@given(small_table)
def test_canonical_rows_against_unique(hashing, drawn):
    X, y, weight, permutation = drawn
    assume(weight.any())
    useless = {
        "useless": lambda parts: np.zeros(len(parts[0]), dtype=np.uint64),
        "poor": lambda parts: (parts[0][:, 0] > 0).astype(np.uint64),
    }
    with pytest.MonkeyPatch.context() as patch:
        if hashing in useless:
            patch.setattr(preprocessing, "_row_hash", useless[hashing])
        index, total = canonical_rows(X, y, weight)
        there, back = canonical_rows(X[permutation], y[permutation], weight[permutation])
        whole, unchanged = canonical_rows(X[weight > 0], y[weight > 0], weight[weight > 0])
        scaled, _ = canonical_rows(X, y, weight * 3)

    rows = np.column_stack([X, y])[weight > 0] + 0.0
    distinct, inverse = np.unique(np.nan_to_num(rows, nan=9.0), axis=0, return_inverse=True)
    assert len(index) == len(distinct)
    found = np.nan_to_num(np.column_stack([X, y])[index], nan=9.0)
    expected = np.bincount(inverse.ravel(), weight[weight > 0])
    places = [int(np.flatnonzero((distinct == row).all(axis=1))[0]) for row in found]
    assert sorted(places) == list(range(len(distinct)))
    assert_allclose(total, expected[places], rtol=1e-12)

    assert_array_equal(total, back)  # bit for bit, from here on
    assert_array_equal(total, unchanged)
    assert_array_equal(index, scaled)
    same = np.column_stack([X, y])[index]
    assert_array_equal(same, np.column_stack([X, y])[permutation][there])
    assert_array_equal(same, np.column_stack([X, y])[weight > 0][whole])


def test_weights_and_repetitions_give_the_same_rows():
    rng = np.random.default_rng(4)
    X, y, weight = rng.normal(size=(5000, 3)), rng.normal(size=5000), rng.integers(0, 5, 5000)
    copies = rng.permutation(np.repeat(np.arange(5000), weight))
    once, total = canonical_rows(X, y, weight)
    many, counts = canonical_rows(X[copies], y[copies])
    assert bits(X, y, once) == bits(X[copies], y[copies], many)
    assert_array_equal(total, counts)
    plain = [Columns.fit(X[once], total), Outcome.fit(y[once], total)]
    assert plain == [Columns.fit(X[copies][many], counts), Outcome.fit(y[copies][many], counts)]


def test_canonical_rows_keep_their_order_in_another_unit_of_the_outcome():
    rng = np.random.default_rng(6)
    X, y = rng.integers(0, 9, (200, 1)).astype(float), rng.normal(size=200)
    for a, b in ((1e-9, 0.0), (3.0, -7.0), (1e9, 1e10)):
        assert_array_equal(canonical_rows(X, a * y + b)[0], canonical_rows(X, y)[0])


def test_canonical_rows_of_a_frame_go_by_label():
    X, rng = pd.concat([table(), table()], ignore_index=True), np.random.default_rng(5)
    y, weight = np.tile(rng.normal(size=60), 2), np.tile(rng.integers(0, 3, 60), 2)
    X.loc[(weight == 0).nonzero()[0], "text"] = "a label that no weight counts"
    index, total = canonical_rows(X, y, weight)
    assert len(index) == (weight[:60] > 0).sum()
    order = rng.permutation(len(X))
    other = X.iloc[order].assign(level=X["level"].cat.reorder_categories(["high", "low", "mid"]))
    other_index, other_total = canonical_rows(other, y[order], weight[order])
    assert_array_equal(total, other_total)
    pd.testing.assert_frame_equal(
        X.iloc[index].astype({"level": str}).reset_index(drop=True),
        other.iloc[other_index].astype({"level": str}).reset_index(drop=True),
    )
    kept = np.flatnonzero(weight)
    removed, removed_total = canonical_rows(X.iloc[kept], y[kept], weight[kept])
    assert_array_equal(kept[removed], index)
    assert_array_equal(removed_total, total)


def test_canonical_rows_take_sequences_and_several_outcomes():
    X, y = np.zeros((4, 3, 2)), np.array([[0, 0], [0, 1], [0, 1], [0, 0]])
    X[3, 2, 1] = 1
    index, weight = canonical_rows(X, y)
    assert sorted(zip(index.tolist(), weight.tolist(), strict=True)) == [(0, 1.0), (1, 2.0), (3, 1.0)]
    swapped = canonical_rows(np.array([[1.0, 2.0], [2.0, 1.0]]), [0.0, 0.0])
    assert len(swapped[0]) == 2
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        canonical_rows(X, y[:2])


# --------------- an estimator
class Line(RegressorMixin, BaseEstimator):
    """Least squares on what this module makes of the data: the smallest estimator that uses all of it."""

    def fit(self, X, y, sample_weight=None):
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        tabular = isinstance(X, pd.DataFrame)
        X = validate_data(self, X, **({"skip_check_array": True} if tabular else self._checks()))
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected",
                DataConversionWarning,
                stacklevel=2,
            )
            y = y.ravel()
        index, weight = canonical_rows(X, y, sample_weight)
        X, y = (X.iloc[index] if tabular else X[index]), y[index]
        self.columns_, self.outcome_ = Columns.fit(X, weight), Outcome.fit(y, weight)
        design = np.column_stack([self.columns_.transform(X), np.ones(len(X))]).astype(np.float64)
        root = np.sqrt(weight / weight.max())
        target = self.outcome_.transform(y) * root
        self.coef_ = np.linalg.lstsq(design * root[:, None], target, rcond=1e-6)[0]
        return self

    def predict(self, X):
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        X = align(X, names, estimator_name=type(self).__name__, reorder=False)
        if not isinstance(X, pd.DataFrame):
            X = validate_data(FittedAs(), X, **self._checks())
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but Line is expecting {self.n_features_in_} features as input"
            )
        return self.outcome_.inverse(self.columns_.transform(X) @ self.coef_[:-1] + self.coef_[-1])

    @staticmethod
    def _checks():
        return {"dtype": None, "ensure_all_finite": False}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags


@pytest.mark.filterwarnings("ignore")
def test_an_estimator_built_on_this_passes_check_estimator():
    failed = [
        (result["check_name"], result["exception"])
        for result in check_estimator(Line(), on_fail=None, on_skip=None)
        if result["status"] == "failed"
    ]
    assert failed == []
