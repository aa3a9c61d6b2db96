"""The example of an election in the seeds, told by the members themselves.

Three members stand at the same moment, each has its own vote, and nobody wins epoch 1. They wait
for random times: A 1 s, B 3 s, C 2 s. A is up first and wins epoch 2. When it dies the others elect
again. Two things differ from the seeds. Nobody enters an epoch before a majority has said that it
would vote for it (pre-vote). And a member that waits still hears, so C votes at once and not when
its 2 s are over; B is cut off until its 3 s are, as the example has it, and then accepts A.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kourou.protocol.messages.replication import AskVote, ChunkAck, LogChunk, Vote
from kourou.replication.epochs import Epochs
from kourou.replication.raft import effects as raft_effects
from kourou.replication.raft import inputs as raft_inputs
from kourou.replication.raft.effects import RaftRole
from kourou.replication.raft.node import PersistentState, RaftNode, RaftSettings

NAMES = ("A", "B", "C")
WAITS_MS = {"A": 1_000, "B": 3_000, "C": 2_000}
ALL_AT_ONCE_MS = 1_000
CUT_OFF_FROM_MS = ALL_AT_ONCE_MS + 100
CUT_OFF_UNTIL_MS = ALL_AT_ONCE_MS + WAITS_MS["B"]
DEATH_MS = 5_000
OPENING_BYTES = 10
NETWORK_MS = 1

TRANSCRIPT = """\
   0 A is a follower in epoch 0
   0 B is a follower in epoch 0
   0 C is a follower in epoch 0
1000 A is a pre-candidate in epoch 0
1000 A asks the others whether they would vote for it in epoch 1
1000 B is a pre-candidate in epoch 0
1000 B asks the others whether they would vote for it in epoch 1
1000 C is a pre-candidate in epoch 0
1000 C asks the others whether they would vote for it in epoch 1
1001 B tells A that it would vote for it in epoch 1
1001 C tells A that it would vote for it in epoch 1
1001 A tells B that it would vote for it in epoch 1
1001 C tells B that it would vote for it in epoch 1
1001 A tells C that it would vote for it in epoch 1
1001 B tells C that it would vote for it in epoch 1
1002 A is a candidate in epoch 1
1002 A votes for A in epoch 1
1002 A asks the others to vote for it in epoch 1
1002 B is a candidate in epoch 1
1002 B votes for B in epoch 1
1002 B asks the others to vote for it in epoch 1
1002 C is a candidate in epoch 1
1002 C votes for C in epoch 1
1002 C asks the others to vote for it in epoch 1
1003 B tells A that it does not vote for it in epoch 1
1003 C tells A that it does not vote for it in epoch 1
1003 A tells B that it does not vote for it in epoch 1
1003 C tells B that it does not vote for it in epoch 1
1003 A tells C that it does not vote for it in epoch 1
1003 B tells C that it does not vote for it in epoch 1
2002 A is a pre-candidate in epoch 1
2002 A asks the others whether they would vote for it in epoch 2
2003 C tells A that it would vote for it in epoch 2
2004 A is a candidate in epoch 2
2004 A votes for A in epoch 2
2004 A asks the others to vote for it in epoch 2
2005 C is a follower in epoch 2
2005 C votes for A in epoch 2
2005 C tells A that it does vote for it in epoch 2
2006 A is a leader in epoch 2
2007 C is a follower in epoch 2, and A leads
2010 A knows that a majority has 10 bytes
2021 C knows that a majority has 10 bytes
4000 B tells A that it would vote for it in epoch 2
4000 B is a follower in epoch 2
4000 B votes for A in epoch 2
4000 B tells A that it does vote for it in epoch 2
4000 B is a follower in epoch 2, and A leads
4002 B knows that a majority has 10 bytes
     A dies
6757 C is a pre-candidate in epoch 2
6757 C asks the others whether they would vote for it in epoch 3
6758 B tells C that it would vote for it in epoch 3
6759 C is a candidate in epoch 3
6759 C votes for C in epoch 3
6759 C asks the others to vote for it in epoch 3
6760 B is a follower in epoch 3
6760 B votes for C in epoch 3
6760 B tells C that it does vote for it in epoch 3
6761 C is a leader in epoch 3
6762 B is a follower in epoch 3, and C leads
6765 C knows that a majority has 20 bytes
6776 B knows that a majority has 20 bytes
"""


class Waits:
    """Chance of one member: at the start as the others, afterwards the wait that the seeds say."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = False

    def randint(self, least: int, most: int) -> int:
        wait_ms = WAITS_MS[self.name] if self.started else ALL_AT_ONCE_MS
        self.started = True
        assert least <= wait_ms <= most
        return wait_ms


