"""From columns to arrays: scaling in float64, categories, missing values, and rows in a canonical order.

`Columns` learns one small description a column and applies it, `Outcome` puts y on a unit scale, and
`canonical_rows` makes a fit independent of how its rows were written down. Each value that comes out depends
on its own row only, and the caller's data is never changed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.utils import check_array

__all__ = [
    "CategoryColumn",
    "Columns",
    "NumberColumn",
    "Outcome",
    "align",
    "canonical_rows",
    "feature_names",
    "frame_or_array",
]

LARGEST_VALUE = 1e6  # of a standardised number; n rows of equal weight stay within sqrt(n) of their mean
MOST_LABELS = 1000  # one-hot columns that a categorical column may take
ROUNDING = 1e-13  # a spread below this fraction of the mean is rounding, not signal
BLOCK = 4096  # rows at a time, so that temporaries stay in the processor's cache

_NUMBERS = {"integer", "floating", "mixed-integer-float", "boolean", "decimal", "empty"}  # pandas' own names
_DATES = {"datetime", "datetime64", "date", "time", "timedelta", "timedelta64", "period"}


def feature_names(X: Any) -> list[str] | None:
    """Column names of a DataFrame when all are strings, else None; mixed or repeated names are refused."""
    if not isinstance(X, pd.DataFrame) or X.shape[1] == 0:
        return None
    if not X.columns.is_unique:
        repeated = sorted({str(name) for name in X.columns[X.columns.duplicated()]})
        raise ValueError(f"X has more than one column named {', '.join(repeated)}; rename or drop copies.")
    types = sorted({type(name).__qualname__ for name in X.columns})
    if len(types) > 1 and "str" in types:
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your input has "
            f"{types} as feature name / column name types. Convert them all to strings, by X.columns = "
            "X.columns.astype(str) for example."
        )
    return list(X.columns) if types == ["str"] else None


def frame_or_array(X: Any) -> Any:
    """Lists as an array whose numbers stay numbers beside text; tables of other libraries are refused."""
    if isinstance(X, list | tuple):
        array = np.asarray(X)
        return np.asarray(X, dtype=object) if array.dtype.kind in "US" else array
    if hasattr(X, "columns") and not isinstance(X, pd.DataFrame):
        kind = f"{type(X).__module__}.{type(X).__qualname__}"
        raise TypeError(f"X is a {kind}; pass a pandas DataFrame, say X.to_pandas(), or a NumPy array.")
    return X


def align(
    X: Any, feature_names_in: Iterable[str] | None, *, estimator_name: str = "Columns", reorder: bool = True
) -> Any:
    """Put the columns of a DataFrame in the order of the fit, by name.

    Parameters
    ----------
    X : DataFrame or array
        Returned as it is when its columns are in order, or have no names to order them by.
    feature_names_in : iterable of str or None
        The names seen at fit; None when the fit saw none. When only one of the fit and X has names, a
        UserWarning says so, as in scikit-learn, and columns go by position.
    estimator_name : str
        Who speaks in the warnings.
    reorder : bool
        False refuses another order, in scikit-learn's words, rather than putting it right.

    Returns
    -------
    DataFrame or array
        Missing or unseen columns are a ValueError.
    """
    found, expected = feature_names(X), None if feature_names_in is None else list(feature_names_in)
    if found is not None and expected is None:
        text = f"X has feature names, but {estimator_name} was fitted without feature names"
        warnings.warn(text, UserWarning, stacklevel=2)
    if found is None and expected is not None:
        text = f"X does not have valid feature names, but {estimator_name} was fitted with feature names"
        warnings.warn(text, UserWarning, stacklevel=2)
    if found is None or expected is None or found == expected:
        return X
    unseen, missing = sorted(set(found) - set(expected)), sorted(set(expected) - set(found))
    if reorder and not unseen and not missing:
        return X[expected]
    text = "The feature names should match those that were passed during fit.\n"
    if unseen:
        text += "Feature names unseen at fit time:\n" + _bullets(unseen)
    if missing:
        text += "Feature names seen at fit time, yet now missing:\n" + _bullets(missing)
    if not unseen and not missing:
        text += "Feature names must be in the same order as they were in fit.\n"
    raise ValueError(text)


def _bullets(names: list[str]) -> str:
    return "".join(f"- {name}\n" for name in names[:5]) + ("- ...\n" if len(names) > 5 else "")


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, (x - loc) / scale, and, if the fit saw missing ones, a 0/1 column that marks those."""

    name: str
    loc: float
    scale: float
    fill: float
    missing: bool
    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        numbers = (self.loc, self.scale, self.fill)
        finite = all(isinstance(value, float) and math.isfinite(value) for value in numbers)
        if not (isinstance(self.name, str) and isinstance(self.missing, bool) and finite and self.scale > 0):
            raise ValueError(f"not a name, a finite location, a positive scale, a finite fill, a bool: {self}")

    @property
    def names_out(self) -> list[str]:
        """Names of the output columns."""
        return [self.name, *([f"missingindicator_{self.name}"] if self.missing else [])]

    @staticmethod
    def fit(values: Any, name: str, weight: np.ndarray, standardize: bool) -> NumberColumn:
        """Learn from the observed values."""
        numbers = _numbers(values, name)
        observed = ~np.isnan(numbers)
        if not observed.any():
            raise ValueError(f"Column {name!r} is entirely missing; drop it before the fit.")
        mean, scale = _location_scale(numbers[observed], weight[observed])
        if not standardize:
            return NumberColumn(name, 0.0, 1.0, mean, not observed.all())
        return NumberColumn(name, mean, scale or 1.0, 0.0, not observed.all())

    def write(self, values: Any, out: np.ndarray) -> bool:
        """Fill the output columns; say whether a value was missing that has no indicator."""
        if not _is_number(values, self.name):
            raise ValueError(f"Column {self.name!r} held numbers at fit, but holds text or categories now.")
        numbers = _numbers(values, self.name)
        missing = np.isnan(numbers)
        with np.errstate(over="ignore"):
            standard = (numbers - self.loc) / self.scale
        standard[missing] = self.fill
        out[:, 0] = np.clip(standard, -LARGEST_VALUE, LARGEST_VALUE)
        if self.missing:
            out[:, 1] = missing
        return not self.missing and bool(missing.any())


