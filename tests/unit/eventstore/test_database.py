"""Connections to the event database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kourou.errors import ConfigError, Corrupt, MetadataUnavailable
from kourou.events.control_events import Recorded, TopicPut
from kourou.eventstore.database import (
    CONNECT_TIMEOUT_S,
    Database,
    connect_arguments,
    sqlite_url,
    with_password,
)
from kourou.eventstore.event_store import EventStore
from kourou.model.topic import TopicConfig
from kourou_rigs.postgres import PostgresServer

NEVER_MS = 10**9
TIMEOUT_S = 20


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    """A new database; PostgreSQL takes no shorter time for connecting."""
    return f"{postgres.new_database()}&connect_timeout=2"


@pytest.fixture
def quick(url: str) -> Iterator[Database]:
    opened = Database(url, answer_ms=1_000)
    yield opened
    opened.close()


def some(count: int) -> list[Recorded]:
    return [
        Recorded(offset, offset, offset, "a", "", "", TopicPut(TopicConfig(f"T{offset}")))
        for offset in range(count)
    ]


def refused(store: EventStore, call: str = "info", *given: object) -> str:
    with pytest.raises(MetadataUnavailable) as raised:
        getattr(store, call)(*given)
    assert raised.value.retryable
    return str(raised.value)


def test_a_server_that_hangs_is_given_up(postgres: PostgresServer, quick: Database):
    store = EventStore(quick)
    store.append(some(1))
    with postgres.frozen():
        assert "cannot be used: " in refused(store)
        assert "timeout" in refused(store, "append", some(2))
    assert store.append(some(2)) == 1
    assert store.events() == some(2)


def test_a_server_that_hangs_within_a_transaction_is_given_up(
    postgres: PostgresServer, quick: Database
):
    def hang() -> None:
        with quick.writing() as connection, postgres.frozen():
            connection.exec_driver_sql("SELECT 1")

    with pytest.raises(MetadataUnavailable, match="no reply within 1000 ms"):
        hang()
    with quick.reading() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1


def test_a_server_that_was_killed_and_started_again_is_used_at_once(
    postgres: PostgresServer, url: str
):
    """By connections that were kept, without an error in between."""
    store = EventStore.open(url)
    store.append(some(3))
    with postgres.gone():
        pass
    assert store.append(some(5)) == 2
    with postgres.gone():
        assert "cannot be used: connection" in refused(store)
    assert store.events() == some(5)
    store.close()


def test_who_abandons_a_server_is_not_held_up(postgres: PostgresServer, url: str):
    """Whatever another thread is waiting for just then."""
    store = EventStore(Database(url, answer_ms=NEVER_MS))
    store.append(some(1))
    errors: list[Exception] = []

    def ask() -> None:
        try:
            store.info()
        except MetadataUnavailable as error:
            errors.append(error)

    with postgres.frozen():
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        store.abandon()
        asking.join(TIMEOUT_S)
        assert not asking.is_alive()
        assert any(one in str(errors[0]) for one in ("no longer awaited", "no more connections"))
        assert "no more connections are opened" in refused(store)
        store.close()


def test_the_server_gives_up_what_waits_for_somebodys_lock(
    postgres: PostgresServer, quick: Database, url: str
):
    """Else each attempt would leave a process behind that waits, and connections run out."""
    store, other = EventStore(quick), Database(url)
    store.append(some(1))
    with other.writing() as connection:
        connection.exec_driver_sql("LOCK TABLE streams")
        for _ in range(3):
            refused(store, "append", some(2))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while postgres.execute(waiting) != "0":
            pass  # on a busy machine the program gives up first, and hears no more of the server's
    assert store.append(some(2)) == 1
    other.close()


def test_a_transaction_that_its_program_forgot_holds_no_locks_for_good(
    postgres: PostgresServer, quick: Database
):
    """As after a cut network: the server hears of it hours later, if nobody tells it."""
    EventStore(quick).append(some(1))
    mine = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"

    def forget() -> None:
        with quick.writing() as connection:
            connection.exec_driver_sql("LOCK TABLE streams")
            while postgres.execute(mine) != "0":
                pass
            connection.exec_driver_sql("SELECT 1")

    with pytest.raises(MetadataUnavailable, match="idle-in-transaction timeout"):
        forget()
    assert EventStore(quick).append(some(2)) == 1


def test_an_upgrade_may_take_longer_and_nothing_after_it(url: str):
    database = Database(url, answer_ms=2_000)

    def server_ms(connection: sa.Connection) -> str:
        found: str = connection.exec_driver_sql("SHOW statement_timeout").scalar_one()
        return found

    with database.writing(timeout_ms=60_000) as connection:
        assert server_ms(connection) == "54s"
        kept: Any = connection.connection.dbapi_connection
        assert kept.wait_ms == 60_000
    assert kept.wait_ms == 2_000  # before it is used again, it is tried
    with database.writing() as connection:
        assert connection.connection.dbapi_connection is kept
        assert server_ms(connection) == "1800ms"
    database.close()


def test_who_reads_sees_one_state_and_writes_nothing(url: str):
    store, database = EventStore.open(url), Database(url)
    counting = "SELECT count(*) FROM events"
    with database.reading() as connection:
        assert connection.exec_driver_sql(counting).scalar() == 0
        store.append(some(3))
        assert connection.exec_driver_sql(counting).scalar() == 0
    with database.reading() as connection:
        assert connection.exec_driver_sql(counting).scalar() == 3

    def write() -> None:
        with database.reading() as connection:
            connection.exec_driver_sql("DELETE FROM events")

    with pytest.raises(MetadataUnavailable, match="read-only"):
        write()
    store.close()
    database.close()


def test_a_database_in_a_bare_locale_answers_with_texts(postgres: PostgresServer):
    bare = postgres.new_database("ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    store = EventStore.open(bare)
    written = [Recorded(0, 0, 0, "Zoë", "weil “es” so ist", "", TopicPut(TopicConfig("T")))]
    store.append(written)
    assert store.events() == written
    store.close()


def test_what_the_url_says_is_kept():
    plain = sa.make_url("postgresql+psycopg://h/d")
    assert connect_arguments(plain)["connect_timeout"] == CONNECT_TIMEOUT_S
    said = sa.make_url("postgresql+psycopg://h/d?connect_timeout=9&application_name=x")
    assert connect_arguments(said) == {"client_encoding": "utf8"}


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
