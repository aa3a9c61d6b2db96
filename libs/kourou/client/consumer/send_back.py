"""Sending messages back to the brokers, to be redelivered later or kept as dead letters.

The first method needs few bytes: the broker that has the message copies it (request code 36). If it
does not reply, the message is sent as a new one to %RETRY%group, preferably at another broker. If a
reply was lost, both may have been executed, and the message is redelivered twice. If no leader is
available, both are repeated for a few seconds.
"""

from __future__ import annotations

import asyncio
import logging

from kourou.client.consumer.received import ReceivedMessage
from kourou.client.session.client_session import Session
from kourou.client.session.connections import Pauses, nobody_leads
from kourou.errors import KourouError, Unavailable
from kourou.model.limits import FAILURE_REASON_LENGTH_MAX
from kourou.model.message import (
    COMPRESSION_MASK,
    COMPRESSION_SHIFT,
    RETRY_LEVEL,
    Compression,
    Property,
    SysFlag,
)
from kourou.model.names import AUTO_CREATE_TOPIC, retry_topic
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.sends import ConsumerSendMsgBack, SendMessage
from kourou.protocol.record.compression import compress
from kourou.protocol.record.properties import encode_properties

SEND_BACK_TIMEOUT_MS = 5_000
RESEND_TIMEOUT_MS = 3_000
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
"""The producer group that clients use for such messages (as RocketMQ's do)."""

_NOT_TAKEN_ALONG = (
    Property.TRAN_MSG,
    Property.REAL_TOPIC,
    Property.REAL_QID,
    Property.RECONSUME_TIME,
    Property.MAX_RECONSUME_TIMES,
)
"""Properties of the previous copy; the brokers or the header set them again for the next one."""

_log = logging.getLogger("kourou.client.consume")


class SendBackRequests:
    """Sends messages of one group back. Used on the I/O thread.

    With `max_reconsume_times` -1 the group's setting at the broker applies.
    """

    def __init__(self, session: Session, group: str, max_reconsume_times: int = -1) -> None:
        self._session = session
        self._group = group
        self._max_times = None if max_reconsume_times < 0 else max_reconsume_times

    async def send_back(
        self, message: ReceivedMessage, *, delay_level: int = 0, reason: str = ""
    ) -> None:
        """Send a message back by the first method that works. Raises KourouError if none does.

        With `delay_level` 0 the broker selects the level; a negative level makes the message a dead
        letter. `reason` is stored with a dead letter.
        """
        session = self._session
        pauses = Pauses(session.chance)
        until_ms = session.clock.monotonic_ms() + SEND_BACK_TIMEOUT_MS
        while True:
            try:
                await self._ask(message, delay_level, reason)
                return
            except KourouError as error:
                _log.info(
                    "send-back-replaced: %(record)s could not be sent back to the broker; sending "
                    "it as a new message: %(error)s",
                    {"record": message, "error": error},
                )
            try:
                await self.resend(message, delay_level=delay_level, reason=reason)
                return
            except KourouError as error:
                pause_ms = pauses.next_ms()
                late = session.clock.monotonic_ms() + pause_ms >= until_ms
                if late or not nobody_leads(error):
                    raise
                _log.info(
                    "send-back-delayed: %(record)s waits for a broker with a leader: %(error)s",
                    {"record": message, "error": error},
                )
            await asyncio.sleep(pause_ms / 1000)
            await self._refresh_routes(message.queue.topic, retry_topic(self._group))

    async def _refresh_routes(self, *topics: str) -> None:
        """Refresh these routes; if no name server replies, they stay the same."""
        for topic in topics:
            try:
                await self._session.routes.refresh(topic)
            except KourouError as error:
                _log.info(
                    "route-refresh-failed: route of %(topic)s not refreshed: %(error)r",
                    {"topic": topic, "error": error},
                )

    async def _ask(self, message: ReceivedMessage, delay_level: int, reason: str) -> None:
        session, queue = self._session, message.queue
        known = await session.routes.find(queue.topic)
        address = known.leader_address(queue.broker_name)
        if address is None:
            raise Unavailable(f"broker {queue.broker_name} has no leader")
        request = ConsumerSendMsgBack(
            offset=message.position,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            max_reconsume_times=self._max_times,
            bname=queue.broker_name,
            reason=reason[:FAILURE_REASON_LENGTH_MAX] or None,
        )
        await session.connections.ask(address, request, timeout_ms=SEND_BACK_TIMEOUT_MS)

    async def resend(
        self,
        message: ReceivedMessage,
        *,
        delay_level: int = 0,
        reason: str = "",
        max_reconsume_times: int | None = None,
    ) -> None:
        """Send a message as a new one to %RETRY%group. Raises KourouError if no broker accepts it.

        The brokers compare its attempts with `max_reconsume_times` and store it as a dead letter if
        they exceed that.
        """
        session = self._session
        known = await session.routes.find(retry_topic(self._group))
        failure: KourouError = Unavailable(f"topic {known.topic} has no writable broker")
        queues = {queue.broker_name: queue for queue in known.writable}
        own = message.queue.broker_name
        for queue in sorted(queues.values(), key=lambda one: (one.broker_name == own, one)):
            address = known.leader_address(queue.broker_name)
            if address is None:
                continue
            request, body = self._as_new(message, queue, delay_level, reason, max_reconsume_times)
            try:
                await session.connections.ask(
                    address, request, body=body, timeout_ms=RESEND_TIMEOUT_MS
                )
            except KourouError as error:
                failure = error
                continue
            return
        raise failure

    def _as_new(
        self,
        message: ReceivedMessage,
        queue: MessageQueue,
        delay_level: int,
        reason: str,
        max_times: int | None,
    ) -> tuple[SendMessage, bytes]:
        stored = message.stored()
        properties = dict(message.properties)
        for name in _NOT_TAKEN_ALONG:
            properties.pop(name.value, None)
        properties[Property.RETRY_TOPIC.value] = message.topic
        properties[Property.ORIGIN_MESSAGE_ID.value] = message.origin_message_id
        times = message.reconsume_times
        if delay_level < 0:
            max_times = 0  # no more attempts, whatever the number of earlier ones
            if reason:
                properties[Property.DLQ_REASON.value] = reason[:FAILURE_REASON_LENGTH_MAX]
            properties.pop(Property.DELAY.value, None)
        else:
            properties[Property.DELAY.value] = str(delay_level or RETRY_LEVEL + times)
            if max_times is None:
                max_times = self._max_times
        request = SendMessage(
            producer_group=INNER_PRODUCER,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            queue_id=queue.queue_id,
            sys_flag=stored.sys_flag & _COMPRESSION_BITS,
            born_timestamp=stored.born_timestamp,
            flag=stored.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=times + 1,
            max_reconsume_times=max_times,
            bname=queue.broker_name,
        )
        return request, squeezed(message.raw_body, stored.sys_flag)


_COMPRESSION_BITS = int(SysFlag.COMPRESSED) | COMPRESSION_MASK


def squeezed(body: bytes, sys_flag: int) -> bytes:
    """Return a body as it was stored: compressed again if it was, or it may be too large."""
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    return compress(Compression((sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT), body)