@dataclass(frozen=True)
class CategoryColumn:
    """One-hot columns of labels, 0/1 and not standardised; missing has one too if the fit saw it."""

    name: str
    labels: tuple[str, ...]
    missing: bool
    kind: ClassVar[str] = "category"

    def __post_init__(self) -> None:
        valid = all(isinstance(text, str) for text in (self.name, *self.labels)) and len(self.labels) > 0
        if not (valid and list(self.labels) == sorted(set(self.labels)) and isinstance(self.missing, bool)):
            raise ValueError(f"not a name, different texts in sorted order, a bool: {self}")

    @property
    def names_out(self) -> list[str]:
        """Names of the output columns."""
        names = [f"{self.name}_{label}" for label in self.labels]
        return [*names, f"missingindicator_{self.name}"] if self.missing else names

    @staticmethod
    def fit(values: Any, name: str, weight: np.ndarray, standardize: bool) -> CategoryColumn:
        """Learn the labels; every weight is positive here, so a label counts when it is seen."""
        codes, labels = _labels(values, name)
        if not labels:
            raise ValueError(f"Column {name!r} is entirely missing; drop it before the fit.")
        if len(labels) > MOST_LABELS:
            raise ValueError(
                f"Column {name!r} has {len(labels)} labels, more than the {MOST_LABELS} of one-hot encoding; "
                "encode it as numbers (sklearn.preprocessing.TargetEncoder), merge rare labels, or drop it."
            )
        return CategoryColumn(name, tuple(labels), bool((codes < 0).any()))

    def write(self, values: Any, out: np.ndarray) -> bool:
        """Fill the output columns; a label not seen at fit, missing included, is all zeros."""
        _is_number(values, self.name)  # refuses dates and the like; numbers will do, as labels
        codes, labels = _labels(values, self.name)
        position = {label: i for i, label in enumerate(self.labels)}
        missing = len(self.labels) if self.missing else -1
        target = np.array([*(position.get(label, -1) for label in labels), missing])[codes]
        rows = np.flatnonzero(target >= 0)
        out[:] = 0.0
        out[rows, target[rows]] = 1.0
        return False


_KINDS: dict[str, Any] = {kind.kind: kind for kind in (NumberColumn, CategoryColumn)}


