"""Sends that have fields instead of records: single messages or batches of RocketMQ clients.

State: none. After the checks, a message is handled like any other.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.pulls.send_back import SendBackHandler
from kourou.engine.sends.appends import Numbers, Target
from kourou.engine.sends.send_handler import SendHandler
from kourou.engine.sends.topic_rewrite import delay_level, is_transactional, may_be_rewritten
from kourou.errors import BadRequest, Code, DiskFull, KourouError, MessageIllegal, NoPermission
from kourou.model.limits import (
    BATCH_MESSAGES_MAX,
    BATCH_RECORD_BYTES_MAX,
    FRAME_RECORD_BYTES_MAX,
    PROPERTIES_SIZE_BYTES_MAX,
)
from kourou.model.message import Property, SysFlag
from kourou.model.names import RETRY_PREFIX
from kourou.model.topic import TopicConfig
from kourou.protocol import kernel
from kourou.protocol.kernel_python import LONG_PROPERTIES, TOO_MANY
from kourou.protocol.messages.sends import SendMessage, SendRefusal, SendResponse
from kourou.protocol.record.layout import HOST_V4_BYTES, encode_host, split_batch
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import decode_properties, encode_properties, find_property
from kourou.runtime import Buffer, Received, Reply

Changes = tuple[tuple[bytes, bytes | None], ...]

_WAIT = Property.WAIT.value.encode()
_WAIT_FALSE = _WAIT + b"\x01false"


class Prepared(NamedTuple):
    """A checked message for `target`; the reply to its sender has `queue_id`.

    `elsewhere`: the message is redirected. `place` is where `draft` is stored, `size` the number of
    bytes of the message as it was sent.
    """

    draft: Buffer
    place: Target
    target: Target
    queue_id: int
    wait: bool
    elsewhere: bool
    size: int


class PreparedBatch(NamedTuple):
    """The checked messages of a batch, back to back, for `target`; the reply has its queue ID."""

    drafts: bytearray
    sizes: Numbers
    target: Target


class SingleSends:
    """Handles sends of single messages and of RocketMQ's encoded batches."""

    def __init__(
        self, context: BrokerContext, sending: SendHandler, send_back: SendBackHandler
    ) -> None:
        self._sending = sending
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._policy = context.policy
        self._traffic = context.traffic
        self._host_id = encode_host(context.store_host).hex().upper()
        self._redirects = context.redirects
        self._send_back = send_back
        self._turn = 0
        cluster = (Property.CLUSTER.value.encode(), context.policy.cluster_name.encode())
        self._cluster: Changes = (cluster,)
        self._cluster_without_wait: Changes = (cluster, (_WAIT, None))

    def send(self, now_ms: int, received: Received, request: SendMessage) -> list[Effect]:
        """Store one message, or the messages of one batch, and reply with their IDs."""
        try:
            return self._store(now_ms, received, request)
        except KourouError as error:
            # RocketMQ's code for a full disk, upon which its clients try another broker.
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
        one = self.moved(self.prepare(received, request), received.wall_ms)
        offset, position = self._appends.write_one(one.draft, one.place, received.wall_ms)
        return self.stored(now_ms, received, one, offset, position)

    def moved(self, one: Prepared, wall_ms: int) -> Prepared:
        """Return the message as it is stored where it goes first. Raises as Redirects.moved."""
        if not one.elsewhere:
            return one
        draft, place = self._redirects.moved(one.draft, one.target, wall_ms)
        return one._replace(draft=draft, place=place)

    def prepare(self, received: Received, request: SendMessage) -> Prepared:
        """Check a single message and return it as it is stored. Raises KourouError.

        Nothing is stored, but the topic may have been created.
        """
        topic, queue_id, body = self._checked(received, request)
        raw = (request.properties or "").encode()
        target: Target | None = None
        if topic.name.startswith(RETRY_PREFIX):
            properties = decode_properties(raw)
            properties[Property.CLUSTER] = self._policy.cluster_name
            times, times_max = request.reconsume_times or 0, request.max_reconsume_times
            target = self._send_back.dead_target(topic.name, received, times, times_max, properties)
            raw = encode_properties(properties)
        elsewhere = target is None and may_be_rewritten(raw) and _is_rewritten(raw)
        # RocketMQ stores WAIT only in redirected messages.
        encoded = kernel.edit(raw, self._cluster if elsewhere else self._cluster_without_wait)
        if request.sys_flag & SysFlag.TRANSACTION_MASK and not is_transactional(encoded):
            raise MessageIllegal(
                "the flags name a phase of a transaction, but the property TRAN_MSG is not true; "
                "nothing was stored"
            )
        if target is None:
            target = (topic.name, queue_id)
        draft = self._draft(received, request, target, body, encoded)
        wait = _WAIT_FALSE not in raw or find_property(raw, _WAIT) != b"false"
        return Prepared(draft, target, target, queue_id, wait, elsewhere, len(draft))

    def stored(
        self, now_ms: int, received: Received, one: Prepared, offset: int, position: int
    ) -> list[Effect]:
        """Count a prepared message that was just appended to the log, and reply."""
        self._traffic.taken(one.target[0], one.size)
        if one.elsewhere:
            self._redirects.stored(one.place, offset, position, one.draft, received.wall_ms)
            self._traffic.taken_to(one.place[0], one.target[0], one.size)
        self._confirmations.append(self._appends.end)
        return self._answer(now_ms, received, one.queue_id, offset, [position], one.wait)

    def _store_batch(self, now_ms: int, received: Received, request: SendMessage) -> list[Effect]:
        one = self.prepare_batch(received, request)
        written = self._appends.write(one.drafts, one.sizes, [one.target], None, received.wall_ms)
        positions = written.positions.tolist()
        return self.stored_batch(now_ms, received, one, written.target_offsets[0], positions)

    def prepare_batch(self, received: Received, request: SendMessage) -> PreparedBatch:
        """Like `prepare`, for a batch."""
        topic, queue_id, body = self._checked(received, request)
        target = (topic.name, queue_id)
        drafts, sizes = self._batch(received, request, target, body)
        return PreparedBatch(drafts, sizes, target)

    def stored_batch(
        self,
        now_ms: int,
        received: Received,
        one: PreparedBatch,
        offset: int,
        positions: Sequence[int],
    ) -> list[Effect]:
        """Like `stored`, for a batch whose first message got this offset."""
        self._traffic.taken_many([one.target[0]], None, one.sizes)
        self._confirmations.append(self._appends.end)
        return self._answer(now_ms, received, one.target[1], offset, positions, wait=True)

    def _checked(self, received: Received, request: SendMessage) -> tuple[TopicConfig, int, bytes]:
        """Return the topic, which may have been created, the queue, and the body."""
        topic = self._sending.topic_for_send(
            request.topic, request.default_topic, request.default_topic_queue_nums, received
        )
        queues = topic.write_queue_nums
        if request.queue_id >= max(queues, topic.read_queue_nums):
            raise BadRequest(
                f"queue ID {request.queue_id} is out of range: topic {topic.name} has "
                f"{queues} write queues"
            )
        queue_id = request.queue_id
        if queue_id < 0 and queues <= 0:  # possible in an imported topic table
            raise NoPermission(f"topic {topic.name} has no write queues")
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
            msg_id=",".join([f"{self._host_id}{at:016X}" for at in positions]),
            queue_id=queue_id,
            queue_offset=offset,
            region_id=self._policy.region_id,
            trace_on=_text(self._policy.trace_on),
        )
        reply = Reply(received.to, Code.SUCCESS, "", header)
        return self._confirmations.defer(now_ms, self._appends.end, reply, wait=wait)

    def _batch(
        self, received: Received, request: SendMessage, target: Target, body: bytes
    ) -> tuple[bytearray, Numbers]:
        """Return the messages of a batch as drafts back to back, and their sizes."""
        raw = (request.properties or "").encode()
        if request.sys_flag & SysFlag.TRANSACTION_MASK:
            raise MessageIllegal("a batch cannot be part of a transaction; nothing was stored")
        shared = kernel.edit(raw, self._cluster)
        born_host, sys_flag = _origin(received, request)
        try:
            drafts, sizes, moves, problem, number = kernel.batch(
                body,
                shared,
                target[0].encode(),
                target[1],
                sys_flag,
                request.born_timestamp,
                born_host,
                request.reconsume_times or 0,
                BATCH_MESSAGES_MAX,
                BATCH_RECORD_BYTES_MAX,
            )
        except OverflowError as error:
            raise MessageIllegal(f"a number does not fit into its field: {error}") from error
        if problem or 1 in moves or not number:
            refuse_batch(body, shared, problem, number)
        numbers = array("q")
        numbers.frombytes(sizes)
        return drafts, numbers

    def _draft(
        self,
        received: Received,
        request: SendMessage,
        target: Target,
        body: bytes,
        properties: bytes,
    ) -> bytes:
        _check_length(properties)
        born_host, sys_flag = _origin(received, request)
        return encode_draft(
            topic=target[0].encode(),
            queue_id=target[1],
            body=body,
            properties=properties,
            flag=request.flag,
            sys_flag=sys_flag,
            born_timestamp=request.born_timestamp,
            born_host=born_host,
            reconsume_times=request.reconsume_times or 0,
        )


