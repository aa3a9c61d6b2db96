"""Connections to the event database."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from kourou.errors import ConfigError, Corrupt, MetadataUnavailable
from kourou.eventstore.database import Database, sqlite_url, with_password


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hello",
        "mysql://alice:secret@host/db",
        "sqlite+nothing:///x",
        "postgresql+nothing://h",
        "postgresql+psycopg2://alice:secret@host/db",
    ],
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
    in_query = "postgresql://h/d?user=a&password=secret&sslpassword=other&connect_timeout=1"
    shown = Database(in_query).shown
    assert shown == "postgresql+psycopg://h/d?connect_timeout=1&user=a"


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


def test_a_second_writer_is_reported_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kourou.eventstore.database.BUSY_TIMEOUT_MS", 1)
    database = Database(sqlite_url(tmp_path / "events.db"))

    def write() -> None:
        with database.writing():
            pass

    with database.writing(), pytest.raises(MetadataUnavailable, match="locked"):
        write()
    write()
    database.close()


@pytest.mark.parametrize("what", ["missing directory", "directory"])
def test_what_cannot_be_opened_is_unavailable_in_one_sentence(tmp_path: Path, what: str):
    path = {"missing directory": tmp_path / "no" / "events.db", "directory": tmp_path}[what]
    database = Database(sqlite_url(path))
    with pytest.raises(MetadataUnavailable) as refused, database.reading() as connection:
        connection.exec_driver_sql("SELECT 1")
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.retryable
    database.close()


def test_what_is_no_database_is_damaged_in_one_sentence(tmp_path: Path):
    """Waiting would not mend it, so it is not called unavailable."""
    path = tmp_path / "text.db"
    path.write_text("this is a letter and no database, whatever its name may say\n" * 40)
    database = Database(sqlite_url(path))
    with pytest.raises(Corrupt, match="is damaged") as refused, database.reading() as connection:
        connection.exec_driver_sql("SELECT 1")
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not refused.value.retryable
    database.close()


def test_a_database_that_is_damaged_inside_is_called_so(tmp_path: Path):
    path = tmp_path / "events.db"
    database = Database(sqlite_url(path))
    with database.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a)")
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
    database.close()
    path.write_bytes(path.read_bytes()[:4_096] + bytes([0xA5]) * 4_096)
    with pytest.raises(Corrupt, match="is damaged"), database.reading() as connection:
        connection.exec_driver_sql("SELECT a FROM t").all()
    database.close()


def test_a_password_comes_from_a_file(tmp_path: Path):
    file = tmp_path / "password"
    for content in (b"p@ss/w:rd%", b"p@ss/w:rd%\n", b"p@ss/w:rd%\r\n"):
        file.write_bytes(content)
        url = sa.make_url(with_password("postgresql://kourou@db:5432/kourou", file))
        assert (url.password, url.username, url.host) == ("p@ss/w:rd%", "kourou", "db")
    assert with_password("postgresql://h/d", None) == "postgresql://h/d"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff", b"x" * 1_025])
def test_a_file_without_a_password_is_refused(tmp_path: Path, content: bytes | None):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="password"):
        with_password("postgresql://kourou@db/kourou", file)


def test_two_passwords_are_one_too_many(tmp_path: Path):
    file = tmp_path / "password"
    file.write_text("one")
    with pytest.raises(ConfigError) as refused:
        with_password("postgresql://kourou:another@db/kourou", file)
    with pytest.raises(ConfigError, match="both"):
        with_password("postgresql://kourou@db/kourou?password=another", file)
    assert "another" not in str(refused.value)
