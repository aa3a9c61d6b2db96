"""Keeps a client's memberships while the application blocks the event loop on which it consumes.

A broker hears nothing from a blocked loop. After some seconds it closes the connection and gives
the member's queues to others, which handle its messages again. So a thread asks the loop every two
seconds for a sign of life. Without one it tells the brokers, by connections of its own, what the
last heartbeat said; a member is known by its client ID, whichever connection tells of it. When the
loop runs again, the client's own connections tell first, and then those of the thread are closed.

State: soft.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging

from kourou.client.connections import Connections, Dial
from kourou.client.heartbeats import Heartbeats
from kourou.client.io_thread import Io
from kourou.errors import KourouError
from kourou.protocol.frames import Frame
from kourou.protocol.messages.membership import HeartBeat

LOOK_MS = 2_000
"""How often the loop is asked; three times before a broker finds the client silent."""

_log = logging.getLogger("kourou.client")


class Standby:
    """Tells brokers of a client's groups, from `thread`, while `loop` is blocked."""

    def __init__(
        self, heartbeats: Heartbeats, loop: asyncio.AbstractEventLoop, thread: Io, dial: Dial
    ) -> None:
        self._heartbeats = heartbeats
        self._loop = loop
        self._thread = thread
        self._dial = dial
        self._turned = False
        self._watch: concurrent.futures.Future[None] | None = None

    def start(self) -> None:
        """Watch the loop from now on."""
        self._watch = self._thread.submit(self._keep_watching())
        self._watch.add_done_callback(_ended)

    async def close(self) -> None:
        """Watch it no more; on the loop."""
        watch, self._watch = self._watch, None
        if watch is not None and not self._thread.orphaned:
            watch.cancel()
            await self._thread.run(asyncio.sleep(0))  # it has closed its connections

    def _turn(self) -> None:
        self._turned = True

    async def _keep_watching(self) -> None:
        connections: Connections | None = None
        try:
            while True:
                self._turned = False
                try:
                    self._loop.call_soon_threadsafe(self._turn)
                except RuntimeError:  # the loop is closed
                    return
                await asyncio.sleep(LOOK_MS / 1_000)
                if not self._turned:
                    if connections is None:
                        _log.warning(
                            "the event loop is blocked: messages wait; a thread sends heartbeats"
                        )
                        connections = Connections(self._dial, _ignore)
                    await self._tell(connections)
                elif connections is not None and await self._told():
                    connections.close()
                    connections = None
        finally:
            if connections is not None:
                connections.close()

    async def _tell(self, connections: Connections) -> None:
        body, addresses = self._heartbeats.last

        async def tell(address: str) -> None:
            try:
                await connections.ask(address, HeartBeat(), body=body, timeout_ms=LOOK_MS)
            except KourouError as error:
                _log.warning("heartbeat to broker %s failed: %s", address, error)

        await asyncio.gather(*map(tell, addresses))

    async def _told(self) -> bool:
        """Has the client itself told the brokers again? Not if its loop is blocked once more."""
        beat = asyncio.run_coroutine_threadsafe(self._heartbeats.beat(), self._loop)
        try:
            async with asyncio.timeout(LOOK_MS / 1_000):
                await asyncio.wrap_future(beat)
        except TimeoutError:
            return False
        return True


def _ended(watch: concurrent.futures.Future[None]) -> None:
    if not watch.cancelled() and (error := watch.exception()) is not None:
        _log.error("watching the event loop failed unexpectedly", exc_info=error)


def _ignore(_address: str, _frame: Frame) -> None:
    """What a broker says to the client comes by the client's own connections as well."""
