"""A simulation of a filter server's core with broker, workers, consumers and time, by a seed.

    world = FilterWorld(seed)
    world.run(seconds=30)
    assert world.done

State: soft; all randomness comes from the seed.
"""

from __future__ import annotations

import heapq
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from kourou.errors import Code, Unavailable
from kourou.model.filter import FilterPolicy, FilterState, FilterVersion
from kourou.model.limits import RECORD_FIXED_BYTES
from kourou.protocol.bodies.filter_bodies import encode_filters
from kourou.protocol.messages import filter_server as words
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse, UpdateConsumerOffset
from kourou.protocol.record.layout import QUEUE_OFFSET_AT
from kourou.protocol.request import Request, Response
from kourou.runtime import Disconnected, LogWarning, Peer, Received, Reply, ReplyTo, Tick
from kourou_filter_server.context import ServerPolicy
from kourou_filter_server.core import FilterCore
from kourou_filter_server.interface import (
    AskBroker,
    BrokerAnswered,
    BrokerFound,
    Effect,
    EndWorker,
    EvaluateBatch,
    Filtered,
    FiltersChanged,
    Input,
    SendToBroker,
    StartWorker,
)
from kourou_rigs.filter_jail import FilterJail
from kourou_rigs.filter_records import Asked, Does, Tally, cut, fake_record, harm, wants

GROUP, NAME, TOPIC = "group", "filter", "topic"
TICK_MS = 100
WALL_MS = 1_700_000_000_000
_FLAGS = PullFlag.CLASS_FILTER | PullFlag.SUBSCRIPTION | PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET
_UNAVAILABLE = "simulated: the broker is offline"


