"""A cluster without sockets, for those who test what uses `kourou.Client`.

    cluster = WireCluster()
    broker = cluster.broker("broker-a")
    async with Client("127.0.0.1:9876", dial=cluster.dial) as mq:
        await mq.send("orders", b"...")
    assert [message.body for message in broker.stored("orders")] == [b"..."]

Name server and brokers stand behind the client's own seam for connections. Every request and answer
is encoded and decoded as on the wire, so what is left out is only ZeroMQ. Brokers keep sends in
lists; they know no permissions, no retention and no durability. `WireBroker.intercept` may answer
any request otherwise, or raise `Silence` (no answer) or `Cut` (the connection ends under it).

Lives here: the cluster and its connections. May not live here: what a real broker decides.

State: soft. Everything runs on the client's I/O thread; a test changes it by plain attributes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from kourou.errors import Code, KourouError, TimedOut, UnknownOutcome
from kourou.model.message import StoredMessage
from kourou.model.queue import MessageQueue
from kourou.model.route import BrokerData, QueueData, TopicRoute
from kourou.protocol.bodies import (
    ClusterInfo,
    OffsetWrapper,
    decode_heartbeat,
    encode_cluster_info,
    encode_consume_stats,
    encode_consumer_ids,
    encode_offset_table,
    encode_topic_list,
    encode_topic_route,
)
from kourou.protocol.frames import (
    Frame,
    Kind,
    decode_frame,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from kourou.protocol.messages import membership, namesrv, offsets, pulling, queries, sending
from kourou.protocol.record import decode_record, encode_host, stamp
from kourou.protocol.request import Request, Response
from kourou.protocol.table import REQUESTS
from kourou.transport.zmq_client import Reply


@dataclass
class Answer:
    code: int = 0
    header: object = None
    body: bytes = b""
    remark: str = ""


class Silence(Exception):
    """No answer comes before the deadline."""


class Cut(Exception):
    """The connection ends under the request."""


@dataclass
class Hold:
    wire: MemoryWire
    correlation: int
    request: pulling.PullMessage
    timer: asyncio.TimerHandle


class WireBroker:
    """Stores sends in lists and answers pulls from them."""

    def __init__(self, cluster: WireCluster, name: str, address: str) -> None:
        self.cluster = cluster
        self.name = name
        self.address = address
        self.host = (f"10.0.0.{len(cluster.brokers) + 1}", 10911)
        self.queues: dict[tuple[str, int], list[bytes]] = {}
        self.min_offsets: dict[tuple[str, int], int] = {}
        self.position = 0
        self.committed: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, dict[str, MemoryWire]] = {}
        self.subscriptions: dict[str, set[str]] = {}
        self.producers: set[str] = set()
        self.left: list[tuple[str, str]] = []
        self.holds: list[Hold] = []
        self.seen: list[object] = []
        self.frames: list[sending.SendRecords] = []
        self.intercept: Callable[[object], Answer | None] | None = None

    # -- what a test looks at -----------------------------------------------------------------

    def stored(self, topic: str, queue_id: int | None = None):
        return [
            decode_record(record)
            for (name, number), records in sorted(self.queues.items())
            for record in records
            if name == topic and queue_id in (None, number)
        ]

    # -- requests -----------------------------------------------------------------------------

    def answer(self, wire: MemoryWire, correlation: int, request, body: bytes) -> Answer | None:
        self.seen.append(request)
        if self.intercept is not None:
            intercepted = self.intercept(request)
            if intercepted is not None:
                return intercepted
        handler = getattr(self, f"on_{type(request).__name__}", None)
        if handler is None:
            return Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark=type(request).__name__)
        return handler(wire, correlation, request, body)

    def on_SendRecords(self, _wire, _correlation, request, body):
        self.frames.append(request)
        sizes = struct.unpack(f"<{len(request.sizes) // 4}I", request.sizes)
        lane_of = (
            struct.unpack(f"<{len(sizes)}H", request.lane_of)
            if request.lane_of
            else (0,) * len(sizes)
        )
        lanes = [(lane.topic, lane.queue_id) for lane in request.lanes]
        assert len(set(lanes)) == len(lanes), "a queue has one lane in a frame"
        for topic, _ in lanes:
            self.cluster.topics.setdefault(topic, (4, 4))
        first = [len(self.queues.get(lane, [])) for lane in lanes]
        run = self.position
        at = 0
        for size, number in zip(sizes, lane_of, strict=True):
            self.store(lanes[number], body[at : at + size])
            at += size
        assert at == len(body)
        return Answer(
            header=sending.SendRecordsResponse(
                lane_codes=[0] * len(lanes),
                lane_remarks=[""] * len(lanes),
                lane_offsets=first,
                runs=[(0, run)],
            )
        )

    def store(self, lane: tuple[str, int], draft: bytes) -> None:
        records = self.queues.setdefault(lane, [])
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
        for hold in [hold for hold in self.holds if self._lane(hold.request) == lane]:
            self.release(hold)

    @staticmethod
    def _lane(request) -> tuple[str, int]:
        return request.topic, request.queue_id

    def release(self, hold: Hold) -> None:
        if hold not in self.holds:
            return
        self.holds.remove(hold)
        hold.timer.cancel()
        hold.wire.reply(hold.correlation, self.pull(hold.request))

    def pull(self, request) -> Answer:
        lane = self._lane(request)
        records = self.queues.get(lane, [])
        low, high = self.min_offsets.get(lane, 0), len(records)

        def place(next_offset):
            return pulling.PullResponse(
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

    def on_PullMessage(self, wire, correlation, request, _body):
        answer = self.pull(request)
        if answer.code == Code.PULL_NOT_FOUND and request.sys_flag & pulling.PullFlag.SUSPEND:
            hold = Hold(wire, correlation, request, None)
            hold.timer = asyncio.get_running_loop().call_later(
                request.suspend_timeout_millis / 1000, self.release, hold
            )
            self.holds.append(hold)
            return None
        return answer

    def on_HeartBeat(self, wire, _correlation, _request, body):
        said = decode_heartbeat(body)
        self.producers.update(said.producer_groups)
        for consumer in said.consumers:
            self.subscriptions[consumer.group] = {one.topic for one in consumer.subscriptions}
            members = self.members.setdefault(consumer.group, {})
            if members.get(said.client_id) is not wire:
                members[said.client_id] = wire
                self.notify(consumer.group)
        return Answer()

    def on_UnregisterClient(self, _wire, _correlation, request, _body):
        group = request.consumer_group or request.producer_group
        self.left.append((request.client_id, group))
        if self.members.get(group, {}).pop(request.client_id, None) is not None:
            self.notify(group)
        self.producers.discard(group)
        return Answer()

    def notify(self, group: str) -> None:
        for wire in self.members.get(group, {}).values():
            wire.hear(membership.NotifyConsumerIdsChanged(consumer_group=group))

    def on_GetConsumerListByGroup(self, _wire, _correlation, request, _body):
        ids = list(self.members.get(request.consumer_group, {}))
        if not ids:
            return Answer(Code.SYSTEM_ERROR, remark="nobody is there")
        return Answer(body=encode_consumer_ids(ids))

    def on_QueryConsumerOffset(self, _wire, _correlation, request, _body):
        key = (request.consumer_group, request.topic, request.queue_id)
        if key not in self.committed:
            return Answer(Code.QUERY_NOT_FOUND)
        return Answer(header=offsets.QueryConsumerOffsetResponse(offset=self.committed[key]))

    def on_UpdateConsumerOffset(self, _wire, _correlation, request, _body):
        key = (request.consumer_group, request.topic, request.queue_id)
        self.committed[key] = request.commit_offset
        return Answer()

    def on_GetMaxOffset(self, _wire, _correlation, request, _body):
        high = len(self.queues.get(self._lane(request), []))
        return Answer(header=offsets.GetMaxOffsetResponse(offset=high))

    def on_GetMinOffset(self, _wire, _correlation, request, _body):
        low = self.min_offsets.get(self._lane(request), 0)
        return Answer(header=offsets.GetMinOffsetResponse(offset=low))

    def on_GetEarliestMsgStoreTime(self, _wire, _correlation, request, _body):
        has = bool(self.queues.get(self._lane(request)))
        return Answer(
            header=offsets.GetEarliestMsgStoreTimeResponse(timestamp=1_000_000 if has else -1)
        )

    def on_SearchOffsetByTimestamp(self, _wire, _correlation, request, _body):
        records = self.queues.get(self._lane(request), [])
        at = next(
            (
                index
                for index, record in enumerate(records)
                if decode_record(record).store_timestamp >= request.timestamp
            ),
            len(records),
        )
        return Answer(header=offsets.SearchOffsetByTimestampResponse(offset=at))

    # -- administration -----------------------------------------------------------------------

    def on_UpdateAndCreateTopic(self, _wire, _correlation, request, _body):
        self.cluster.topics[request.topic] = (request.read_queue_nums, request.write_queue_nums)
        return Answer()

    def on_DeleteTopicInBroker(self, _wire, _correlation, request, _body):
        for lane in [lane for lane in self.queues if lane[0] == request.topic]:
            del self.queues[lane]
        return Answer()

    def on_GetConsumeStats(self, _wire, _correlation, request, _body):
        table = {
            MessageQueue(topic, self.name, number): OffsetWrapper(
                broker_offset=len(records),
                consumer_offset=self.committed.get((request.consumer_group, topic, number), 0),
            )
            for (topic, number), records in self.queues.items()
            if request.topic in (None, topic)
        }
        return Answer(body=encode_consume_stats(table))

    def on_InvokeBrokerToResetOffset(self, _wire, _correlation, request, _body):
        table = {}
        for number in range(self.cluster.topics[request.topic][0]):
            records = self.queues.get((request.topic, number), [])
            offset = len(records)
            if request.timestamp >= 0:
                offset = sum(
                    decode_record(record).store_timestamp < request.timestamp for record in records
                )
            table[MessageQueue(request.topic, self.name, number)] = offset
            self.committed[request.group, request.topic, number] = offset
        body = encode_offset_table(table)
        notice = offsets.ResetConsumerClientOffset(topic=request.topic, group=request.group)
        for wire in self.members.get(request.group, {}).values():
            wire.hear(notice, body)
        return Answer(body=body)

    def on_ViewMessageById(self, _wire, _correlation, request, _body):
        for records in self.queues.values():
            for record in records:
                if decode_record(record).position == request.offset:
                    return Answer(body=record)
        return Answer(Code.SYSTEM_ERROR, remark="no message lies there")

    def on_QueryMessage(self, _wire, _correlation, request, _body):
        found = [
            record
            for (topic, _), records in self.queues.items()
            for record in records
            if topic == request.topic
            and (
                request.key in decode_record(record).keys
                or request.key == decode_record(record).message_id
                or decode_record(record).properties.get("collides") == request.key
            )
            and request.begin_timestamp
            <= decode_record(record).store_timestamp
            <= request.end_timestamp
        ]
        header = queries.QueryMessageResponse(
            index_last_update_timestamp=0, index_last_update_phyoffset=0
        )
        if not found:
            return Answer(Code.QUERY_NOT_FOUND, header)
        return Answer(0, header, b"".join(found))

    def on_UpdateAndCreateSubscriptionGroup(self, *_):
        return Answer()


class WireCluster:
    """A name server and brokers by address."""

    def __init__(self) -> None:
        self.brokers: dict[str, WireBroker] = {}
        self.topics: dict[str, tuple[int, int]] = {"TBW102": (8, 8)}
        self.perms: dict[str, int] = {}
        self.down: set[str] = set()
        self.asked: list[tuple[str, object]] = []
        self.wires: list[MemoryWire] = []

    def broker(self, name: str = "broker-a") -> WireBroker:
        address = f"{name}:20911"
        self.brokers[address] = WireBroker(self, name, address)
        return self.brokers[address]

    def dial(self, address: str, on_notify) -> MemoryWire:
        wire = MemoryWire(self, address.removeprefix("tcp://"), on_notify)
        self.wires.append(wire)
        return wire

    def answer(self, wire: MemoryWire, correlation: int, request, body: bytes) -> Answer | None:
        broker = self.brokers.get(wire.address)
        if broker is not None:
            return broker.answer(wire, correlation, request, body)
        self.asked.append((wire.address, request))
        return self.as_name_server(request)

    def as_name_server(self, request) -> Answer:
        if isinstance(request, namesrv.GetRouteInfoByTopic):
            if request.topic not in self.topics:
                return Answer(Code.TOPIC_NOT_EXIST)
            return Answer(body=encode_topic_route(self.route(request.topic)))
        if isinstance(request, namesrv.GetBrokerClusterInfo):
            brokers = {one.name: self.data(one) for one in self.brokers.values()}
            return Answer(body=encode_cluster_info(ClusterInfo(brokers, {"c1": tuple(brokers)})))
        if isinstance(request, namesrv.GetAllTopicListFromNamesrv):
            return Answer(body=encode_topic_list(self.topics))
        if isinstance(request, namesrv.DeleteTopicInNamesrv):
            self.topics.pop(request.topic, None)
            return Answer()
        return Answer(Code.REQUEST_CODE_NOT_SUPPORTED)

    def data(self, broker: WireBroker) -> BrokerData:
        return BrokerData("c1", broker.name, {0: broker.address})

    def route(self, topic: str) -> TopicRoute:
        read, write = self.topics[topic]
        perm = self.perms.get(topic, 6)
        return TopicRoute(
            tuple(self.data(broker) for broker in self.brokers.values()),
            tuple(QueueData(one.name, read, write, perm) for one in self.brokers.values()),
        )


class MemoryWire:
    """A connection that encodes and decodes all that passes, on the loop of the client."""

    def __init__(self, cluster: WireCluster, address: str, on_notify) -> None:
        self.cluster = cluster
        self.address = address
        self.on_notify = on_notify
        self.loop = asyncio.get_running_loop()
        self.numbers = count(1)
        self.pending: dict[int, Callable] = {}
        self.sent: list[int] = []
        self.closed = False

    def next_correlation(self) -> int:
        return next(self.numbers)

    def submit(self, parts, correlation, callback, deadline_ms) -> None:
        assert not self.closed, "a closed connection is not used"
        frame = decode_frame([bytes(part) for part in parts])
        self.sent.append(frame.kind)
        if callback is not None:
            self.pending[correlation] = callback
        self.loop.call_soon(self.arrive, frame)

    def arrive(self, frame) -> None:
        correlation = frame.correlation
        if self.address in self.cluster.down:
            self.end(correlation, UnknownOutcome(f"{self.address} is down"))
            return
        request = decode_request(frame)
        try:
            answer = self.cluster.answer(
                self, correlation, request, b"".join(map(bytes, frame.body))
            )
        except Silence:
            self.end(correlation, TimedOut("no answer"))
        except Cut:
            self.end(correlation, UnknownOutcome("the connection was lost"))
        else:
            if answer is not None:
                self.reply(correlation, answer)

    def reply(self, correlation: int, answer: Answer) -> None:
        head = encode_reply(correlation, answer.code, answer.remark, answer.header)
        self.end(correlation, decode_frame([head, answer.body] if answer.body else [head]))

    def end(self, correlation: int, outcome) -> None:
        callback = self.pending.pop(correlation, None)
        if callback is not None:
            callback(outcome)

    async def request(self, request, *, body=(), timeout_ms) -> Reply:
        correlation = self.next_correlation()
        head = encode_request(request, correlation=correlation, deadline_ms=timeout_ms)
        future = self.loop.create_future()

        def ended(outcome) -> None:
            if not future.done():
                if isinstance(outcome, KourouError):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

        self.submit([head, *body], correlation, ended, 0)
        frame = await future
        code, remark, header = decode_reply(frame, REQUESTS[request.code].response)
        return Reply(code, remark, header, frame.body)

    def hear(self, request, body: bytes = b"") -> None:
        head = encode_request(request, correlation=0, deadline_ms=0, kind=Kind.NOTIFY)
        frame = decode_frame([head, body] if body else [head])
        self.loop.call_soon_threadsafe(self.on_notify, frame)

    def send_parts(self, parts) -> bool:
        self.answered = decode_frame(parts)
        return True

    def close(self) -> None:
        self.closed = True
        for correlation in list(self.pending):
            self.end(correlation, UnknownOutcome("the connection was closed"))


