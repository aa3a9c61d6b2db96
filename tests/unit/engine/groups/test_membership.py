"""Who is here, and whom a change concerns."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kourou.engine.groups.membership import (
    ConsumerPart,
    GroupMembership,
    Heartbeat,
    MembershipChange,
)
from kourou.errors import BadRequest, Throttled
from kourou.model.limits import CLIENT_GROUPS_MAX, CLIENTS_MAX, GROUP_SUBSCRIPTIONS_MAX
from kourou.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from kourou.runtime import Peer

MINUTE = 60_000


def peer(number: int) -> Peer:
    return Peer(number, "zmq", (f"10.0.0.{number}", 4000 + number))


def part(group: str, *topics: str, tags: str = "*", version: int = 1) -> ConsumerPart:
    names = frozenset() if tags == "*" else frozenset({tags})
    return ConsumerPart(
        group, tuple(Subscription(topic, tags, tags=names, version=version) for topic in topics)
    )


def beat(client: str, *consumers: ConsumerPart, producers: tuple[str, ...] = ()) -> Heartbeat:
    return Heartbeat(client, producers, consumers, "JAVA", 409)


def notified(change: MembershipChange) -> dict[str, list[int]]:
    return {group: [each.id for each in peers] for group, peers in change.notify.items()}


def test_who_is_silent_for_two_minutes_is_forgotten_and_its_connection_named():
    members = GroupMembership()
    members.heartbeat(0, peer(1), beat("a", part("g", "T"), producers=("p",)))
    members.heartbeat(MINUTE, peer(2), beat("b", part("g", "T")))
    assert notified(members.expire(2 * MINUTE - 1)) == {}
    change = members.expire(2 * MINUTE)
    assert notified(change) == {"g": [2]}
    assert [each.id for each in change.expired] == [1]
    members.heartbeat(2 * MINUTE, peer(2), beat("b", part("g", "T")))
    assert members.expire(3 * MINUTE).expired == []
    assert [each.id for each in members.expire(4 * MINUTE).expired] == [2]
    assert members.consumer_groups() == []


def test_a_group_left_out_of_heartbeats_expires_while_its_connection_stays():
    members = GroupMembership()
    members.heartbeat(0, peer(1), beat("a", part("g", "T"), part("h", "T")))
    members.heartbeat(MINUTE, peer(1), beat("a", part("g", "T")))
    change = members.expire(2 * MINUTE)
    assert members.consumer_groups() == ["g"]
    assert change.expired == []


def test_a_client_that_reconnects_is_named_once_and_outlives_its_old_connection():
    members = GroupMembership()
    members.heartbeat(0, peer(1), beat("a", part("g", "T")))
    members.heartbeat(1, peer(2), beat("a", part("g", "T")))
    assert members.consumer_ids("g") == ["a"]
    assert members.consumer_peer("g", "a") == peer(2)
    members.disconnect(peer(1))
    assert members.consumer_ids("g") == ["a"]
    assert members.consumer_peer("g", "a") == peer(2)


def test_two_processes_under_one_client_id_are_noticed_once():
    members = GroupMembership()
    members.heartbeat(0, peer(1), beat("a", part("g", "T")))
    assert members.heartbeat(10, peer(2), beat("a", part("g", "T"))).clashes == []
    assert members.heartbeat(15, peer(2), beat("a", part("g", "T"))).clashes == [], "a reconnect"
    # The first one still beats after the second came: it is no old connection.
    [clash] = members.heartbeat(20, peer(1), beat("a", part("g", "T"))).clashes
    text = str(clash)
    assert "10.0.0.1:4001" in text
    assert "10.0.0.2:4002" in text
    assert members.heartbeat(30, peer(2), beat("a", part("g", "T"))).clashes == []
    assert members.heartbeat(40, peer(1), beat("a", part("g", "T"))).clashes == []


def test_the_group_table_shows_what_the_latest_member_said():
    members = GroupMembership()
    members.heartbeat(0, peer(1), beat("a", part("g", "T")))
    pulls = ConsumerPart(
        "g",
        (Subscription("T"),),
        ConsumeType.CONSUME_ACTIVELY,
        MessageModel.BROADCASTING,
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    )
    members.heartbeat(0, peer(2), beat("b", pulls))
    group = members.consumer_group("g")
    assert group is not None
    assert group.consume_type == ConsumeType.CONSUME_ACTIVELY
    assert group.message_model == MessageModel.BROADCASTING
    assert group.consume_from_where == ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    assert set(group.subscriptions) == {"T"}


@pytest.mark.parametrize(
    "bad",
    [
        beat("a\n", part("g", "T")),
        beat("a", producers=tuple(f"p{i}" for i in range(CLIENT_GROUPS_MAX + 1))),
        beat("a", part("g", *(f"T{i}" for i in range(GROUP_SUBSCRIPTIONS_MAX + 1)))),
    ],
)
def test_a_bad_heartbeat_changes_nothing(bad: Heartbeat):
    members = GroupMembership()
    with pytest.raises(BadRequest):
        members.heartbeat(
            0, peer(1), Heartbeat(bad.client_id, ("ok", *bad.producer_groups), bad.consumers)
        )
    assert members.statistics()["memberships"] == 0


def test_there_is_a_limit_to_clients(monkeypatch: pytest.MonkeyPatch):
    assert CLIENTS_MAX > 2
    monkeypatch.setattr("kourou.engine.groups.membership.CLIENTS_MAX", 2)
    members = GroupMembership()
    for number in (1, 2):
        members.heartbeat(0, peer(number), beat(f"c{number}", producers=("p",)))
    with pytest.raises(Throttled):
        members.heartbeat(0, peer(3), beat("c3", producers=("p",)))
    members.heartbeat(1, peer(1), beat("c1", producers=("p", "q")))


@pytest.mark.fault
def test_a_connection_has_few_memberships_whatever_clients_it_names(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("kourou.engine.groups.membership.CONNECTION_GROUPS_MAX", 6)
    members = GroupMembership()
    full = [beat(f"c{number}", part("g", "T"), producers=("p",)) for number in range(3)]
    for one in full:
        members.heartbeat(0, peer(1), one)
    with pytest.raises(Throttled, match="of this connection"):
        members.heartbeat(0, peer(1), beat("c3", producers=("p",)))
    for one in full:
        members.heartbeat(1, peer(1), one)
    members.heartbeat(1, peer(2), beat("c3", producers=("p",)))
    assert members.statistics()["memberships"] == 7
    members.disconnect(peer(1))
    members.heartbeat(1, peer(2), beat("c4", part("g", "T"), producers=("p",)))


@pytest.mark.fault
def test_there_is_a_limit_to_all_memberships(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kourou.engine.groups.membership.MEMBERSHIPS_MAX", 2)
    members = GroupMembership()
    members.heartbeat(0, peer(1), beat("a", producers=("p", "q")))
    with pytest.raises(Throttled, match="members of groups"):
        members.heartbeat(0, peer(2), beat("b", producers=("p",)))
    members.heartbeat(1, peer(1), beat("a", producers=("q", "p")))


def test_nothing_is_left_behind_after_any_history():
    chance = random.Random(11)
    members = GroupMembership(expiry_ms=50)
    now = 0
    for _ in range(5_000):
        now += chance.randrange(4)
        who, client = peer(chance.randrange(6)), f"c{chance.randrange(4)}"
        match chance.randrange(8):
            case 0:
                members.disconnect(who)
            case 1:
                members.unregister(who, client, consumer_group="g0", producer_group="p1")
            case 2:
                members.expire(now)
            case _:
                parts = [
                    part(f"g{i}", *chance.sample("TUV", chance.randrange(1, 4)), version=now)
                    for i in range(chance.randrange(3))
                ]
                groups = tuple(f"p{i}" for i in range(chance.randrange(3)))
                members.heartbeat(now, who, beat(client, *parts, producers=groups))
        seen = [each.seen_ms for each in members]
        assert seen == sorted(seen)
        listed = sum(len(members.consumers(name)) for name in members.consumer_groups())
        listed += sum(len(members.producers(name)) for name in members.producer_groups())
        assert listed == len(seen) == members.statistics()["memberships"]
    members.expire(now + 50)
    assert set(members.statistics().values()) == {0}
    for number in range(6):
        assert members.disconnect(peer(number)).notify == {}


# -- whose a client ID is -------------------------------------------------------------------------


def said(members: GroupMembership, user: str, number: int, now_ms: int) -> None:
    """A heartbeat of client "c" by a user over a connection."""
    members.heartbeat(now_ms, peer(number), replace(beat("c", part("g", "T")), user=user))


def test_a_client_id_is_of_the_user_who_connected_first_while_that_connection_lasts():
    members = GroupMembership()
    assert not members.is_of_other_user("c", peer(2), "b")
    said(members, "a", 1, 0)
    assert members.is_of_other_user("c", peer(2), "b")
    assert not members.is_of_other_user("d", peer(2), "b")
    assert not members.is_of_other_user("c", peer(2), "a"), "a client that reconnects"
    assert not members.is_of_other_user("c", peer(1), "b"), "other credentials, same connection"
    said(members, "b", 2, 5)  # as while refusals are only observed
    said(members, "a", 1, 6)
    assert members.is_of_other_user("c", peer(2), "b")
    assert not members.is_of_other_user("c", peer(1), "a")
    members.disconnect(peer(1))
    assert not members.is_of_other_user("c", peer(2), "b")
    assert members.is_of_other_user("c", peer(1), "a")


def test_a_client_id_whose_user_was_not_decided_is_of_everyone():
    members = GroupMembership()
    said(members, "", 1, 0)
    assert not members.is_of_other_user("c", peer(2), "b")
    said(members, "a", 1, 1)
    assert members.is_of_other_user("c", peer(2), "b")
