"""Requests that brokers send to a client, and their handlers.

A handler runs as its own task on the I/O thread. It may wait, up to the timeout that the broker
gave (the broker drops later replies), and does not delay other handlers. A request that was sent
one-way gets no reply, but its handler is called.

State: soft (the running tasks). Used on the I/O thread only.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kourou.client.introspection.running_info import HandlerResult, QueueInfo, RunningInfo
from kourou.client.session.heartbeats import ClientMembership
from kourou.client.session.io_thread import background
from kourou.errors import BadRequest, Code, DecodeError, GroupNotFound, KourouError
from kourou.model.topic import MessageQueue
from kourou.model.units import MIB
from kourou.protocol.bodies.status_bodies import (
    ConsumerRunningInfo,
    ConsumerStatus,
    ConsumeStatus,
    DirectResult,
    ProcessQueueInfo,
    encode_consumer_running_info,
    encode_consumer_status,
    encode_direct_result,
)
from kourou.protocol.messages.groups import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
)
from kourou.protocol.request import Request, Response
from kourou.protocol.wire.frames import Frame, FrameKind, decode_request, encode_reply
from kourou.version import __version__

_log = logging.getLogger("kourou.client")

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class BrokerRequest:
    """A request of a broker, which waits `timeout_ms` for the reply (0: not stated)."""

    address: str
    request: Request
    body: Sequence[Buffer] = ()
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class RequestReply:
    """The reply to the broker."""

    code: int = Code.SUCCESS
    remark: str = ""
    header: Response | None = None
    body: Sequence[Buffer] = ()


RequestHandler = Callable[[BrokerRequest], Awaitable[RequestReply | None]]
"""Returning None sends an empty success reply. A KourouError is sent as its code and text."""


class RequestHandlers:
    """The request handlers of one client. `send(address, parts)` sends the reply to that broker."""

    def __init__(self, send: Callable[[str, Sequence[Buffer]], bool]) -> None:
        self._send = send
        self._handlers: dict[type[Request], RequestHandler] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def on(self, request: type[Request], handler: RequestHandler) -> None:
        """Register `handler` for such requests; it replaces an earlier one."""
        self._handlers[request] = handler

    def off(self, request: type[Request]) -> None:
        """Remove the handler of such requests."""
        self._handlers.pop(request, None)

    def heard(self, address: str, frame: Frame) -> None:
        """Handle a frame from a broker that is not a reply."""
        try:
            request = decode_request(frame)
        except (BadRequest, DecodeError) as error:
            _log.warning(
                "broker-request-undecodable: broker %(address)s sent a request that cannot be "
                "decoded: %(error)s",
                {"address": address, "error": error},
            )
            self._answer(address, frame, RequestReply(error.wire_code, str(error)))
            return
        handler = self._handlers.get(type(request))
        if handler is None:
            text = f"clients do not support request code {frame.code}"
            self._answer(address, frame, RequestReply(Code.REQUEST_CODE_NOT_SUPPORTED, text))
            return
        asked = BrokerRequest(address, request, frame.body, frame.deadline_ms)
        task = background(
            self._work(handler, asked, frame), f"answering request {frame.code} of {address}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Cancel running handlers; their replies are not sent."""
        self._handlers.clear()
        for task in self._tasks:
            task.cancel()

    async def _work(self, handler: RequestHandler, asked: BrokerRequest, frame: Frame) -> None:
        try:
            answer = await handler(asked) or RequestReply()
        except DecodeError as error:
            _log.warning(
                "broker-request-undecodable: broker %(address)s sent a request that cannot be "
                "decoded: %(error)s",
                {"address": asked.address, "error": error},
            )
            answer = RequestReply(error.wire_code, str(error))
        except KourouError as error:
            _log.warning(
                "broker-request-failed: request %(code)d of broker %(address)s failed: %(error)s",
                {"code": frame.code, "address": asked.address, "error": error},
            )
            answer = RequestReply(error.wire_code, str(error))
        except Exception as error:
            # A bug here or in an application's listener: reply, so that the broker does not wait in
            # vain.
            text = f"{type(error).__name__}: {error}"
            self._answer(asked.address, frame, RequestReply(Code.SYSTEM_ERROR, text))
            raise
        self._answer(asked.address, frame, answer)

    def _answer(self, address: str, frame: Frame, answer: RequestReply) -> None:
        if frame.kind is not FrameKind.REQUEST:
            return
        head = encode_reply(frame.correlation, answer.code, answer.remark, answer.header)
        try:
            self._send(address, [head, *answer.body])
        except KourouError as error:
            _log.warning(
                "broker-reply-failed: reply to broker %(address)s failed: %(error)s",
                {"address": address, "error": error},
            )


class AnyConsumer(Protocol):
    """The part of a consumer that these requests need. A pull consumer has no more than this."""

    @property
    def membership(self) -> ClientMembership:
        """The membership that heartbeats contain."""
        ...

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets that the consumer would commit for each queue of a topic."""
        ...


class HandlingConsumer(AnyConsumer, Protocol):
    """A consumer with handlers."""

    def running_info(self) -> RunningInfo:
        """Return the consumer's running state."""
        ...

    async def consume_directly(self, record: bytes) -> HandlerResult:
        """Process this record now."""
        ...


