"""A simulated Raft group by a seed: members, disks, network, clocks and faults in one thread.

    RaftWorld(seed).run()          raises RuleBroken, naming the seed

For a time, members are killed, lose power, are stopped, transfer leadership or are isolated;
messages are lost, duplicated and delayed; disks are slow or fail; clocks drift. (Steps of wall
clocks are not simulated, because members do not read them.) The invariants (raft_rules) are checked
at every step. Then all faults end, and within a limited time there must be one leader, a new
message must be acknowledged, and all logs must be equal.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from kourou.errors import Corrupt
from kourou.protocol.messages.replication import AskVote, ChunkAck, LogChunk, StandNow, Vote
from kourou.replication.raft import effects as raft_effects
from kourou.replication.raft import inputs as raft_inputs
from kourou.replication.raft.inputs import Input
from kourou.replication.raft.node import RaftSettings
from kourou_rigs.raft_disk import CELL_BYTES, MemberDisk, data_cell
from kourou_rigs.raft_network import SimNetwork
from kourou_rigs.raft_node import NEVER_MS, Does, Node
from kourou_rigs.raft_rules import RuleBroken, Rules

SIZES = (3, 3, 3, 3, 3, 3, 5, 5, 1, 4)
FAULTS_MS = 1_400
HEAL_MS = 3_000
CLIENT_MS = (10, 30, 30, 30, 250)  # if rare, an isolated member is up to date
CHECK_MS = 30
OPENING_MS = (5, 80, 400, 700)
CUT_MS = (3, 50, 400, 400)
DRIFT_MAX = 30_000  # millionths; the lease allows for 1 in 10

FAST: dict[str, Any] = {
    "heartbeat_ms": 50,
    "election_timeout_ms_min": 120,
    "election_timeout_ms_max": 240,
    "lease_ms": 105,
    "round_ms": 5,
    "spread_ms": 5,
    "chunk_bytes": 64,
    "window_bytes": 192,
    "catch_up_bytes": 200,
    "fetch_bytes": 128,
    "fetch_timeout_ms": 60,
}
"""Small values, so that a log of several hundred records reaches every limit."""


class RaftWorld:
    """One simulation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0
        self.chance = random.Random(seed)
        self.steps = 0
        names = [f"n{number}" for number in range(self.chance.choice(SIZES))]
        disks = {name: MemberDisk(self.chance) for name in names}
        self.rules = Rules(disks)
        self.network = SimNetwork(self.chance, names)
        self.nodes = {
            name: Node(self, self._settings(name, names), disk) for name, disk in disks.items()
        }
        self._events: list[tuple[int, int, Does]] = []
        self._serial = 0
        self._value = 0
        self._healed = False
        self._coincidences = False
        self._client_ms = self.chance.choice(CLIENT_MS)
        self._wanted = 0
        self._faults = self._choose_faults()
        if self.chance.random() < 0.3:
            self._give_past(disks)
        for node in self.nodes.values():
            node.drift = self.chance.randint(-DRIFT_MAX, DRIFT_MAX)
            node.offset = self.chance.randint(0, 1_000)
            node.opening_ms_max = self.chance.choice(OPENING_MS)
            node.cut_ms_max = self.chance.choice(CUT_MS)
            node.start()
        self.after(1, self._client)
        if self._faults:
            self.after(self.chance.randint(1, 400), self._fault)

    @staticmethod
    def _settings(name: str, names: list[str]) -> RaftSettings:
        return RaftSettings("group", name, tuple(names), **FAST)

    def _give_past(self, disks: dict[str, MemberDisk]) -> None:
        """Let all members start with a common log from before any epoch."""
        past = b"".join(data_cell(0, 1 + index) for index in range(self.chance.randint(1, 9)))
        for disk in disks.values():
            disk.write(0, past)
            disk.end_flush(1)
        self.rules.given(past)

    # -- events ----------------------------------------------------------------------------------

    def after(self, delay_ms: int, does: Does) -> None:
        """Schedule a call."""
        self._serial += 1
        heapq.heappush(self._events, (self.now + delay_ms, self._serial, does))

    def run(self) -> None:
        """Run with faults, then without; RuleBroken names the broken rule and the command to repeat
        it.
        """
        try:
            self._until(FAULTS_MS, lambda: False)
            self._heal()
            if not self._until(FAULTS_MS + HEAL_MS, self._is_well):
                raise RuleBroken(f"all has healed for {HEAL_MS} ms: {self._picture()}")
        except (AssertionError, Corrupt) as error:
            raise RuleBroken(
                f"seed {self.seed} at {self.now} ms: {error}\n"
                f"again: ./kourou test simulation -k raft --sim {self.seed}"
            ) from error

    def _until(self, end_ms: int, done: Callable[[], bool]) -> bool:
        events = self._events
        checked = self.now
        while events and events[0][0] <= end_ms:
            self.now, _, does = heapq.heappop(events)
            does()
            self.steps += 1
            self._check_leaders()
            if self.now >= checked + CHECK_MS:
                checked = self.now
                if done():
                    return True
        self.now = end_ms
        return done()

    def _check_leaders(self) -> None:
        leading = [node for node in self.nodes.values() if node.is_leader]
        if len(leading) > 1:
            self.rules.one_at_a_time(node.name for node in leading if node.may_acknowledge())

    # -- services for nodes ----------------------------------------------------------------------

    def carry(self, source: str, target: str, item: Input) -> None:
        """Deliver an input to another node, with the copies and delays of the network."""
        if self._coincidences and isinstance(item, raft_inputs.MessageReceived):
            self._coincide(source, target, item.message)
        receive = self.nodes[target].receive
        for delay in self.network.fates(source, target):
            self.after(delay, partial(receive, item))

    def _coincide(self, source: str, target: str, message: raft_inputs.Message) -> None:
        """Inject a fault of sender or receiver at a critical moment, which is rare by chance."""
        if isinstance(message, StandNow) and self.chance.random() < 0.5:
            self.after(1, partial(self._for_a_while, partial(self.network.split, [source])))
        elif isinstance(message, Vote) and message.granted and not message.pre:
            # The voter forgets its vote and is connected only to the old leader.
            if self.chance.random() < 0.2:
                self.after(1, partial(self._forget_a_vote, self.nodes[source]))
        elif isinstance(message, AskVote | Vote) and self.chance.random() < 0.2:
            self.after(0, partial(self._end, self.nodes[source], power=True, down_ms=20))
        elif isinstance(message, ChunkAck) and not message.accepted and self.chance.random() < 0.1:
            # A leader ends while a follower truncates records that this leader does not have.
            end = partial(self._end, self.nodes[target], power=False, down_ms=400)
            self.after(self.chance.randint(2, 12), end)
        elif isinstance(message, LogChunk) and message.end > message.position:
            # A leader is isolated with its first bytes, or ends while it sends old ones.
            fate = self.chance.random()
            if message.previous_epoch < message.data_epoch == message.epoch and fate < 0.4:
                self._for_a_while(partial(self.network.split, [source]))
            elif fate < (0.2 if message.data_epoch < message.epoch else 0.02):
                end = partial(self._end, self.nodes[source], power=False, down_ms=200)
                self.after(self.chance.randint(1, 9), end)

    def ask(self, source: str, wanted: raft_effects.Fetch) -> None:
        """Request a part of a log; the request or the reply may be lost."""
        asked = self.nodes[wanted.member]

        def answer() -> None:
            found = asked.fetch(wanted)
            self.carry(wanted.member, source, found or raft_inputs.FetchFailed(wanted.serial))

        for delay in self.network.fates(source, wanted.member):
            self.after(delay, answer)

    def beginning(self, source: str) -> tuple[int, int] | None:
        """The log beginning that another member would report, if one is reachable now."""
        found = []
        for name, node in self.nodes.items():
            member = node.member
            if name != source and member is not None and not node.paused and not node.disk.closed:
                first = node.disk.first_position
                reached = [*self.network.fates(source, name), *self.network.fates(name, source)]
                if first and len(reached) > 1:
                    found.append((first, member.log.epochs.epoch_at(first)))
        return self.chance.choice(found) if found else None

    # -- clients ---------------------------------------------------------------------------------

    def _client(self) -> None:
        """Send values to all nodes that consider themselves leader; after healing, until one is
        acknowledged.
        """
        if self._healed and any(value >= self._wanted for value in self.rules.acknowledged):
            return
        for node in self.nodes.values():
            if node.leads and self.chance.random() < 0.8:
                count = self.chance.choice((1, 1, 2, 5, 12))
                values = range(self._value + 1, self._value + 1 + count)
                self._value += count
                node.send(values)
        self.after(self.chance.randint(1, 2 * self._client_ms), self._client)

    # -- faults ----------------------------------------------------------------------------------

    def _choose_faults(self) -> list[Does]:
        """A few kinds of faults per seed, so that each kind occurs often and in combination."""
        kinds: list[Does] = [
            self._kill,
            self._kill,
            self._lose_power,
            self._lose_power,
            self._lose_all_power,
            self._stop,
            self._stop,
            self._isolate,
            self._split,
            self._one_way,
            self._bridge,
            self._weather,
            self._slow_disk,
            self._disk_fault,
            self._no_room,
            self._hand_over,
            self._worst_moments,
            self._worst_moments,
            self._worst_moments,
            self._retention,
            self._lose_disk,
            self._lose_disk,
            self._nobody_tells,
        ]
        return self.chance.sample(kinds, self.chance.choice((0, 2, 3, 4, 4, 5, 6)))

    def _fault(self) -> None:
        if self._healed:
            return
        self.chance.choice(self._faults)()
        self.after(self.chance.randint(5, 220), self._fault)

    def _any(self) -> Node:
        """A random node, more often than not the leader."""
        leaders = [node for node in self.nodes.values() if node.leads]
        if leaders and self.chance.random() < 0.6:
            return self.chance.choice(leaders)
        return self.chance.choice(list(self.nodes.values()))

    def _kill(self) -> None:
        self._end(self._any(), power=False)

    def _lose_power(self) -> None:
        self._end(self._any(), power=True)

    def _lose_all_power(self) -> None:
        for node in self.nodes.values():
            self._end(node, power=True)

    def _end(self, node: Node, *, power: bool, down_ms: int = 300) -> None:
        if node.member is not None:
            node.die(power=power)
            self.after(self.chance.randint(1, down_ms), partial(self._start, node))

    def _worst_moments(self) -> None:
        self._coincidences = True
        self.after(self.chance.randint(200, 900), partial(setattr, self, "_coincidences", False))

    @staticmethod
    def _start(node: Node) -> None:
        if node.member is None:
            node.start()

    def _stop(self) -> None:
        node = self._any()
        if node.member is not None and not node.paused:
            node.paused = True
            self.after(self.chance.randint(1, 500), partial(self._resume, node))

    @staticmethod
    def _resume(node: Node) -> None:
        if node.paused:
            node.resume()

    def _isolate(self) -> None:
        self._for_a_while(partial(self.network.split, [self._any().name]))

    def _split(self) -> None:
        names = list(self.nodes)
        side = self.chance.sample(names, len(names) // 2)
        self._for_a_while(partial(self.network.split, side))

    def _one_way(self) -> None:
        names = list(self.nodes)
        one = self._any().name
        for other in names:
            if other != one and self.chance.random() < 0.7:
                pair = (one, other) if self.chance.random() < 0.5 else (other, one)
                self.network.cut(*pair)
        self.after(self.chance.randint(20, 500), self.network.heal)

    def _bridge(self) -> None:
        self._for_a_while(partial(self.network.bridge, self._any().name))

    def _weather(self) -> None:
        network = self.network
        network.loss = self.chance.choice((0.0, 0.05, 0.3))
        network.repeats = self.chance.choice((0.0, 0.1))
        network.delay_ms = self.chance.choice((4, 20, 90))
        self.after(self.chance.randint(50, 600), network.heal)

    def _for_a_while(self, does: Does) -> None:
        does()
        self.after(self.chance.randint(20, 500), self.network.heal)

    def _slow_disk(self) -> None:
        node = self._any()
        node.disk_ms = self.chance.choice((40, 200))
        self.after(self.chance.randint(50, 500), partial(setattr, node, "disk_ms", 3))

    def _disk_fault(self) -> None:
        node = self._any()
        if node.member is not None and not node.paused:
            node.receive(raft_inputs.DiskFailed("the disk failed"))
            self._end(node, power=True)

    def _no_room(self) -> None:
        node = self.chance.choice(list(self.nodes.values()))
        node.room = False
        self.after(self.chance.randint(5, 200), partial(setattr, node, "room", True))

    def _hand_over(self) -> None:
        for node in self.nodes.values():
            if node.leads:
                target = self.chance.choice(["", *self.nodes])
                node.receive(raft_inputs.TransferLeadership(target))

    def _retention(self) -> None:
        node = self._any()
        if node.member is not None and not node.paused and not node.member.log.truncating:
            log = node.member.log
            # A deleted segment was full, and therefore flushed.
            safe = min(log.confirmed, log.flushed)
            position = safe - self.chance.randint(0, 8) * CELL_BYTES
            if position > log.first_position:
                node.disk.discard(position, log.epochs)
                node.receive(raft_inputs.SegmentsDeleted(position))

    def _lose_disk(self) -> None:
        """Replace the disk of a member with a vote, with or without its vote file."""
        self._lose_disk_of(self._any(), down_ms=300)

    def _lose_disk_of(self, node: Node, *, down_ms: int) -> None:
        if node.name in self.rules.joining or not self.rules.may_lose_a_disk:
            return
        self.rules.loses(node.name)
        if node.member is not None:
            node.die(power=True)
        node.disk.lose(vote=self.chance.random() < 0.7)
        self.rules.joining.add(node.name)
        self.after(self.chance.randint(1, down_ms), partial(self._start, node))

    def _forget_a_vote(self, node: Node) -> None:
        old = [each.name for each in self.nodes.values() if each.is_leader]
        self.network.heal()
        self._for_a_while(partial(self.network.split, [node.name, *old]))
        self._lose_disk_of(node, down_ms=20)

    def _nobody_tells(self) -> None:
        """For a time, no member can report what precedes a log."""
        for node in self.nodes.values():
            node.telling_ms = NEVER_MS
            self.after(self.chance.randint(100, 900), partial(setattr, node, "telling_ms", 3))

    # -- the end ---------------------------------------------------------------------------------

    def _heal(self) -> None:
        self._healed = True
        self._coincidences = False
        self.network.heal()
        for node in self.nodes.values():
            node.disk_ms = 3
            node.room = True
            node.telling_ms = 3
            if node.paused:
                node.resume()
            elif node.member is None:
                node.start()
        self._wanted = self._value + 1  # a value that no client has sent yet

    def _is_well(self) -> bool:
        """True if a new value is acknowledged and then, without clients, all logs are equal."""
        return any(value >= self._wanted for value in self.rules.acknowledged) and self._agree()

    def _agree(self) -> bool:
        return not self.rules.joining and self.rules.all_agree()

    def _picture(self) -> str:
        parts = []
        for node in self.nodes.values():
            member = node.member
            assert member is not None
            parts.append(
                f"{node.name} {member.role.value} epoch {member.epoch} log {member.log.epochs!r}"
                f" confirmed {member.log.confirmed} truncating {member.log.truncating}"
            )
        return f"confirmed {len(self.rules.confirmed)}, " + "; ".join(parts)
