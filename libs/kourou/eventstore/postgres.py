"""A connection to PostgreSQL that never waits without end, whatever became of the server.

A server that was stopped, a cut network or a lock that somebody holds make a call neither succeed
nor fail. So every wait ends after a while on this side, which closes the connection, and every
transaction tells the server to give up by itself: what we no longer wait for must hold no locks.

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
"""PostgreSQL's own setting, whole seconds; one in the URL is kept."""

ANSWER_TIMEOUT_MS = 10_000
"""One statement; long enough for a batch on a slow disk."""

UPGRADE_TIMEOUT_MS = 600_000
"""One statement of an upgrade: it may rewrite a table, or wait for another program's upgrade."""

TIMEOUT_OPTION = "kourou_timeout_ms"
"""The execution option of a connection whose statements may take another time."""

WRITE_OPTION = "kourou_write"
"""The execution option of a connection that will write."""

_ONE_STATE = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"

SERVER_GIVES_UP_FIRST = 0.9
"""The server's share of our time: its own sentence says more than "no answer"."""

Result = TypeVar("Result")


@dataclass(slots=True)
class Patience:
    """What the connections of one pool share. `over`: nothing is waited for any more."""

    answer_ms: int
    over: bool = False


def connect_arguments(url: sa.URL) -> dict[str, Any]:
    """What the driver is told beside the URL."""
    # A database made in a bare locale says it has no encoding; its texts would come as bytes.
    told = {
        "client_encoding": "utf8",
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "kourou",
    }
    return {name: value for name, value in told.items() if name not in url.query}


def bound(engine: Engine, patience: Patience) -> None:
    """Give every connection of the engine's pool a bounded wait."""
    make = _connection_class(patience)

    def connect(_dialect: object, _record: object, given: list[Any], named: Any) -> Any:
        return make.open(*given, **named)

    def begin(connection: sa.Connection) -> None:
        wait_ms = connection.get_execution_options().get(TIMEOUT_OPTION, patience.answer_ms)
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
            connection.wait_ms = patience.answer_ms

    sa.event.listen(engine, "do_connect", connect)
    sa.event.listen(engine, "begin", begin)
    sa.event.listen(engine, "checkin", checkin)


def _connection_class(patience: Patience) -> Any:
    # The driver comes with an extra; who has SQLite does without.
    import psycopg

    clock = SystemClock()

    class BoundedConnection(psycopg.Connection[Any]):
        """Psycopg's connection; each of its waits goes through `wait`."""

        wait_ms = patience.answer_ms

        @classmethod
        def open(cls, *given: Any, **named: Any) -> Any:
            if patience.over:
                raise psycopg.OperationalError("no more connections are opened")
            return cls.connect(*given, **named)

        def wait(self, gen: Any, *given: Any, **named: Any) -> Any:
            return super().wait(_watched(gen, self._check()), *given, **named)

        def _check(self) -> Callable[[], None]:
            deadline = clock.monotonic_ms() + self.wait_ms

            def check() -> None:
                if patience.over:
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
    """The driver's work, with a check each time it has waited: every 100 ms, or for some bytes."""
    try:
        wanted = next(work)
        while True:
            ready = yield wanted
            check()
            wanted = work.send(ready)
    except StopIteration as finished:
        result: Result = finished.value
        return result
