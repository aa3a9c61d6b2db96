"""Members of a Raft group in one process: listeners, links, stores and votes are real."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from kourou.broker.config import BrokerSettings
from kourou.broker.raft import raft_service
from kourou.broker.raft.raft_service import RaftService
from kourou.broker.role_session import RoleSession
from kourou.engine.core import BrokerCore
from kourou.engine.sends.recorder import read_control_events
from kourou.errors import Code, ConfigError, Corrupt, DiskFull
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker, UpdateAndCreateTopic
from kourou.protocol.messages.replication import Vote
from kourou.replication.epochs import TruncateLog
from kourou.replication.raft.effects import RaftRole, RoleChanged
from kourou.runtime import MEMBERS, Peer, Received, ReplyTo
from kourou.service.local_cluster import GroupPorts
from kourou.store.paths import StorePaths
from kourou.transport.curve_keys import ClientCurve, PairFile, ServerKeys, make_pair
from kourou.transport.zmq_client import WireReply, ZmqConnection
from kourou_rigs.served_here import ServedHere
from kourou_rigs.waiting import until

ASK_MS = 20_000
GIVEN = {
    "listen_port": 0,
    "admin_enabled": False,
    "segment_size_bytes": 64 * 1024,
    "broker_name": "broker-a",
    "event_store_url": None,
    "raft_enabled": True,
}
PATIENT = {"raft_election_ms": 3_000, "raft_lease_ms": 2_700}
"""Long timeouts: a busy machine starts no election; tests start elections themselves."""


class MemberSettings(BrokerSettings):
    """What the replica service adds is its own."""

    def check_role(self) -> None:
        pass


class Living(ServedHere):
    """One member, a client of it, and whether its links are cut."""

    def __init__(self, service: RaftService, addresses: Mapping[str, str]) -> None:
        super().__init__(service, addresses)
        self.cut = False
        send, arrived = service._links.send, service._arrived

        def maybe_send(*given) -> bool:
            return False if self.cut else send(*given)

        def maybe_arrived(received) -> None:
            if not self.cut or received[0].to.peer.listener != "members":
                arrived(received)

        service._links.send = maybe_send
        service._listening.zmq._callbacks = _with(service._listening.zmq._callbacks, maybe_arrived)

    @property
    def group(self):
        return self.service._group

    @property
    def leads(self) -> bool:
        return self.service._led > 0 and self.service._session.loop.running

    async def end(self) -> None:
        self.client.close()
        await self.service.drain()
        await self.service.stop()


def _with(callbacks, arrived):
    return type(callbacks)(arrived, callbacks.disconnected, callbacks.answered, callbacks.observer)


class Group:
    """Three members on one machine, each of which may be started again on its store."""

    def __init__(self, root: Path, ports: GroupPorts) -> None:
        self.root, self.ports = root, ports
        self.failures: list[BaseException] = []
        self.members: dict[str, Living] = {}

    async def start(self, name: str, **others: object) -> Living:
        peers = ";".join(f"{each}-{address}" for each, address in self.ports.addresses.items())
        settings = MemberSettings(
            store_root=self.root / name, raft_peers_text=peers, raft_self=name,
            **{**GIVEN, **others},
        )  # fmt: skip
        service = RaftService(settings)
        try:
            await service.recover(self.failures.append)
        except BaseException:
            await service.stop()
            raise
        self.members[name] = Living(service, await service.serve())
        return self.members[name]

    async def stop(self, name: str) -> None:
        await self.members.pop(name).end()

    def stand(self, name: str) -> None:
        """Let a replica detect that there is no leader."""
        for one in self.members.values():
            one.group._member.heard_ms = -(1 << 60)
        self.members[name].group._member.behavior.deadline_ms = 0
        self.members[name].group._turn_soon()

    def is_free(self, name: str) -> bool:
        """Is nothing listening at that replica's address? The library closes asynchronously."""
        host, _, port = self.ports.addresses[name].rpartition(":")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, int(port)))
            except OSError:
                return False
        return True

    def is_born(self) -> bool:
        """Whether all have said to all that the group is a new one."""
        return all(one.group._member.joining is None for one in self.members.values())

    async def leader(self, among: Sequence[str] = ("n0", "n1", "n2")) -> Living:
        """Return the leader among these, once there is one."""

        def found() -> list[Living]:
            some = [one for name, one in self.members.items() if name in among and one.leads]
            return sorted(some, key=lambda one: -one.group.epoch)

        await until(lambda: bool(found()))
        return found()[0]

    def others(self, leader: Living) -> list[Living]:
        return [one for one in self.members.values() if one is not leader]

    async def same_logs(self) -> None:
        """Everybody has the same bytes, all confirmed."""
        stores = [one.store for one in self.members.values()]

        def equal() -> bool:
            ends = {one.store.end for one in self.members.values() if not one.service._log_change}
            confirmed = {one.group.confirmed for one in self.members.values()}
            return len(ends) == 1 and confirmed == ends

        await until(equal)
        stores = [one.store for one in self.members.values()]
        first, end = stores[0].log_range()
        whole = [bytes(store._log.view(first, end - first)) for store in stores]
        assert whole[0] == whole[1] == whole[-1]


