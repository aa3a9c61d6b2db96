"""Leaders and their copies, as operators ask for them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from kourou.client.admin import replicas as admin_replicas
from kourou.client.admin.replicas import (
    PROMOTED_WAIT_MS,
    TRANSFERRED_WAIT_MS,
    LogMember,
    ReplicasApi,
    _check,
    absent,
    leaders_of,
)
from kourou.errors import BadRequest, Rejected, Unavailable, UnknownOutcome
from kourou.model.topic import BrokerData
from kourou.protocol.bodies.broker_bodies import FollowerView, ReplicasView
from kourou.protocol.messages.replication import TransferLeaderResponse

STATUS = ReplicasView(
    cluster="C", broker_name="broker-a", broker_id=0, broker_role="ASYNC_MASTER", leads=True,
    epoch=64, leader="broker-a/0", first=0, end=100, flushed=100, confirmed=100,
)  # fmt: skip


def member(number: int, status: ReplicasView | None, **changed: object) -> LogMember:
    if status is None:
        return LogMember("broker-a", number, f"m{number}:1", None, Unavailable("nobody answers"))
    status = msgspec.structs.replace(status, broker_id=number, leads=number == 0, **changed)
    return LogMember("broker-a", number, f"m{number}:1", status)


def test_a_broker_alone_tells_of_itself(kourou_broker) -> None:
    with kourou_broker.client() as mq:
        (one,) = mq.admin.replicas.of()
        assert mq.admin.replicas.of(one.broker_name) == [one]
        assert (one.registered_id, one.error) == (0, None)
        assert one.view.leads
        assert (one.view.epoch, one.view.followers) == (0, ())
        with pytest.raises(BadRequest, match="known brokers: "):
            mq.admin.replicas.of("broker-z")
        with pytest.raises(BadRequest, match=r"brokerId 1.*registered brokerIds: 0"):
            mq.admin.replicas.promote(one.broker_name, 1)
        for which in ({}, {"broker_id": 1, "address": one.address}):
            with pytest.raises(BadRequest, match="no replica is given"):
                mq.admin.replicas.promote(one.broker_name, **which)
        with pytest.raises(Rejected, match="this broker is the leader already, in epoch 0"):
            mq.admin.replicas.promote(one.broker_name, address=one.address)


@pytest.mark.feature("F137")
def test_nobody_is_promoted_beside_a_leader_that_answers() -> None:
    with pytest.raises(Rejected, match="the leader at m0:1 is online"):
        _check(member(1, STATUS), [member(0, STATUS)])
    _check(member(1, STATUS), [member(0, None)])
    _check(member(1, STATUS), [member(0, STATUS, fenced=200)])


def test_nobody_is_promoted_in_a_group_that_elects() -> None:
    for status in (member(1, STATUS, member="n1"), member(1, None)):
        with pytest.raises(Rejected, match="this broker is a Raft group, which elects its leader"):
            _check(status, [member(0, STATUS, member="n0")])


def test_nobody_is_promoted_beside_a_fuller_copy() -> None:
    _check(member(2, STATUS), [member(1, STATUS, end=90)])
    with pytest.raises(
        Rejected, match="brokerId 1 has more of the log, up to 101; 2 has it up to 100"
    ):
        _check(member(2, STATUS), [member(1, STATUS, end=101)])
    with pytest.raises(Rejected, match="brokerId 1 has more of the log"):
        _check(member(2, STATUS), [member(1, STATUS, epoch=128, end=90)])


class Promoting(ReplicasApi):
    """All spellings in `here` reach the promoted broker; the name server has it as `registered`."""

    def __init__(self, registered: str, *here: str) -> None:
        self._registered = registered
        self._here = {*here}
        self._clock_ms = 0
        self._session = SimpleNamespace(clock=self)

    def monotonic_ms(self) -> int:
        self._clock_ms += PROMOTED_WAIT_MS // 2
        return self._clock_ms

    async def _brokers(self, cluster: str | None = None) -> list[BrokerData]:
        return [BrokerData("C", "broker-a", {0: self._registered})]

    async def _look(self, name: str, number: int, address: str) -> LogMember:
        found = STATUS if address in self._here else msgspec.structs.replace(STATUS, broker_id=2)
        return LogMember(name, number, address, found)


@pytest.mark.parametrize("spelling", ["localhost:20911", "tcp://10.0.0.1:20911", "10.0.0.1:10911"])
def test_who_was_promoted_leads_however_its_address_is_spelled(spelling: str) -> None:
    promoting = Promoting("10.0.0.1:20911", "10.0.0.1:20911", spelling)
    assert asyncio.run(promoting._wait_until_it_leads("broker-a", spelling, 64)) == STATUS


def test_as_long_as_another_one_is_registered_the_promoted_one_is_waited_for() -> None:
    promoting = Promoting("10.0.0.2:20911", "10.0.0.1:20911")
    with pytest.raises(UnknownOutcome, match="in epoch 64, but is not known as leader yet"):
        asyncio.run(promoting._wait_until_it_leads("broker-a", "10.0.0.1:20911", 64))


def test_who_is_to_be_promoted_is_not_in_its_own_way() -> None:
    itself = member(1, STATUS)
    _check(replace(itself, address="localhost:1"), [replace(itself, view=more(itself))])
    fenced = member(0, STATUS, fenced=200)
    _check(replace(fenced, address="localhost:1"), [fenced])


def more(one: LogMember) -> ReplicasView:
    """The second look may find more than the first."""
    return msgspec.structs.replace(one.view, end=one.view.end + 1)


# -- a Raft group ----------------------------------------------------------------------------------

BEGUN = TransferLeaderResponse(leader="n0", epoch=7, target="n1")


class Looked(ReplicasApi):
    """Sees, look by look, what the test gives; the clock goes on with each."""

    def __init__(self, *looks: list[LogMember]) -> None:
        self._looks = list(looks)
        self._session = SimpleNamespace(clock=self)

    def monotonic_ms(self) -> int:
        return 0 if self._looks else TRANSFERRED_WAIT_MS

    async def _known_members(self, broker: str) -> list[LogMember]:
        return self._looks.pop(0)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch) -> None:
    monkeypatch.setattr(admin_replicas, "PAUSE_MS", 0)


def leads(number: int, epoch: int) -> LogMember:
    status = msgspec.structs.replace(STATUS, member=f"n{number}", epoch=epoch)
    return LogMember("broker-a", number, f"m{number}:1", status)


def wait(looked: Looked) -> ReplicasView:
    return asyncio.run(looked._wait_for_another("broker-a", BEGUN))


def test_a_hand_over_is_done_when_a_later_epoch_is_led_and_routed_to() -> None:
    old, elected, routed = leads(0, 7), leads(1, 8), leads(0, 8)
    assert wait(Looked([], [old], [elected], [member(0, None), routed])) == routed.view


def test_a_leader_that_stays_or_a_group_without_one_is_an_error() -> None:
    with pytest.raises(
        Unavailable, match="n0 is still the leader of broker-a: n1 did not take over"
    ):
        wait(Looked([leads(0, 7)], [leads(0, 7)]))
    with pytest.raises(
        UnknownOutcome, match="started the transfer, but the new leader is not known yet"
    ):
        wait(Looked([member(1, STATUS)], []))


def test_only_a_raft_group_hands_over(kourou_broker) -> None:
    with kourou_broker.client() as mq:
        (one,) = mq.admin.replicas.of()
        with pytest.raises(Rejected, match="is not a Raft group"):
            mq.admin.replicas.transfer_leader(one.broker_name)


# -- who leads, and who is not there ---------------------------------------------------------------


def follower(number: int, name: str) -> FollowerView:
    return FollowerView(
        broker_id=number, address="", state="PROBE", written=0, flushed=0, lag_bytes=100,
        lag_ms=None, in_sync=False, member=name,
    )  # fmt: skip


def test_of_two_that_believe_to_lead_the_later_one_does() -> None:
    old, new = member(0, STATUS), member(0, STATUS, epoch=65)
    for members in ([old, new], [new, old]):
        assert leaders_of(members) == {"broker-a": new.view}
    assert leaders_of([member(0, STATUS, fenced=65), member(1, STATUS)]) == {}


def test_a_member_that_no_name_server_knows_is_absent() -> None:
    others = (follower(1, "n1"), follower(2, "n2"))
    leader = member(0, STATUS, member="n0", followers=others)
    there, silent = member(2, STATUS, member="n2"), member(2, None)
    assert absent([leader, there]) == [(leader.view, others[0])]
    assert absent([leader, member(1, STATUS, member="n1"), there]) == []
    assert absent([leader, silent]) == [(leader.view, others[0])]  # n2 is known: it is silent
    assert absent([there]) == []  # nobody leads, so nobody counts them


def test_who_follows_no_group_is_not_counted() -> None:
    assert absent([member(0, STATUS, followers=(follower(1, ""),))]) == []
