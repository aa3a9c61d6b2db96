"""A broker in memory that handles a client's requests (see kourou_rigs.wire_cluster).

State: soft. Everything runs on the client's I/O thread; a test changes it through its attributes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kourou.errors import Code
from kourou.model.message import Property, StoredMessage
from kourou.model.names import retry_topic
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.heartbeat_body import decode_heartbeat
from kourou.protocol.bodies.lists_body import encode_consumer_ids
from kourou.protocol.bodies.statistics_bodies import (
    encode_offset_table,
)
from kourou.protocol.messages import groups, pulls, sends
from kourou.protocol.messages.broker_admin import (
    DeleteTopicInBroker,
    UpdateAndCreateTopic,
)
from kourou.protocol.messages.filter_server import PutFilter
from kourou.protocol.messages.groups import LockBatchMq, UnlockBatchMq
from kourou.protocol.messages.sends import PushReplyMessageToClient, SendReplyMessage
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import decode_record, stamp
from kourou.protocol.record.properties import decode_properties
from kourou.protocol.request import Request, Response
from kourou_rigs.wire_filters import WireFilters
from kourou_rigs.wire_locks import WireLocks
from kourou_rigs.wire_retries import Target, sent_again, taken_back


@dataclass
class Answer:
    """A server's reply to a request."""

    code: int = 0
    header: Response | None = None
    body: bytes = b""
    remark: str = ""


class Silence(Exception):
    """Raised by an intercept: there is no reply before the deadline."""


class Cut(Exception):
    """Raised by an intercept: the connection is lost while the request is pending."""


class Wire(Protocol):
    """The broker's end of a connection."""

    def reply(self, correlation: int, answer: Answer) -> None:
        """Reply to an earlier request."""
        ...

    def hear(self, request: Request, body: bytes = b"") -> None:
        """Send an unsolicited notification."""
        ...


@dataclass
class Hold:
    """A parked pull."""

    wire: Wire
    correlation: int
    request: pulls.PullMessage


Handler = Callable[[Wire, int, Any, bytes], Answer | None]


