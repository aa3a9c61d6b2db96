"""Replies to brokers' check-backs for half messages.

A broker may send a check-back to any producer of the group, so a check function must know the
outcomes of the other producers too, usually from a table that all of them write to.

Calls are limited as in RocketMQ's thread pool: up to `check_threads_min` run concurrently; further
check-backs wait, at most `check_requests_max`; only if that many wait, up to `check_threads_max`
run. More check-backs are dropped, because the broker repeats them. For coroutine functions the same
numbers limit tasks on the application's loop.

A function that raises, or returns None, sends no reply. No function is called for a broker whose
connection was lost while its check-back waited: the broker repeats the check-back when it is
connected again, and waiting for it would delay all others.

State: soft. Everything except `Check`, `store` and `check_of` is used on the I/O thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kourou.client.codecs import body_decoder
from kourou.client.consumer.handlers import is_coroutine_handler
from kourou.client.consumer.received import ReceivedMessage, from_record
from kourou.client.introspection.broker_requests import BrokerRequest, RequestReply
from kourou.client.session.client_session import Session
from kourou.client.session.io_thread import background
from kourou.client.settings.client_settings import ProducerSettings
from kourou.errors import KourouError
from kourou.model.message import Property, SysFlag
from kourou.model.transaction import TransactionState, state_of
from kourou.protocol.messages.sends import CheckTransactionState, EndTransaction
from kourou.time_limit import within

Checker = Callable[[ReceivedMessage], Any]
"""Receives a half message; returns a TransactionState, or True, False or None.

