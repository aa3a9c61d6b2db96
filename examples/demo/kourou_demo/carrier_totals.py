"""Totals of delays by carrier, computed twice: from the read model and by pandas from the data set.

pandas reads the data set's files independently of the demo's code, so errors in reading or sending
the flights show up as differences. It comes with an extra and is imported only when needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

LATE_MIN = 15
"""Airlines' statistics count an arrival as late from this delay on."""

SUMS = (
    *("flights", "cancelled", "departed", "arrived", "late"),
    *("departure_delay_min", "arrival_delay_min", "seats", "in_rain"),
)
"""Totals of each carrier; seats are known for some planes only, in_rain needs weather data."""

Totals = Mapping[str, Mapping[str, int]]
"""By carrier code, such as UA, and then by the names in SUMS."""


def add_up(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Totals of daily rows; each row has the carrier's `name` and SUMS."""
    totals: dict[str, dict[str, int]] = {}
    for row in rows:
        total = totals.setdefault(row["name"], dict.fromkeys(SUMS, 0))
        for name in SUMS:
            total[name] += row[name]
    return totals


def by_pandas(folder: Path, flights: Sequence[int] | None = None) -> dict[str, dict[str, int]]:
    """The same totals from the data set in `folder`, optionally for some row numbers only."""
    import pandas as pd

    every = pd.read_csv(folder / "flights.csv.zip")
    if flights is not None:
        every = every.iloc[list(flights)]
    planes = pd.read_csv(folder / "planes.csv").drop_duplicates("tailnum")
    weather = pd.read_csv(folder / "weather.csv").drop_duplicates(["origin", "time_hour"])
    known = every.merge(planes[["tailnum", "seats"]], "left", "tailnum").merge(
        weather[["origin", "time_hour", "precip"]], "left", ["origin", "time_hour"]
    )
    left, came = known["dep_delay"].notna(), known["arr_delay"].notna()
    figures = pd.DataFrame(
        {
            "flights": 1,
            "cancelled": ~left,
            "departed": left,
            "arrived": came,
            "late": known["arr_delay"] > LATE_MIN,
            "departure_delay_min": known["dep_delay"].fillna(0),
            "arrival_delay_min": known["arr_delay"].fillna(0),
            "seats": known["seats"].fillna(0),
            "in_rain": known["precip"] > 0,
        }
    )
    sums = figures.astype("int64").groupby(known["carrier"]).sum()
    return {
        str(carrier): {name: int(row[name]) for name in SUMS} for carrier, row in sums.iterrows()
    }


def agreeing(ours: Totals, theirs: Totals) -> tuple[int, int]:
    """The number of totals that are equal, and the number of all totals."""
    protocols = ours.keys() | theirs.keys()
    equal = sum(
        ours[carrier][name] == theirs[carrier][name]
        for carrier in ours.keys() & theirs.keys()
        for name in SUMS
    )
    return equal, len(protocols) * len(SUMS)
