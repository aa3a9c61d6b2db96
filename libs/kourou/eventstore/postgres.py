"""A connection to PostgreSQL whose waits are all bounded, whatever happens to the server.

If a server is stopped, a network is cut or another client holds a lock, a call neither succeeds nor
fails. So the client limits every wait and then closes the connection, and every transaction has a
timeout on the server too, so that a transaction that the client abandoned holds no locks.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from kourou.clock import SystemClock

CONNECT_TIMEOUT_S = 3
"""PostgreSQL's own setting, whole seconds; a value in the URL takes precedence."""

ANSWER_TIMEOUT_MS = 10_000
"""For one statement; long enough for a batch on a slow disk."""

UPGRADE_TIMEOUT_MS = 600_000
"""For one statement of an upgrade: it may rewrite a table, or wait for another upgrade."""

TIMEOUT_OPTION = "kourou_timeout_ms"
"""The execution option of a connection with another statement timeout."""

WRITE_OPTION = "kourou_write"
"""The execution option of a connection that will write."""

_ONE_STATE = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"

SERVER_GIVES_UP_FIRST = 0.9
"""The server's timeout as a share of the client's: its error says more than "no answer"."""

Result = TypeVar("Result")


@dataclass(slots=True)
class DatabaseTimeouts:
    """State shared by the connections of one pool. `over`: no call waits any more."""

    answer_ms: int
    over: bool = False


def connect_arguments(url: sa.URL) -> dict[str, Any]:
    """The driver's connection parameters, in addition to those in the URL."""
    # A database created in the C locale reports no encoding; its text would be returned as bytes.
    arguments = {
        "client_encoding": "utf8",
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "kourou",
    }
    return {name: value for name, value in arguments.items() if name not in url.query}


def bound(engine: Engine, timeouts: DatabaseTimeouts) -> None:
    """Limit the waits of every connection in the engine's pool."""
    make = _connection_class(timeouts)

    def connect(_dialect: object, _record: object, given: list[Any], named: Any) -> Any:
        return make.open(*given, **named)

    def begin(connection: sa.Connection) -> None:
        wait_ms = connection.get_execution_options().get(TIMEOUT_OPTION, timeouts.answer_ms)
        connection.connection.dbapi_connection.wait_ms = wait_ms  # type: ignore[union-attr]  # ours
        server_ms = int(wait_ms * SERVER_GIVES_UP_FIRST)
        if not connection.get_execution_options().get(WRITE_OPTION, False):
            connection.exec_driver_sql(_ONE_STATE)
        connection.exec_driver_sql(
            f"SET LOCAL statement_timeout = {server_ms};"
            f"SET LOCAL idle_in_transaction_session_timeout = {wait_ms + server_ms}"
        )

    def checkin(connection: Any, _record: object) -> None:
        if connection is not None:
            connection.wait_ms = timeouts.answer_ms

    sa.event.listen(engine, "do_connect", connect)
    sa.event.listen(engine, "begin", begin)
    sa.event.listen(engine, "checkin", checkin)


def _connection_class(timeouts: DatabaseTimeouts) -> Any:
    # The driver is an optional package, which SQLite does not need.
    import psycopg

    clock = SystemClock()

    class BoundedConnection(psycopg.Connection[Any]):
        """Psycopg's connection; each of its waits goes through `wait`."""

        wait_ms = timeouts.answer_ms

        @classmethod
        def open(cls, *given: Any, **named: Any) -> Any:
            if timeouts.over:
                raise psycopg.OperationalError("no more connections are opened")
            return cls.connect(*given, **named)

        def wait(self, gen: Any, *given: Any, **named: Any) -> Any:
            return super().wait(_watched(gen, self._check()), *given, **named)

        def _check(self) -> Callable[[], None]:
            deadline = clock.monotonic_ms() + self.wait_ms

            def check() -> None:
                if timeouts.over:
                    self.close()
                    raise psycopg.OperationalError("its reply is no longer awaited")
                if clock.monotonic_ms() > deadline:
                    self.close()
                    raise psycopg.OperationalError(f"no reply within {self.wait_ms} ms")

            return check

    return BoundedConnection


def _watched(
    work: Generator[Any, Any, Result], check: Callable[[], None]
) -> Generator[Any, Any, Result]:
    """The driver's wait, with a check after each step: every 100 ms, or when bytes arrived."""
    try:
        wanted = next(work)
        while True:
            ready = yield wanted
            check()
            wanted = work.send(ready)
    except StopIteration as finished:
        result: Result = finished.value
        return result