class WireBroker:
    """Stores sends in lists and answers pulls from them.

    `topics` is the cluster's: (read queues, write queues) by name. `seen` has all requests, `left`
    the clients that unregistered and their groups. `intercept(request)` can override the reply.
    """

    def __init__(
        self,
        name: str,
        address: str,
        number: int,
        topics: dict[str, tuple[int, int]],
        perms: dict[str, int] | None = None,
    ) -> None:
        self.name = name
        self.address = address
        self.number = number
        self.host = (f"10.0.0.{number}", 10911)
        self.topics = topics
        self.perms = {} if perms is None else perms
        self.queues: dict[Target, list[bytes]] = {}
        self.min_offsets: dict[Target, int] = {}
        self.position = 0
        self.committed: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, dict[str, Wire]] = {}
        self.locks = WireLocks()
        self.producers: set[str] = set()
        self.clients: dict[str, Wire] = {}
        self.replies: list[tuple[SendReplyMessage, bytes]] = []
        self.left: list[tuple[str, str]] = []
        self.holds: list[Hold] = []
        self.seen: list[Request] = []
        self.frames: list[sends.SendRecords] = []
        self.retry_times_max = 16
        self.intercept: Callable[[Request], Answer | None] | None = None
        self.filters = WireFilters()
        self._handlers: dict[type[Request], Handler] = {
            sends.SendRecords: self._send,
            sends.SendMessage: self._send_one,
            sends.ConsumerSendMsgBack: self._take_back,
            pulls.PullMessage: self._pull,
            groups.HeartBeat: self._heartbeat,
            SendReplyMessage: self._reply,
            groups.UnregisterClient: self._unregister,
            groups.GetConsumerListByGroup: self._consumer_ids,
            LockBatchMq: self._lock,
            UnlockBatchMq: self._unlock,
            pulls.QueryConsumerOffset: self._committed,
            pulls.UpdateConsumerOffset: self._commit,
            pulls.GetMaxOffset: self._max_offset,
            pulls.GetMinOffset: self._min_offset,
            pulls.GetEarliestMsgStoreTime: self._earliest,
            pulls.SearchOffsetByTimestamp: self._by_time,
            pulls.InvokeBrokerToResetOffset: self._reset,
            PutFilter: lambda _wire, _number, request, body: Answer(
                header=self.filters.put(request, body)
            ),
            UpdateAndCreateTopic: self._create_topic,
            DeleteTopicInBroker: self._delete_topic,
            pulls.ViewMessageById: self._view,
            pulls.QueryMessage: self._query,
        }

    def copies(self, leader: WireBroker) -> None:
        """Share the data of another replica of the same log."""
        self.queues, self.min_offsets = leader.queues, leader.min_offsets

    def stored(self, topic: str, queue_id: int | None = None) -> list[StoredMessage]:
        """The messages of a topic, or of one of its queues, ordered by queue and offset."""
        return [
            decode_record(record)
            for (name, number), records in sorted(self.queues.items())
            for record in records
            if name == topic and queue_id in (None, number)
        ]

    def answer(self, wire: Wire, correlation: int, request: Request, body: bytes) -> Answer | None:
        """The reply to a request; None if it is sent later."""
        self.seen.append(request)
        if self.intercept is not None:
            intercepted = self.intercept(request)
            if intercepted is not None:
                return intercepted
        handler = self._handlers.get(type(request))
        if handler is None:
            return Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark=type(request).__name__)
        return handler(wire, correlation, request, body)

    # -- sending ----------------------------------------------------------------------------------

    def _send(self, _wire: Wire, _number: int, request: sends.SendRecords, body: bytes) -> Answer:
        self.frames.append(request)
        sizes = struct.unpack(f"<{len(request.sizes) // 4}I", request.sizes)
        target_of = [0] * len(sizes)
        if request.target_of:
            target_of = list(struct.unpack(f"<{len(sizes)}H", request.target_of))
        targets = [(target.topic, target.queue_id) for target in request.targets]
        assert len(set(targets)) == len(targets), "a queue is named once in a frame"
        count = request.default_topic_queue_nums
        for topic, _ in targets:
            self.topics.setdefault(topic, (count, count))
        first_offsets = [len(self.queues.get(target, [])) for target in targets]
        run, at = self.position, 0
        for size, number in zip(sizes, target_of, strict=True):
            self.store(targets[number], body[at : at + size])
            at += size
        assert at == len(body), "the sizes tile the body"
        header = sends.SendRecordsResponse(
            target_codes=[0] * len(targets),
            target_remarks=[""] * len(targets),
            target_offsets=first_offsets,
            runs=[(0, run)],
        )
        return Answer(header=header)

    def _send_one(
        self, _wire: Wire, _number: int, request: sends.SendMessage, body: bytes
    ) -> Answer:
        target, draft = sent_again(request, body, self.retry_times_max)
        self.topics.setdefault(target[0], (1, 1))
        self.store(target, draft)
        offset = len(self.queues[target]) - 1
        return Answer(header=sends.SendResponse(msg_id="", queue_id=target[1], queue_offset=offset))

    def _take_back(
        self, _wire: Wire, _number: int, request: sends.ConsumerSendMsgBack, _body: bytes
    ) -> Answer:
        for record in self._records():
            found = decode_record(record)
            if found.position == request.offset:
                target, draft = taken_back(request, found, self.retry_times_max)
                self.topics.setdefault(target[0], (1, 1))
                self.store(target, draft)
                return Answer()
        return Answer(Code.SYSTEM_ERROR, remark="no message lies there")

    def store(self, target: Target, draft: bytes) -> None:
        """Store one draft and complete the pulls that are parked for it."""
        records = self.queues.setdefault(target, [])
        record = bytearray(draft)
        stamp(
            record,
            0,
            queue_offset=len(records),
            position=self.position,
            store_timestamp=1_000_000 + len(records),
            store_host=encode_host(self.host),
        )
        self.position += len(record)
        records.append(bytes(record))
        for hold in [hold for hold in self.holds if _target(hold.request) == target]:
            self.release(hold)

    # -- pulling ----------------------------------------------------------------------------------

    def _pull(
        self, wire: Wire, number: int, request: pulls.PullMessage, _body: bytes
    ) -> Answer | None:
        if request.sys_flag & pulls.PullFlag.CLASS_FILTER:
            return Answer(Code.SYSTEM_ERROR, remark="ask a filter server")
        return self.pull(wire, number, request)

    def pull(self, wire: Wire, number: int, request: pulls.PullMessage) -> Answer | None:
        """The reply to a pull; None if it is parked and answered later."""
        answer = self._read(request)
        if answer.code != Code.PULL_NOT_FOUND or not request.sys_flag & pulls.PullFlag.SUSPEND:
            return answer
        hold = Hold(wire, number, request)
        asyncio.get_running_loop().call_later(
            request.suspend_timeout_millis / 1000, self.release, hold
        )
        self.holds.append(hold)
        return None

    def release(self, hold: Hold) -> None:
        """Reply to a parked pull, once."""
        if hold in self.holds:
            self.holds.remove(hold)
            hold.wire.reply(hold.correlation, self._read(hold.request))

    def _read(self, request: pulls.PullMessage) -> Answer:
        records = self.queues.get(_target(request), [])
        low, high = self.min_offsets.get(_target(request), 0), len(records)

        def place(next_offset: int) -> pulls.PullResponse:
            return pulls.PullResponse(
                suggest_which_broker_id=0,
                next_begin_offset=next_offset,
                min_offset=low,
                max_offset=high,
            )

        offset = request.queue_offset
        if not low <= offset <= high:
            return Answer(Code.PULL_OFFSET_MOVED, place(low if offset < low else high))
        if offset == high:
            return Answer(Code.PULL_NOT_FOUND, place(high))
        found = records[offset : offset + request.max_msg_nums]
        return Answer(0, place(offset + len(found)), b"".join(found), "FOUND")

    # -- consumers and producers ------------------------------------------------------------------

    def _heartbeat(
        self, wire: Wire, _number: int, _request: groups.HeartBeat, body: bytes
    ) -> Answer:
        said = decode_heartbeat(body)
        self.producers.update(said.producer_groups)
        if said.producer_groups:
            self.clients[said.client_id] = wire
        for consumer in said.consumers:
            self.topics.setdefault(retry_topic(consumer.group), (1, 1))
            members = self.members.setdefault(consumer.group, {})
            if members.get(said.client_id) is not wire:
                members[said.client_id] = wire
                self._notify(consumer.group)
        return Answer()

    def _reply(self, _wire: Wire, _number: int, request: SendReplyMessage, body: bytes) -> Answer:
        """Forward a reply to the waiting client, as if the client had accepted it at once."""
        self.replies.append((request, body))
        properties = decode_properties((request.properties or "").encode())
        waiting = self.clients.get(properties.get(Property.REPLY_TO_CLIENT, ""))
        if waiting is None:
            return Answer(Code.SYSTEM_ERROR, remark="channel not found")
        pushed = PushReplyMessageToClient(
            producer_group=request.producer_group,
            topic=request.topic,
            queue_id=request.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            flag=request.flag,
            properties=request.properties,
            born_host="10.0.0.9:4711",
            store_host="10.0.0.1:10911",
            store_timestamp=1_000_000,
        )
        waiting.hear(pushed, body)
        return Answer(header=sends.SendResponse(msg_id="0", queue_id=0, queue_offset=0))

    def _unregister(
        self, _wire: Wire, _number: int, request: groups.UnregisterClient, _body: bytes
    ) -> Answer:
        group = request.consumer_group or request.producer_group or ""
        self.left.append((request.client_id, group))
        if self.members.get(group, {}).pop(request.client_id, None) is not None:
            self._notify(group)
        self.producers.discard(group)
        return Answer()

    def _notify(self, group: str) -> None:
        for wire in self.members.get(group, {}).values():
            wire.hear(groups.NotifyConsumerIdsChanged(consumer_group=group))

    def _consumer_ids(
        self, _wire: Wire, _number: int, request: groups.GetConsumerListByGroup, _body: bytes
    ) -> Answer:
        ids = list(self.members.get(request.consumer_group, {}))
        if not ids:
            return Answer(Code.SYSTEM_ERROR, remark="no consumer is connected")
        return Answer(body=encode_consumer_ids(ids))

    def _lock(self, _wire: Wire, _number: int, _request: LockBatchMq, body: bytes) -> Answer:
        return Answer(body=self.locks.lock(body))

    def _unlock(self, _wire: Wire, _number: int, _request: UnlockBatchMq, body: bytes) -> Answer:
        self._notify(self.locks.unlock(body))
        return Answer()

    # -- offsets ----------------------------------------------------------------------------------

    def _committed(
        self, _wire: Wire, _number: int, request: pulls.QueryConsumerOffset, _body: bytes
    ) -> Answer:
        key = (request.consumer_group, request.topic, request.queue_id)
        if key not in self.committed:
            return Answer(Code.QUERY_NOT_FOUND)
        return Answer(header=pulls.QueryConsumerOffsetResponse(offset=self.committed[key]))

    def _commit(
        self, _wire: Wire, _number: int, request: pulls.UpdateConsumerOffset, _body: bytes
    ) -> Answer:
        key = (request.consumer_group, request.topic, request.queue_id)
        self.committed[key] = request.commit_offset
        return Answer()

    def _max_offset(
        self, _wire: Wire, _number: int, request: pulls.GetMaxOffset, _body: bytes
    ) -> Answer:
        high = len(self.queues.get(_target(request), []))
        return Answer(header=pulls.GetMaxOffsetResponse(offset=high))

    def _min_offset(
        self, _wire: Wire, _number: int, request: pulls.GetMinOffset, _body: bytes
    ) -> Answer:
        low = self.min_offsets.get(_target(request), 0)
        return Answer(header=pulls.GetMinOffsetResponse(offset=low))

    def _earliest(
        self, _wire: Wire, _number: int, request: pulls.GetEarliestMsgStoreTime, _body: bytes
    ) -> Answer:
        records = self.queues.get(_target(request))
        first_ms = decode_record(records[0]).store_timestamp if records else -1
        return Answer(header=pulls.GetEarliestMsgStoreTimeResponse(timestamp=first_ms))

    def _by_time(
        self, _wire: Wire, _number: int, request: pulls.SearchOffsetByTimestamp, _body: bytes
    ) -> Answer:
        found = self._offset_at(_target(request), request.timestamp)
        return Answer(header=pulls.SearchOffsetByTimestampResponse(offset=found))

    def _offset_at(self, target: Target, timestamp_ms: int) -> int:
        records = self.queues.get(target, [])
        if timestamp_ms < 0:
            return len(records)
        return sum(decode_record(record).store_timestamp < timestamp_ms for record in records)

    def _reset(
        self, _wire: Wire, _number: int, request: pulls.InvokeBrokerToResetOffset, _body: bytes
    ) -> Answer:
        table: dict[MessageQueue, int] = {}
        for number in range(self.topics[request.topic][0]):
            offset = self._offset_at((request.topic, number), request.timestamp)
            table[MessageQueue(request.topic, self.name, number)] = offset
            self.committed[request.group, request.topic, number] = offset
        body = encode_offset_table(table)
        notice = pulls.ResetConsumerClientOffset(topic=request.topic, group=request.group)
        for wire in self.members.get(request.group, {}).values():
            wire.hear(notice, body)
        return Answer(body=body)

    # -- administration ---------------------------------------------------------------------------

    def _create_topic(
        self, _wire: Wire, _number: int, request: UpdateAndCreateTopic, _body: bytes
    ) -> Answer:
        self.topics[request.topic] = (request.read_queue_nums, request.write_queue_nums)
        return Answer()

    def _delete_topic(
        self, _wire: Wire, _number: int, request: DeleteTopicInBroker, _body: bytes
    ) -> Answer:
        for target in [target for target in self.queues if target[0] == request.topic]:
            del self.queues[target]
        return Answer()

    def _view(
        self, _wire: Wire, _number: int, request: pulls.ViewMessageById, _body: bytes
    ) -> Answer:
        for record in self._records():
            if decode_record(record).position == request.offset:
                return Answer(body=record)
        return Answer(Code.SYSTEM_ERROR, remark="no message lies there")

    def _query(
        self, _wire: Wire, _number: int, request: pulls.QueryMessage, _body: bytes
    ) -> Answer:
        """Like an index of hashes: the property `collides` makes a message match another key."""
        found: list[bytes] = []
        for record in self._records():
            message = decode_record(record)
            names = (*message.keys, message.message_id, message.properties.get("collides"))
            in_time = request.begin_timestamp <= message.store_timestamp <= request.end_timestamp
            if message.topic == request.topic and in_time and request.key in names:
                found.append(record)
        header = pulls.QueryMessageResponse(
            index_last_update_timestamp=0, index_last_update_phyoffset=0
        )
        if not found:
            return Answer(Code.QUERY_NOT_FOUND, header)
        return Answer(0, header, b"".join(found))

    def _records(self) -> list[bytes]:
        return [record for records in self.queues.values() for record in records]


class _OfQueue(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def queue_id(self) -> int: ...


def _target(request: _OfQueue) -> Target:
    return request.topic, request.queue_id
