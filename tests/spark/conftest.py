"""One Spark session for all tests of this layer: a JVM takes seconds to start.

Without a class archive: making one costs a first run more than it saves, and a checkout of a
continuous integration has first runs only.
"""

from __future__ import annotations

import io
import itertools
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.find_spark_home import _find_spark_home

from kourou_demo.flights import as_event, read_flights
from kourou_spark_etl.jobs import flight_data_folder
from kourou_spark_etl.session import missing_java, open_session

START_S = 600
"""What a test may take together with the JVM's start, on a machine with much else to do."""


SHORT_LIVES = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Java: what the second compiler costs, and a collector in threads of its own, a session of a
minute or two never gains."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in item.path.as_posix() and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(START_S))


@pytest.fixture(scope="session", autouse=True)
def quick_starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every Java and every Python of Spark's starts with less work, here and in what tests start.

    Spark puts a zip of its Python before all else, and what lies in a zip is compiled at each
    start. A home without it makes them take what is installed, which is compiled already.
    """
    home = tmp_path_factory.mktemp("spark-home")
    for part in Path(_find_spark_home()).iterdir():
        if part.name != "python":
            (home / part.name).symlink_to(part)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        patch.setenv("JAVA_TOOL_OPTIONS", SHORT_LIVES)
        yield


@pytest.fixture(scope="session")
def java() -> None:
    """Skip where Spark cannot start."""
    if problem := missing_java():
        pytest.skip(f"needs Java: {problem}")


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local session that knows `format("kourou")`. Stop only queries of your own."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    with warnings.catch_warnings():
        # PySpark looks at the versions beside it when it starts.
        warnings.simplefilter("ignore")
        session = open_session(
            "kourou-tests",
            settings={
                "spark.sql.warehouse.dir": warehouse.as_uri(),
                "spark.sql.shuffle.partitions": "2",
            },
        )
    yield session
    session.stop()


def some_flights(count: int) -> list[Any]:
    """The first flights of the data set; loading all of them would take longer than the test."""
    path = flight_data_folder() / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        lines = io.TextIOWrapper(file, encoding="ascii", newline="")
        few = itertools.islice(read_flights(lines), count)
        return [as_event(flight, msgspec.json.encode(flight)) for flight in few]


@pytest.fixture(scope="session")
def flights_of() -> Callable[[int], list[Any]]:
    return some_flights
