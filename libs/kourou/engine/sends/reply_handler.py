"""Replies of request-reply messaging: pushed to the client that waits, and stored.

State: none of its own. A reply is a message like any other (storeReplyMessageEnable). It is stored
even if no client waits for it any more; the code of the response says whether one did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.groups.client_requests import ClientRequests
from kourou.engine.sends.send_handler import SendHandler
from kourou.errors import BadRequest, Code, KourouError, MessageIllegal, NoPermission, Throttled
from kourou.model.limits import PROPERTIES_SIZE_BYTES_MAX
from kourou.model.message import Property, SysFlag
from kourou.model.topic import TopicConfig
from kourou.protocol.messages.sends import (
    PushReplyMessageToClient,
    SendRefusal,
    SendReplyMessage,
    SendResponse,
)
from kourou.protocol.record.layout import HOST_V4_BYTES, Host, encode_host
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import decode_properties, encode_properties
from kourou.protocol.request import Request
from kourou.runtime import ClientAnswered, Received, Reply

PUSH_MS = 10_000
"""How long the client that waits has to accept a reply."""

NOT_STORED = "0"
"""The message ID of a reply that was pushed but not stored, as in RocketMQ."""


class ReplyHandler:
    """Handles reply messages."""

    def __init__(
        self, context: BrokerContext, sending: SendHandler, client_requests: ClientRequests
    ) -> None:
        self._sending = sending
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._members = context.members
        self._client_requests = client_requests
        self._policy = context.policy
        self._traffic = context.traffic
        self._store_host = context.store_host
        self._turn = 0

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {SendReplyMessage: self.reply}

    def reply(self, now_ms: int, received: Received, request: SendReplyMessage) -> list[Effect]:
        """Store a reply, and push it to the client that it is for."""
        try:
            return self._take(now_ms, received, request)
        except KourouError as error:
            self._traffic.refuse(error.wire_code)
            header = SendRefusal(
                region_id=self._policy.region_id, trace_on=_text(self._policy.trace_on)
            )
            return [Reply(received.to, error.wire_code, str(error), header)]

    def _take(self, now_ms: int, received: Received, request: SendReplyMessage) -> list[Effect]:
        topic = self._sending.topic_for_send(
            request.topic, request.default_topic, request.default_topic_queue_nums, received
        )
        queue_id = self._queue(topic, request)
        body = b"".join(received.body)
        if len(body) > self._policy.body_size_max:
            raise MessageIllegal(
                f"the body has {len(body)} bytes; maxMessageSize is {self._policy.body_size_max}"
            )
        header = SendResponse(
            msg_id=NOT_STORED,
            queue_id=queue_id,
            queue_offset=0,
            region_id=self._policy.region_id,
            trace_on=_text(self._policy.trace_on),
        )
        if self._policy.store_replies:
            header = self._store(received, request, queue_id, body, header)
        end = self._appends.end

        def handed_over(later_ms: int, problem: str) -> list[Effect]:
            code = Code.SYSTEM_ERROR if problem else Code.SUCCESS
            reply = Reply(received.to, code, problem, header)
            return self._confirmations.defer(later_ms, end, reply)

        return self._hand_over(now_ms, received, request, queue_id, body, handed_over)

    def _queue(self, topic: TopicConfig, request: SendReplyMessage) -> int:
        queues = topic.write_queue_nums
        if request.queue_id >= max(queues, topic.read_queue_nums):
            raise BadRequest(
                f"queue ID {request.queue_id} is out of range: topic {topic.name} has "
                f"{queues} write queues"
            )
        if request.queue_id >= 0:
            return request.queue_id
        if queues <= 0:
            raise NoPermission(f"topic {topic.name} has no write queues")
        self._turn += 1
        return self._turn % queues

    def _store(
        self,
        received: Received,
        request: SendReplyMessage,
        queue_id: int,
        body: bytes,
        header: SendResponse,
    ) -> SendResponse:
        """Append the reply as it came: like RocketMQ, without a cluster, and with flags cleared."""
        properties = (request.properties or "").encode()
        if len(properties) > PROPERTIES_SIZE_BYTES_MAX:
            raise MessageIllegal(
                f"the properties have {len(properties)} bytes; at most "
                f"{PROPERTIES_SIZE_BYTES_MAX} are allowed"
            )
        host = encode_host(received.to.peer.address)
        draft = encode_draft(
            topic=request.topic.encode(),
            queue_id=queue_id,
            body=body,
            properties=properties,
            flag=request.flag,
            sys_flag=int(SysFlag.BORN_HOST_V6) if len(host) > HOST_V4_BYTES else 0,
            born_timestamp=request.born_timestamp,
            born_host=host,
            reconsume_times=request.reconsume_times or 0,
        )
        target = (request.topic, queue_id)
        offset, position = self._appends.write_one(draft, target, received.wall_ms)
        self._confirmations.append(self._appends.end)
        self._traffic.taken(request.topic, len(draft))
        return SendResponse(
            msg_id=encode_offset_id(self._store_host, position),
            queue_id=queue_id,
            queue_offset=offset,
            region_id=header.region_id,
            trace_on=header.trace_on,
        )

    def _hand_over(
        self,
        now_ms: int,
        received: Received,
        request: SendReplyMessage,
        queue_id: int,
        body: bytes,
        done: Callable[[int, str], list[Effect]],
    ) -> list[Effect]:
        """Push the reply to the client that waits; `done` gets "", or the reason of a failure."""
        properties = decode_properties((request.properties or "").encode())
        waiting = properties.get(Property.REPLY_TO_CLIENT)
        if not waiting:
            return done(now_ms, "reply message properties[REPLY_TO_CLIENT] is null")
        peer = self._members.producer_peer(waiting)
        if peer is None:
            return done(now_ms, f"push reply message fail, channel of <{waiting}> not found.")
        properties[Property.PUSH_REPLY_TIME] = str(received.wall_ms)
        question = PushReplyMessageToClient(
            producer_group=request.producer_group,
            topic=request.topic,
            default_topic=request.default_topic,
            default_topic_queue_nums=request.default_topic_queue_nums,
            queue_id=queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            flag=request.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=request.reconsume_times or 0,
            unit_mode=request.unit_mode,
            born_host=_host_text(received.to.peer.address),
            store_host=_host_text(self._store_host),
            store_timestamp=received.wall_ms,
        )

        def answered(later_ms: int, item: ClientAnswered) -> list[Effect]:
            if item.error is not None:
                return done(later_ms, f"push reply message to {waiting} fail. {item.error}")
            if item.code != Code.SUCCESS:
                remark = item.remark or f"code {item.code}"
                return done(later_ms, f"push reply message to {waiting} fail. response: {remark}")
            return done(later_ms, "")

        try:
            return self._client_requests.ask(
                now_ms, peer, question, (body,), timeout_ms=PUSH_MS, answered=answered
            )
        except Throttled as error:
            return done(now_ms, f"push reply message to {waiting} fail. {error}")


def _host_text(host: Host) -> str:
    return f"{host[0]}:{host[1]}"


def _text(flag: bool) -> str:
    return "true" if flag else "false"
