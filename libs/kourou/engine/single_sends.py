"""Sends that carry fields instead of records: what RocketMQ clients speak, one message or a batch.

Lives here: turning SEND_MESSAGE (10, 310, 320) into drafts by the rules of fact sheet §2.2 and
§4.3.
May not live here: what a topic allows (engine.sending), numbering (engine.appends).

State: none. After the checks the message goes the same way as every other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from kourou.engine.appends import Appends
from kourou.engine.confirmations import Confirmations
from kourou.engine.effects import Effect, Reply
from kourou.engine.inputs import Received
from kourou.engine.policy import BrokerPolicy
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
from kourou.model.limits import PROPERTIES_SIZE_BYTES_MAX
from kourou.model.message import Property
from kourou.model.sysflag import SysFlag
from kourou.protocol.batch_body import split_batch
from kourou.protocol.message_id import encode_offset_id
from kourou.protocol.messages.sending import SendMessage, SendRefusal, SendResponse
from kourou.protocol.properties import decode_properties, encode_properties
from kourou.protocol.record import Host, encode_draft, encode_host
from kourou.protocol.record_batch import check_drafts
from kourou.protocol.single_draft import later_problem, may_be_later


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
    ) -> None:
        self._sending = sending
        self._appends = appends
        self._confirmations = confirmations
        self._policy = policy
        self._traffic = traffic
        self._store_host = store_host
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
        if request.sys_flag & SysFlag.TRANSACTION_MASK:
            raise MessageIllegal(
                "this broker does not store transactional messages yet; nothing was stored"
            )
        body = b"".join(received.body)
        if len(body) > self._policy.body_size_max:
            raise MessageIllegal(
                f"the body has {len(body)} bytes; maxMessageSize is {self._policy.body_size_max}"
            )
        if request.batch:
            drafts, wait = self._batch(received, request, queue_id, body), True
        else:
            draft, wait = self._single(received, request, queue_id, body)
            drafts = [draft]
        offset, positions = self._append(drafts, (topic.name, queue_id), received)
        end = self._appends.end
        self._confirmations.append(end)
        for draft in drafts:
            self._traffic.taken(topic.name, len(draft))
        header = SendResponse(
            msg_id=",".join(encode_offset_id(self._store_host, at) for at in positions),
            queue_id=queue_id,
            queue_offset=offset,
            region_id=self._policy.region_id,
            trace_on=_text(self._policy.trace_on),
        )
        reply = Reply(received.to, Code.SUCCESS, "", header)
        return self._confirmations.owe(now_ms, end, reply, wait=wait)

    def _append(
        self, drafts: Sequence[bytes], lane: tuple[str, int], received: Received
    ) -> tuple[int, list[int]]:
        if len(drafts) == 1:
            offset, position = self._appends.write_one(drafts[0], lane, received.wall_ms)
            return offset, [position]
        blob = b"".join(drafts)
        sizes = np.fromiter(map(len, drafts), dtype=np.int64, count=len(drafts))
        columns = check_drafts(blob, sizes, self._policy.body_size_max)
        written = self._appends.write(blob, columns, [lane], None, received.wall_ms)
        positions: list[int] = []
        runs = [*written.runs, (len(drafts), 0)]
        for (first, position), (after, _) in itertools.pairwise(runs):
            at = position
            for index in range(first, after):
                positions.append(at)
                at += len(drafts[index])
        return written.lane_offsets[0], positions

    def _single(
        self, received: Received, request: SendMessage, queue_id: int, body: bytes
    ) -> tuple[bytes, bool]:
        properties = _parse(request.properties)
        if properties.get(Property.TRAN_MSG) == "true" and self._policy.reject_transactions:
            raise NoPermission("this broker takes no transactional messages")
        wait = properties.pop(Property.WAIT, "true") != "false"
        properties[Property.CLUSTER] = self._policy.cluster_name
        return self._draft(
            received,
            request,
            queue_id,
            body,
            encode_properties(properties),
            request.flag,
        ), wait

    def _batch(
        self, received: Received, request: SendMessage, queue_id: int, body: bytes
    ) -> list[bytes]:
        common = _parse(request.properties)
        common[Property.CLUSTER] = self._policy.cluster_name
        shared = encode_properties(common)
        drafts: list[bytes] = []
        for flag, item, own in split_batch(body):
            joined = own + (b"\x02" if own and not own.endswith(b"\x02") else b"") + shared
            drafts.append(self._draft(received, request, queue_id, item, joined, flag))
        if not drafts:
            raise MessageIllegal("the batch is empty")
        return drafts

    def _draft(
        self,
        received: Received,
        request: SendMessage,
        queue_id: int,
        body: bytes,
        properties: bytes,
        flag: int,
    ) -> bytes:
        if len(properties) > PROPERTIES_SIZE_BYTES_MAX:
            raise MessageIllegal(
                f"the properties have {len(properties)} bytes; at most "
                f"{PROPERTIES_SIZE_BYTES_MAX} are allowed"
            )
        problem = later_problem(properties) if may_be_later(properties) else ""
        if problem:
            raise MessageIllegal(f"{problem}; nothing was stored")
        host = encode_host(received.to.peer.address)
        sys_flag = request.sys_flag & ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
        if len(host) > 8:
            sys_flag |= SysFlag.BORN_HOST_V6
        return encode_draft(
            topic=request.topic.encode(),
            queue_id=queue_id,
            body=body,
            properties=properties,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=request.born_timestamp,
            born_host=host,
            reconsume_times=request.reconsume_times or 0,
        )


def _parse(text: str | None) -> dict[str, str]:
    return decode_properties((text or "").encode())


def _text(flag: bool) -> str:
    return "true" if flag else "false"