@dataclass(frozen=True)
class Columns:
    """How the columns of a table become the inputs of a network; plain data, learnt by `Columns.fit`.

    Numbers (integers, floats, booleans, pandas' nullable types, object columns that hold only numbers) are
    standardised in float64 by their weighted mean and standard deviation (or, if asked, left in their units), then
    clipped to +-1e6; a constant column is only centred. A missing number becomes the mean, and a column with
    missing numbers at fit also gets a 0/1 column ``missingindicator_<name>``.

    Labels (text, category dtype) become 0/1 columns ``<name>_<label>``, sorted by label, so that neither the
    order of rows nor that of a dtype's categories matters. Labels that are not text go by ``str``, whole
    floats as integers. Text such as "" or "nan" is a label and not missing. A label not seen at fit, missing
    included, gives zeros. Dates, infinities and columns that mix text with numbers are refused.

    Attributes
    ----------
    columns : tuple of NumberColumn or CategoryColumn
        One entry an input column, in the order of the fit.
    named : bool
        Whether the fit saw a DataFrame with string names.
    """

    columns: tuple[NumberColumn | CategoryColumn, ...]
    named: bool

    def __post_init__(self) -> None:
        names = {column.name for column in self.columns}
        if not (names and len(names) == len(self.columns) and isinstance(self.named, bool)):
            raise ValueError("not one or more columns of different names, and a bool")

    @property
    def feature_names_in(self) -> tuple[str, ...] | None:
        """Names of the input columns, if the fit saw any."""
        return tuple(column.name for column in self.columns) if self.named else None

    @property
    def feature_names_out(self) -> list[str]:
        """Names of the columns that `transform` returns."""
        return [name for column in self.columns for name in column.names_out]

    @staticmethod
    def fit(X: Any, sample_weight: Any = None, *, standardize: bool = True) -> Columns:
        """Learn from a DataFrame or a 2-D array; a row of weight zero is as good as absent.

        A column that cannot be used is a ValueError or TypeError that names it and says what to do.
        """
        X = _checked(X)
        weight = _checked_weight(sample_weight, len(X))
        if not weight.all():
            X, weight = X[weight > 0], weight[weight > 0]
        columns = []
        for name, values in _split(X):
            kind = NumberColumn if _is_number(values, name) else CategoryColumn
            columns.append(kind.fit(values, name, weight, standardize))
        return Columns(tuple(columns), feature_names(X) is not None)

    def transform(self, X: Any) -> np.ndarray:
        """Inputs for the network, float32 of shape (n, len(feature_names_out)).

        A DataFrame in another column order is put right by name; `align` also warns when names come or go.
        A number missing in a column that had none missing at fit becomes the mean, with one UserWarning.
        """
        X = _checked(X)
        if self.named and feature_names(X) is not None:
            X = align(X, self.feature_names_in)
        if X.shape[1] != len(self.columns):
            expected = f"{type(self).__name__} is expecting {len(self.columns)} features as input."
            raise ValueError(f"X has {X.shape[1]} features, but {expected}")
        out = np.empty((len(X), len(self.feature_names_out)), dtype=np.float32, order="F")
        start, surprised = 0, []
        for column, (_, values) in zip(self.columns, _split(X), strict=True):
            stop = start + len(column.names_out)
            if column.write(values, out[:, start:stop]):
                surprised.append(column.name)
            start = stop
        if surprised:
            text = f"Missing values in {', '.join(surprised)}, which had none at fit, are taken as the mean."
            warnings.warn(text, UserWarning, stacklevel=2)
        return np.ascontiguousarray(out)

    def to_dict(self) -> dict[str, Any]:
        """The same in JSON types; JSON keeps every float exactly."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]
        columns = [{k: list(v) if k == "labels" else v for k, v in entry.items()} for entry in columns]
        return {"named": self.named, "columns": columns}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Columns:
        """Back from `to_dict`; anything that it could not have written is a ValueError."""
        try:
            columns = []
            for entry in data["columns"]:
                fields = {k: tuple(v) if k == "labels" else v for k, v in entry.items() if k != "kind"}
                columns.append(_KINDS[entry["kind"]](**fields))
            restored = Columns(tuple(columns), data["named"])
            same = restored.to_dict() == data
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"This description of columns is damaged: {error!r}") from error
        if not same:
            raise ValueError("This description of columns is damaged: it has entries that do not belong.")
        return restored


@dataclass(frozen=True)
class Outcome:
    """The outcome on a unit scale, (y - loc) / scale, in float64 until the last step.

    Attributes
    ----------
    loc, scale : float
        Weighted mean and standard deviation of y, or 0 and 1 if it is not to be standardised. The scale is 0.0 when
        y is constant, or varies by less than 1e-13 of its mean, which is rounding; `transform` then gives zeros and
        `inverse` gives loc.
    """

    loc: float
    scale: float

    @property
    def constant(self) -> bool:
        """Whether y does not vary."""
        return self.scale == 0.0

    @staticmethod
    def fit(y: Any, sample_weight: Any = None, *, standardize: bool = True) -> Outcome:
        """Learn from a vector y; rows of weight zero are checked, but do not count."""
        values = _outcome(y)
        weight = _checked_weight(sample_weight, len(values))
        outcome = Outcome(*_location_scale(values[weight > 0], weight[weight > 0]))
        return outcome if standardize or outcome.constant else Outcome(0.0, 1.0)

    def transform(self, y: Any) -> np.ndarray:
        """Y on the unit scale, float32 of the same shape."""
        return ((_outcome(y) - self.loc) / (self.scale or math.inf)).astype(np.float32)

    def inverse(self, standard: Any) -> np.ndarray:
        """Back on the scale of y, float64 of the same shape, which may be any."""
        return self.loc + self.scale * np.asarray(standard, dtype=np.float64)


def canonical_rows(X: Any, y: Any, sample_weight: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of (X, y) with summed weights, in an order that depends on the rows and not on theirs.

    A fit on the rows `index` with `weight` is the same, bit for bit, when rows are permuted, when weights
    stand for repetitions, and when rows of weight zero are removed. The order of a single outcome's rows is also the
    same for a * y + b with a > 0, so that a fit in another unit sees the same rows in the same batches.

    Parameters
    ----------
    X : DataFrame, or array of shape (n, ...)
        Numbers are compared as float64 (-0.0 is 0.0, missing equals missing), categories by label.
    y : array of shape (n,) or (n, k)
        The outcome, finite numbers.
    sample_weight : array of shape (n,), optional
        Finite and not negative; None is one each.

    Returns
    -------
    index : ndarray of int, shape (m,)
        The first row of positive weight of each kind.
    weight : ndarray of float64, shape (m,)
        The summed weight of each kind, the same whatever the order of the rows, and not normalised.
    """
    X, y = _checked(X, allow_nd=True), np.asarray(y)
    outcome = np.column_stack([_outcome(column) for column in y.T]) if y.ndim == 2 else _outcome(y)[:, None]
    if len(X) != len(y):
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {[len(X), len(y)]}.")
    weight = _checked_weight(sample_weight, len(X))
    rows = np.flatnonzero(weight > 0)
    if len(rows) < len(X):  # before labels are ranked: a label of weight zero must not move the others
        X, outcome = X[weight > 0], outcome[rows]
    order, first = _sorted_groups(_matrix(X), outcome)
    starts, group = np.flatnonzero(first), np.cumsum(first)
    weight = weight[rows[order]]
    if len(starts) < len(order):  # a sum of floats depends on its order: smallest first
        weight = weight[np.lexsort((weight, group))]
    return rows[order[starts]], np.add.reduceat(weight, starts)


