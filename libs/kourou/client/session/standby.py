"""Heartbeats from a second thread while the application blocks the event loop on which it consumes.

A broker receives nothing from a blocked loop. After some seconds it closes the connection and
assigns the consumer's queues to others, which process its messages again. So a thread checks every
two seconds whether the loop runs. If it does not, the thread sends the last heartbeat on its own
connections; brokers identify a consumer by its client ID, whatever the connection. When the loop
runs again, the client first sends a heartbeat itself; then the thread's connections are closed.

State: soft.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging

from kourou.client.session.connections import Connections, Dial
from kourou.client.session.heartbeats import Heartbeats
from kourou.client.session.io_thread import Io
from kourou.errors import KourouError
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.wire.frames import Frame

LOOK_MS = 2_000
"""The interval of the checks: three of them before a broker considers the client silent."""

_log = logging.getLogger("kourou.client")


class Standby:
    """Sends heartbeats with a client's groups from `thread` while `loop` is blocked."""

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
        """Start watching the loop."""
        self._watch = self._thread.submit(self._keep_watching())
        self._watch.add_done_callback(_ended)

    async def close(self) -> None:
        """Stop watching; runs on the loop."""
        watch, self._watch = self._watch, None
        if watch is not None and not self._thread.orphaned:
            watch.cancel()
            await self._thread.run(asyncio.sleep(0))  # by then it has closed its connections

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
        """Return whether the client sent a heartbeat itself; False if its loop is blocked again."""
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
    """Ignore frames on these connections: the client's own connections receive them too."""