@dataclass(frozen=True)
class Piece:
    data: bytes
    end: int
    damage: str = ""


class Log:
    """Every position is a record's end, and the bytes do not matter."""

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> Piece:
        end = min(limit, position + max_bytes)
        return Piece(bytes(end - position), end)


@dataclass
class Example:
    """Members, what is on its way between them, and what they told."""

    now_ms: int = 0
    members: dict[str, RaftNode] = field(default_factory=dict)
    under_way: list[tuple[int, str, raft_inputs.Input]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def start(self, name: str) -> None:
        settings = RaftSettings(
            "group", name, NAMES, heartbeat_ms=250, election_timeout_ms_min=1_000,
            election_timeout_ms_max=3_000, lease_ms=900,
        )  # fmt: skip
        boot = PersistentState(Epochs())
        self.members[name] = RaftNode(settings, boot, chance=Waits(name), source=Log(), now_ms=0)
        self.tell(name, "is a follower in epoch 0")

    def run(self, until_ms: int) -> None:
        """Each millisecond: what arrives, then who has waited long enough."""
        for now_ms in range(self.now_ms, until_ms):
            self.now_ms = now_ms
            arrived = [each for each in self.under_way if each[0] <= self.now_ms]
            self.under_way = [each for each in self.under_way if each[0] > self.now_ms]
            for _, name, message in arrived:
                self.handle(name, message)
            for name, member in list(self.members.items()):
                if member.wake_at_ms <= self.now_ms:
                    self.handle(name)

    def handle(self, name: str, *given: raft_inputs.Input) -> None:
        """Its disk is done at once."""
        waiting = list(given)
        while name in self.members:
            found = self.members[name].handle(self.now_ms, waiting)
            waiting = [item for effect in found for item in self.perform(name, effect)]
            if not waiting:
                return

    def perform(self, name: str, effect: raft_effects.Effect) -> list[raft_inputs.Input]:
        member = self.members[name]
        match effect:
            case raft_effects.SaveVote(epoch, voted_for):
                if voted_for:
                    self.tell(name, f"votes for {voted_for} in epoch {epoch}")
                return [raft_inputs.VoteSaved()]
            case raft_effects.FlushLog():
                return [raft_inputs.LogFlushed(member.log.end)]
            case raft_effects.RoleChanged(role, epoch, leader, start):
                after = f", and {leader} leads" if role is RaftRole.FOLLOWER and leader else ""
                self.tell(name, f"is a {role.value} in epoch {epoch}{after}")
                if role is RaftRole.LEADER:
                    end = start + OPENING_BYTES
                    return [raft_inputs.Appended(epoch, end), raft_inputs.LogFlushed(end)]
            case raft_effects.Committed(position):
                self.tell(name, f"knows that a majority has {position} bytes")
            case raft_effects.Send(to, message, body):
                self.send(name, to, message, body)
        return []

    def send(
        self, name: str, to: str, message: raft_inputs.Message, body: raft_inputs.Buffer
    ) -> None:
        match message:
            case AskVote(epoch=epoch, pre=pre):
                wish = "whether they would vote" if pre else "to vote"
                self.tell(name, f"asks the others {wish} for it in epoch {epoch}")
            case Vote(epoch=epoch, pre=pre, granted=granted):
                answer = f"{'would' if pre else 'does'}{'' if granted else ' not'}"
                self.tell(name, f"tells {to} that it {answer} vote for it in epoch {epoch}")
            case LogChunk() | ChunkAck():
                pass  # many, and the roles tell what comes of them
        if to == "B" and CUT_OFF_FROM_MS <= self.now_ms < CUT_OFF_UNTIL_MS:
            self.under_way.append(
                (CUT_OFF_UNTIL_MS, to, raft_inputs.MessageReceived(message, body))
            )
            return
        self.under_way.append(
            (self.now_ms + NETWORK_MS, to, raft_inputs.MessageReceived(message, body))
        )

    def tell(self, name: str, text: str) -> None:
        line = f"{self.now_ms:4} {name} {text}"
        if line not in self.told[-1:]:  # what it says to both others is one line
            self.told.append(line)


@pytest.mark.feature("F150", "F152", "F153", "F154", "F156", "F157", "F158", "F159")
def test_the_example_of_the_seeds() -> None:
    example = Example()
    for name in NAMES:
        example.start(name)
    example.run(DEATH_MS)
    del example.members["A"]
    example.told.append("     A dies")
    example.run(DEATH_MS + 3_000)
    assert "\n".join(example.told) + "\n" == TRANSCRIPT