def _checked(X: Any, *, allow_nd: bool = False) -> Any:
    """X as a DataFrame or an array with rows and columns, or scikit-learn's own complaint."""
    if isinstance(X, pd.DataFrame):
        feature_names(X)
        for count, what in zip(X.shape, ("sample", "feature"), strict=True):
            if count == 0:
                shape = f"Found array with 0 {what}(s) (shape={X.shape})"
                raise ValueError(f"{shape} while a minimum of 1 is required.")
        return X
    return check_array(frame_or_array(X), dtype=None, ensure_all_finite=False, allow_nd=allow_nd)


def _split(X: Any) -> list[tuple[str, Any]]:
    """The columns, each with the name to speak of it by."""
    if isinstance(X, pd.DataFrame):
        names, columns = feature_names(X), [X.iloc[:, j] for j in range(X.shape[1])]
    else:
        by_column = np.empty(X.shape, dtype=X.dtype, order="F")
        for start in range(0, len(X), BLOCK):  # several times faster than column by column
            by_column[start : start + BLOCK] = X[start : start + BLOCK]
        names, columns = None, list(by_column.T)
    return list(zip(names or [f"x{j}" for j in range(len(columns))], columns, strict=True))


def _is_number(values: Any, name: str) -> bool:
    """Whether a column holds numbers (True) or labels (False); anything else is refused."""
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return False
    if dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name!r} holds complex numbers; pass two columns.")
    if pd.api.types.is_numeric_dtype(dtype):
        return True
    content = "datetime" if dtype.kind in "mM" else pd.api.types.infer_dtype(values, skipna=True)
    if content in _DATES:
        raise TypeError(
            f"Column {name!r} holds dates or times; turn them into numbers that mean something for the "
            "outcome (days since a date, hour of the day, month), or drop the column."
        )
    if content in _NUMBERS or content == "string":
        return content != "string"
    objects = np.asarray(values, dtype=object)  # what pandas calls mixed is looked at one by one
    observed = objects[~pd.isna(objects)]
    number = [isinstance(value, Real | Decimal | np.bool_) for value in observed]
    for value, is_number in zip(observed, number, strict=True):
        if not is_number and not isinstance(value, str):
            expected = f"argument must be a string or a real number, not {type(value).__name__!r}"
            raise TypeError(f"Column {name!r}: each {expected}.")
    if not all(number):
        raise ValueError(
            f"Column {name!r} mixes text with numbers; make it one of them, with X[{name!r}].astype(str) or "
            f"pandas.to_numeric(X[{name!r}])."
        )
    return True


