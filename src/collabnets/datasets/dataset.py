"""A real dataset: its rows, where they are from, what the paper says of them, and how to split them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone

from collabnets.datasets.preprocessing import TablePreprocessing
from collabnets.datasets.synthetic import Seed, paper_splits


class Split(NamedTuple):
    """Arrays to train and to test on.

    Attributes
    ----------
    X_train, y_train
        Features (n, p) and outcome (n,) of the training rows.
    X_test, y_test
        The same of the test rows.
    feature_names
        Names of the p columns.
    location, scale
        The outcome in its own units is ``location + scale * y``.
    preprocessing
        The fitted transformer of the features.
    """

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    feature_names: tuple[str, ...]
    location: float
    scale: float
    preprocessing: TablePreprocessing


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows of a real dataset and what is known about them.

    Attributes
    ----------
    name
        Short name, as in the paper's tables but in lower case.
    X
        Features as a DataFrame, before coding: numbers (NaN where missing) and categories.
    y
        Outcome in its own units.
    source
        Where the data are from, as an address for a person.
    licence
        Under which terms they are published there.
    citation
        What to cite.
    read_from
        The file or package that these rows were read from.
    paper_n, paper_p
        Rows and features that Table 3 of the paper gives. Its features are counted after coding, except for MPG.
    stand_in
        "" for the paper's data; otherwise what these rows are instead.
    preprocessing
        The steps of Appendix C.2 for this set, not fitted.
    normalise_outcome
        Whether `split` puts the outcome on mean 0 and standard deviation 1; the paper does so except for EHR.
    groups
        For each row the person it belongs to, where rows are not separate.
    """

    name: str
    X: pd.DataFrame
    y: pd.Series
    source: str
    licence: str
    citation: str
    read_from: str
    paper_n: int
    paper_p: int
    stand_in: str = ""
    preprocessing: TablePreprocessing = field(default_factory=TablePreprocessing)
    normalise_outcome: bool = True
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        kind = "a stand-in" if self.stand_in else "the paper's data"
        return f"Dataset({self.name!r}: {len(self):,} rows, {self.X.shape[1]} features before coding, {kind})"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of X."""
        return tuple(self.X.columns)

    @property
    def coded_feature_names(self) -> tuple[str, ...]:
        """Names of the columns that methods see, when the preprocessing is fitted on all rows."""
        return tuple(clone(self.preprocessing).fit(self.X).get_feature_names_out())

    def split(self, train: ArrayLike, test: ArrayLike, *, as_published: bool = False) -> Split:
        """Arrays for a choice of training and test rows.

        Parameters
        ----------
        train, test
            Row numbers, or masks of all rows. No row may be in both; nor, if there are groups, a person.
        as_published
            False learns the preprocessing, and location and scale of the outcome, from the training rows. True learns
            them from all rows, as the authors of the paper did: for comparison with their numbers, not for a claim
            about new rows. It also allows a person on both sides.
        """
        train, test = self._rows(train, "train"), self._rows(test, "test")
        if np.isin(test, train).any():
            raise ValueError("a row is in both train and test; choose rows that are in one of them only.")
        if self.groups is not None and not as_published and np.isin(self.groups[test], self.groups[train]).any():
            raise ValueError(
                "a person has rows in both train and test; take the rows from splits(), which keeps people together, "
                "or split rows as the paper does with as_published=True."
            )
        learn = slice(None) if as_published else train
        preprocessing = clone(self.preprocessing).fit(self.X.iloc[learn])
        y = self.y.to_numpy(float)
        location, scale = (y[learn].mean(), y[learn].std()) if self.normalise_outcome else (0.0, 1.0)
        scale = scale if scale > 0 else 1.0
        return Split(
            preprocessing.transform(self.X.iloc[train]),
            (y[train] - location) / scale,
            preprocessing.transform(self.X.iloc[test]),
            (y[test] - location) / scale,
            tuple(preprocessing.get_feature_names_out()),
            float(location),
            float(scale),
            preprocessing,
        )

    def splits(
        self, n_splits: int = 10, *, train: float = 0.6, seed: Seed = 2021, as_published: bool = False
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Random (train, test) row numbers, by `paper_splits`; where there are groups, of people.

        Parameters
        ----------
        n_splits
            Number of splits.
        train
            Share of the rows, or of the people, to train on.
        seed
            Seed or generator of NumPy's legacy kind.
        as_published
            True splits rows even where there are groups.
        """
        if self.groups is None or as_published:
            return paper_splits(len(self), n_splits, train=train, seed=seed)
        people, person = np.unique(self.groups, return_inverse=True)
        return (
            (np.flatnonzero(np.isin(person, a)), np.flatnonzero(np.isin(person, b)))
            for a, b in paper_splits(len(people), n_splits, train=train, seed=seed)
        )

    def _rows(self, rows: ArrayLike, name: str) -> np.ndarray:
        a = np.asarray(rows)
        if a.dtype == bool and a.shape == (len(self),):
            a = np.flatnonzero(a)
        if a.ndim != 1 or not len(a) or not np.issubdtype(a.dtype, np.integer):
            raise ValueError(
                f"{name} is a vector of row numbers or a mask of all {len(self)} rows, not {a.dtype} {a.shape}."
            )
        if a.min() < 0 or a.max() >= len(self):
            raise ValueError(f"{name} has row numbers outside 0 to {len(self) - 1}.")
        return a