@contextmanager
def group_at(root: Path, members: int = 3) -> Iterator[Group]:
    """A group of which none has started yet; the test ends those that it starts."""
    ports = GroupPorts(members)
    try:
        yield Group(root, ports)
    finally:
        ports.release()


@asynccontextmanager
async def group_of_three(root: Path, **others: object) -> AsyncIterator[Group]:
    with group_at(root) as group:
        try:
            for name in group.ports.addresses:
                await group.start(name, **{**PATIENT, **others})
            await until(group.is_born)
            group.stand("n0")
            yield group
        finally:
            with mock.patch.object(raft_service, "TRANSFER_MS", 0):  # all of them end
                await asyncio.gather(*(one.end() for one in group.members.values()))
    assert group.failures == []


def bodies(reply: WireReply) -> bytes:
    return b"".join(bytes(part) for part in reply.body)


@pytest.mark.feature("F149", "F150", "F152", "F160")
async def test_a_group_elects_a_leader_and_answers_when_a_majority_has_it(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as group:
        leader = await group.leader()
        assert (await leader.sent(b"one")).code == Code.SUCCESS
        end = leader.store.end
        having = [one for one in group.members.values() if one.store.flushed >= end]
        assert len(having) >= 2, "it is on the disks of a majority"
        await group.same_logs()
        assert {one.group.state for one in group.others(leader)} == {RaftRole.FOLLOWER.value}
        assert b"kourou_raft_peer_connected{" in leader.service._pages().metrics()
        [(epoch, start)] = leader.view.control.replicas.epochs
        assert (epoch, start) == (leader.group.epoch, 0)
        low, _ = leader.store.queue_range(CONTROL_TOPIC, 0)
        assert leader.store.offset_position(CONTROL_TOPIC, 0, low) == 0, "no record comes before"
        for follower in group.others(leader):
            await until(lambda: follower.view.store_view.queue_range("orders", 0) == (0, 1))  # noqa: B023
            await until(lambda: not follower.view.control.access.uncopied)  # noqa: B023
            assert b"one" in bodies(await follower.pull(0))


@pytest.mark.feature("F151")
async def test_a_follower_has_the_leader_answer(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as group:
        leader = await group.leader()
        for number, follower in enumerate(group.others(leader)):
            await until(lambda: follower.group.leader_address == leader.address("tcp"))  # noqa: B023
            await until(lambda: not follower.view.control.access.uncopied)  # noqa: B023
            reply = await follower.sent(b"%d" % number)
            assert (reply.code, reply.header.queue_offset) == (Code.SUCCESS, number)


async def test_a_request_through_a_follower_is_that_of_its_user(tmp_path: Path) -> None:
    public, pair = make_pair(tmp_path / "keys", "replica", ["127.0.0.1"])
    own = PairFile(make_pair(tmp_path / "root", "root")[1])
    first = tmp_path / "first"
    first.write_text(f"root:curve:{own.pair.public}\n")
    secured = {
        "curve_key_file": pair,
        "curve_clients": "any",
        "curve_members": str(public),
        "curve_server_key": public,
        "initial_admin_file": first,
    }
    made = UpdateAndCreateTopic(topic="t", read_queue_nums=1, write_queue_nums=1, perm=6)
    async with group_of_three(tmp_path, **secured) as group:
        leader = await group.leader()
        follower = group.others(leader)[0]
        await until(lambda: "root" in follower.view.control.access.users)
        await until(lambda: follower.group.leader == leader.group.member)
        servers = ServerKeys(public)
        root = ZmqConnection(follower.address("zmq"), curve=ClientCurve(own, servers))
        reply = await root.request(made, timeout_ms=ASK_MS)
        root.close()
        assert reply.code == Code.SUCCESS, reply.remark

        def actors() -> list[str]:  # the queue has its units a moment after the reply
            low, _ = leader.store.queue_range(CONTROL_TOPIC, 0)
            events = read_control_events(leader.store, low, leader.store.end, print)
            return [one.actor for one in events if one.event.aggregate == "topic/t"]

        await until(actors)
        assert actors() == ["User:root"]

        at = group.ports.addresses[leader.group.member]
        replica = ZmqConnection(at, curve=ClientCurve(PairFile(pair), servers))
        reply = await replica.request(DeleteTopicInBroker(topic="t"), timeout_ms=ASK_MS)
        replica.close()
        assert reply.code == Code.NO_PERMISSION, "it names no user"

        vote = Vote(group="broker-a", epoch=1 << 40, member="n9", granted=False)
        to = ReplyTo(Peer(1, "zmq", ("127.0.0.1", 1), MEMBERS), 0, oneway=True)
        for knows in (False, True):
            with (
                mock.patch.object(MemberSettings, "knows_replicas", knows),
                mock.patch.object(follower.group, "received") as handled,
            ):
                follower.service._arrived([Received(to, vote, [], 0)])
            assert handled.called is knows
    for folder, settings in ((tmp_path, {}), (tmp_path / "new", {"initial_admin_file": first})):
        refused = pytest.raises(ConfigError, match="curveMembers does not name the keys")
        with group_at(folder) as unsecured, refused:
            await unsecured.start("n0", **settings)


@pytest.mark.feature("F153", "F154", "F155", "F160")
async def test_a_leader_alone_acknowledges_nothing_and_its_tail_is_cut(tmp_path: Path) -> None:
    async with group_of_three(tmp_path, raft_election_ms=1_000, raft_lease_ms=900) as group:
        old = await group.leader()
        assert (await old.sent(b"kept")).code == Code.SUCCESS
        await group.same_logs()
        old.cut = True
        sending = asyncio.create_task(old.sent(b"given up"))
        others = [name for name, one in group.members.items() if one is not old]
        new = await group.leader(others)
        assert (await new.sent(b"instead")).code == Code.SUCCESS
        assert (await sending).code == Code.OUTCOME_UNKNOWN
        assert old.group.state != RaftRole.LEADER.value
        assert old.store.end > old.group.confirmed, "it has bytes that no other replica has"
        old.cut = False
        await group.same_logs()
        assert b"instead" in bodies(await new.pull(1))
        await until(lambda: old.view.store_view.queue_range("orders", 0) == (0, 2))
        assert b"instead" in bodies(await old.pull(1))
        aside = list(StorePaths.under(tmp_path / old.group.member).kourou.rglob("diverged/*"))
        assert any(b"given up" in path.read_bytes() for path in aside if path.is_file())


@pytest.mark.feature("F154")
async def test_a_stop_gives_the_lead_away_and_a_start_follows(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as group:
        old = await group.leader()
        name, epoch = old.group.member, old.group.epoch
        assert (await old.sent(b"one")).code == Code.SUCCESS
        await group.stop(name)  # the others would find out by silence, in seconds
        new = await group.leader()
        assert new.group.epoch == epoch + 1
        assert (await new.sent(b"two")).code == Code.SUCCESS
        await group.start(name)
        await group.same_logs()
        assert len(new.view.control.replicas.epochs) == 2


async def test_the_preferred_member_leads_whenever_it_can(tmp_path: Path) -> None:
    async with group_of_three(tmp_path, preferred_leader_id="n1") as group:
        await until(lambda: group.members["n1"].leads)
        assert (await group.members["n1"].sent(b"one")).code == Code.SUCCESS
        await group.same_logs()


async def test_a_member_that_cannot_open_its_epoch_lets_another_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead, tried = BrokerCore.lead, []

    def full_at_first(core: BrokerCore, wall_ms: int):
        tried.append(core)
        if len(tried) == 1:
            raise DiskFull("no space")
        return lead(core, wall_ms)

    monkeypatch.setattr(BrokerCore, "lead", full_at_first)
    async with group_of_three(tmp_path) as group:
        await until(lambda: len(tried) >= 2)
        leader = await group.leader()
        assert leader.service._session.core is not tried[0]
        assert (await leader.sent(b"one")).code == Code.SUCCESS
        await group.same_logs()


async def test_a_member_that_fails_behind_its_opening_opens_its_epoch_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its epoch's first record is in the log by then, and perhaps at others."""
    record, failed = RoleSession._record, []

    async def full_at_first(self: RoleSession, *given: object) -> None:
        if not failed:
            failed.append(self.core)
            raise DiskFull("no space")
        await record(self, *given)

    monkeypatch.setattr(RoleSession, "_record", full_at_first)
    async with group_of_three(tmp_path) as group:
        await until(lambda: bool(failed))
        leader = await group.leader()
        await until(lambda: leader.service._session.core is not failed[0])
        leader = await group.leader()
        assert (await leader.sent(b"one")).code == Code.SUCCESS
        await group.same_logs()
        opened = [epoch for epoch, _ in leader.view.control.replicas.epochs]
        assert opened == sorted(set(opened))
        assert all(
            one.view.control.replicas.epochs[0][0] == opened[0] for one in group.others(leader)
        )


@pytest.mark.parametrize("step", ["_open_again", "_new_core"])
async def test_a_stop_in_the_middle_of_a_change_leaves_a_store_that_opens(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins, goes_on = asyncio.Event(), asyncio.Event()
    genuine = getattr(RaftService, step)

    async def slowly(self: RaftService, change: object) -> None:
        if self._group.member == "n0" and not begins.is_set():
            begins.set()
            await goes_on.wait()
        await genuine(self, change)

    async with group_of_three(tmp_path) as group:
        leader = await group.leader()
        assert (await leader.sent(b"one")).code == Code.SUCCESS
        await group.same_logs()
        monkeypatch.setattr(RaftService, step, slowly)
        one = group.members["n0"]
        if step == "_open_again":
            end = one.store.end
            one.service._change_log(TruncateLog(end, end))
        else:
            one.service._session.cease()
            one.service._settle()
        await begins.wait()
        stopping = asyncio.create_task(group.stop("n0"))
        await asyncio.sleep(0)
        goes_on.set()
        await stopping
        await until(lambda: group.is_free("n0"))
        again = await group.start("n0", **PATIENT)
        await group.leader()
        await group.same_logs()
        assert again.group.state != RaftRole.STOPPED.value


async def test_a_change_of_the_log_that_failed_is_not_tried_on_a_closed_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member hears of the fault, and its new role must not begin the same change again."""
    with group_at(tmp_path) as group:
        one = await group.start("n0", **PATIENT)
        tried = []

        async def fails(change: object) -> None:
            tried.append(change)
            raise Corrupt("cannot be cut")

        monkeypatch.setattr(one.service, "_open_again", fails)
        one.service._change_log(TruncateLog(0, 0))
        await until(lambda: one.group.state == RaftRole.STOPPED.value)
        while one.service._renewing is not None:  # noqa: ASYNC110 - as in `until`
            await asyncio.sleep(0)
        assert len(tried) == 1
        assert [str(error) for error in group.failures] == ["cannot be cut"]
        assert one.service._unready()
        await one.end()


def test_spans_of_a_deposed_leaders_appends_are_dropped(tmp_path: Path) -> None:
    """It may be cut away; what is confirmed at its place later is another leader's."""
    ports = GroupPorts(3)
    peers = ";".join(f"{name}-{address}" for name, address in ports.addresses.items())
    ports.release()
    service = RaftService(
        MemberSettings(store_root=tmp_path, raft_peers_text=peers, raft_self="n0", **GIVEN)
    )
    service._spans = spans = mock.Mock()
    service._led, leads = 3, {3}
    with mock.patch.object(service._group, "leads", leads.__contains__):
        service._role_changed(RoleChanged(RaftRole.LEADER, 3, "n0", 0))
        assert spans.copies.abandon.call_count == 0
        leads.clear()
        service._role_changed(RoleChanged(RaftRole.FOLLOWER, 4, "n1"))
    assert spans.copies.abandon.call_count == 1


async def test_what_a_member_lost_is_repaired_by_another(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as group:
        leader = await group.leader()
        for number in range(5):
            assert (await leader.sent(b"body %d" % number)).code == Code.SUCCESS
        await group.same_logs()
        victim = group.others(leader)[0]
        place = victim.store.offset_position("orders", 0, 2)
        log = tmp_path / victim.group.member / "commitlog" / f"{0:020}"
        good = log.read_bytes()
        with log.open("r+b") as file:
            file.seek(place + 95)
            file.write(b"\xff\x00\xff\x00")
        chunk = victim.store.read_chunk(place, victim.store.end, 64)
        assert chunk.damage
        assert victim.store.damaged_regions
        await until(lambda: not victim.store.damaged_regions)
        assert log.read_bytes() == good


async def test_a_group_of_two_logs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with group_at(tmp_path, members=2) as group:
        one = await group.start("n0", **PATIENT)
        assert "a Raft group of two replicas stops when one of them is offline" in caplog.text
        assert one.group.state == "joining", "no replica has reported yet that the group is new"
        await one.end()


async def test_a_store_that_another_broker_changed_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "n0" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(
        '{"topicConfigTable":{"theirs":{"topicName":"theirs","readQueueNums":1,'
        '"writeQueueNums":1,"perm":6}},"dataVersion":{"counter":1,"timestamp":1}}'
    )
    with group_at(tmp_path) as group, pytest.raises(ConfigError, match="kourou broker"):
        await group.start("n0")