class FilterWorld:
    """One filter server between a broker and one consumer per queue.

    `harmful`: the share of messages that trigger faults in odd versions; `chaos`: inject external
    faults, that is, kill workers and the zygote, take the broker offline, disconnect consumers.
    """

    def __init__(
        self,
        seed: int,
        *,
        queues: int = 4,
        messages: int = 300,
        harmful: float = 0.0,
        does: Sequence[Does] = tuple(Does)[1:],
        chaos: bool = False,
        policy: FilterPolicy = FilterPolicy.HOLD,
        server: ServerPolicy | None = None,
        hold_ms: int = 3_000,
        messages_a_pull: int = 32,
        filters: int = 1,
    ) -> None:
        self.random = random.Random(seed)
        self.server = server or ServerPolicy(
            workers_max=2, batch_messages_max=16, ahead_messages=100, ahead_kept_bytes=40_000
        )
        self.core = FilterCore(self.server, "127.0.0.1:1", {"zmq:internal": "127.0.0.1:1"})
        self.now_ms = 1_000
        self.tally = Tally()
        self.chaos = chaos
        self._hold_ms = hold_ms
        self._messages_a_pull = messages_a_pull
        self._names = [NAME if not number else f"{NAME}{number}" for number in range(filters)]
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._inbox: list[Input] = []
        self.queues: list[list[bytes]] = [[] for _ in range(queues)]
        for queue in range(queues):
            self.grow(queue, messages, harmful, does)
        # the broker
        self.filters_version = 1
        self.state: FilterState | None = FilterState(GROUP, NAME, policy=policy)
        self.add_version()
        self.broker_up = True
        self._held: list[tuple[AskBroker, int]] = []
        self._pending: dict[int, AskBroker] = {}
        self.jail = FilterJail(
            self.random, self.server.workers_max, self.tally, self.later, self._push
        )
        # consumers
        self.offsets = [0] * queues
        self.committed: list[set[int]] = [set() for _ in range(queues)]
        self.got: list[list[int]] = [[] for _ in range(queues)]
        self._asked: dict[tuple[int, int], Asked] = {}
        self._correlation = 0
        self._peers = [self._peer(queue) for queue in range(queues)]
        self._peer_numbers = queues
        self._push(BrokerFound())
        for queue in range(queues):
            self.later(self.random.randrange(50), partial(self.pull, queue))
        self.later(0, self._tick)

    # -- time -------------------------------------------------------------------------------------

    def later(self, after_ms: int, do: Callable[[], None]) -> None:
        """Schedule a call."""
        self._sequence += 1
        heapq.heappush(self._events, (self.now_ms + after_ms, self._sequence, do))

    def run(self, seconds: float = 30.0, until: Callable[[], bool] = lambda: False) -> None:
        """Run for a time, or until a condition holds."""
        end_ms = self.now_ms + int(seconds * 1_000)
        while self._events and self._events[0][0] <= end_ms and not until():
            at_ms, _, do = heapq.heappop(self._events)
            self.now_ms = max(self.now_ms, at_ms)
            do()
            if self._inbox and self.random.random() < 0.8:  # else more inputs join this one
                self._turn()

    def _turn(self) -> None:
        while self._inbox:
            inputs, self._inbox = self._inbox, []
            for effect in self.core.handle(self.now_ms, inputs):
                self._do(effect)

    def _push(self, item: Input) -> None:
        self._inbox.append(item)

    def _tick(self) -> None:
        self._push(Tick(WALL_MS + self.now_ms, self.now_ms))
        self._turn()
        self._check_deadlines()
        self.later(TICK_MS, self._tick)
        if self.chaos and self.random.random() < 0.1:
            self._mischief()

    def _mischief(self) -> None:
        what = self.random.randrange(5)
        if what == 0 and self.jail.workers:
            self.jail.kill_worker(self.random.choice(list(self.jail.workers)))
        elif what == 1:
            self.jail.kill_zygote()
        elif what == 2 and self.broker_up:
            self.lose_broker(self.random.randrange(10, 2_000))
        elif what == 3:
            self.lose_consumer(self.random.randrange(len(self.queues)))
        elif what == 4:
            self.add_version()

    # -- effects ----------------------------------------------------------------------------------

    def _do(self, effect: Effect) -> None:
        match effect:
            case Reply():
                self._replied(effect)
            case SendToBroker(UpdateConsumerOffset() as request):
                self.committed[request.queue_id].add(request.commit_offset)
            case AskBroker():
                if isinstance(effect.request, PullMessage):
                    self._note_commit(effect.request)
                self._pending[effect.token] = effect
                delay = self.random.randrange(1, 5)
                self.later(delay, lambda: self._ask(effect))
            case StartWorker():
                self.jail.start(effect)
            case EvaluateBatch():
                self.jail.evaluate(effect)
            case EndWorker(worker):
                self.jail.end(worker)
            case LogWarning():
                self.tally.warnings.append(str(effect))
            case Filtered():
                raise AssertionError("nothing is traced here")

    # -- the broker -------------------------------------------------------------------------------

    def grow(
        self, queue: int, count: int, harmful: float = 0.0, does: Sequence[Does] = tuple(Does)[1:]
    ) -> None:
        """Append messages to a queue."""
        chance, records = self.random, self.queues[queue]
        for _ in range(count):
            what = chance.choice(does) if chance.random() < harmful else Does.NOTHING
            rare = chance.random() < 0.1
            wanted = chance.randrange(4) if rare else chance.choice((0, 0, 0, 3))
            size = RECORD_FIXED_BYTES + 2 + chance.randrange(200)
            records.append(fake_record(len(records), wanted, what, size))

    def add_version(self, *, source: str = "", quiet: bool = False) -> int:
        """Add a version, which is enabled immediately; returns its number."""
        assert self.state is not None
        number = self.state.next_version
        text = source or f"version {number}"
        version = FilterVersion(number, f"sha of {text}", "ann", "", 0, len(text), text)
        self.change(
            replace(
                self.state,
                versions=(*self.state.versions, version)[-16:],
                active=number,
                next_version=number + 1,
            ),
            quiet=quiet,
        )
        return number

    def change(self, state: FilterState | None, *, quiet: bool = False) -> None:
        """Change the filter at the broker; `quiet`: without a notification."""
        self.state = state
        self.filters_version += 1
        for asked in getattr(self, "_asked", {}).values():
            self._note_version(asked)
        if not quiet and getattr(self, "broker_up", False):
            version = self.filters_version
            self.later(self.random.randrange(30), lambda: self._push(FiltersChanged(version)))

    def _note_version(self, asked: Asked) -> None:
        if self.state is not None:
            asked.policies.add(self.state.policy)
            if self.state.active is not None:
                asked.versions.add(self.state.active)

    def _note_older_versions(self, asked: Asked, name: str) -> None:
        """Note the versions that the filter server may use until it has the change and a worker for
        it.
        """
        runner = self.core.runners.known((GROUP, name))
        told = self.core.catalogue.status((GROUP, name)).version
        asked.versions |= {runner.version or 0} if runner is not None else set()
        asked.versions |= {told.version} if told is not None else set()

    def lose_broker(self, for_ms: int) -> None:
        """Take the broker offline; pending requests fail."""
        self.broker_up = False
        self._held.clear()
        for asked in list(self._pending.values()):
            self._answer(asked, error=True)
        self.later(for_ms, self._broker_is_back)

    def _broker_is_back(self) -> None:
        if not self.broker_up:
            self.broker_up = True
            self._push(BrokerFound())

    def _answer(
        self,
        asked: AskBroker,
        code: int = 0,
        header: Response | None = None,
        body: bytes = b"",
        remark: str = "",
        *,
        error: bool = False,
    ) -> None:
        if self._pending.pop(asked.token, None) is not None:
            failed = Unavailable(_UNAVAILABLE) if error else None
            self._push(
                BrokerAnswered(asked.token, code, remark, header, (body,) if body else (), failed)
            )

    def _ask(self, asked: AskBroker) -> None:
        if not self.broker_up:
            self._answer(asked, error=True)
            return
        request = asked.request
        match request:
            case PullMessage():
                self._pull_at_broker(asked, request, self.now_ms + request.suspend_timeout_millis)
            case words.RegisterFilterServer():
                header: Response = words.RegisterFilterServerResponse(
                    broker_name="broker-a", broker_id=0, filters_version=self.filters_version
                )
                self._answer(asked, header=header)
            case words.GetFilters():
                states = [] if self.state is None else [self.state]
                states = [replace(one, name=name) for one in states for name in self._names]
                if not request.with_source:
                    states = [
                        replace(one, versions=tuple(replace(v, source=None) for v in one.versions))
                        for one in states
                    ]
                header = words.GetFiltersResponse(filters_version=self.filters_version)
                self._answer(asked, header=header, body=encode_filters(states))
            case words.CheckAccess():
                self._answer(asked, header=words.CheckAccessResponse(undecided=True))
            case words.ChangeFilter():
                self._quarantined(request)
                self._answer(asked)
            case words.RecordFilterSkip():
                self._record_skip(asked, request)
            case _:
                self._answer(asked, *self.other(request))

    def other(self, request: Request) -> tuple[int, Response | None, bytes]:
        """The broker's reply to any other request."""
        return 0, None, b""

    def _quarantined(self, request: words.ChangeFilter) -> None:
        state, version = self.state, request.version
        assert request.action == "quarantine"
        assert version is not None
        if state is not None and state.version(version) is not None:
            self.change(replace(state, quarantined={**state.quarantined, version: request.reason}))

    def _record_skip(self, asked: AskBroker, request: words.RecordFilterSkip) -> None:
        state = self.state
        if state is None or state.policy is not FilterPolicy.SKIP:
            self._answer(asked, Code.SYSTEM_ERROR, remark="its policy is not skip")
            return
        if request.version in state.quarantined:
            self._answer(asked, Code.SYSTEM_ERROR, remark="it is quarantined")
            return
        self.tally.skipped |= {(request.queue_id, offset) for offset in request.offsets}
        self._answer(asked)

    def _pull_at_broker(self, asked: AskBroker, request: PullMessage, until_ms: int) -> None:
        if asked.token not in self._pending or not self.broker_up:
            return
        assert not request.sys_flag & PullFlag.CLASS_FILTER
        assert request.sys_flag & PullFlag.SUBSCRIPTION
        assert request.subscription == "*"
        records, at = self.queues[request.queue_id], request.queue_offset
        place = PullResponse(
            suggest_which_broker_id=0, next_begin_offset=at, min_offset=0, max_offset=len(records)
        )
        if at < len(records):
            assert request.max_msg_bytes is not None
            end, size = at + 1, len(records[at])
            last = min(len(records), at + request.max_msg_nums)
            while end < last and size + len(records[end]) <= request.max_msg_bytes:
                size += len(records[end])
                end += 1
            place = PullResponse(
                suggest_which_broker_id=0,
                next_begin_offset=end,
                min_offset=0,
                max_offset=len(records),
            )
            self._answer(asked, header=place, body=b"".join(records[at:end]), remark="FOUND")
        elif self.now_ms >= until_ms or not request.sys_flag & PullFlag.SUSPEND:
            self._answer(asked, Code.PULL_NOT_FOUND, place, remark="NO_NEW_MESSAGE")
        else:
            self.later(10, lambda: self._pull_at_broker(asked, request, until_ms))

    # -- consumers --------------------------------------------------------------------------------

    def _note_commit(self, request: PullMessage) -> None:
        self.tally.upstream += 1
        if request.sys_flag & PullFlag.COMMIT_OFFSET:
            self.committed[request.queue_id].add(request.commit_offset)

    def _peer(self, number: int) -> Peer:
        return Peer(number, "zmq", ("127.0.0.1", 40_000 + number))

    def pull(self, queue: int) -> None:
        """Send a pull of that queue's consumer."""
        self._correlation += 1
        peer = self._peers[queue]
        to = ReplyTo(peer, self._correlation)
        count_max = self.random.randint(1, self._messages_a_pull)
        bytes_max = self.random.choice((1 << 20, self.random.randrange(100, 3_000)))
        request = PullMessage(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=queue,
            queue_offset=self.offsets[queue],
            max_msg_nums=count_max,
            sys_flag=int(_FLAGS),
            commit_offset=self.offsets[queue],
            suspend_timeout_millis=self._hold_ms,
            subscription=self._names[queue % len(self._names)],
            expression_type="TAG",
            max_msg_bytes=bytes_max,
        )
        due_ms = self.now_ms + self._hold_ms + self.server.filter_wait_ms
        asked = Asked(queue, self.offsets[queue], due_ms, set(), set(), count_max, bytes_max)
        self._note_version(asked)
        self._note_older_versions(asked, self._names[queue % len(self._names)])
        self._asked[peer.id, self._correlation] = asked
        self._push(Received(to, request, (), WALL_MS + self.now_ms))

    def lose_consumer(self, queue: int) -> None:
        """Disconnect a consumer; it reconnects and pulls from its own offset."""
        peer = self._peers[queue]
        for key in [key for key in self._asked if key[0] == peer.id]:
            del self._asked[key]
        self._push(Disconnected(peer))
        self._peer_numbers += 1
        self._peers[queue] = self._peer(self._peer_numbers)
        self.later(self.random.randrange(20), lambda: self.pull(queue))

    def _check_deadlines(self) -> None:
        late = [asked for asked in self._asked.values() if self.now_ms > asked.due_ms + TICK_MS]
        assert not late, f"pulls have no answer in time: {late}"

    def _replied(self, reply: Reply) -> None:
        key = (reply.to.peer.id, reply.to.correlation)
        if reply.to.peer not in self._peers:
            raise AssertionError("an answer to a peer that is gone")
        asked = self._asked.pop(key, None)
        assert asked is not None, "an answer to a pull that has its answer"
        self.tally.answers[reply.code] += 1
        queue = asked.queue
        assert isinstance(reply.header, PullResponse)
        place = reply.header
        if reply.code in (Code.SUCCESS, Code.PULL_RETRY_IMMEDIATELY, Code.PULL_NOT_FOUND):
            body = b"".join(bytes(part) for part in reply.body)
            self._check_answer(asked, place, cut(body))
            self.offsets[queue] = place.next_begin_offset
            self.later(self.random.randrange(10), lambda: self.pull(queue))
            return
        assert not reply.body, "an answer without success has no messages"
        if reply.code == Code.FILTER_FAILED:
            self.tally.failures[place.filter_failure or ""] += 1
            assert place.next_begin_offset == asked.offset, "the offset stays"
        self.later(self.random.randrange(200, 600), lambda: self.pull(queue))

    def _check_answer(self, asked: Asked, place: PullResponse, records: list[bytes]) -> None:
        queue, version = asked.queue, place.filter_version or 0
        size = sum(map(len, records))
        assert len(records) <= asked.count_max, "more messages than were asked for"
        assert size <= asked.bytes_max or len(records) == 1, "more bytes than were asked for"
        assert not version or version in asked.versions, f"version {version} is in force no more"
        assert asked.offset in self.committed[queue], "the progress was not committed at the broker"
        got = {struct.unpack_from(">q", one, QUEUE_OFFSET_AT)[0]: one for one in records}
        offsets = list(got)
        assert offsets == sorted(offsets)
        assert asked.offset <= place.next_begin_offset <= place.max_offset
        assert place.max_offset <= len(self.queues[queue])
        for offset in range(asked.offset, place.next_begin_offset):
            record = self.queues[queue][offset]
            if offset in got:
                assert got[offset] == record, "a message arrives as it is stored"
                if wants(record, version) and harm(record, version) is Does.NOTHING:
                    continue
                assert FilterPolicy.PASS in asked.policies, f"{queue}:{offset} was denied"
                self.tally.unfiltered.add((queue, offset))
            else:
                judged_no = any(
                    not wants(record, each) and harm(record, each) is Does.NOTHING
                    for each in asked.versions
                )
                skipped = (queue, offset) in self.tally.skipped
                assert judged_no or skipped, f"{queue}:{offset} is left out and was wanted"
        assert all(asked.offset <= each < place.next_begin_offset for each in offsets)
        self.got[queue] += offsets

    @staticmethod
    def harms(record: bytes) -> bool:
        """True if the record triggers a fault in odd versions."""
        return harm(record, 1) is not Does.NOTHING

    def version_running(self) -> int | None:
        """The version that is running."""
        runner = self.core.runners.known((GROUP, NAME))
        return None if runner is None else runner.version

    @property
    def done(self) -> bool:
        """True if all consumers have reached the ends of their queues."""
        return all(
            offset == len(records)
            for offset, records in zip(self.offsets, self.queues, strict=True)
        )
