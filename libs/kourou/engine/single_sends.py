"""Sends that carry fields instead of records: what RocketMQ clients speak, one message or a batch.

Lives here: turning SEND_MESSAGE (10, 310, 320) into drafts by the rules of fact sheet §2.2 and
§4.3.
May not live here: what a topic allows (engine.sending), numbering (engine.appends).

State: none. After the checks the message goes the same way as every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kourou.engine.appends import Appends, Lane
from kourou.engine.confirmations import Confirmations
from kourou.engine.effects import Effect, Reply
from kourou.engine.inputs import Received
from kourou.engine.policy import BrokerPolicy
from kourou.engine.redirects import Redirects, delay_level, is_transactional
from kourou.engine.send_back import SendBack
from kourou.engine.sending import Sending
from kourou.engine.traffic import Traffic
from kourou.errors import (
    BadRequest,
    Code,
    DiskFull,
    KourouError,
    MessageIllegal,
    NoPermission,
)
from kourou.model.limits import (
    BATCH_MESSAGES_MAX,
    BATCH_RECORD_BYTES_MAX,
    PROPERTIES_SIZE_BYTES_MAX,
)
from kourou.model.message import Property
from kourou.model.names import RETRY_PREFIX
from kourou.model.sysflag import SysFlag
from kourou.model.topic import TopicConfig
from kourou.protocol.batch_body import split_batch
from kourou.protocol.message_id import encode_offset_id
from kourou.protocol.messages.sending import SendMessage, SendRefusal, SendResponse
from kourou.protocol.properties import decode_properties, encode_properties
from kourou.protocol.record import Host, encode_draft, encode_host
from kourou.protocol.single_draft import may_go_elsewhere


class Prepared(NamedTuple):
    """A checked message on its way to `lane`; `queue_id` is what its sender is told.

    `elsewhere`: Redirects say where it really goes.
    """

    draft: bytes
    lane: Lane
    queue_id: int
    wait: bool
    elsewhere: bool


class PreparedBatch(NamedTuple):
    """The checked messages of a batch on their way to `lane`, whose queue its sender is told."""

    drafts: list[bytes]
    lane: Lane


class SingleSends:
    """Accepts sends of single messages and of RocketMQ's encoded batches."""

    def __init__(
        self,
        sending: Sending,
        appends: Appends,
        confirmations: Confirmations,
        policy: BrokerPolicy,
        traffic: Traffic,
        store_host: Host,
        redirects: Redirects,
        send_back: SendBack,
    ) -> None:
        self._sending = sending
        self._appends = appends
        self._confirmations = confirmations
        self._policy = policy
        self._traffic = traffic
        self._store_host = store_host
        self._redirects = redirects
        self._send_back = send_back
        self._turn = 0

    def send(self, now_ms: int, received: Received, request: SendMessage) -> list[Effect]:
        """Store one message, or the messages of one batch, and answer with their ids."""
        try:
            return self._store(now_ms, received, request)
        except KourouError as error:
            # RocketMQ's word for a full disk, upon which its clients try another broker.
            full = isinstance(error, DiskFull)
            code = Code.SERVICE_NOT_AVAILABLE if full else error.wire_code
            self._traffic.refuse(code)
            header = SendRefusal(
                region_id=self._policy.region_id, trace_on=_text(self._policy.trace_on)
            )
            return [Reply(received.to, code, str(error), header)]

    def _store(self, now_ms: int, received: Received, request: SendMessage) -> list[Effect]:
        if request.batch:
            return self._store_batch(now_ms, received, request)
        one = self.prepare(received, request)
        wall_ms = received.wall_ms
        if one.elsewhere:
            moved, place = self._redirects.moved(one.draft, one.lane, wall_ms)
            offset, position = self._appends.write_one(moved, place, wall_ms)
            self._redirects.stored(place, offset, position, moved, wall_ms)
            self._traffic.taken_to(place[0], one.lane[0], len(one.draft))
        else:
            offset, position = self._appends.write_one(one.draft, one.lane, wall_ms)
        return self.stored(now_ms, received, one, offset, position)

    def prepare(self, received: Received, request: SendMessage) -> Prepared:
        """A single message, checked, as it is stored. Raises KourouError; nothing was stored.

        The topic may have been created by it.
        """
        topic, queue_id, body = self._checked(received, request)
        properties = _parse(request.properties)
        wait = properties.get(Property.WAIT, "true") != "false"
        properties[Property.CLUSTER] = self._policy.cluster_name
        lane: Lane | None = None
        if topic.name.startswith(RETRY_PREFIX):
            times, times_max = request.reconsume_times or 0, request.max_reconsume_times
            lane = self._send_back.dead_lane(topic.name, received, times, times_max, properties)
        asks = lane is None and (Property.DELAY in properties or Property.TRAN_MSG in properties)
        elsewhere = asks and _goes_elsewhere(encode_properties(properties))
        if not elsewhere:
            properties.pop(Property.WAIT, None)  # RocketMQ stores it elsewhere only
        encoded = encode_properties(properties)
        if request.sys_flag & SysFlag.TRANSACTION_MASK and not is_transactional(encoded):
            raise MessageIllegal(
                "the flags name a phase of a transaction, but the property TRAN_MSG is not true; "
                "nothing was stored"
            )
        if lane is None:
            lane = (topic.name, queue_id)
        draft = self._draft(received, request, lane, body, encoded, request.flag)
        return Prepared(draft, lane, queue_id, wait, elsewhere)

    def stored(
        self, now_ms: int, received: Received, one: Prepared, offset: int, position: int
    ) -> list[Effect]:
        """A prepared message was appended, and the log ends behind it: count it and answer."""
        self._traffic.taken(one.lane[0], len(one.draft))
        self._confirmations.append(self._appends.end)
        return self._answer(now_ms, received, one.queue_id, offset, [position], one.wait)

    def _store_batch(self, now_ms: int, received: Received, request: SendMessage) -> list[Effect]:
        one = self.prepare_batch(received, request)
        drafts = [(one.lane, draft) for draft in one.drafts]
        places = self._appends.write_several(drafts, received.wall_ms)
        positions = [position for _, position in places]
        return self.stored_batch(now_ms, received, one, places[0][0], positions)

    def prepare_batch(self, received: Received, request: SendMessage) -> PreparedBatch:
        """As `prepare`, for a batch."""
        topic, queue_id, body = self._checked(received, request)
        lane = (topic.name, queue_id)
        return PreparedBatch(self._batch(received, request, lane, body), lane)

    def stored_batch(
        self,
        now_ms: int,
        received: Received,
        one: PreparedBatch,
        offset: int,
        positions: Sequence[int],
    ) -> list[Effect]:
        """As `stored`, for a batch whose first message got this offset."""
        for draft in one.drafts:
            self._traffic.taken(one.lane[0], len(draft))
        self._confirmations.append(self._appends.end)
        return self._answer(now_ms, received, one.lane[1], offset, positions, wait=True)

    def _checked(self, received: Received, request: SendMessage) -> tuple[TopicConfig, int, bytes]:
        """The topic, which may have been created, the queue, and the body."""
        topic = self._sending.topic_for_send(
            request.topic, request.default_topic, request.default_topic_queue_nums, received
        )
        queues = topic.write_queue_nums
        if request.queue_id >= max(queues, topic.read_queue_nums):
            raise BadRequest(
                f"the queue id {request.queue_id} is not one of the {queues} write queues of "
                f"{topic.name}"
            )
        queue_id = request.queue_id
        if queue_id < 0 and queues <= 0:  # another broker's table may say so
            raise NoPermission(f"the topic {topic.name} has no write queues")
        if queue_id < 0:
            self._turn += 1
            queue_id = self._turn % queues
        body = b"".join(received.body)
        if len(body) > self._policy.body_size_max:
            raise MessageIllegal(
                f"the body has {len(body)} bytes; maxMessageSize is {self._policy.body_size_max}"
            )
        return topic, queue_id, body

    def _answer(
        self,
        now_ms: int,
        received: Received,
        queue_id: int,
        offset: int,
        positions: Sequence[int],
        wait: bool,
    ) -> list[Effect]:
        header = SendResponse(
            msg_id=",".join(encode_offset_id(self._store_host, at) for at in positions),
            queue_id=queue_id,
            queue_offset=offset,
            region_id=self._policy.region_id,
            trace_on=_text(self._policy.trace_on),
        )
        reply = Reply(received.to, Code.SUCCESS, "", header)
        return self._confirmations.owe(now_ms, self._appends.end, reply, wait=wait)

    def _batch(
        self, received: Received, request: SendMessage, lane: Lane, body: bytes
    ) -> list[bytes]:
        common = _parse(request.properties)
        if request.sys_flag & SysFlag.TRANSACTION_MASK:
            raise MessageIllegal("a batch cannot be part of a transaction; nothing was stored")
        common[Property.CLUSTER] = self._policy.cluster_name
        shared = encode_properties(common)
        drafts: list[bytes] = []
        size_bytes = 0
        for flag, item, own in split_batch(body):
            joined = own + (b"\x02" if own and not own.endswith(b"\x02") else b"") + shared
            if may_go_elsewhere(joined) and _goes_elsewhere(joined):
                raise MessageIllegal(
                    "the messages of a batch cannot be delayed or part of a transaction; nothing "
                    "was stored",
                    hint="send such messages one by one",
                )
            if len(drafts) == BATCH_MESSAGES_MAX:
                raise MessageIllegal(
                    f"a batch has at most {BATCH_MESSAGES_MAX} messages; nothing was stored"
                )
            drafts.append(self._draft(received, request, lane, item, joined, flag))
            size_bytes += len(drafts[-1])
            if size_bytes > BATCH_RECORD_BYTES_MAX:
                raise MessageIllegal(
                    f"the messages of the batch come to more than {BATCH_RECORD_BYTES_MAX} bytes "
                    "with the properties that they share; nothing was stored",
                    hint="send smaller batches, or less in common",
                )
        if not drafts:
            raise MessageIllegal("the batch is empty")
        return drafts

    def _draft(
        self,
        received: Received,
        request: SendMessage,
        lane: Lane,
        body: bytes,
        properties: bytes,
        flag: int,
    ) -> bytes:
        if len(properties) > PROPERTIES_SIZE_BYTES_MAX:
            raise MessageIllegal(
                f"the properties have {len(properties)} bytes; at most "
                f"{PROPERTIES_SIZE_BYTES_MAX} are allowed"
            )
        host = encode_host(received.to.peer.address)
        sys_flag = request.sys_flag & ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
        if len(host) > 8:
            sys_flag |= SysFlag.BORN_HOST_V6
        return encode_draft(
            topic=lane[0].encode(),
            queue_id=lane[1],
            body=body,
            properties=properties,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=request.born_timestamp,
            born_host=host,
            reconsume_times=request.reconsume_times or 0,
        )


def _goes_elsewhere(properties: bytes) -> bool:
    return delay_level(properties) > 0 or is_transactional(properties)


def _parse(text: str | None) -> dict[str, str]:
    return decode_properties((text or "").encode())


def _text(flag: bool) -> str:
    return "true" if flag else "false"