A coroutine function is awaited on the loop that opened the client.
"""

JOIN_RETRY_S = 1.0
_log = logging.getLogger("kourou.client.transactions")


@dataclass(frozen=True, slots=True)
class Check:
    """A function for the half messages of one topic; "" means all other topics."""

    topic: str
    checker: Checker
    body_type: Any = None


@dataclass(frozen=True, slots=True)
class _CheckBack:
    address: str
    request: CheckTransactionState
    message: ReceivedMessage
    group: str
    checker: Checker


class TransactionChecks:
    """The check functions of one producer. `loop` is the application's, where coroutines run."""

    def __init__(
        self,
        settings: ProducerSettings,
        session: Session,
        find: Callable[[str], Awaitable[object]],
    ) -> None:
        self._settings = settings
        self._session = session
        self._find = find
        self._checks: dict[str, Check] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queued: deque[_CheckBack] = deque()
        self._running = 0
        self._threads: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    @property
    def group(self) -> str:
        """The producer group whose transactions are checked."""
        return self._settings.producer_group

    def check_of(self, topic: str) -> Check | None:
        """Return the check of a topic, or None. Callable in any thread."""
        return self._checks.get(topic) or self._checks.get("")

    def store(self, check: Check, loop: asyncio.AbstractEventLoop | None) -> None:
        """Store the function for a topic; called in any thread, followed by `add`.

        It is stored first, because the application may start a transaction immediately afterwards.
        """
        if loop is not None:
            self._loop = loop
        self._checks[check.topic] = check

    async def add(self, check: Check, loop: asyncio.AbstractEventLoop | None) -> None:
        """Start answering check-backs for a topic; runs on the I/O thread.

        The brokers of the topic must know this producer before they can send check-backs to it,
        whether or not it ever sends. So it joins its group there, with retries until that succeeds.
        """
        self.store(check, loop)
        self._session.request_handlers.on(CheckTransactionState, self._on_check_back)
        self._session.half_handlers[self.group] = self
        if check.topic:
            self._spawn(self._join(check.topic), f"joining the producers of {check.topic}")

    async def _join(self, topic: str) -> None:
        is_logged = False
        while not self._closed:
            try:
                await self._find(topic)
            except KourouError as error:
                if not is_logged:
                    _log.warning(
                        "checks-unavailable: brokers cannot check transactions of %(topic)s yet: "
                        "%(error)s",
                        {"topic": topic, "error": error},
                    )
                is_logged = True
                await asyncio.sleep(JOIN_RETRY_S)
            else:
                return

    def _spawn(self, work: Any, what: str) -> None:
        task = background(work, what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- check-backs ------------------------------------------------------------------------------

    async def _on_check_back(self, asked: BrokerRequest) -> RequestReply | None:
        """Handle a broker's check-back; one client may have producers of several groups."""
        assert isinstance(asked.request, CheckTransactionState), asked.request
        record = b"".join(asked.body)
        group = from_record(record, "").properties.get(Property.PGROUP, "")
        whose = self._session.half_handlers.get(group)
        if whose is None:
            _log.warning(
                "check-unexpected: broker %(address)s checks a transaction of group %(group)s, "
                "which has no check handler in this client",
                {"address": asked.address, "group": group},
            )
        else:
            whose.take(asked.address, asked.request, record)
        return None

    def take(self, address: str, request: CheckTransactionState, record: bytes) -> None:
        """Queue a check-back for a half message of this group, or start its check."""
        message = from_record(record, "")
        check = self.check_of(message.topic)
        if check is None or self._closed:
            _log.warning(
                "check-handler-missing: no check handler for transactions of %(topic)s in this "
                "client",
                {"topic": message.topic},
            )
            return
        if check.body_type is not None:
            message = from_record(record, "", body_decoder(check.body_type))
        check_back = _CheckBack(address, request, message, self.group, check.checker)
        settings = self._settings
        if self._running < settings.check_threads_min:
            self._start(check_back)
        elif len(self._queued) < settings.check_requests_max:
            self._queued.append(check_back)
        elif self._running < settings.check_threads_max:
            self._start(check_back)
        else:
            _log.warning(
                "check-dropped: dropped the check of transaction %(message_id)s: %(pending)d are "
                "already pending (checkRequestHoldMax)",
                {"message_id": message.message_id, "pending": len(self._queued)},
            )

    def _start(self, check_back: _CheckBack) -> None:
        self._running += 1
        self._idle.clear()
        self._spawn(self._work(check_back), "answering about transactions")

    async def _work(self, check_back: _CheckBack) -> None:
        try:
            await self._answer(check_back)
            while self._queued and not self._closed:
                await self._answer(self._queued.popleft())
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _answer(self, check_back: _CheckBack) -> None:
        if not self._session.connections.is_connected(check_back.address):
            _log.info(
                "check-abandoned: broker %(address)s disconnected; dropped its transaction check",
                {"address": check_back.address},
            )
            return
        try:
            state = state_of(await self._call(check_back))
        except Exception:  # noqa: BLE001 - an application may raise anything; then the outcome is unknown
            _log.exception(
                "check-handler-failed: check handler of transaction %(message_id)s failed",
                {"message_id": check_back.message.message_id},
            )
            return
        if state is TransactionState.UNKNOWN:
            return  # the broker repeats the check-back
        request = check_back.request
        end = EndTransaction(
            producer_group=check_back.group,
            tran_state_table_offset=request.tran_state_table_offset,
            commit_log_offset=request.commit_log_offset,
            commit_or_rollback=int(
                SysFlag.TRANSACTION_COMMIT
                if state is TransactionState.COMMIT
                else SysFlag.TRANSACTION_ROLLBACK
            ),
            from_transaction_check=True,
            msg_id=check_back.message.message_id,
            transaction_id=request.transaction_id,
        )
        timeout_ms = self._session.settings.request_timeout_ms
        try:
            await self._session.connections.ask(check_back.address, end, timeout_ms=timeout_ms)
        except KourouError as error:
            _log.warning(
                "check-result-refused: broker %(address)s did not accept %(state)s of transaction "
                "%(message_id)s: %(error)s",
                {
                    "address": check_back.address,
                    "state": state.name,
                    "message_id": end.msg_id,
                    "error": error,
                },
            )

    async def _call(self, check_back: _CheckBack) -> Any:
        if is_coroutine_handler(check_back.checker):
            loop = self._loop
            assert loop is not None, "a coroutine's loop is known since it was registered"
            work = check_back.checker(check_back.message)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                max(self._settings.check_threads_min, self._settings.check_threads_max),
                thread_name_prefix="kourou-check",
            )
        running = asyncio.get_running_loop()
        return await running.run_in_executor(self._threads, check_back.checker, check_back.message)

    # -- lifecycle --------------------------------------------------------------------------------

    async def close(self, timeout_ms: int) -> None:
        """Accept no more check-backs, and let running checks reply."""
        self._closed = True
        self._queued.clear()
        answerers = self._session.half_handlers
        if answerers.get(self.group) is self:
            del answerers[self.group]
        try:
            await within(self._idle.wait(), timeout_ms / 1000)
        except TimeoutError:
            _log.warning(
                "checks-running: closing while %(checks)d transaction checks are still running",
                {"checks": self._running},
            )
        for task in list(self._tasks):
            task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
