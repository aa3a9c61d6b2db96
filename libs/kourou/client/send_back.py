"""Giving a message back to the brokers, so that it comes again later, or is kept as a dead letter.

The first way is a few bytes: the broker that has the message copies it (request 36). If it does not
answer, the message is sent like a new one to %RETRY%group, at another broker if there is one. Both
may have been done when an answer was lost: then the message comes again twice. Where nobody leads a
broker that could take it, both are tried again for a few seconds.
"""

from __future__ import annotations

import asyncio
import logging

from kourou.client.pauses import Pauses, nobody_leads
from kourou.client.received import ReceivedMessage
from kourou.client.session import Session
from kourou.errors import KourouError, Unavailable
from kourou.model.delay import RETRY_LEVEL
from kourou.model.limits import FAILURE_REASON_LENGTH_MAX
from kourou.model.message import Property
from kourou.model.names import AUTO_CREATE_TOPIC, retry_topic
from kourou.model.queue import MessageQueue
from kourou.model.sysflag import COMPRESSION_MASK, COMPRESSION_SHIFT, Compression, SysFlag
from kourou.protocol.compression import compress
from kourou.protocol.messages.sending import ConsumerSendMsgBack, SendMessage
from kourou.protocol.properties import encode_properties

SEND_BACK_TIMEOUT_MS = 5_000
RESEND_TIMEOUT_MS = 3_000
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
"""The producer group in whose name clients send such messages (as RocketMQ's do)."""

_NOT_TAKEN_ALONG = (
    Property.TRAN_MSG,
    Property.REAL_TOPIC,
    Property.REAL_QID,
    Property.RECONSUME_TIME,
    Property.MAX_RECONSUME_TIMES,
)
"""Said of the former copy; the brokers say it anew of the next one, or the header does."""

_log = logging.getLogger("kourou.client.consume")


class SendBack:
    """Gives messages of one group back. Used on the I/O thread.

    `max_reconsume_times` -1 leaves the number of attempts to the group's settings at the broker.
    """

    def __init__(self, session: Session, group: str, max_reconsume_times: int = -1) -> None:
        self._session = session
        self._group = group
        self._max_times = None if max_reconsume_times < 0 else max_reconsume_times

    async def send_back(
        self, message: ReceivedMessage, *, delay_level: int = 0, reason: str = ""
    ) -> None:
        """Give a message back by the first way that works; raises KourouError if none does.

        `delay_level` 0 lets the broker choose, a negative one makes it a dead letter. `reason` is
        kept with a dead letter.
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
                    "%s could not be sent back to the broker; sending it as a new message: %s",
                    message,
                    error,
                )
            try:
                await self.resend(message, delay_level=delay_level, reason=reason)
                return
            except KourouError as error:
                pause_ms = pauses.next_ms()
                late = session.clock.monotonic_ms() + pause_ms >= until_ms
                if late or not nobody_leads(error):
                    raise
                _log.info("%s waits for a broker with a leader: %s", message, error)
            await asyncio.sleep(pause_ms / 1000)
            await self._look(message.queue.topic, retry_topic(self._group))

    async def _look(self, *topics: str) -> None:
        """Ask for these routes anew; they stay as they were where nobody answers."""
        for topic in topics:
            try:
                await self._session.routes.refresh(topic)
            except KourouError as error:
                _log.info("route of %s not refreshed: %s", topic, error)

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
        """Send a message like a new one to %RETRY%group; raises KourouError if nobody takes it.

        The brokers compare its attempts with `max_reconsume_times` and keep it as a dead letter
        beyond them.
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
            max_times = 0  # whatever has been tried: this was the last time
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
    """A body as it was stored: what was compressed is compressed again, or it may be too large."""
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    return compress(Compression((sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT), body)
