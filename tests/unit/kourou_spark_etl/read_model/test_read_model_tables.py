"""Bringing the tables up to date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from kourou.errors import ConfigError
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.event_store import EventStore
from kourou_spark_etl.read_model import read_model
from kourou_spark_etl.read_model.read_model import (
    ABOUT,
    BASE,
    ReadModel,
    bucket_of,
    metadata,
    percentile_ms,
    upper_ms,
)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        made: str = request.getfixturevalue("postgres").new_database()
        return made
    return sqlite_url(tmp_path / "deep" / "read-model.db")


@pytest.fixture
def model(url: str) -> Iterator[ReadModel]:
    opened = ReadModel.open(url)
    yield opened
    opened.close()


@pytest.mark.parametrize("migrated", [True, False])
def test_a_new_read_model_and_a_migrated_one_have_the_tables_as_they_are_declared(
    url: str, tmp_path: Path, *, migrated: bool
) -> None:
    (tmp_path / "deep").mkdir()
    database = Database(url)
    with database.writing() as connection:
        if migrated:
            read_model.REVISIONS.upgrade(connection, "head", "test")
    read_model.REVISIONS.bring_up_to_date(database)
    with database.reading() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": read_model.VERSION_TABLE}
        )
        assert compare_metadata(context, metadata) == []
    database.close()
    newest = ScriptDirectory.from_config(read_model.REVISIONS.alembic_config()).get_current_head()
    assert newest == read_model.HEAD
    assert set(ABOUT) == set(metadata.tables)


def test_both_stores_may_have_one_database(model: ReadModel, url: str) -> None:
    store = EventStore.open(url)
    store.close()
    ReadModel.open(url).close()


def test_tables_of_a_newer_program_are_refused(model: ReadModel, url: str) -> None:
    with model.database.writing() as connection:
        connection.execute(sa.text(f"UPDATE {read_model.VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(
        ConfigError, match=r"the read model .* was written by a newer version of Kourou"
    ):
        ReadModel.open(url)


def test_a_database_that_is_none_is_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "read-model.db"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(Exception, match=r"the read model .* is damaged"):
        ReadModel.open(sqlite_url(path))
    with pytest.raises(ConfigError, match="the read model cannot be a mysql database"):
        Database("mysql://x", what="read model")


# -- sizes as buckets, and percentiles of their counts ---------------------------------------------


def test_every_size_lies_in_its_bucket() -> None:
    for ms in (*range(1, 3_000), 10**6, 10**9):
        bucket = bucket_of(ms)
        assert ms <= upper_ms(bucket) * (1 + 1e-6)
        assert bucket == 1 or ms > upper_ms(bucket - 1)
    assert bucket_of(-5) == bucket_of(0) == 0
    assert upper_ms(0) == 0


def test_a_percentile_is_at_most_a_bucket_too_high() -> None:
    sizes = [1 + (number * 7_919) % 10_007 for number in range(10_007)]
    counts = Counter(map(bucket_of, sizes))
    for share in (0.01, 0.5, 0.9, 0.999):
        exact = sorted(sizes)[int(share * len(sizes))]
        assert exact / 1.01 <= percentile_ms(counts, share) <= exact * BASE * 1.01
    assert percentile_ms({}, 0.5) == 0
