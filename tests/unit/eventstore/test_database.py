"""Connections to the event database."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from kourou.errors import ConfigError, MetadataUnavailable
from kourou.eventstore.database import Database, sqlite_url


@pytest.mark.parametrize(
    "url",
    ["", "hello", "mysql://alice:secret@host/db", "sqlite+nothing:///x", "postgresql+nothing://h"],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_a_password(url: str):
    with pytest.raises(ConfigError) as refused:
        Database(url)
    assert "secret" not in str(refused.value)


def test_postgresql_uses_the_driver_that_the_extra_installs():
    for url in ("postgresql://a:secret@h/d", "postgres://a:secret@h/d"):
        database = Database(url)
        assert database.engine.url.drivername == "postgresql+psycopg"
        assert not database.is_sqlite
        assert database.shown == "postgresql+psycopg://a:***@h/d"


@pytest.mark.parametrize("name", ["plain.db", "with space.db", "100%.db", "a?b=c#d.db"])
def test_any_file_name_can_hold_a_database(tmp_path: Path, name: str):
    database = Database(sqlite_url(tmp_path / name))
    with database.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a)")
    database.close()
    assert (tmp_path / name).exists()


def test_commits_are_on_disk_and_readers_do_not_wait(tmp_path: Path):
    database = Database(sqlite_url(tmp_path / "events.db"))
    with database.reading() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 5_000}
    with database.writing() as writer:
        writer.exec_driver_sql("CREATE TABLE t (a)")
        with database.reading() as reader:
            assert not sa.inspect(reader).has_table("t")
    database.close()


def test_a_writer_that_raises_writes_nothing(tmp_path: Path):
    database = Database(sqlite_url(tmp_path / "events.db"))

    def fail() -> None:
        with database.writing() as connection:
            connection.exec_driver_sql("CREATE TABLE t (a)")
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    with database.reading() as connection:
        assert not sa.inspect(connection).has_table("t")
    database.close()


def test_a_second_writer_is_told_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kourou.eventstore.database.BUSY_TIMEOUT_MS", 1)
    database = Database(sqlite_url(tmp_path / "events.db"))

    def write() -> None:
        with database.writing():
            pass

    with database.writing(), pytest.raises(MetadataUnavailable, match="locked"):
        write()
    write()
    database.close()


def test_a_database_in_memory_is_one_for_all_connections():
    database = Database("sqlite://")
    with database.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a)")
    with database.reading() as connection:
        assert sa.inspect(connection).has_table("t")
    database.close()


@pytest.mark.parametrize("what", ["missing directory", "directory", "not a database"])
def test_what_cannot_be_opened_is_unavailable_in_one_sentence(tmp_path: Path, what: str):
    path = {
        "missing directory": tmp_path / "no" / "events.db",
        "directory": tmp_path,
        "not a database": tmp_path / "text.db",
    }[what]
    if what == "not a database":
        path.write_text("this is a letter and no database, whatever its name may say\n" * 40)
    database = Database(sqlite_url(path))
    with pytest.raises(MetadataUnavailable) as refused, database.reading() as connection:
        connection.exec_driver_sql("SELECT 1")
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.retryable
    database.close()