class ConsumerRequests:
    """Replies for all consumers of a client. `find(group)` returns a group's consumer, or None.

    `name_servers()` returns the addresses of the name servers, joined by `;`.
    """

    def __init__(
        self,
        find: Callable[[str], AnyConsumer | None],
        name_servers: Callable[[], str],
        client_id: str,
    ) -> None:
        self._find = find
        self._name_servers = name_servers
        self._client_id = client_id

    def register(self, request_handlers: RequestHandlers) -> None:
        """Register the request handlers."""
        request_handlers.on(GetConsumerStatusFromClient, self._status)
        request_handlers.on(GetConsumerRunningInfo, self._running_info)
        request_handlers.on(ConsumeMessageDirectly, self._consume)

    def _member(self, group: str) -> AnyConsumer:
        member = self._find(group)
        if member is None:
            raise GroupNotFound(
                f"client {self._client_id} has no consumer in group {group}",
                code=Code.SYSTEM_ERROR,
            )
        return member

    def _push_consumer(self, group: str, what: str) -> HandlingConsumer:
        member = self._member(group)
        if not hasattr(member, "running_info"):
            raise BadRequest(f"a pull consumer {what}", hint="choose a push consumer")
        return member  # type: ignore[return-value]  # then it is a HandlingConsumer

    async def _status(self, asked: BrokerRequest) -> RequestReply:
        request = asked.request
        assert isinstance(request, GetConsumerStatusFromClient)
        queues = self._member(request.group).status(request.topic)
        return RequestReply(body=(encode_consumer_status(ConsumerStatus(queues)),))

    async def _running_info(self, asked: BrokerRequest) -> RequestReply:
        request = asked.request
        assert isinstance(request, GetConsumerRunningInfo)
        member = self._push_consumer(request.consumer_group, "does not report its running state")
        info = member.running_info()
        running_info = ConsumerRunningInfo(
            properties=self._properties(member, info),
            subscriptions=info.subscriptions,
            queues={queue: process_queue(one) for queue, one in info.queues.items()},
            rates={
                topic: ConsumeStatus(
                    consume_failed_msgs=one.consume_failed_msgs,
                    consume_failed_tps=one.consume_failed_tps,
                    consume_ok_tps=one.consume_ok_tps,
                    consume_rt=one.consume_rt,
                    pull_rt=one.pull_rt,
                    pull_tps=one.pull_tps,
                )
                for topic, one in info.rates.items()
            },
            jstack=stacks() if request.jstack_enable else None,
        )
        return RequestReply(body=(encode_consumer_running_info(running_info),))

    def _properties(self, member: HandlingConsumer, info: RunningInfo) -> dict[str, str]:
        """Return the properties; RocketMQ's names, which its tools read, override the settings'."""
        return {
            "PROP_CONSUMEORDERLY": "false",
            **info.properties,
            "PROP_NAMESERVER_ADDR": self._name_servers(),
            "PROP_CONSUME_TYPE": member.membership.consume_type.value,
            "PROP_CLIENT_VERSION": f"KOUROU_{__version__.replace('.', '_')}",
            "PROP_CONSUMER_START_TIMESTAMP": str(info.started_ms),
        }

    async def _consume(self, asked: BrokerRequest) -> RequestReply:
        request = asked.request
        assert isinstance(request, ConsumeMessageDirectly)
        member = self._push_consumer(
            request.consumer_group, "has no handler, so it cannot consume a message directly"
        )
        handled = await member.consume_directly(b"".join(asked.body))
        result = DirectResult(
            order=handled.order,
            consume_result=handled.result,
            remark=handled.remark or None,
            spent_time_mills=handled.spent_ms,
        )
        return RequestReply(body=(encode_direct_result(result),))


def process_queue(info: QueueInfo) -> ProcessQueueInfo:
    """Return one queue in RocketMQ's form, in which missing offsets are 0."""
    return ProcessQueueInfo(
        cached_msg_count=info.cached_count,
        cached_msg_max_offset=max(info.cached_max_offset, 0),
        cached_msg_min_offset=max(info.cached_min_offset, 0),
        cached_msg_size_in_mi_b=info.cached_size_bytes // MIB,
        commit_offset=info.commit_offset,
        droped=info.dropped,
        last_consume_timestamp=info.last_consume_ms,
        last_pull_timestamp=info.last_pull_ms,
        locked=info.locked,
    )


def stacks() -> str:
    """Return the stack of every thread of this process, as RocketMQ's `jstack` does."""
    frames = sys._current_frames()  # the documented function, despite its name
    lines: list[str] = []
    for thread in sorted(threading.enumerate(), key=lambda one: one.name):
        frame = frames.get(thread.ident or 0)
        lines.append(f"{thread.name} TID: {thread.ident}\n")
        if frame is not None:
            lines += traceback.format_stack(frame)
        lines.append("\n")
    return "".join(lines)