def _origin(received: Received, request: SendMessage) -> tuple[bytes, int]:
    """Return the born host and the flags that a message is stored with."""
    host = encode_host(received.to.peer.address)
    sys_flag = request.sys_flag & ~(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
    return host, sys_flag | SysFlag.BORN_HOST_V6 if len(host) > HOST_V4_BYTES else sys_flag


def _check_length(properties: bytes) -> None:
    if len(properties) > PROPERTIES_SIZE_BYTES_MAX:
        raise MessageIllegal(
            f"the properties have {len(properties)} bytes; at most "
            f"{PROPERTIES_SIZE_BYTES_MAX} are allowed"
        )


def refuse_batch(body: bytes, shared: bytes, problem: int, number: int) -> None:
    """Raise MessageIllegal with what is wrong with a batch, if anything is.

    The kernel found that `number` of its messages are well formed, and `problem` with the next one.
    Messages that may be delayed or part of a transaction are refused if they are.
    """
    if not number and not problem:
        raise MessageIllegal("the batch is empty")
    for index, (_, _, own) in enumerate(split_batch(body)):
        joined = own + (b"\x02" if own and not own.endswith(b"\x02") else b"") + shared
        if may_be_rewritten(joined) and _is_rewritten(joined):
            raise MessageIllegal(
                "messages of a batch cannot be delayed or part of a transaction; nothing "
                "was stored",
                hint="send such messages separately",
            )
        if index < number or not problem:
            continue
        if problem == TOO_MANY:
            raise MessageIllegal(
                f"a batch can have at most {BATCH_MESSAGES_MAX} messages; nothing was stored"
            )
        if problem == LONG_PROPERTIES:
            _check_length(joined)
        raise MessageIllegal(
            "the messages of the batch, with their shared properties, have more than "
            f"{BATCH_RECORD_BYTES_MAX} bytes; nothing was stored",
            hint="send smaller batches, or share fewer properties",
        )


def _is_rewritten(properties: bytes) -> bool:
    return delay_level(properties) > 0 or is_transactional(properties)


def _text(flag: bool) -> str:
    return "true" if flag else "false"


Alone = Callable[[int, Received], Sequence[Effect]]
_Waiting = tuple[Received, Prepared | PreparedBatch]


class CoalescedSingleSends:
    """Combines several single sends into one append.

    A RocketMQ producer that does not wait for replies fills a batch with requests of one message
    each. Each is checked separately; then all of them are numbered, stamped, written and projected
    together, which is most of what a send costs. RocketMQ's encoded batches are combined with all
    their messages.

    Invariants:
    - messages are stored in the order in which they were sent
    - every sender gets the reply that it would get separately
    - a message that cannot be combined is handled separately, in its place between the others: the
      half message that creates the topics of transactions, a refused message, a traced one

    State: none of its own.
    """

    def __init__(self, context: BrokerContext, single_sends: SingleSends) -> None:
        self._single_sends = single_sends
        self._appends = context.appends
        self._redirects = context.redirects

    def store(self, now_ms: int, sends: Sequence[Received], alone: Alone) -> list[Effect]:
        """Store these and reply, in their order; `alone` handles one separately."""
        effects: list[Effect] = []
        group: list[_Waiting] = []
        room, room_bytes = BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
        for received in sends:
            one = self._prepared(now_ms, received)
            if one is None:
                effects += self._store(now_ms, group, alone)
                effects += alone(now_ms, received)
                group, room, room_bytes = [], BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
                continue
            if isinstance(one, Prepared):
                count, size_bytes = 1, len(one.draft)
            else:
                count, size_bytes = len(one.sizes), len(one.drafts)
            if room_bytes < size_bytes or room < count:
                effects += self._store(now_ms, group, alone)
                group, room, room_bytes = [], BATCH_MESSAGES_MAX, FRAME_RECORD_BYTES_MAX
            room -= count
            room_bytes -= size_bytes
            group.append((received, one))
        return effects + self._store(now_ms, group, alone)

    def _prepared(self, now_ms: int, received: Received) -> Prepared | PreparedBatch | None:
        """Return what is stored; None if it is handled separately."""
        request = received.request
        assert isinstance(request, SendMessage)
        if received.to.traced or 0 < received.deadline_ms <= now_ms:
            return None
        try:
            if request.batch:
                return self._single_sends.prepare_batch(received, request)
            one = self._single_sends.prepare(received, request)
            if one.elsewhere:
                ready = self._redirects.are_ready((one.draft,))
                return self._single_sends.moved(one, received.wall_ms) if ready else None
        except KourouError:
            return None  # handled separately, it gets the error as a reply
        return one

    def _store(self, now_ms: int, group: Sequence[_Waiting], alone: Alone) -> list[Effect]:
        if not group:
            return []
        numbers: dict[Target, int] = {}
        sizes, target_of = array("q"), array("q")
        for _, one in group:
            if isinstance(one, Prepared):
                sizes.append(len(one.draft))
                target_of.append(numbers.setdefault(one.place, len(numbers)))
            else:
                sizes += one.sizes
                number = numbers.setdefault(one.target, len(numbers))
                target_of += array("q", (number,)) * len(one.sizes)
        records = bytearray().join(
            [one.draft if isinstance(one, Prepared) else one.drafts for _, one in group]
        )
        wall_ms = max(received.wall_ms for received, _ in group)
        try:
            written = self._appends.write(records, sizes, list(numbers), target_of, wall_ms)
        except KourouError:  # no space, or a failed store: each gets its own error
            return [effect for received, _ in group for effect in alone(now_ms, received)]
        effects = self._appends.take_done()
        offsets, positions = written.offsets.tolist(), written.positions.tolist()
        at = 0
        for received, one in group:
            if isinstance(one, Prepared):
                effects += self._single_sends.stored(
                    now_ms, received, one, offsets[at], positions[at]
                )
                at += 1
            else:
                end = at + len(one.sizes)
                effects += self._single_sends.stored_batch(
                    now_ms, received, one, offsets[at], positions[at:end]
                )
                at = end
        return effects
