"""A broker's service in a test's process: real listeners, a real store, and one client.

State: soft.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from kourou.broker.broker_service import BrokerService
from kourou.engine.core import BrokerCore
from kourou.engine.view import CoreView
from kourou.errors import Code
from kourou.protocol.messages.pulls import PullFlag, PullMessage
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.request import Request
from kourou.store.store import Store
from kourou.transport.zmq_client import WireReply, ZmqConnection

ASK_MS = 30_000


class ServedHere:
    """One running service, and a client of it."""

    def __init__(self, service: BrokerService, told: Mapping[str, str]) -> None:
        self.service: Any = service
        self._told = told
        self.client = ZmqConnection(self.address("zmq"))

    def address(self, listener: str) -> str:
        """`host:port` of a listener, by its name in the service's report."""
        return self._told[listener].removeprefix("tcp://")

    @property
    def store(self) -> Store:
        """The store that is open now."""
        found: Store = self.service._store_runtime.store
        return found

    @property
    def view(self) -> CoreView:
        """The state of the current core."""
        view: CoreView = self.service._view()
        return view

    @property
    def core(self) -> BrokerCore:
        """The current core."""
        core: BrokerCore = self.service._session.core
        return core

    async def sent(self, body: bytes, topic: str = "orders", queue_id: int = 0) -> WireReply:
        """Send one message; returns the reply, whatever it is."""
        request = SendMessage(
            producer_group="p", topic=topic, queue_id=queue_id, born_timestamp=1,
            default_topic="TBW102", default_topic_queue_nums=4,
        )  # fmt: skip
        return await self.client.request(request, body=(body,), timeout_ms=ASK_MS)

    async def pull(self, offset: int, hold_ms: int = 0) -> WireReply:
        """Pull once from the first queue of `orders`; returns the reply."""
        request = PullMessage(
            consumer_group="g", topic="orders", queue_id=0, queue_offset=offset, max_msg_nums=32,
            sys_flag=int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND), subscription="*",
            suspend_timeout_millis=hold_ms,
        )  # fmt: skip
        return await self.client.request(request, timeout_ms=ASK_MS)

    async def ask(self, request: Request, *body: bytes) -> None:
        """Send a request, again while the next segment is being allocated; it must succeed."""
        await self._done(lambda: self.client.request(request, body=body, timeout_ms=ASK_MS))

    async def store_one(self, topic: str, number: int, size: int = 1_000) -> None:
        """Store a message whose body begins with its number."""
        body = f"{number}:".encode().ljust(size, b"x")
        await self._done(lambda: self.sent(body, topic, number % 4))

    async def _done(self, attempt: Callable[[], Any]) -> None:
        reply = await attempt()
        while reply.code == Code.SYSTEM_BUSY:
            reply = await attempt()
        assert reply.code == Code.SUCCESS, reply.remark


Served = TypeVar("Served", bound=ServedHere)


@asynccontextmanager
async def served_here(
    service: BrokerService,
    make: Callable[[BrokerService, Mapping[str, str]], Served],
    failures: list[BaseException] | None = None,
) -> AsyncIterator[Served]:
    """Start the service, and stop it cleanly.

    What fails in the meantime is added to `failures`; without them, nothing may fail.
    """
    failed: list[BaseException] = [] if failures is None else failures
    await service.recover(failed.append)
    one = make(service, await service.serve())
    try:
        yield one
    finally:
        one.client.close()
        await service.drain()
        await service.stop()
    assert failures is not None or failed == []
