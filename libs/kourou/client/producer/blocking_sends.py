"""The blocking API of a producer, for threads.

Any number of threads may send concurrently. Messages that are passed at the same time share frames.

State: soft.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, overload

from kourou.client.client_core import ClientCore
from kourou.client.producer.batches import (
    PARTS_UNDER_WAY,
    as_messages,
    results,
    results_of_batch,
    unsent_batch,
    unsent_many,
)
from kourou.client.producer.delayed import delay_property
from kourou.client.producer.direct_sends import DirectSends, Waiting
from kourou.client.producer.pending_sends import (
    CallbackPort,
    Gathering,
    Outcome,
    PendingSend,
    ThreadPort,
)
from kourou.client.producer.producer_core import Choice, ProducerCore, TopicTargets
from kourou.client.producer.selectors import Selector
from kourou.client.session.io_thread import ClientClosed
from kourou.model.limits import FRAME_RECORDS_MAX
from kourou.model.message import Message, SendResult
from kourou.model.topic import MessageQueue

_log = logging.getLogger("kourou.client")


class Waiter:
    """Lets one thread wait for one outcome."""

    __slots__ = ("_done", "_outcome")

    def __init__(self) -> None:
        self._outcome: Outcome | None = None
        self._done = threading.Lock()
        self._done.acquire()

    @property
    def is_settled(self) -> bool:
        """Return whether the outcome is known."""
        return self._outcome is not None

    def settle(self, outcome: Outcome) -> None:
        """Set the outcome and wake the waiting thread; called on the I/O thread."""
        self._outcome = outcome
        self._done.release()

    def wait(self) -> SendResult:
        """Wait for the outcome. It always arrives, because every send ends by its deadline."""
        self._done.acquire()
        outcome = self._outcome
        if isinstance(outcome, SendResult):
            return outcome
        assert outcome is not None, "settled without an outcome"
        raise outcome


class _ManyWaiter:
    """Lets one thread wait for several outcomes."""

    __slots__ = ("_complete", "_outcomes")

    def __init__(self) -> None:
        self._complete = threading.Event()
        self._outcomes: list[Outcome] = []

    def gathering(self, count: int) -> Gathering:
        """Return a collector of `count` outcomes that wakes this waiter."""
        return Gathering(count, self._settle)

    def _settle(self, outcomes: list[Outcome]) -> None:
        self._outcomes = outcomes
        self._complete.set()

    @property
    def is_settled(self) -> bool:
        """Return whether all outcomes are known."""
        return self._complete.is_set()

    def wait(self) -> list[Outcome]:
        """Wait for all outcomes. They always arrive, because every send ends by its deadline."""
        self._complete.wait()
        return self._outcomes


class _Callback:
    """Passes one outcome to a function, in the callback thread pool."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[Outcome], Any]) -> None:
        self._function = function

    def settle(self, outcome: Outcome) -> None:
        """Call the function; an exception that it raises is logged."""
        try:
            self._function(outcome)
        except BaseException:  # noqa: BLE001 - an application's callback may raise anything
            # Includes `sys.exit()`: the callbacks of later outcomes must still run.
            _log.exception("send callback failed")


