"""Request-reply over messages: waiting for replies, and sending them.

    requester   sends a message with CORRELATION_ID, REPLY_TO_CLIENT (its client id) and TTL
    replier     sends SEND_REPLY_MESSAGE (324) to a broker of the requester's cluster
    broker      stores it in <cluster>_REPLY_TOPIC and pushes it (326) to the requester

So a reply reaches exactly the process that sent the request, whatever group consumed the request.
RocketMQ's `DefaultMQProducer.request` and `MessageUtil.createReplyMessage` do the same; either side
may be a Java client.

State: soft. If the requester's process dies, its request gets no reply, but is still consumed.

Invariants:

- a correlation ID is in the table exactly while a requester waits for it
- each waiting requester gets one outcome: the reply, a timeout, or the closing of the client
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kourou.client.codecs import Decode, body_decoder, encode_body
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.introspection.broker_requests import BrokerRequest, RequestReply
from kourou.client.session.route_table import QueueMap
from kourou.errors import BadRequest, Code, KourouError, Rejected, Throttled, TimedOut, Unavailable
from kourou.model.limits import REQUESTS_WAITING_MAX
from kourou.model.message import Property, StoredMessage, SysFlag
from kourou.model.names import AUTO_CREATE_TOPIC, reply_topic
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.sends import PushReplyMessageToClient, SendReplyMessage
from kourou.protocol.record.compression import decompress
from kourou.protocol.record.message_id import UniqKeyGenerator
from kourou.protocol.record.properties import decode_properties, encode_properties
from kourou.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from kourou.client.session.client_session import Session

REPLY = "reply"
"""The MSG_TYPE property of a reply."""

_DEFAULT_QUEUES = 4

_log = logging.getLogger("kourou.client")


class ReplyTimedOut(TimedOut):
    """The request was sent, but no reply arrived within its timeout (RocketMQ's 10006).

    Do: Check whether a consumer of the topic replies. The request may be consumed later.
    """


class ReplyNotTaken(Unavailable):
    """The reply was stored, but the requester is not connected any more.

    Do: Usually nothing: the requester repeats its request if it needs the reply.
    """


class AwaitedReply:
    """One request that waits for its reply. `properties` are added to its message."""

    __slots__ = ("correlation_id", "decode", "future", "properties", "timeout_ms")

    def __init__(self, client_id: str, timeout_ms: int, decode: Decode | None) -> None:
        self.correlation_id = str(uuid4())
        self.timeout_ms = timeout_ms
        self.decode = decode
        self.future: Future[ReceivedMessage] = Future()
        self.properties = {
            Property.CORRELATION_ID.value: self.correlation_id,
            Property.REPLY_TO_CLIENT.value: client_id,
            Property.TTL.value: str(timeout_ms),
        }

    def late(self) -> ReplyTimedOut:
        """Return the error for a request without a reply."""
        return ReplyTimedOut(f"no reply within {self.timeout_ms} ms; the request was sent")


class Requests:
    """The requests of one client. `open` and `close` may be called from any thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, AwaitedReply] = {}
        self._prepared: dict[tuple[str, str], QueueMap] = {}
        self._introduced: set[tuple[str, str]] = set()
        self._closed = False
        self._quiet_log = RateLimitedLog(_log, session.clock)
        self.late = 0
        session.request_handlers.on(PushReplyMessageToClient, self._arrived)

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._waiting)

    # -- requesters -------------------------------------------------------------------------------

    def is_prepared(self, group: str, topic: str) -> bool:
        """Return whether all brokers that may push a reply know this client."""
        known = self._prepared.get((group, topic))
        return known is not None and known is self._session.routes.known(topic)

    async def prepare(self, group: str, topic: str) -> None:
        """Register this producer at all brokers that may push a reply; on the I/O thread.

        These are the brokers of the topic, and of the reply topics of their clusters. The topic's
        route must be known.
        """
        session = self._session
        known = session.routes.known(topic)
        if known is None:
            return  # dropped in the meantime: the next request finds it again
        addresses = set(known.addresses())
        for cluster in sorted({data.cluster for data in known.brokers.values()}):
            replies = await session.routes.find_existing(reply_topic(cluster))
            if replies is not None:
                addresses.update(replies.addresses())
        wanted = {(group, address) for address in addresses}
        if not wanted <= self._introduced:
            await session.heartbeats.beat()
            self._introduced |= wanted
        self._prepared[group, topic] = known

    def open(self, timeout_ms: int, body_type: Any = None) -> AwaitedReply:
        """Start waiting for a new request. Raises Throttled if too many requests are waiting."""
        if self._closed:
            raise Unavailable("the client is closed; nothing was sent")
        if len(self._waiting) >= REQUESTS_WAITING_MAX:
            raise Throttled(
                f"{REQUESTS_WAITING_MAX} requests of this client are already waiting for a reply"
            )
        decode = None if body_type is None else body_decoder(body_type)
        waiting = AwaitedReply(self._session.client_id, timeout_ms, decode)
        self._waiting[waiting.correlation_id] = waiting
        return waiting

    def close(self, waiting: AwaitedReply) -> None:
        """Stop waiting for a request, for whatever reason."""
        self._waiting.pop(waiting.correlation_id, None)

    def close_all(self) -> None:
        """Fail all waiting requests, because the client closes."""
        self._closed = True
        while self._waiting:
            _, waiting = self._waiting.popitem()
            if waiting.future.set_running_or_notify_cancel():
                waiting.future.set_exception(
                    Unavailable("the client was closed before the reply came")
                )

    async def _arrived(self, asked: BrokerRequest) -> RequestReply:
        """Handle a reply that a broker pushes (request code 326).

        A reply to a request that is not waiting is counted and dropped.
        """
        request = asked.request
        assert isinstance(request, PushReplyMessageToClient)
        properties = decode_properties((request.properties or "").encode())
        correlation_id = properties.get(Property.CORRELATION_ID, "")
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            self.late += 1
            self._quiet_log.warning(
                "reply-unexpected: received a reply to an unknown or expired request: correlation "
                "ID %(correlation_id)s, from %(source)s",
                {"correlation_id": correlation_id, "source": request.born_host},
            )
            return RequestReply()
        if waiting.future.set_running_or_notify_cancel():
            try:
                message = _message(request, properties, asked, waiting.decode)
            except KourouError as error:
                waiting.future.set_exception(error)
            else:
                waiting.future.set_result(message)
        return RequestReply()


