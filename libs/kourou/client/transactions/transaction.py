"""Transactions on an event loop: messages that are delivered only if a local transaction succeeds.

    @mq.transaction_check("orders")
    async def was_it_booked(message):
        return await bookings.state_of(message.message_id)      # True, False, or None: not yet

    async with mq.transaction("orders", order, keys=[order.id]) as tx:
        await bookings.book(order, tx.id)

The message is stored as a *half message*, invisible to consumers, before the block runs. If the
block succeeds, the message is committed; if it raises, the message is rolled back and the exception
is propagated. If the process dies in between, or the block is cancelled, or calls `tx.unknown()`,
the broker later sends a check-back to a producer of the group. Therefore a check must be registered
first.

    sending the half message fails   the error is raised, the block does not run
    the block raises                 rolled back; if the broker does not receive that, it sends a
                                     check-back
    the block succeeds, but the      no error: the check-back commits the message later
    broker is offline
    the block succeeds, but the      Rejected: a check-back got a different outcome in the meantime,
    broker refuses                   or the topic was deleted

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from kourou.client.producer.producer_core import Choice, ProducerCore, choice_of_named
from kourou.client.producer.selectors import Selector
from kourou.client.producer.sends import Sends
from kourou.client.session.io_thread import running_loop
from kourou.client.transactions.checks import Check, Checker
from kourou.client.transactions.ends import PendingEnd, end_request
from kourou.errors import BadRequest, KourouError, Rejected, Unavailable
from kourou.model.limits import CHECK_IMMUNITY_S_MAX, UNCONFIRMED_ENDS_MAX
from kourou.model.message import Property, SendResult, SendStatus
from kourou.model.topic import MessageQueue
from kourou.model.transaction import TransactionState

_log = logging.getLogger("kourou.client.transactions")


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """The message of a transaction, and its send options."""

    topic: str
    body: Any
    tag: str | None = None
    keys: str | Iterable[str] = ()
    properties: Mapping[str, str] | None = None
    choice: Choice = field(default_factory=Choice)
    flag: int = 0
    wait_store_ok: bool = True
    timeout_ms: int | None = None
    check_immunity_s: int | None = None
    message_id: str | None = None

    def own(self, group: str) -> dict[str, str]:
        """Return the properties of a half message. Raises BadRequest for an invalid option."""
        own = {Property.TRAN_MSG.value: "true", Property.PGROUP.value: group}
        seconds = self.check_immunity_s
        if seconds is not None:
            if not 0 < seconds <= CHECK_IMMUNITY_S_MAX:
                raise BadRequest(
                    f"check_immunity_s is {seconds}; it must be between 1 and "
                    f"{CHECK_IMMUNITY_S_MAX}"
                )
            own[Property.CHECK_IMMUNITY_TIME.value] = str(seconds)
        if not self.wait_store_ok:
            own[Property.WAIT.value] = "false"
        return own


def require_check(core: ProducerCore, topic: str) -> None:
    """Raise BadRequest if no check function is registered for the topic."""
    if core.checks.check_of(topic) is None:
        raise BadRequest(
            f"no transaction check is registered for topic {topic}",
            hint=f'register a function with transaction_check("{topic}") first, or '
            "set transaction_check_listener",
        )


def require_promise(result: SendResult) -> None:
    """Raise Unavailable if the half message was not stored with the requested durability."""
    if result.status is not SendStatus.SEND_OK:
        raise Unavailable(
            f"the half message was stored with status {result.status.value}; "
            "the transaction was not started",
            hint="start the transaction again",
        )


def state_after(wanted: TransactionState, error: BaseException | None) -> TransactionState:
    """Return the state of a transaction whose block ended with this error."""
    if error is None or wanted is TransactionState.UNKNOWN:
        return wanted
    # A cancelled or interrupted block may have done its work: a check-back finds out.
    return TransactionState.ROLLBACK if isinstance(error, Exception) else TransactionState.UNKNOWN


class Ending:
    """The shared part of one transaction, for both APIs."""

    def __init__(self, half: HalfMessage) -> None:
        self.half = half
        self.result: SendResult | None = None
        self.state = TransactionState.COMMIT
        self.reported = False

    @property
    def id(self) -> str:
        """The transaction's ID: the message's unique key, which the check function receives too."""
        return "" if self.result is None else self.result.message_id

    def unknown(self) -> None:
        """Leave the transaction open when the block ends; the broker will send a check-back."""
        self.state = TransactionState.UNKNOWN

    def rollback(self) -> None:
        """Roll back when the block ends, even if it raises nothing."""
        self.state = TransactionState.ROLLBACK

    def complete(self, error: KourouError | None) -> None:
        """Record whether the broker received the end; raises the error if a commit was refused."""
        if isinstance(error, Rejected) and self.state is TransactionState.COMMIT:
            raise error
        self.log_outcome(error)

    def log_outcome(self, error: KourouError | None) -> None:
        """Do as `complete`, but log every error and raise none."""
        if error is None:
            self.reported = True
            return
        if isinstance(error, Rejected):
            _log.error(
                "transaction-end-refused: the broker refused to end transaction %(message_id)s "
                "(%(state)s): %(error)s",
                {"message_id": self.id, "state": self.state.name, "error": error},
            )
            return
        _log.warning(
            "transaction-end-unconfirmed: the outcome of transaction %(message_id)s (%(state)s) "
            "did not reach the broker, which will check it: %(error)s",
            {"message_id": self.id, "state": self.state.name, "error": error},
        )


def ending(
    core: ProducerCore,
    half: SendResult,
    state: TransactionState,
    timeout_ms: int | None,
    settle: Callable[[KourouError | None], None],
    *,
    waited: bool = True,
) -> PendingEnd:
    """Return the end of a half message, with its deadline and callback."""
    deadline_ms = core.clock.monotonic_ms() + (timeout_ms or core.settings.send_timeout_ms)
    request = end_request(core.settings.producer_group, half, state)
    return PendingEnd(
        half.queue.topic, half.queue.broker_name, request, deadline_ms, settle, waited
    )


def end_in_background(core: ProducerCore, one: Ending) -> bool:
    """End it without waiting for the reply; returns False if the caller must wait.

    The caller must wait by default, and while UNCONFIRMED_ENDS_MAX replies are pending.
    """
    if core.settings.wait_for_transaction_end or core.ends.open >= UNCONFIRMED_ENDS_MAX:
        return False
    assert one.result is not None
    timeout_ms = one.half.timeout_ms
    core.ends.put(ending(core, one.result, one.state, timeout_ms, one.log_outcome, waited=False))
    return True


class Transaction(Ending):
    """One transaction of the asynchronous API; use it with `async with`."""

    def __init__(self, sends: AsyncTransactions, half: HalfMessage) -> None:
        super().__init__(half)
        self._sends = sends

    async def __aenter__(self) -> Self:
        result = await self._sends._send_half(self.half)
        self.result = result
        try:
            require_promise(result)
        except Unavailable:
            self.state = TransactionState.ROLLBACK
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.state = state_after(self.state, error)
        await self._end()

    async def _end(self) -> None:
        if self.state is TransactionState.UNKNOWN or self.result is None:
            return
        if not end_in_background(self._sends._port()[0], self):
            self.complete(
                await self._sends._end_half(self.result, self.state, self.half.timeout_ms)
            )


class AsyncTransactions(Sends):
    """Transactions on an event loop. `Client` and `Producer` have these methods."""

    def __init__(self) -> None:
        super().__init__()
        self._checks: list[Check] = []

    def transaction(
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
        wait_store_ok: bool = True,
        timeout_ms: int | None = None,
        check_immunity_s: int | None = None,
    ) -> Transaction:
        """Return a transaction for `async with`; the message is delivered if the block succeeds.

        The arguments are those of `send`. `check_immunity_s` is the number of seconds before which
        the broker sends no check-back for this message.
        """
        choice = Choice(order_key, queue, selector, argument)
        return Transaction(
            self,
            HalfMessage(
                topic,
                body,
                tag,
                keys,
                properties,
                choice,
                flag,
                wait_store_ok,
                timeout_ms,
                check_immunity_s,
            ),
        )

    def transaction_check(
        self, topic: str, *, body_type: Any = None
    ) -> Callable[[Checker], Checker]:
        """Return a decorator: the function answers check-backs for half messages of `topic`.

        It receives the message and returns True (commit), False (roll back) or None (not known
        yet), or a TransactionState. A coroutine function is awaited on the loop that opened the
        client; a plain one is called in a thread. It may be registered before the client is opened.
        """

        def register(checker: Checker) -> Checker:
            self._register(Check(topic, checker, body_type))
            return checker

        return register

    def _register(self, check: Check) -> None:
        if self._core is None:
            self._checks.append(check)
        else:
            begin_checks(self._core, [check], running_loop())

    def _begin_checks(self) -> None:
        """Register the check functions that were given before the producer was opened."""
        assert self._core is not None
        begin_checks(self._core, self._checks, running_loop())

    async def _send_half(self, half: HalfMessage) -> SendResult:
        """Store a half message. Raises as `send`, and BadRequest if no check is registered."""
        core, port, targets = await self._ready(half.topic)
        require_check(core, half.topic)
        own = half.own(core.settings.producer_group)
        choice = half.choice
        if half.message_id is not None:
            choice = choice_of_named(choice, half.message_id)
        terms = core.terms(
            timeout_ms=half.timeout_ms,
            wait=half.wait_store_ok,
            pinned=choice.pinned,
            repeated=half.message_id is not None,
        )
        waiter: asyncio.Future[SendResult] = port.loop.create_future()
        port.add(
            core.pending_send(
                targets,
                port,
                waiter,
                half.body,
                half.tag,
                half.keys,
                half.properties,
                half.flag,
                terms,
                choice,
                own,
                half.message_id,
            )
        )
        return await waiter

    async def prepare(self, half: HalfMessage) -> SendResult:
        """Store a half message that `decide` ends later, perhaps in another process.

        Until then the check function must return None. Raises the errors of `send`, BadRequest if
        no check is registered, and Unavailable if the message was not stored with the requested
        durability.
        """
        result = await self._send_half(half)
        try:
            require_promise(result)
        except Unavailable:
            await self._end_half(result, TransactionState.ROLLBACK, half.timeout_ms)
            raise
        return result

    async def decide(
        self, half: SendResult, state: TransactionState, timeout_ms: int | None = None
    ) -> None:
        """Commit or roll back a half message, whichever producer of the group prepared it.

        Repeating the same decision is not an error. Raises Rejected if the broker refuses it (a
        different outcome is recorded, or the group has no such half message), and Unavailable or
        UnknownOutcome if the broker did not reply: then the call may be repeated.
        """
        await self._ready(half.queue.topic)
        error = await self._end_half(half, state, timeout_ms)
        if error is not None:
            raise error

    async def _end_half(
        self, half: SendResult, state: TransactionState, timeout_ms: int | None = None
    ) -> KourouError | None:
        """Commit or roll back a half message; returns None when the broker has received it."""
        core, port = self._port()
        reported: asyncio.Future[KourouError | None] = port.loop.create_future()

        def settle(error: KourouError | None) -> None:
            if port.here:
                _settle(reported, error)
                return
            try:
                port.loop.call_soon_threadsafe(_settle, reported, error)
            except RuntimeError:  # the loop is closed: no caller waits any more
                _log.info(
                    "transaction-ended-late: transaction %(message_id)s ended after its caller "
                    "stopped waiting",
                    {"message_id": half.message_id},
                )

        core.ends.put(ending(core, half, state, timeout_ms, settle))
        return await reported


def begin_checks(
    core: ProducerCore, checks: list[Check], loop: asyncio.AbstractEventLoop | None
) -> None:
    """Register these check functions, and that of the settings; called in the application."""
    listener = core.settings.transaction_check_listener
    every = [*checks, *([Check("", listener)] if listener is not None else [])]
    for check in every:
        core.checks.store(check, loop)
        core.io.submit(core.checks.add(check, loop))


def _settle(reported: asyncio.Future[KourouError | None], error: KourouError | None) -> None:
    if not reported.done():
        reported.set_result(error)
