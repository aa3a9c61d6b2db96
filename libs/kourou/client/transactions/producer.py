"""Transactions in the style of RocketMQ's `TransactionMQProducer`: an executor and a checker.

The executor runs when the half message is stored, and returns the state of the local transaction;
the checker answers brokers' check-backs. As in RocketMQ, an executor that raises leaves the state
unknown, and a half message that was not stored with full durability is rolled back without calling
the executor.

State: none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from kourou.client.consumer.handlers import is_coroutine_handler
from kourou.client.transactions.blocking_transactions import BlockingTransactions
from kourou.client.transactions.checks import Check, Checker
from kourou.client.transactions.transaction import AsyncTransactions, Ending, Transaction
from kourou.errors import BadRequest, Rejected, Unavailable
from kourou.model.message import SendResult
from kourou.model.transaction import TransactionState, state_of

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
