"""`kourou up --flights`: sample traffic. Flights are sent at a steady rate and consumed.

    boards           two consumers that receive every flight
    duty-managers    receives only flights over an hour late, filtered by the broker (SQL)
    ramp             fails for some: late flights are retried, cancelled ones become dead letters

Message traces are on for all groups, and for the producer group `tower`, so that the console can
show who received each flight and when.

`stop` ends the traffic. Stored messages remain and are not counted. `stop` waits for the sends in
flight, which time out if a broker is offline. While a broker has no leader or is offline, the
traffic waits, as every client does, and then continues.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import cycle, islice

from kourou.client.client import Client
from kourou.client.consumer.outcomes import RetryLater
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Sql
from kourou.client.settings.client_settings import ConsumerSettings, ProducerSettings
from kourou.errors import KourouError
from kourou.model.message import Message
from kourou_demo.flights import Event, Flight, load_events
from kourou_demo.terms import QUEUES, TOPIC

TOWER = "tower"
"""The producer group."""

BOARDS, MANAGERS, RAMP = "boards", "duty-managers", "ramp"
GROUPS = (BOARDS, MANAGERS, RAMP)
BOARD_MEMBERS = 2
RATE_PER_S = 20
FLIGHTS = 20_000
"""The first flights of the year, sent repeatedly: a quarter of an hour at this rate."""

TURN_S = 0.25
"""The interval between sends."""

LATE_MIN = 60
ATTEMPTS = 2
"""Attempts of the group `ramp`: a cancelled flight is a dead letter after about ten seconds."""

_log = logging.getLogger("kourou.flights")


class LiveFlights:
    """Runs from `start` to `stop`. `sent`, `shown`: the numbers of messages so far."""

    def __init__(self, address: str, *, on_failure: Callable[[BaseException], None]) -> None:
        """`on_failure` is called in the flights' thread with the exception that ended them."""
        self._address = address
        self._on_failure = on_failure
        self._events: Sequence[Event] = ()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="kourou-flights", daemon=True)
        self.sent = self.shown = 0
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Start; the flights are read in the background."""
        self._task = self._loop.create_task(self._fly())
        self._thread.start()

    def stop(self) -> None:
        """Stop; returns when all clients are closed."""
        if self._task is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        assert self._task is not None
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass  # stopped
        except Exception as error:  # noqa: BLE001 - reported by on_failure
            self.failure = error
            _log.exception("flights-stopped: flight generator stopped")
            self._on_failure(error)
        finally:
            self._loop.close()

    async def _fly(self) -> None:
        self._events = await asyncio.to_thread(load_events, FLIGHTS)
        async with AsyncExitStack() as stack:
            sender = ProducerSettings(producer_group=TOWER, message_trace=True)
            tower = await stack.enter_async_context(Client(self._address, producer=sender))
            await tower.admin.topics.create(TOPIC, queues=QUEUES)
            for _ in range(BOARD_MEMBERS):
                board = await stack.enter_async_context(self._member(BOARDS))
                await stack.enter_async_context(board.listen(TOPIC, self._show))
            managers = await stack.enter_async_context(self._member(MANAGERS))
            late = Sql(f"arrival_delay > {LATE_MIN}")
            await stack.enter_async_context(managers.listen(TOPIC, _nod, late))
            ramp = await stack.enter_async_context(self._member(RAMP, attempts_max=ATTEMPTS))
            await stack.enter_async_context(ramp.listen(TOPIC, _handle, body_type=Flight))
            await self._send(tower)

    def _member(self, group: str, *, attempts_max: int = 0) -> Client:
        settings = ConsumerSettings(
            consumer_group=group, max_reconsume_times=attempts_max - 1, message_trace=True
        )
        return Client(self._address, consumer=settings)

    async def _send(self, tower: Client) -> None:
        flights = cycle(self._events)
        due = 0.0
        while True:
            due += RATE_PER_S * TURN_S
            count, due = int(due), due % 1
            some = [
                Message(TOPIC, one.body, one.tag, one.keys, properties=one.properties)
                for one in islice(flights, count)
            ]
            try:
                await tower.send_many(some)
                self.sent += count
            except KourouError as error:
                _log.info(
                    "flights-unsent: %(messages)d flight messages not sent: %(error)s",
                    {"messages": count, "error": error},
                )
            await asyncio.sleep(TURN_S)

    async def _show(self, message: ReceivedMessage) -> None:
        del message
        self.shown += 1


async def _nod(message: ReceivedMessage) -> None:
    """Consume a message and do nothing."""
    del message


async def _handle(message: ReceivedMessage) -> None:
    """Accept late flights at the second attempt and cancelled ones never."""
    flight: Flight = message.body
    if flight.departure_delay is None:
        raise RetryLater(f"{flight.name} of {flight.date} is cancelled")
    if flight.departure_delay > LATE_MIN and message.attempt == 1:
        raise RetryLater(f"{flight.name} of {flight.date} is late")