def _message(
    request: PushReplyMessageToClient,
    properties: dict[str, str],
    asked: BrokerRequest,
    decode: Decode | None,
) -> ReceivedMessage:
    body = b"".join(asked.body)
    if request.sys_flag & SysFlag.COMPRESSED:
        body = decompress(request.sys_flag, body)
    stored = StoredMessage(
        topic=request.topic,
        body=body,
        properties=properties,
        flag=request.flag,
        queue_id=request.queue_id,
        offset=-1,
        position=-1,
        size=len(body),
        sys_flag=request.sys_flag & ~int(SysFlag.COMPRESSED),
        born_timestamp=request.born_timestamp,
        born_host=_host(request.born_host),
        store_timestamp=request.store_timestamp,
        store_host=_host(request.store_host),
        body_crc=0,
        reconsume_times=request.reconsume_times or 0,
        prepared_transaction_offset=0,
    )
    queue = MessageQueue(request.topic, "", request.queue_id)
    return ReceivedMessage(queue=queue, offset=-1, size=len(body), _decode=decode, _stored=stored)


def _host(text: str) -> tuple[str, int]:
    """Return `1.2.3.4:5` as a pair. It is informational, so invalid text raises no error."""
    host, _, port = text.lstrip("/").rpartition(":")
    return host, int(port) if port.isascii() and port.isdigit() else 0


# -- repliers -------------------------------------------------------------------------------------


def is_request(message: ReceivedMessage) -> bool:
    """Return whether a requester waits for a reply to this message."""
    properties = message.properties
    return Property.REPLY_TO_CLIENT in properties and Property.CORRELATION_ID in properties


class Replier:
    """Sends replies for a producer group; used on the I/O thread."""

    def __init__(
        self,
        session: Session,
        group: str,
        timeout_ms: int,
        unique_keys: Callable[[], UniqKeyGenerator],
    ) -> None:
        self._session = session
        self._group = group
        self._timeout_ms = timeout_ms
        self._unique_keys = unique_keys

    async def reply(
        self,
        message: ReceivedMessage,
        body: Any,
        *,
        tag: str | None = None,
        keys: str = "",
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
    ) -> None:
        """Send the reply to a request.

        It is sent to the broker that stored the request, because the requester is connected to it,
        or else to another broker of its cluster. Raises BadRequest if the message is not a request,
        and ReplyNotTaken if the requester is not connected any more.
        """
        asked = message.properties
        if not is_request(message) or Property.CLUSTER not in asked:
            raise BadRequest(
                f"{message!s} is not a request, so it cannot be replied to",
                hint="the sender used send(); request() waits for a reply",
            )
        named = {
            Property.MSG_TYPE.value: REPLY,
            Property.CORRELATION_ID.value: asked[Property.CORRELATION_ID],
            Property.REPLY_TO_CLIENT.value: asked[Property.REPLY_TO_CLIENT],
            **({Property.TTL.value: asked[Property.TTL]} if Property.TTL in asked else {}),
            Property.UNIQ_KEY.value: self._unique_keys().next(self._session.clock.now_ms()),
            **({Property.TAGS.value: tag} if tag else {}),
            **({Property.KEYS.value: keys} if keys else {}),
        }
        own = {name: value for name, value in (properties or {}).items() if name not in named}
        text = encode_properties({**named, **own}).decode()
        known = await self._session.routes.find(reply_topic(asked[Property.CLUSTER]))
        await self._try_each(known, message.queue.broker_name, text, encode_body(body), flag)

    async def _try_each(
        self, known: QueueMap, broker_name: str, text: str, body: bytes, flag: int
    ) -> None:
        failure: KourouError = Unavailable(f"topic {known.topic} has no writable broker")
        for queue in sorted(known.writable, key=lambda one: one.broker_name != broker_name):
            address = known.leader_address(queue.broker_name)
            if address is None:
                continue
            try:
                await self._send(address, queue, text, body, flag)
            except Rejected as error:
                if error.wire_code != Code.SYSTEM_ERROR:
                    raise
                failure = ReplyNotTaken(str(error))
            except Unavailable as error:
                failure = error
            else:
                return
        raise failure

    async def _send(
        self, address: str, queue: MessageQueue, text: str, body: bytes, flag: int
    ) -> None:
        session = self._session
        await session.connections.ask(
            address,
            SendReplyMessage(
                producer_group=self._group,
                topic=queue.topic,
                default_topic=AUTO_CREATE_TOPIC,
                default_topic_queue_nums=_DEFAULT_QUEUES,
                queue_id=queue.queue_id,
                sys_flag=0,
                born_timestamp=session.clock.now_ms(),
                flag=flag,
                properties=text,
                reconsume_times=0,
            ),
            body=body,
            timeout_ms=self._timeout_ms,
        )