def _numbers(values: Any, name: str | None) -> np.ndarray:
    """A column of X, or y when there is no name, as float64 with NaN where missing and without -0.0."""
    try:
        with np.errstate(over="ignore"):  # a long double beyond float64 becomes infinite
            if isinstance(values.dtype, pd.api.extensions.ExtensionDtype):
                numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
            elif values.dtype == object:
                numbers = np.where(pd.isna(values), np.nan, values).astype(np.float64)
            else:
                numbers = np.asarray(values, dtype=np.float64)
        infinite = bool(np.isinf(numbers).any())
    except OverflowError:  # a Python integer beyond float64
        infinite = True
    if infinite:
        where, column = ("y", "") if name is None else ("X", f" in column {name!r}")
        raise ValueError(
            f"Input {where} contains infinity or a value too large for dtype('float64'){column}; correct it "
            "or drop the row."
        )
    return numbers + 0.0


def _labels(values: Any, name: str) -> tuple[np.ndarray, list[str]]:
    """A column of labels as ranks among its sorted distinct labels, -1 where missing."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        codes, found = np.asarray(values.cat.codes), values.cat.categories
    else:
        codes, found = pd.factorize(values)
    seen = np.bincount(codes[codes >= 0], minlength=len(found)) > 0
    texts = [_text(value) for value in found]
    labels = sorted({text for text, is_seen in zip(texts, seen, strict=True) if is_seen})
    if len(labels) < seen.sum():
        raise ValueError(
            f"Column {name!r} has different labels that read the same, such as 1 and '1'; make them one "
            f"type, with X[{name!r}].astype(str) for example."
        )
    rank = {label: i for i, label in enumerate(labels)}
    lookup = np.array([*(rank.get(text, -1) for text in texts), -1])  # the last entry is what code -1 finds
    return lookup[codes], labels


def _text(value: Any) -> str:
    """The label as text; 1.0 is '1', so that whole numbers read the same as int and as float."""
    return str(int(value)) if isinstance(value, float | np.floating) and value.is_integer() else str(value)


def _matrix(X: Any) -> np.ndarray:
    """X as a float64 matrix that is equal where X is equal; labels become their ranks."""
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        return X.astype(np.float64, copy=False).reshape(len(X), -1)
    matrix = np.empty(X.shape, dtype=np.float64, order="F")
    for j, (name, values) in enumerate(_split(X)):
        if _is_number(values, name):
            matrix[:, j] = _numbers(values, name)
        else:
            codes = _labels(values, name)[0]
            matrix[:, j] = np.where(codes < 0, np.nan, codes)
    return matrix


def _outcome(y: Any) -> np.ndarray:
    """A vector of finite float64."""
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"y should be a 1d array, got an array of shape {y.shape} instead; try y.ravel().")
    if len(y) == 0:
        raise ValueError("Found array with 0 sample(s) in y while a minimum of 1 is required.")
    if not _is_number(y, "y"):
        raise ValueError("y holds text, but a regression needs numbers; try pandas.to_numeric(y).")
    numbers = _numbers(y, None)
    if np.isnan(numbers).any():
        raise ValueError("Input y contains NaN. Drop the rows whose outcome is missing.")
    return numbers


def _checked_weight(sample_weight: Any, n: int) -> np.ndarray:
    """Weights as float64; None is a weight of one each."""
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight should have shape ({n},), one a row, but has shape {weight.shape}.")
    if not np.isfinite(weight).all():
        raise ValueError("Input sample_weight contains NaN or infinity; the weight 0 leaves a row out.")
    if (weight < 0).any():
        raise ValueError("Negative values in sample_weight; a weight is how often a row counts, 0 or more.")
    if not weight.any():
        raise ValueError("Sample weights must contain at least one non-zero number; drop them or correct them.")
    return weight


def _location_scale(x: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Weighted mean and standard deviation of finite x; the scale is 0.0 where the spread is only rounding.

    Dividing by a power of two is exact and keeps squares from overflowing or vanishing; the second pass keeps
    a large offset from cancelling the spread.
    """
    if x.min() == x.max():
        return float(x[0]), 0.0
    exponent = int(np.frexp(np.abs(x).max())[1])
    unit = 2.0 ** min(max(exponent, -1000), 1000)
    z, share = x / unit, weight / weight.max()
    total = share.sum()
    mean = (share * z).sum() / total
    mean += (share * (z - mean)).sum() / total
    deviation = math.sqrt((share * (z - mean) ** 2).sum() / total)
    return float(mean * unit), 0.0 if deviation <= ROUNDING * abs(mean) else float(deviation * unit)


