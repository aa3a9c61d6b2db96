"""A broker's core without executors: the real core over a store in memory, with a test's clock."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kourou.authorization.request_gate import SecretBox
from kourou.engine.control import ControlState, decide_start, evolve
from kourou.engine.core import BrokerCore
from kourou.engine.effects import Announce, Append, CopyChunk, DropTopic, Effect, Flush, Wake
from kourou.engine.inputs import Copied, Dispatched, Flushed, Input, RegistrationDone
from kourou.engine.policy import BrokerPolicy, EffectivePolicy, TopicRules
from kourou.engine.ports import ANYWHERE, PropertyTest, QueueRead
from kourou.engine.roles.leader import LeaderRole
from kourou.engine.roles.role import STANDALONE, RoleSettings
from kourou.engine.sends.appends import LogEnd
from kourou.engine.start import Start
from kourou.errors import Corrupt, Rejected
from kourou.events.control_events import decode_record_body
from kourou.model.limits import FILTER_BYTES_MAX, FILTER_RECORDS_MAX
from kourou.model.message import StoredMessage, SysFlag
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol import kernel_python
from kourou.protocol.messages.pulls import PullFlag, PullMessage
from kourou.protocol.record.hashes import tags_code
from kourou.protocol.record.layout import BLANK_MAGIC, parts_of
from kourou.protocol.record.message_record import check_record, decode_record, encode_blank
from kourou.protocol.record.properties import labels
from kourou.protocol.request import Request
from kourou.protocol.table import ANSWERS_OF_ALL, REQUESTS
from kourou.runtime import Buffer, Notify, Peer, Received, Reply, ReplyTo, Tick
from kourou.settings.declaration import Setting
from kourou.settings.registry import SettingsRegistry


class MemoryChunk(NamedTuple):
    """Log bytes from `position`; the log continues at `end`."""

    position: int
    data: memoryview
    end: int
    damage: str = ""


def hold(read: QueueRead, records: Sequence[Buffer]) -> QueueRead:
    """Make these the records of a read."""
    read.run, read.sizes = memoryview(b"".join(records)), [len(record) for record in records]
    return read


class MemoryStore:
    """Records in a dictionary by position; queues as lists of positions."""

    def __init__(self, segment_size: int = 1 << 20) -> None:
        self.segment_size = segment_size
        self.records: dict[int, bytes] = {}
        self.queues: dict[tuple[str, int], list[int]] = {}
        self.firsts: dict[tuple[str, int], int] = {}
        self.end = 0
        self.recent = True
        self.indexed = ANYWHERE
        self._pending: list[bytes] = []

    def append(self, effect: Append) -> None:
        """Store the bytes of one append."""
        for position, data in effect.pieces:
            at = 0
            raw = bytes(data)
            while at < len(raw):
                size = int.from_bytes(raw[at : at + 4], "big")
                self.records[position + at] = raw[at : at + size]
                self._pending.append(raw[at : at + size])
                at += size
        self.end = effect.end

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> MemoryChunk:
        """Whole records of one segment, as from kourou.store.replica.chunks."""
        limit = min(limit, self.end)
        segment_end = position - position % self.segment_size + self.segment_size
        at = position
        found: list[bytes] = []
        while at < min(limit, segment_end) and at in self.records:
            record = self.records[at]
            if found and at + len(record) - position > max_bytes:
                break
            found.append(record)
            at += len(record)
        if at < limit and at not in self.records:
            found.append(encode_blank(segment_end - at))
            at = segment_end
        return MemoryChunk(position, memoryview(b"".join(found)), at)

    def append_chunk(self, position: int, data: Buffer) -> int:
        """Append a leader's bytes; returns the end of the log."""
        assert position == self.end, (position, self.end)
        raw, at = bytes(data), 0
        while at < len(raw):
            size = int.from_bytes(raw[at : at + 4], "big")
            if int.from_bytes(raw[at + 4 : at + 8], "big") == BLANK_MAGIC:
                assert at + 8 == len(raw), "a filler's head is the last of a chunk"
                self.end = position + at + size
                return self.end
            check_record(raw, at, at + size, position + at)
            self.records[position + at] = raw[at : at + size]
            self._pending.append(raw[at : at + size])
            at += size
        self.end = position + at
        return self.end

    def dispatch(self) -> list[tuple[str, int, int]]:
        """Project appended records; returns the queues with new messages."""
        grown: dict[tuple[str, int], int] = {}
        for raw in self._pending:
            stored = decode_record(raw, decompress=False)
            kind = stored.sys_flag & SysFlag.TRANSACTION_MASK
            if kind in (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK):
                continue
            target = (stored.topic, stored.queue_id)
            if target not in self.queues:
                self.queues[target], self.firsts[target] = [], stored.offset
            queue = self.queues[target]
            assert stored.offset == self.firsts[target] + len(queue), (target, stored.offset)
            queue.append(stored.position)
            grown[target] = stored.offset + 1
        self._pending = []
        return [(topic, queue_id, high) for (topic, queue_id), high in grown.items()]

    def cut(self, end: int) -> MemoryStore:
        """The store after truncation at position `end`; a record that spans the position is
        removed.
        """
        left = MemoryStore(self.segment_size)
        for position in sorted(self.records):
            if position + len(self.records[position]) > end:
                break
            left.records[position] = self.records[position]
            left.end = position + len(self.records[position])
            left._pending.append(self.records[position])
        left.dispatch()
        return left

    def drop(self, topic: str) -> None:
        """Remove the queues of a topic."""
        for target in [target for target in self.queues if target[0] == topic]:
            del self.queues[target]

    # -- the store interface of the engine ----------------------------------------------------

    def newest_ms(self) -> int:
        """The store time of the last record; 0 for an empty log."""
        return decode_record(self.records[max(self.records)]).store_timestamp if self.end else 0

    def log_range(self) -> tuple[int, int]:
        """First readable position and the end."""
        return 0, self.end

    @property
    def dispatched(self) -> int:
        """All records below are in the queues."""
        return decode_record(self._pending[0]).position if self._pending else self.end

    def topics(self) -> list[str]:
        """The topics that have queues."""
        return sorted({topic for topic, _ in self.queues})

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic."""
        return sorted(queue_id for name, queue_id in self.queues if name == topic)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Minimum and next offset."""
        queue = self.queues.get((topic, queue_id))
        first = self.firsts.get((topic, queue_id), 0)
        return None if queue is None else (first, first + len(queue))

    def queue_bytes(self, topic: str, queue_id: int, first: int, end: int) -> int:
        """The size of the records of a queue at these offsets."""
        low = self.firsts.get((topic, queue_id), 0)
        positions = self.queues.get((topic, queue_id), [])[max(0, first - low) : end - low]
        return sum(len(self.records[position]) for position in positions)

    def read_queue(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        codes: frozenset[int] | None,
        below: int,
        wanted: PropertyTest | None = None,
    ) -> QueueRead:
        """Read a queue."""
        low, high = self.queue_range(topic, queue_id) or (0, 0)
        read = QueueRead(next_offset=offset, min_offset=low, max_offset=high)
        records: list[bytes] = []
        size = looked_at = looked_bytes = 0
        for at in range(max(offset, low), high):
            position = self.queues[topic, queue_id][at - low]
            raw = self.records[position]
            if position + len(raw) > below:
                break
            if wanted is not None:
                looked_at, looked_bytes = looked_at + 1, looked_bytes + len(raw)
                many = looked_at > FILTER_RECORDS_MAX or looked_bytes > FILTER_BYTES_MAX
                if many and looked_at > 1:
                    break
            stored = decode_record(raw, decompress=False)
            passes: bool | None = codes is None or tags_code(stored.tag) in codes
            if passes and wanted is not None:
                passes = wanted(kernel_python.values([raw], wanted.names)[0])
                wanted.failed += passes is None
            if passes:
                if records and (size + len(raw) > max_bytes or len(records) == max_messages):
                    break
                records.append(raw)
                size += len(raw)
                read.first_position = position if read.first_position < 0 else read.first_position
                read.last_position = position
            read.next_offset = at + 1
        return hold(read, records)

    def offset_position(self, topic: str, queue_id: int, offset: int) -> int:
        """The position of a message."""
        low, high = self.queue_range(topic, queue_id) or (0, 0)
        return self.queues[topic, queue_id][offset - low] if low <= offset < high else -1

    def offset_at(self, topic: str, queue_id: int, position: int) -> int:
        """The first offset of a queue at or above a position."""
        low, high = self.queue_range(topic, queue_id) or (0, 0)
        positions = self.queues.get((topic, queue_id), [])
        return next((low + n for n, at in enumerate(positions) if at >= position), high)

    def record_at(self, position: int) -> memoryview:
        """The record that starts at a position."""
        raw = self.records.get(position)
        if raw is None:
            raise Rejected(f"this broker's log has no message at position {position}")
        checked = check_record(raw, 0, len(raw), position)
        if checked.size != len(raw):
            raise Corrupt("its size is wrong")
        return memoryview(raw)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        low, high = self.queue_range(topic, queue_id) or (0, 0)
        for offset in range(low, high):
            if self.store_time(topic, queue_id, offset) >= timestamp_ms:
                return offset
        return high

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of a message."""
        position = self.offset_position(topic, queue_id, offset)
        return -1 if position < 0 else decode_record(self.records[position]).store_timestamp

    def find_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        below: int = ANYWHERE,
    ) -> list[memoryview]:
        """Records with a key, newest first."""
        found: list[memoryview] = []
        for position in sorted(self.records, reverse=True):
            raw = self.records[position]
            stored = decode_record(raw, decompress=False)
            _, keys = labels(raw[parts_of(raw, 0, len(raw)).props_at :])
            if position + len(raw) > self.indexed:
                continue
            if (
                stored.topic == topic
                and key in [str(each, "utf-8", "replace") for each in keys]
                and begin_ms <= stored.store_timestamp <= end_ms
                and position + len(raw) <= below
            ):
                found.append(memoryview(raw))
        return found[:max_count]

    def is_recent(self, position: int) -> bool:
        """True if a record counts as in memory, as set by the test."""
        return self.recent and position >= 0


@dataclass
class Engine:
    """The core, its store, and its outputs. Time advances only when the test advances it."""

    sync_flush: bool = False
    policy: BrokerPolicy = field(default_factory=lambda: BrokerPolicy("DefaultCluster", "broker-a"))
    specs: Sequence[Setting] = ()
    segment_size: int = 1 << 20
    now_ms: int = 1_000
    wall_ms: int = 1_700_000_000_000
    left: MemoryStore | None = None
    """The store of an earlier broker; its control events are read back from its log."""
    delays: Mapping[int, int] = field(default_factory=dict)
    """The progress of the delay levels that an earlier broker left."""
    name_servers: bool = True
    """Whether name servers reply; otherwise the creator of a topic waits."""
    role: RoleSettings = STANDALONE
    leads: bool = False
    """Followers may attach; `role` is then created here."""
    sync: bool = False
    ack_on_flush: bool = False
    """Senders also wait for followers, which acknowledge after a flush if this is set."""
    secrets: SecretBox | None = None
    """Without it users cannot have secrets."""
    store_host: tuple[str, int] = ("127.0.0.1", 10911)
    knows_replicas: bool = False
    """Whether the listener for replicas admits only their keys."""
    uncopied: bool = False
    """Whether its log has never had all of its leader's."""

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.segment_size) if self.left is None else self.left
        if self.leads:
            self.role = LeaderRole(self.store, self.sync, self.ack_on_flush)
        self.control = ControlState()
        for stored in self.stored(CONTROL_TOPIC):
            recorded = decode_record_body(
                stored.body, offset=stored.offset, position=stored.position
            )
            evolve(self.control, recorded)
        self.replies: dict[tuple[int, int], Reply] = {}
        self.notices: list[Notify] = []
        self.effects: list[Effect] = []
        self.flushes_wanted = 0
        self._woken = False
        self._correlations = itertools.count(1)
        self._asked: dict[tuple[int, int], Request] = {}
        if not isinstance(self.policy, EffectivePolicy):
            self.policy = EffectivePolicy.of(self.policy)
        rules = TopicRules(self.policy.cluster_name, self.policy.broker_name)
        self.core = BrokerCore(
            Start(
                view=self.store,
                control=self.control,
                log=LogEnd(self.store.end, 1 << 62, self.segment_size, self.store.newest_ms()),
                flushed=self.store.end,
                store_host=self.store_host,
                policy=self.policy,
                registry=SettingsRegistry(self.specs),
                sync_flush=self.sync_flush,
                flush_timeout_ms=5_000,
                figures=dict,
                delays=self.delays,
                role=self.role,
                secrets=self.secrets,
                knows_replicas=self.knows_replicas,
                uncopied=self.uncopied,
            )
        )
        self.core.recall(self.now_ms, self.wall_ms)
        elected = self.core.role.elected
        if elected:
            self._perform(self.core.lead(self.wall_ms))
        start = self.core.start(
            self.now_ms, self.wall_ms, decide_start(self.control, rules), "start"
        )
        self._perform(start)
        if not elected:
            self._perform(self.core.lead(self.wall_ms))
        self.flush()

    def peer(self, number: int) -> Peer:
        """A connection; equal numbers denote the same one."""
        return Peer(number, "local", ("127.0.0.1", 40_000 + number))

    def send(
        self, request: Request, *body: Buffer, peer: int = 1, deadline_ms: int = 0
    ) -> tuple[int, int]:
        """Deliver a request; returns the key of its reply in `replies`."""
        name, received = self.received(request, *body, peer=peer, deadline_ms=deadline_ms)
        self.handle(received)
        return name

    def received(
        self, request: Request, *body: Buffer, peer: int = 1, deadline_ms: int = 0
    ) -> tuple[tuple[int, int], Received]:
        """The key of the reply, and the request as an input, for iterations with several inputs."""
        to = ReplyTo(self.peer(peer), next(self._correlations))
        return (peer, to.correlation), Received(to, request, list(body), self.wall_ms, deadline_ms)

    def ask(self, request: Request, *body: Buffer, peer: int = 1) -> Reply:
        """Deliver a request and return its reply, which must be available immediately."""
        return self.replies[self.send(request, *body, peer=peer)]

    def handle(self, *inputs: Input) -> None:
        """Run one loop iteration with these inputs, and the iterations that follow from it."""
        for one in inputs:
            if isinstance(one, Received):
                self._asked[one.to.peer.id, one.to.correlation] = one.request
        self._perform(self.core.handle(self.now_ms, inputs))

    def stored(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """The messages of a queue, in order."""
        return [
            decode_record(self.store.records[position])
            for position in self.store.queues.get((topic, queue_id), [])
        ]

    def events(self) -> list[StoredMessage]:
        """The records of the control topic, in order."""
        return self.stored(CONTROL_TOPIC)

    def appends(self) -> list[Append]:
        """What was appended so far, in order."""
        return [effect for effect in self.effects if isinstance(effect, Append)]

    def flush(self) -> None:
        """Report everything as flushed."""
        self.handle(Flushed(self.store.end))

    def perform(self, effects: Sequence[Effect]) -> None:
        """Execute effects that a test caused in the request handlers."""
        self._perform(effects)

    def advance(self, ms: int) -> None:
        """Advance the time."""
        self.now_ms += ms
        self.wall_ms += ms
        self.handle(Tick(self.wall_ms))
        while self._woken:
            self._woken = False
            self.handle(Tick(self.wall_ms))

    def _perform(self, effects: Sequence[Effect]) -> None:
        appended = False
        copied: list[Input] = []
        announced = 0
        for effect in effects:
            self.effects.append(effect)
            match effect:
                case Append():
                    self.store.append(effect)
                    appended = True
                case Reply():
                    name = (effect.to.peer.id, effect.to.correlation)
                    assert name not in self.replies, "a request was answered twice"
                    allowed = REQUESTS[self._asked[name].code].answers | ANSWERS_OF_ALL
                    assert effect.code in allowed, f"{self._asked[name]} may not get {effect.code}"
                    self.replies[name] = effect
                case Notify():
                    self.notices.append(effect)
                case Flush():
                    self.flushes_wanted += 1
                case Wake():
                    self._woken = self._woken or effect.after_ms == 0
                case Announce() if effect.number and self.name_servers:
                    announced = max(announced, effect.number)
                case CopyChunk():
                    copied.append(Copied(self.store.append_chunk(effect.position, effect.data)))
                case DropTopic():
                    self.store.dispatch()
                    self.store.drop(effect.topic)
                case _:
                    pass
        if appended:
            grown = self.store.dispatch()
            if grown:
                self.handle(Dispatched(grown, self.store.indexed))
        if copied:
            self.handle(*copied, Dispatched(self.store.dispatch(), self.store.indexed))
        if announced:
            self.handle(RegistrationDone(announced))


Answered = tuple[int, str, Any]


def replied(engine: Engine, names: Sequence[tuple[int, int]]) -> list[Answered]:
    """Code, remark and header of the replies to named requests."""
    found = (engine.replies[name] for name in names)
    return [(reply.code, reply.remark, reply.header) for reply in found]


def together(engine: Engine, made: Sequence[tuple[Request, Buffer]]) -> list[Answered]:
    """The answers to requests of one turn."""
    turn = [engine.received(*one) for one in made]
    engine.handle(*(received for _, received in turn))
    return replied(engine, [name for name, _ in turn])


def one_by_one(engine: Engine, made: Sequence[tuple[Request, Buffer]]) -> list[Answered]:
    """The answers to requests of a turn each."""
    return replied(engine, [engine.send(*one) for one in made])


def header_of(reply: Reply) -> Any:
    """The header of a successful answer."""
    assert reply.code == 0, (reply.code, reply.remark)
    return reply.header


def pull(
    offset: int = 0, queue_id: int = 0, group: str = "g", *, wait_ms: int = 0, **fields: object
) -> PullMessage:
    """A pull from topic `orders`; `wait_ms`: how long it may be parked."""
    flags = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if wait_ms else 0)
    given: dict[str, Any] = {
        "consumer_group": group,
        "topic": "orders",
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": int(flags),
        "suspend_timeout_millis": wait_ms,
        "subscription": "*",
    }
    return PullMessage(**{**given, **fields})
