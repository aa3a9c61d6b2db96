"""A server that does not answer is not waited for without end; one that is back is used again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from kourou.errors import MetadataUnavailable
from kourou.events.control_events import Recorded, TopicPut
from kourou.eventstore.database import Database
from kourou.eventstore.event_store import EventStore
from kourou.eventstore.postgres import CONNECT_TIMEOUT_S, connect_arguments
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
