"""Producers of transactions: for threads, and in the style of RocketMQ's `TransactionMQProducer`.

In that style there is an executor and a checker. The executor runs when the half message is stored,
and returns the state of the local transaction; the checker answers brokers' check-backs. As in
RocketMQ, an executor that raises leaves the state unknown, and a half message that was not stored
with full durability is rolled back without calling the executor.

State: none.

Transactions for threads: kourou.client.transactions.transaction without `await`.

    with mq.transaction("orders", order) as tx:
        bookings.book(order, tx.id)

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

from kourou.client.consumer.handlers import is_coroutine_handler
from kourou.client.producer.blocking_sends import BlockingSends, Waiter
from kourou.client.producer.producer_core import Choice
from kourou.client.producer.selectors import Selector
from kourou.client.session.io_thread import ClientClosed
from kourou.client.transactions.checks import Check, Checker
from kourou.client.transactions.transaction import (
    AsyncTransactions,
    Ending,
    HalfMessage,
    Transaction,
    begin_checks,
    end_in_background,
    ending,
    require_check,
    require_promise,
    state_after,
)
from kourou.errors import BadRequest, KourouError, Rejected, Unavailable
from kourou.model.message import SendResult
from kourou.model.topic import MessageQueue
from kourou.model.transaction import TransactionState, state_of


class _EndWaiter:
    """Lets one thread wait until the broker has received the end of a transaction."""

    __slots__ = ("_done", "_error")

    def __init__(self) -> None:
        self._error: KourouError | None = None
        self._done = threading.Event()

    def settle(self, error: KourouError | None) -> None:
        self._error = error
        self._done.set()

    def wait(self) -> KourouError | None:
        """Wait for the result. It arrives by the deadline at the latest."""
        self._done.wait()
        return self._error


class BlockingTransaction(Ending):
    """One transaction of the blocking API; use it in a `with` statement."""

    def __init__(self, sends: BlockingTransactions, half: HalfMessage) -> None:
        super().__init__(half)
        self._sends = sends

    def __enter__(self) -> Self:
        result = self._sends._send_half(self.half)
        self.result = result
        try:
            require_promise(result)
        except Unavailable:
            self.state = TransactionState.ROLLBACK
            self._end()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.state = state_after(self.state, error)
        self._end()

    def _end(self) -> None:
        if self.state is TransactionState.UNKNOWN or self.result is None:
            return
        core = self._sends._core
        if core is None or not end_in_background(core, self):
            self.complete(self._sends._end_half(self.result, self.state, self.half.timeout_ms))


class BlockingTransactions(BlockingSends):
    """Transactions from threads. `Client` and `Producer` of kourou.sync have these methods."""

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
    ) -> BlockingTransaction:
        """Return a transaction for `with`; the message is delivered if the block succeeds."""
        choice = Choice(order_key, queue, selector, argument)
        return BlockingTransaction(
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
        """Return a decorator for a plain function that answers check-backs for `topic`."""

        def register(checker: Checker) -> Checker:
            if is_coroutine_handler(checker):
                raise BadRequest(
                    "the blocking client cannot run a coroutine: it has no event loop",
                    hint="use kourou.Client, or pass a plain function",
                )
            check = Check(topic, checker, body_type)
            if self._core is None:
                self._checks.append(check)
            else:
                begin_checks(self._core, [check], None)
            return checker

        return register

    def _begin_checks(self) -> None:
        """Register the check functions that were given before the producer was opened."""
        assert self._core is not None
        begin_checks(self._core, self._checks, None)

    def _send_half(self, half: HalfMessage) -> SendResult:
        """Store a half message. Raises as `send`, and BadRequest if no check is registered."""
        core, port, targets = self._ready(half.topic)
        require_check(core, half.topic)
        own = half.own(core.settings.producer_group)
        choice = half.choice
        terms = core.terms(
            timeout_ms=half.timeout_ms, wait=half.wait_store_ok, pinned=choice.pinned
        )
        waiter: Waiter[SendResult] = Waiter()
        pending_send = core.pending_send(
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
        )
        self._send_waiting(port, pending_send, waiter)
        return waiter.wait()

    def _end_half(
        self, half: SendResult, state: TransactionState, timeout_ms: int | None = None
    ) -> KourouError | None:
        """Commit or roll back a half message; returns None when the broker has received it."""
        core = self._core
        if core is None:
            raise ClientClosed
        waiter = _EndWaiter()
        end, direct = ending(core, half, state, timeout_ms, waiter.settle), self._direct
        if direct is None or not direct.end(end):
            core.ends.put(end)
        return waiter.wait()


Executor = Callable[[Ending, Any], Any]
"""(transaction, argument) -> a TransactionState, or True, False or None.

