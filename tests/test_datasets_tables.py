"""From files and records to tables, and from tables to arrays, on made-up data, against the rules written out."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from collabnets.datasets import (
    Dataset,
    DatasetFileError,
    TablePreprocessing,
    load_airline,
    load_cpu,
    load_crime,
    load_energy,
    load_mpg,
    uci,
)
from collabnets.datasets.ehr import MONTH, flat_table


# ------------------------------------------------------------------------------------------------ preprocessing
def made_up(n=200, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal([1, -5, 100], [1, 3, 0.1], (n, 3)), columns=["a", "b", "c"])
    frame.loc[rng.random(n) < 0.2, "b"] = np.nan
    frame["kind"] = pd.Categorical(rng.choice(["x", "y"], n), ["x", "y", "never"])
    frame["mostly_missing"] = np.where(rng.random(n) < 0.8, np.nan, 1.0)
    return frame


SETTINGS = {
    "numbers": {},
    "components": {"n_components": 2},
    "as they are": {"normalise": False, "largest_missing_share": 1.0},
    "float32": {"dtype": "float32"},
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@every_setting
def test_transform_depends_on_the_row_and_the_fit_only(settings):
    frame = made_up()
    fitted = TablePreprocessing(**settings).fit(frame[:120])
    before = frame.copy()
    out = fitted.transform(frame)
    assert out.dtype == settings.get("dtype", "float64")
    assert out.shape == (200, len(fitted.get_feature_names_out()))
    assert np.isfinite(out).all()
    for i in (0, 7, 199):
        np.testing.assert_allclose(fitted.transform(frame[i : i + 1])[0], out[i], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(clone(fitted).fit(frame[:120]).transform(frame), out)
    np.testing.assert_array_equal(fitted.transform(frame[frame.columns[::-1]]), out)  # columns go by name
    pd.testing.assert_frame_equal(frame, before)


def test_the_steps_written_out():
    frame, train = made_up(), slice(0, 120)
    out = pd.DataFrame((fitted := TablePreprocessing().fit(frame[train])).transform(frame))
    out.columns = fitted.get_feature_names_out()
    assert list(out) == ["a", "b", "c", "kind_y", "kind_never"]
    for name in "abc":
        filled = frame[name].fillna(frame[name][train].mean())
        expected = (filled - filled[train].mean()) / filled[train].std(ddof=0)
        np.testing.assert_allclose(out[name], expected, rtol=1e-12)
    np.testing.assert_array_equal(out["kind_y"], frame["kind"] == "y")
    assert not out["kind_never"].any()


def test_components_of_centred_columns_then_normalised():
    frame = made_up()[["a", "b", "c"]].fillna(0.0)
    fitted = TablePreprocessing(n_components=2).fit(frame)
    centred = frame.to_numpy() - frame.to_numpy().mean(0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    out = fitted.transform(frame)
    signs = np.sign((out * u[:, :2]).sum(0))
    np.testing.assert_allclose(out, signs * u[:, :2] * np.sqrt(len(frame)), rtol=1e-9)
    np.testing.assert_allclose(fitted.pca_.explained_variance_ratio_, (s**2 / (s**2).sum())[:2], rtol=1e-9)


def test_columns_without_information():
    frame = pd.DataFrame({"empty": np.nan, "constant": 3.0, "half": [1.0, np.nan] * 5, "a": np.arange(10.0)})
    fitted = TablePreprocessing().fit(frame)
    assert list(fitted.get_feature_names_out()) == ["constant", "half", "a"]  # half is not over half
    np.testing.assert_array_equal(fitted.transform(frame)[:, :2], 0.0)
    everything = TablePreprocessing(largest_missing_share=1.0).fit(frame)
    assert list(everything.get_feature_names_out()) == ["constant", "half", "a"]


def test_wrong_tables_are_refused():
    with pytest.raises(TypeError, match="X is a DataFrame, not ndarray"):
        TablePreprocessing().fit(np.zeros((3, 2)))
    fitted = TablePreprocessing().fit(made_up())
    with pytest.raises(ValueError, match="no column b, kind"):
        fitted.transform(made_up()[["a", "c", "mostly_missing"]])


# -------------------------------------------------------------------------------------------- splits of a dataset
def dataset(**changes):
    frame = made_up()
    y = pd.Series(50.0 + 7 * frame["a"], name="y")
    known = {"source": "here", "licence": "none", "citation": "none", "read_from": "memory"}
    return Dataset("made_up", frame, y, **known, paper_n=1, paper_p=1, **changes)


TRAIN, TEST = np.arange(120), np.arange(120, 200)


@pytest.mark.parametrize("as_published", [False, True])
def test_a_split_in_the_units_of_its_rows(as_published):
    data = dataset()
    split = data.split(TRAIN, TEST, as_published=as_published)
    rows = np.arange(200) if as_published else TRAIN
    np.testing.assert_allclose([split.location, split.scale], [data.y[rows].mean(), data.y[rows].std(ddof=0)])
    np.testing.assert_allclose(split.location + split.scale * split.y_test, data.y[TEST])
    np.testing.assert_allclose(split.location + split.scale * split.y_train, data.y[TRAIN])
    expected = TablePreprocessing().fit(data.X.iloc[rows])
    np.testing.assert_array_equal(split.X_train, expected.transform(data.X.iloc[TRAIN]))
    np.testing.assert_array_equal(split.X_test, expected.transform(data.X.iloc[TEST]))
    assert split.feature_names == data.coded_feature_names
    by_mask = data.split(np.arange(200) < 120, np.arange(200) >= 120, as_published=as_published)
    np.testing.assert_array_equal(by_mask.X_test, split.X_test)


def test_an_outcome_in_its_own_units():
    data = dataset(normalise_outcome=False)
    split = data.split(TRAIN, TEST)
    assert (split.location, split.scale) == (0.0, 1.0)
    np.testing.assert_array_equal(split.y_train, data.y[TRAIN])


def test_people_stay_on_one_side():
    data = dataset(groups=np.random.default_rng(1).integers(0, 40, 200))
    for train, test in data.splits(5):
        assert not set(data.groups[train]) & set(data.groups[test])
        assert sorted([*train, *test]) == list(range(200))
        assert len(set(data.groups[train])) == 24  # 60 % of the people
        assert len(data.split(train, test).y_test) == len(test)
    train, test = next(data.splits(1, as_published=True))
    assert len(train) == 120
    with pytest.raises(ValueError, match="a person has rows in both"):
        data.split(train, test)
    assert len(data.split(train, test, as_published=True).y_train) == 120


@pytest.mark.parametrize(
    ("train", "test", "words"),
    [
        ([0, 1, 2], [2, 3], "a row is in both"),
        ([0, 1], [200], "row numbers outside 0 to 199"),
        ([-1], [3], "row numbers outside"),
        ([], [3], "vector of row numbers"),
        ([0.5], [3], "vector of row numbers or a mask of all 200 rows, not float64"),
        ([True, False], [3], "not bool"),
    ],
)
def test_wrong_rows_are_refused(train, test, words):
    with pytest.raises(ValueError, match=words):
        dataset().split(train, test)


def test_what_a_dataset_says_of_itself():
    data = dataset(stand_in="another")
    assert len(data) == 200
    assert data.feature_names == ("a", "b", "c", "kind", "mostly_missing")
    assert repr(data) == "Dataset('made_up': 200 rows, 5 features before coding, a stand-in)"
    assert "the paper's data" in repr(dataset())


# ---------------------------------------------------------------------------------------------------- the files
CPU_LINES = "adviser,32/60,125,256,6000,256,16,128,198,199\namdahl,470v/7,29,8000,32000,32,8,32,269,253\n"
MPG_LINES = '18.0   8   307.0  130.0  3504.  12.0  70  1\t"a b"\n25.0   4   98.0   ?   2046.  19.0  71  2\t"c"\n'


def written(tmp_path, text):
    path = tmp_path / "file.data"
    path.write_text(text)
    return path


def test_small_files_are_read(tmp_path):
    cpu = load_cpu(written(tmp_path, CPU_LINES))
    assert cpu.X.to_numpy().tolist() == [[125, 256, 6000, 256, 16, 128], [29, 8000, 32000, 32, 8, 32]]
    assert cpu.y.tolist() == [198, 269]
    assert cpu.stand_in == f"a file of your own, {tmp_path / 'file.data'}"
    mpg = load_mpg(written(tmp_path, MPG_LINES))
    assert mpg.X.to_numpy().tolist() == [[8, 307, 130, 3504, 12, 70, 1]]
    assert mpg.y.tolist() == [18]
    crime = load_crime(written(tmp_path, ",".join(["0.5"] * 128) + "\n" + ",".join(["?"] * 128) + "\n"))
    assert crime.X.shape == (1, 122)


POWER_HEADER = "Date;Time;Global_active_power;Global_reactive_power;Voltage;Global_intensity;Sub_metering_1"
FLIGHTS = "Month,DayofMonth,DayOfWeek,ArrDelay,DepTime,ArrTime,AirTime,Distance\n"
BAD = {
    "no such file": (load_cpu, None, "there is no file"),
    "an empty file": (load_cpu, "", "it is empty"),
    "a web page": (load_mpg, "<html>not here</html>", "web page"),
    "a missing column": (load_cpu, "a,b,1,2,3,4,5,6,7\n", "has 9 columns, not the 10"),
    "text for a number": (load_cpu, CPU_LINES.replace("125", "fast"), "text where numbers.*fast"),
    "rows of several lengths": (load_cpu, CPU_LINES + "a,b,1,2,3,4,5,6,7,8,9,10,11\n", "not the table.*line 3"),
    "an unknown label": (load_mpg, MPG_LINES.replace("70  1", "70  9"), "origin is one of.*9.* is there too"),
    "crime without a column": (load_crime, ",".join(["0.5"] * 127), "has 127 columns, not the 128"),
    "energy without a column": (load_energy, "active_power,voltage\n1,2\n", "no column reactive_power, intensity"),
    "power without a column": (load_energy, POWER_HEADER + "\n", "no column Sub_metering_2, Sub_metering_3"),
    "flights without a column": (load_airline, FLIGHTS.replace("ArrDelay,", ""), "no column ArrDelay; it has Month"),
    "flights without a row": (load_airline, FLIGHTS, "no flight with an ArrDelay"),
    "flights in a 13th month": (load_airline, FLIGHTS + "13,1,1,5,900,1000,40,200\n", "a Month that is not"),
    "text for a delay": (load_airline, FLIGHTS + "1,1,1,late,900,1000,40,200\n", "not the table.*late"),
    "text called Parquet": (load_airline, FLIGHTS, "not a Parquet file"),
}


@pytest.mark.parametrize("case", BAD, ids=BAD)
def test_a_file_that_is_something_else(case, tmp_path):
    load, text, words = BAD[case]
    path = tmp_path / ("file.parquet" if "Parquet" in case else "file.data")
    if text is not None:
        path.write_text(text)
    with pytest.raises(DatasetFileError, match=words) as raised:
        load(path)
    assert str(path) in str(raised.value)


def test_the_daily_table_from_minutes(tmp_path):
    rng = np.random.default_rng(3)
    time = pd.date_range("2006-12-16 17:24", periods=14 * 1440, freq="min")
    values = rng.gamma(2.0, [1, 0.1, 240, 4, 1, 1, 6], (len(time), 7)).round(3)
    values[rng.random(len(time)) < 0.02] = np.nan
    values[5000:8000] = np.nan  # a whole day is missing
    text = pd.DataFrame(values, columns=list(uci._POWER_IN_FILE)).map(lambda v: "?" if np.isnan(v) else f"{v:.3f}")
    text.insert(0, "Time", time.strftime("%H:%M:%S"))
    text.insert(0, "Date", [f"{t.day}/{t.month}/{t.year}" for t in time])
    text.to_csv(tmp_path / "household_power_consumption.txt", sep=";", index=False)
    data = load_energy(tmp_path / "household_power_consumption.txt")

    filled = np.where(np.isnan(values), np.nanmean(values, axis=0), values)
    days = np.array([filled[time.normalize() == day].mean(axis=0) for day in time.normalize().unique()])
    days = (days - days.mean(axis=0)) / days.std(axis=0, ddof=1)
    first = pd.DataFrame(days[:-1]).sample(frac=0.6, random_state=223).index  # as the authors draw it
    order = [*first, *(day for day in range(14) if day not in first)]
    assert len(days) == 15
    np.testing.assert_allclose(data.X.to_numpy(), days[:-1][order], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(data.y, days[1:, 0][order], rtol=1e-9, atol=1e-12)


def test_flights_from_text_and_from_parquet(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    n = 2500
    table = pd.DataFrame(
        {
            "": np.arange(n),
            "Year": 2008,
            "Month": np.sort(rng.integers(1, 6, n)),
            "DayofMonth": rng.integers(1, 32, n),
            "DayOfWeek": rng.integers(1, 8, n),
            "DepTime": rng.integers(1, 2401, n),
            "UniqueCarrier": "WN",
            "ArrTime": rng.integers(1, 2401, n).astype(float),
            "AirTime": rng.integers(20, 400, n).astype(float),
            "ArrDelay": rng.integers(-20, 300, n).astype(float),
            "Distance": rng.integers(50, 3000, n),
            "CancellationCode": "N",
        }
    )
    table.loc[rng.random(n) < 0.1, ["ArrTime", "AirTime", "ArrDelay"]] = np.nan
    table.to_csv(tmp_path / "DelayedFlights.csv", index=False)
    table.drop(columns="").to_parquet(tmp_path / "flights.parquet", row_group_size=700)
    monkeypatch.setattr("collabnets.datasets.airline.MOST_ROWS", 2000)
    monkeypatch.setattr("collabnets.datasets.airline.CHUNK", 300)
    monkeypatch.setenv("COLLABNETS_DATA", str(tmp_path))

    data = load_airline()
    kept = table[:2000].dropna()
    numbers = ["DepTime", "ArrTime", "AirTime", "Distance"]
    assert data.stand_in == f"{len(kept):,} flights of a file of your own, {tmp_path / 'DelayedFlights.csv'}"
    assert data.read_from == str(tmp_path / "DelayedFlights.csv")
    np.testing.assert_array_equal(data.y, kept["ArrDelay"])
    np.testing.assert_array_equal(data.X[numbers], kept[numbers])
    assert all(data.X[name].dtype == "float32" for name in numbers)
    calendar = ["Month", "DayofMonth", "DayOfWeek"]
    dummies = pd.get_dummies(kept[calendar].astype("category"), drop_first=True)
    assert len(dummies.columns) == 40
    everything = np.arange(len(data))
    split = data.split(everything[:1000], everything[1000:], as_published=True)
    assert split.feature_names == data.coded_feature_names == (*numbers, *dummies.columns)
    assert split.X_train.dtype == np.float32
    expected = np.column_stack([(kept[numbers] - kept[numbers].mean()) / kept[numbers].std(ddof=0), dummies])
    np.testing.assert_allclose(np.concatenate([split.X_train, split.X_test]), expected, rtol=1e-6, atol=1e-6)

    monkeypatch.setattr("collabnets.datasets.airline.PAPER_ROWS", len(kept))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "DelayedFlights.parquet").write_bytes((tmp_path / "flights.parquet").read_bytes())
    with monkeypatch.context() as patch:
        patch.setenv("COLLABNETS_DATA", str(tmp_path / "folder"))
        assert load_airline().read_from.endswith("DelayedFlights.parquet")
    same = load_airline(tmp_path / "flights.parquet")
    assert same.stand_in == ""
    pd.testing.assert_frame_equal(same.X, data.X)
    pd.testing.assert_series_equal(same.y, data.y)


# --------------------------------------------------------------------------------------------------- the record
def made_up_record(seed=0):
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({"id": np.arange(1, 31), "age": rng.integers(20, 80, 30), "male": rng.integers(0, 2, 30)})
    people[["height", "weight", "bmi"]] = rng.normal([170, 80, 28], 5, (30, 3))
    people.loc[rng.random(30) < 0.3, ["weight", "bmi"]] = np.nan
    n = 1500
    values = pd.DataFrame(
        {
            "id": rng.integers(1, 31, n),
            "days": rng.integers(-4000, 4000, n),
            "test": rng.choice(["hdl", "sbp", "fib4", "smoke", "chol", "dbp"], n, p=[0.2, 0.2, 0.1, 0.1, 0.2, 0.2]),
            "value": rng.normal(60, 20, n).round(1),
        }
    )
    values.loc[values["id"] < 4, "test"] = "sbp"  # some have few values of the outcome
    values = pd.concat([values, values[:300]], ignore_index=True)  # and some rows are there twice
    events = pd.DataFrame({"id": rng.integers(1, 31, 40), "days": rng.integers(-6000, 4000, 40)})
    return people, values, events.assign(event=rng.choice(["MI", "ang/isc", "heart failure"], 40))


def slow_table(people, values, events):
    """The rules of `load_ehr`, one person and one month at a time."""
    rows = []
    for _, about in people.iterrows():
        mine = values[values["id"] == about["id"]].drop_duplicates().sort_values("days", kind="stable")
        mine = mine[(mine["test"] != "sbp") | ((mine["value"] >= 50) & (mine["value"] <= 300))]
        mine = mine[mine["test"].isin(["hdl", "sbp", "fib4", "smoke"])]
        if (mine["test"] == "hdl").sum() < 6:
            continue
        start = mine["days"].min()
        months = {}
        for day, test, value in mine[["days", "test", "value"]].itertuples(index=False):
            months.setdefault(int((day - start) // MONTH), {})[test] = value
        last, visit = {}, None
        for month in sorted(months):
            if visit is not None and "hdl" in months[month]:
                day = start + MONTH * month
                row = {test: last.get(test, np.nan) for test in ("hdl", "sbp", "fib4", "smoke")}
                row |= {f"{test}_imputed": float(test not in months[visit]) for test in ("hdl", "sbp", "fib4", "smoke")}
                row |= {"months_since_last_visit": month - visit, "months_since_first_visit": month}
                row |= {"age": about["age"] + day / 365.25, "male": about["male"]}
                for name in ("height", "weight", "bmi"):
                    row[name] = about[name] if day >= 0 else np.nan
                    row[f"{name}_imputed"] = float(np.isnan(row[name]))
                theirs = events[(events["id"] == about["id"]) & (events["days"] < start + MONTH * (visit + 1))]
                for event in ("MI", "ang/isc", "heart failure"):
                    name = event.lower().replace("/", "_").replace(" ", "_")
                    row[name] = float((theirs["event"] == event).any())
                rows.append(row | {"id": about["id"], "next_hdl": months[month]["hdl"]})
            last |= months[month]
            visit = month
    return pd.DataFrame(rows)


@pytest.mark.parametrize("seed", range(3))
def test_the_record_as_a_flat_table(seed):
    record = made_up_record(seed)
    before = [table.copy() for table in record]
    expected = slow_table(*record)
    assert len(expected) > 100
    assert not set(expected["id"]) & {1, 2, 3}
    actual = flat_table(*record)
    pd.testing.assert_frame_equal(actual.astype(float), expected.astype(float))
    for table, copy in zip(record, before, strict=True):
        pd.testing.assert_frame_equal(table, copy)


def test_the_future_of_a_person_changes_no_row_before_it():
    people, values, events = made_up_record()
    full = flat_table(people, values, events)
    start = values[values["test"].isin(["hdl", "sbp", "fib4", "smoke"])].groupby("id")["days"].min()
    later = values["days"] > values["id"].map(start) + MONTH * 60
    changed = values.assign(value=np.where(later & (values["test"] != "sbp"), values["value"] + 9.0, values["value"]))
    other = flat_table(people, changed, events.assign(days=np.where(events["days"] > 3000, 3500, events["days"])))
    early = full["months_since_first_visit"] < 60
    assert early.sum() > 50
    pd.testing.assert_frame_equal(other[early], full[early])
    assert not other["next_hdl"].equals(full["next_hdl"])
