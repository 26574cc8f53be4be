"""From the columns of a dataset to arrays, as Appendix C.2 of the paper says, learnt from the rows given to `fit`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.utils.validation import check_is_fitted


class TablePreprocessing(TransformerMixin, BaseEstimator):
    """The steps of Appendix C.2, in its order.

    1. Columns that lack over half of their entries are left out.
    2. A missing number becomes the mean.
    3. Categories become 0/1 columns, one a label except the first. The labels are those that the column's dtype
       declares, so that the coded size is the same for every choice of rows.
    4. If asked for, the numbers are replaced by their first principal components (centred, not scaled).
    5. Numbers, or components, get mean 0 and standard deviation 1. The 0/1 columns stay as they are.

    Everything that is computed from data (which columns lack half, means, components, standard deviations) comes from
    the rows that `fit` sees.

    Parameters
    ----------
    largest_missing_share
        A column with a larger share of missing entries is left out; 1 keeps all but empty ones.
    n_components
        Number of principal components, None for the columns themselves.
    normalise
        Whether to do step 5.
    dtype
        Of the arrays that `transform` gives; means and standard deviations are computed in float64 in any case.
    """

    def __init__(
        self,
        *,
        largest_missing_share: float = 0.5,
        n_components: int | None = None,
        normalise: bool = True,
        dtype: str = "float64",
    ) -> None:
        self.largest_missing_share = largest_missing_share
        self.n_components = n_components
        self.normalise = normalise
        self.dtype = dtype

    def fit(self, X: pd.DataFrame, y: Any = None) -> TablePreprocessing:
        """Learn from the rows of a DataFrame; y is not used."""
        if not isinstance(X, pd.DataFrame):
            raise TypeError(f"X is a DataFrame, not {type(X).__name__}; columns go by name here.")
        self.feature_names_in_ = np.array(X.columns, dtype=object)
        missing = {name: X[name].isna().mean() for name in X.columns}
        kept = [name for name, share in missing.items() if share <= self.largest_missing_share and share < 1]
        self.labels_ = {name: tuple(X[name].cat.categories[1:]) for name in kept if X[name].dtype == "category"}
        self.numbers_ = [name for name in kept if name not in self.labels_]
        self.means_ = {name: float(np.nanmean(_numbers(X, name))) for name in self.numbers_}
        self.pca_ = None
        if self.n_components is not None:
            self.pca_ = PCA(self.n_components, svd_solver="covariance_eigh").fit(self._filled_numbers(X))
        self.location_, self.scale_ = [], []
        for values in self._columns(X):
            mean, deviation = (values.mean(), values.std()) if self.normalise else (0.0, 1.0)
            constant = deviation <= 1e-13 * max(1.0, abs(mean))
            self.location_.append(float(mean))
            self.scale_.append(1.0 if constant else float(deviation))
        return self

    def transform(self, X: pd.DataFrame) -> np.ndarray:
        """Arrays of shape (n, len(get_feature_names_out())); each row depends on itself and the fit only."""
        check_is_fitted(self)
        missing = [name for name in self.feature_names_in_ if name not in X.columns]
        if missing:
            raise ValueError(f"X has no column {', '.join(map(str, missing))}, which was there at fit.")
        out = np.empty((len(X), len(self.get_feature_names_out())), dtype=self.dtype)
        at = 0
        for values, location, scale in zip(self._columns(X), self.location_, self.scale_, strict=True):
            out[:, at] = (values - location) / scale
            at += 1
        for name, labels in self.labels_.items():
            label_of_row = pd.Index(labels).get_indexer(X[name].to_numpy())
            out[:, at : at + len(labels)] = label_of_row[:, None] == np.arange(len(labels))
            at += len(labels)
        return out

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that `transform` gives: the numbers or ``pc_1`` ..., then ``<name>_<label>``."""
        check_is_fitted(self)
        names = list(self.numbers_) if self.pca_ is None else [f"pc_{k + 1}" for k in range(self.pca_.n_components_)]
        names += [f"{name}_{label}" for name, labels in self.labels_.items() for label in labels]
        return np.array(names, dtype=object)

    def _columns(self, X: pd.DataFrame) -> Iterator[np.ndarray]:
        """The numbers without gaps, or their components, one at a time."""
        if self.pca_ is not None:
            yield from self.pca_.transform(self._filled_numbers(X)).T
            return
        for name in self.numbers_:
            values = _numbers(X, name)
            yield np.where(np.isnan(values), self.means_[name], values)

    def _filled_numbers(self, X: pd.DataFrame) -> np.ndarray:
        values = np.column_stack([_numbers(X, name) for name in self.numbers_])
        return np.where(np.isnan(values), list(self.means_.values()), values)


def _numbers(X: pd.DataFrame, name: str) -> np.ndarray:
    return X[name].to_numpy(dtype=np.float64, na_value=np.nan)
