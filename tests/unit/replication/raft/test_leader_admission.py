"""When a leader tells a joining member where its log ended, and from when on it counts."""

from __future__ import annotations

from kourou.protocol.messages.replication import ChunkAck, LogChunk
from kourou.replication.raft.effects import TransferFailed
from kourou.replication.raft.inputs import MessageReceived, TransferLeadership
from kourou_rigs.raft_member import GROUP, MemberKit


def said(
    kit: MemberKit, name: str, answered: int, *, joining: int = 0, end: int = 0
) -> MessageReceived:
    return MessageReceived(
        ChunkAck(
            group=GROUP, epoch=kit.member.epoch, member=name, accepted=True, written=end,
            flushed=end, round=answered, joining=joining,
        )
    )  # fmt: skip


def word(kit: MemberKit, name: str) -> tuple[int, int]:
    """The admission in the last chunk to that replica."""
    for each in reversed(kit.effects):
        message = getattr(each, "message", None)
        if isinstance(message, LogChunk) and each.member == name:  # type: ignore[union-attr]  # a Send
            return message.joining, message.joining_at
    raise AssertionError(f"nothing was sent to {name}")


def leading() -> MemberKit:
    """n0 leads n1, which has all, and n2, which has lost its disk."""
    kit = MemberKit().wins().acks("n1", 10)
    return kit.at(2_100, said(kit, "n2", kit.member.round_heard, joining=6))


def test_it_is_reported_when_a_majority_with_a_vote_has_answered_a_later_round() -> None:
    kit = leading()
    kit.at(2_200)
    assert word(kit, "n2") == (0, 0)
    later = kit.member.round_heard
    kit.at(2_210, said(kit, "n2", later, joining=6))
    kit.at(2_400)
    assert word(kit, "n2") == (0, 0), "its own answers do not make the leader sure"
    kit.at(2_410, said(kit, "n1", later, end=10))
    kit.at(2_600)
    assert word(kit, "n2") == (6, 10)


def test_what_it_said_before_its_loss_does_not_make_it_a_voter() -> None:
    kit = leading()
    old = kit.member.round_heard
    kit.at(2_200).at(2_210, said(kit, "n2", old, end=10))
    leader = kit.member.behavior
    assert "n2" in leader.admission  # type: ignore[attr-defined]  # it leads
    kit.at(2_220, said(kit, "n1", kit.member.round_heard, end=10)).at(2_400)
    kit.at(2_410, said(kit, "n2", old, end=10))
    assert "n2" in leader.admission  # type: ignore[attr-defined]  # likewise
    kit.at(2_420, said(kit, "n2", kit.member.round_heard, end=10))
    assert "n2" not in leader.admission  # type: ignore[attr-defined]  # likewise


def test_the_lead_is_not_given_to_who_may_not_vote() -> None:
    kit = leading()
    kit.at(2_210, TransferLeadership("n2"))
    assert [each.reason for each in kit.wanted(TransferFailed)] == [
        "has no vote yet: it catches up first"
    ]


def test_a_leader_alone_with_a_joining_member_gives_up() -> None:
    kit = leading()
    for now in range(2_200, 4_000, 100):
        kit.at(now, said(kit, "n2", kit.member.round_heard, joining=6, end=10))
    assert kit.member.role.value == "follower"