class BlockingSends:
    """Sending from threads. `Client` and `Producer` of kourou.sync have these methods."""

    def __init__(self) -> None:
        self._core: ProducerCore | None = None
        self._port: ThreadPort | None = None
        self._callbacks: CallbackPort | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._direct: DirectSends | None = None

    def _begin(self, core: ProducerCore, client: ClientCore) -> None:
        threads, count_max = client.settings.callback_threads, core.settings.unsent_count_max
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kourou-callback")
        direct = self._direct = DirectSends(core, is_possible=client.dials_in_clear)
        self._port = ThreadPort(core.outgoing, direct.shared)
        self._callbacks = CallbackPort(core.outgoing, self._pool, count_max, direct.shared)
        self._core = core

    def _end(self) -> ProducerCore | None:
        core, self._core = self._core, None
        direct, self._direct = self._direct, None
        if direct is not None:
            direct.close()
        return core

    def _shut_pool(self) -> None:
        """Run the pending callbacks; called when every outcome has arrived."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _ready(self, topic: str) -> tuple[ProducerCore, ThreadPort, TopicTargets]:
        core, port = self._core, self._port
        if core is None or port is None:
            raise ClientClosed
        core.io.check()
        targets = core.known(topic)
        if targets is None:
            targets = core.io.submit(core.find(topic)).result()
        return core, port, targets

    def send(
        self,
        topic: str,
        body: Any,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        flag: int = 0,
        delay_level: int = 0,
        delay: timedelta | None = None,
        wait_store_ok: bool = True,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker acknowledges it; see `kourou.Client.send`."""
        core, port, targets = self._ready(topic)
        own = None
        if delay_level or delay is not None:
            own = delay_property(core.settings.delay_levels_ms, delay_level, delay)
        choice = Choice(order_key, queue, selector, argument)
        terms = core.terms(timeout_ms=timeout_ms, wait=wait_store_ok, pinned=choice.pinned)
        waiter = Waiter()
        unsent = core.unsent(
            targets, port, waiter, body, tag, keys, properties, flag, terms, choice, own
        )
        self._send_waiting(port, [unsent], waiter)
        return waiter.wait()

    def _send_waiting(
        self, port: ThreadPort, messages: list[PendingSend], waiting: Waiting
    ) -> None:
        """Send messages to one queue in one frame; this thread will wait for their outcomes."""
        direct = self._direct
        if direct is None or not direct.send(messages, waiting):
            port.add_all(messages)

    def send_async(
        self,
        topic: str,
        body: Any,
        callback: Callable[[Outcome], Any],
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        flag: int = 0,
        delay_level: int = 0,
        delay: timedelta | None = None,
        wait_store_ok: bool = True,
        timeout_ms: int | None = None,
    ) -> None:
        """Send one message; `callback` receives its SendResult or its error, in a thread pool.

        Blocks only while too many callbacks are pending.
        """
        core, _, targets = self._ready(topic)
        port = self._callbacks
        assert port is not None, "opened together with the core"
        choice = Choice(order_key, queue, selector, argument)
        terms = core.terms(timeout_ms=timeout_ms, wait=wait_store_ok, pinned=choice.pinned)
        waiter = _Callback(callback)
        own = None
        if delay_level or delay is not None:
            own = delay_property(core.settings.delay_levels_ms, delay_level, delay)
        port.add(
            core.unsent(
                targets, port, waiter, body, tag, keys, properties, flag, terms, choice, own
            )
        )

    def send_oneway(
        self,
        topic: str,
        body: Any,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        flag: int = 0,
        delay_level: int = 0,
        delay: timedelta | None = None,
    ) -> None:
        """Send one message without waiting for a result: fast, but a loss is not reported."""
        core, port, targets = self._ready(topic)
        choice = Choice(order_key, queue)
        terms = core.terms(timeout_ms=None, wait=True, oneway=True, pinned=choice.pinned)
        own = None
        if delay_level or delay is not None:
            own = delay_property(core.settings.delay_levels_ms, delay_level, delay)
        unsent = core.unsent(
            targets, port, None, body, tag, keys, properties, flag, terms, choice, own
        )
        port.add_all([unsent])

    @overload
    def send_many(
        self, messages: Iterable[Message], /, *, timeout_ms: int | None = None
    ) -> list[SendResult]: ...

    @overload
    def send_many(
        self,
        topic: str,
        bodies: Iterable[Any],
        /,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> list[SendResult]: ...

    def send_many(
        self,
        first: str | Iterable[Message],
        bodies: Iterable[Any] | None = None,
        /,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send several messages of any topics; see `kourou.Client.send_many`."""
        messages = as_messages(first, bodies, tag, keys)
        outcomes: list[Outcome] = []
        under_way: deque[_ManyWaiter] = deque()
        for at in range(0, len(messages), FRAME_RECORDS_MAX):
            part = messages[at : at + FRAME_RECORDS_MAX]
            targets = {}
            for topic in dict.fromkeys(message.topic for message in part):
                core, port, targets[topic] = self._ready(topic)
            waiter = _ManyWaiter()
            port.add_all(unsent_many(core, port, targets, part, timeout_ms, waiter.gathering))
            under_way.append(waiter)
            if len(under_way) == PARTS_UNDER_WAY:
                outcomes += under_way.popleft().wait()
        for waiter in under_way:
            outcomes += waiter.wait()
        return results(outcomes)

    def send_batch(
        self,
        topic: str,
        bodies: Iterable[Any],
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic as one batch, all or none; see `kourou.Client.send_batch`."""
        messages = as_messages(topic, bodies, tag, keys)
        if not messages:
            return []
        core, port, targets = self._ready(topic)
        waiter = _ManyWaiter()
        choice = Choice(order_key, queue, selector, argument)
        make = waiter.gathering
        unsent = unsent_batch(core, port, targets, messages, choice, timeout_ms, make)
        self._send_waiting(port, unsent, waiter)
        return results_of_batch(waiter.wait())
