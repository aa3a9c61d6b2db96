"""How leaders and followers are shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from kourou.cli.admin import replicas as replica_commands
from kourou.cli.admin.replicas import replicas, transfer_leader
from kourou.cli.admin.report import Report
from kourou.client.admin.replicas import LogMember
from kourou.errors import Unavailable
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView

SEEN = FollowerView(
    broker_id=1, address="f:9", state="REPLICATE", written=90, flushed=80, lag_bytes=10,
    lag_ms=1_250, in_sync=True,
)  # fmt: skip
LEADER = ReplicasView(
    cluster="C", broker_name="broker-a", broker_id=0, broker_role="SYNC_MASTER", leads=True,
    epoch=64, leader="broker-a/0", first=0, end=100, flushed=100, confirmed=90, in_sync=(1,),
    followers=(SEEN,),
)  # fmt: skip
FOLLOWER = msgspec.structs.replace(
    LEADER, broker_id=1, leads=False, end=90, followers=(), state="FOLLOWING", lag_bytes=5, lag_ms=3
)


def shown(*members: LogMember) -> Report:
    client: Any = SimpleNamespace(
        admin=SimpleNamespace(replicas=SimpleNamespace(of=lambda *_: list(members)))
    )
    return replicas(client)


def member(status: ReplicasView | None, number: int = 0) -> LogMember:
    error = Unavailable("nobody answers") if status is None else None
    return LogMember("broker-a", number, f"m{number}:1", status, error)


def test_lag_is_the_leaders_word() -> None:
    report = shown(member(LEADER), member(FOLLOWER, 1))
    leader, follower = (dict(zip(report.columns, row, strict=True)) for row in report.rows)
    assert (leader["role"], leader["lag bytes"], leader["in sync"]) == ("SYNC_MASTER", None, None)
    assert (follower["role"], follower["lag bytes"], follower["lag s"]) == ("SLAVE", 10, 1.2)
    assert (follower["in sync"], follower["state"]) == (True, "FOLLOWING")
    assert report.remarks == ["broker-a: broker-a/0 leads epoch 64 as SYNC_MASTER; in sync: 1"]
    assert not report.failed


def test_where_nobody_waits_for_copies_nobody_is_in_sync_or_not() -> None:
    leader = msgspec.structs.replace(LEADER, broker_role="ASYNC_MASTER", in_sync=())
    report = shown(member(leader), member(FOLLOWER, 1))
    assert [row[9] for row in report.rows] == [None, None]
    assert report.remarks == ["broker-a: broker-a/0 leads epoch 64 as ASYNC_MASTER"]


def test_a_follower_alone_tells_its_own_lag_and_that_nobody_leads() -> None:
    report = shown(member(FOLLOWER, 1))
    (follower,) = (dict(zip(report.columns, row, strict=True)) for row in report.rows)
    assert (follower["lag bytes"], follower["lag s"], follower["in sync"]) == (5, 0.0, None)
    assert report.remarks == ["broker-a has no leader: it accepts no messages"]
    assert report.failed


def test_who_does_not_answer_is_outdone_or_refused_is_amiss() -> None:
    report = shown(member(LEADER), member(None, 1))
    assert report.rows[1][-1] == "does not answer: nobody answers"
    assert report.failed
    outdone = msgspec.structs.replace(LEADER, fenced=4_294_967_361)
    report = shown(member(outdone))
    assert (report.rows[0][3], report.rows[0][-1]) == ("fenced", "replaced by epoch 4294967361")
    assert report.failed
    refused = msgspec.structs.replace(FOLLOWER, state="REFUSED", reason="it needs a copy")
    report = shown(member(LEADER), member(refused, 1))
    assert report.remarks[-1] == "m1:1: it needs a copy"
    assert report.failed


# -- a Raft group ----------------------------------------------------------------------------------

ELECTED = msgspec.structs.replace(
    LEADER, broker_id=2, member="n1", epoch=7, leader="broker-a/n1", in_sync=(),
    followers=(msgspec.structs.replace(SEEN, address="", in_sync=False, member="n0"),),
)  # fmt: skip
OTHER = msgspec.structs.replace(
    ELECTED, broker_id=1, member="n0", leads=False, followers=(), state="follower", end=90,
    lag_bytes=5, lag_ms=3,
)  # fmt: skip


def test_members_of_a_group_are_shown_by_their_names_and_roles() -> None:
    report = shown(member(ELECTED), member(OTHER, 1))
    leader, follower = (dict(zip(report.columns, row, strict=True)) for row in report.rows)
    assert (leader["id"], leader["role"], leader["epoch"]) == ("n1", "leader", 7)
    assert (follower["id"], follower["role"], follower["state"]) == ("n0", "follower", "REPLICATE")
    assert (follower["lag bytes"], follower["lag s"], follower["in sync"]) == (10, 1.2, None)
    assert report.remarks == ["broker-a: broker-a/n1 leads epoch 7 of its Raft group"]
    assert not report.failed


def test_a_member_that_is_not_there_is_amiss() -> None:
    report = shown(member(ELECTED))
    _, gone = (dict(zip(report.columns, row, strict=True)) for row in report.rows)
    assert (gone["broker"], gone["id"], gone["lag bytes"]) == ("broker-a", "n0", 10)
    assert gone["state"] == "is not registered with the name servers"
    assert report.failed


def test_a_registered_replica_that_does_not_reply_is_listed_once() -> None:
    report = shown(member(ELECTED), member(None, 1))
    assert [row[-1] for row in report.rows] == ["", "does not answer: nobody answers"]
    assert report.failed


def test_a_group_in_an_election_has_no_leader() -> None:
    candidate = msgspec.structs.replace(OTHER, state="candidate", leader="")
    report = shown(member(candidate, 1))
    (row,) = (dict(zip(report.columns, row, strict=True)) for row in report.rows)
    assert (row["role"], row["state"], row["lag bytes"]) == ("candidate", "", 5)
    assert report.remarks == ["broker-a has no leader: it accepts no messages"]
    assert report.failed


def test_a_hand_over_tells_who_leads_now(monkeypatch) -> None:
    monkeypatch.setattr(replica_commands, "broker_name", lambda _client, name: name)
    asked: list[tuple[str, str]] = []

    def take(broker: str, to: str) -> ReplicasView:
        asked.append((broker, to))
        return ELECTED

    client: Any = SimpleNamespace(
        admin=SimpleNamespace(replicas=SimpleNamespace(transfer_leader=take))
    )
    report = transfer_leader(client, "broker-a", "n1")
    assert asked == [("broker-a", "n1")]
    assert report.rows == [("broker-a", "n1", 7, 100)]