The transaction contains the message as `half`, and its `id`.
"""

_log = logging.getLogger("kourou.client.transactions")


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The result of a message that was sent in a transaction.

    `state` is what the executor returned. `reported` is whether the broker has received it; if not,
    it sends a check-back. `error` is what the executor raised.
    """

    send: SendResult
    state: TransactionState
    reported: bool
    error: Exception | None = None


class TransactionSending(AsyncTransactions):
    """Sending in transactions, for event loops.

    Executor and checker may be coroutine functions; plain ones are called in threads.
    """

    _execute: Executor

    def _set_functions(self, execute: Executor, check: Checker) -> None:
        self._execute = execute
        self._checks.append(Check("", check))

    async def send_in_transaction(
        self, topic: str, body: Any, argument: Any = None, **options: Any
    ) -> TransactionResult:
        """Store a half message, run the executor, end the transaction.

        `options` are those of `transaction`. Raises the errors of `send` if the half message is not
        stored.
        """
        transaction = self.transaction(topic, body, **options)
        error: Exception | None = None
        try:
            await transaction.__aenter__()
        except Unavailable:
            if transaction.result is None:
                raise
            return _result(transaction)
        try:
            transaction.state = await self._executed(transaction, argument)
        except Exception as raised:  # noqa: BLE001 - an application may raise anything
            error = _not_known(transaction, raised)
        await _ended(transaction)
        return _result(transaction, error)

    async def _executed(self, transaction: Transaction, argument: Any) -> TransactionState:
        if is_coroutine_handler(cast("Callable[[Any], Any]", self._execute)):
            return state_of(await self._execute(transaction, argument))
        return state_of(await asyncio.to_thread(self._execute, transaction, argument))


async def _ended(transaction: Transaction) -> None:
    try:
        await transaction.__aexit__(None, None, None)
    except Rejected as error:
        _log.warning(
            "transaction-outcome-differs: transaction %(message_id)s has a different outcome: "
            "%(error)s",
            {"message_id": transaction.id, "error": error},
        )


class BlockingTransactionSending(BlockingTransactions):
    """Sending in transactions, for threads; the executor is called in the thread that sends."""

    _execute: Executor

    def _set_functions(self, execute: Executor, check: Checker) -> None:
        for function in (execute, check):
            if is_coroutine_handler(cast("Callable[[Any], Any]", function)):
                raise BadRequest(
                    "the blocking client cannot run a coroutine: it has no event loop",
                    hint="use kourou.Client, or pass plain functions",
                )
        self._execute = execute
        self._checks.append(Check("", check))

    def send_in_transaction(
        self, topic: str, body: Any, argument: Any = None, **options: Any
    ) -> TransactionResult:
        """Store a half message, run the executor, end the transaction; see `TransactionSending`."""
        transaction = self.transaction(topic, body, **options)
        error: Exception | None = None
        try:
            transaction.__enter__()
        except Unavailable:
            if transaction.result is None:
                raise
            return _result(transaction)
        try:
            transaction.state = state_of(self._execute(transaction, argument))
        except Exception as raised:  # noqa: BLE001 - an application may raise anything
            error = _not_known(transaction, raised)
        try:
            transaction.__exit__(None, None, None)
        except Rejected as refused:
            _log.warning(
                "transaction-outcome-differs: transaction %(message_id)s has a different outcome: "
                "%(error)s",
                {"message_id": transaction.id, "error": refused},
            )
        return _result(transaction, error)


def _not_known(transaction: Ending, raised: Exception) -> Exception:
    _log.warning(
        "transaction-executor-failed: the transaction executor of %(message_id)s failed",
        {"message_id": transaction.id},
        exc_info=raised,
    )
    transaction.unknown()
    return raised


def _result(transaction: Ending, error: Exception | None = None) -> TransactionResult:
    assert transaction.result is not None, "a transaction that began has its half message"
    return TransactionResult(transaction.result, transaction.state, transaction.reported, error)
