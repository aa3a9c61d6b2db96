"""The data set's small tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou_spark_etl import jobs
from kourou_spark_etl.jobs import read_flight_table


def test_what_is_missing_is_none_and_the_first_of_a_key_counts(tmp_path: Path) -> None:
    (tmp_path / "weather.csv").write_text(
        "origin,year,precip,time_hour\n"
        "EWR,2013,0.5,2013-01-01T06:00:00Z\n"
        "EWR,2013,NA,2013-01-01T06:00:00Z\n"
        "JFK,2013,NA,2013-01-01T06:00:00Z\n"
    )
    hour = datetime(2013, 1, 1, 6, tzinfo=UTC)
    assert read_flight_table("weather", tmp_path) == [("EWR", hour, 0.5), ("JFK", hour, None)]


def test_the_data_set_has_them_all() -> None:
    assert ("UA", "United Air Lines Inc.") in read_flight_table("airlines")
    assert len(read_flight_table("planes")) == 3_322


def test_a_missing_data_set_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "DATA_SET", "no_such_data_set")
    with pytest.raises(ConfigError, match=r"requires the data set"):
        read_flight_table("planes")