def _sorted_groups(features: np.ndarray, outcome: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row order by a hash of the features, then by outcome, and where in it a new distinct row starts.

    Outcomes in another unit keep this order, for only their ranks count. Exact, whatever the hash does.
    """
    hashed = _row_hash([features])
    order = np.lexsort((*outcome.T, hashed))
    hashed = hashed[order]
    tied = np.flatnonzero(hashed[1:] == hashed[:-1]) + 1
    same = _same_rows([features], order[tied - 1], order[tied])
    if not same.all():  # different features share a hash: sort those rows in full
        clash = np.flatnonzero(np.isin(hashed, hashed[tied[~same]]))
        bits = _bits(features[order[clash]])
        order[clash] = order[clash][np.lexsort((*outcome[order[clash]].T, *bits.T, hashed[clash]))]
    first = np.ones(len(order), dtype=bool)
    first[tied] = ~_same_rows([features, outcome], order[tied - 1], order[tied])
    return order, first


def _bits(values: np.ndarray) -> np.ndarray:
    """Bit patterns, one for each number: -0.0 reads as 0.0, and every NaN as the same NaN."""
    clean = values + 0.0
    clean[np.isnan(clean)] = np.nan
    return clean.view(np.uint64)


def _in_blocks(n: int, step: Callable[[slice], np.ndarray], dtype: type) -> np.ndarray:
    out: np.ndarray = np.empty(n, dtype=dtype)
    for start in range(0, n, BLOCK):
        rows = slice(start, start + BLOCK)
        out[rows] = step(rows)
    return out


def _same_rows(parts: list[np.ndarray], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    def same(rows: slice) -> np.ndarray:
        equal = [(_bits(part[left[rows]]) == _bits(part[right[rows]])).all(axis=1) for part in parts]
        return np.logical_and.reduce(equal)

    return _in_blocks(len(left), same, bool)


def _row_hash(parts: list[np.ndarray]) -> np.ndarray:
    """A 64-bit hash of each row: every number mixed with its place, then summed, so that swaps are seen."""
    ends = np.cumsum([part.shape[1] for part in parts])
    salts = np.split(_mix(np.arange(1, ends[-1] + 1, dtype=np.uint64)), ends[:-1])

    def hashes(rows: slice) -> np.ndarray:
        sums = [_mix(_bits(part[rows]) + salt).sum(axis=1) for part, salt in zip(parts, salts, strict=True)]
        return np.add.reduce(sums)

    return _in_blocks(len(parts[0]), hashes, np.uint64)


def _mix(bits: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64, in place: each input bit changes half of the output bits."""
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
