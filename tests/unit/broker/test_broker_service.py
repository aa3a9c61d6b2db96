"""The broker's parts, connected: one life after another on one store, in this process."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from kourou.broker import broker_service as app
from kourou.broker.broker_service import BrokerService, broker_spans
from kourou.broker.config import BrokerSettings
from kourou.broker.storage.effect_executor import EffectExecutor
from kourou.broker.storage.store_runtime import executor_of
from kourou.errors import Code, ConfigError
from kourou.model.message import SysFlag
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.messages.access import AuthCreateUser
from kourou.protocol.messages.broker_admin import GetBrokerConfig, GetHistory
from kourou.protocol.messages.namesrv import (
    GetRouteInfoByTopic,
    RegisterBroker,
    UnregisterBroker,
)
from kourou.protocol.messages.replication import Attach
from kourou.protocol.messages.sends import EndTransaction, SendMessage
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.request import Request
from kourou.protocol.wire.frames import (
    Frame,
    FrameKind,
    decode_frame,
    decode_request,
    encode_reply,
    encode_request,
)
from kourou.runtime import Peer
from kourou.service import admin_http as clear_text
from kourou.service import loop as loop_module
from kourou.service.admin_http import AdminHttp
from kourou.service.secret_keys import new_key_line
from kourou.store.config.config_files import TOPICS, TopicTable, encode_topics
from kourou.telemetry.otlp_receiver import OtlpReceiver
from kourou.transport import tcp_server
from kourou.transport.zmq_client import ZmqConnection
from kourou.transport.zmq_server import Inbound, ZmqServer
from kourou_rigs.list_server import ListServer, answer_of
from kourou_rigs.waiting import until


def settings(root: Path, **changes: object) -> BrokerSettings:
    values = {
        "store_root": root / "store",
        "listen_port": 0,
        "replication_port": 0,
        "admin_enabled": False,
        "segment_size_bytes": 1 << 20,
        "broker_name": "broker-a",
        **changes,
    }
    return BrokerSettings(**values)


def message(**fields: object) -> SendMessage:
    given = {"producer_group": "p", "topic": "orders", "queue_id": 0, "born_timestamp": 1, **fields}
    return SendMessage(default_topic="TBW102", default_topic_queue_nums=4, **given)


@asynccontextmanager
async def running(given: BrokerSettings):
    failures: list[BaseException] = []
    service = BrokerService(given)
    await service.recover(failures.append)
    listening = await service.serve()
    connection = ZmqConnection(listening["zmq"].removeprefix("tcp://"))
    try:
        yield service, connection
        await service.drain()
    finally:
        connection.close()
        await service.stop()
    assert failures == []


@pytest.mark.feature("F164")
async def test_what_was_sent_is_there_in_the_next_life(tmp_path) -> None:
    given = settings(tmp_path)
    offsets = []
    for _ in range(2):
        async with running(given) as (service, connection):
            reply = await connection.request(message(), body=(b"x",), timeout_ms=60_000)
            assert reply.code == Code.SUCCESS
            offsets.append(service._session.store.queue_range("orders", 0))
            assert service._statistics()["topics"] > 1
    assert offsets[0] in (None, (0, 1))
    assert offsets[1][1] in (1, 2)
    assert not (given.store_root / "abort").exists()


@pytest.mark.feature("F094")
async def test_sync_flush_from_end_to_end(tmp_path) -> None:
    from kourou.broker.config import FlushDiskType

    given = settings(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    async with running(given) as (service, connection):
        reply = await connection.request(message(), body=(b"x",), timeout_ms=60_000)
        assert reply.code == Code.SUCCESS
        assert service._session.store.flushed == service._session.store.end


async def test_what_another_broker_wrote_is_kept_and_not_made_again(tmp_path) -> None:
    """decide_start comes after the import: its defaults do not overwrite what was there."""
    given = settings(tmp_path)
    config = given.store_root / "config"
    config.mkdir(parents=True)
    theirs = {
        "TBW102": TopicConfig("TBW102", 5, 5, 7),
        **{f"t{number}": TopicConfig(f"t{number}", 4, 4) for number in range(300)},
    }
    (config / TOPICS).write_bytes(encode_topics(TopicTable(theirs, DataVersion(1, 1))))
    async with running(settings(tmp_path, segment_size_bytes=65_536)) as (service, _):
        control = service._session.core.parts.control
        assert control.topics.get("TBW102").write_queue_nums == 5
        assert "t299" in control.topics
        assert "broker-a" in control.topics


@pytest.mark.parametrize("which", ["zmq_port", "admin_port_wanted", "listen_port"])
async def test_a_taken_port_is_known_before_anything_is_made(tmp_path, which) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = {"zmq_port": 0, which: taken.getsockname()[1]}
        given = settings(tmp_path, admin_enabled=True, **ports)
        service = BrokerService(given)
        with pytest.raises(ConfigError, match=str(taken.getsockname()[1])):
            await service.recover(lambda _error: None)
        await service.stop()
    assert not given.store_root.exists()
    async with running(settings(tmp_path)):
        pass


async def page(admin: AdminHttp, path: str) -> tuple[int, str]:
    async with ClientSession() as session, session.get(f"http://{admin.address}{path}") as answer:
        return answer.status, await answer.text()


async def test_while_it_recovers_it_says_so(tmp_path, monkeypatch) -> None:
    may_go_on = threading.Event()
    opening = app.open_store

    def slow(*given: object):
        may_go_on.wait(60)
        return opening(*given)

    monkeypatch.setattr(app, "open_store", slow)
    service = BrokerService(settings(tmp_path, admin_enabled=True))
    recovering = asyncio.ensure_future(service.recover(lambda _error: None))
    try:
        await until(lambda: service._admin is not None)
        connection = ZmqConnection(service._listening.dial["zmq"])
        reply = await connection.request(message(), body=(b"x",), timeout_ms=20_000)
        assert (reply.code, reply.remark) == (Code.SERVICE_NOT_AVAILABLE, app.STARTING)
        assert await page(service._admin, "/healthz") == (200, "ok\n")
        assert await page(service._admin, "/readyz") == (503, "starting\n")
        assert await page(service._admin, "/metrics") == (200, "")
        assert await page(service._admin, "/statistics") == (200, '{"starting":true}')
        assert not (tmp_path / "store").exists()
    finally:
        may_go_on.set()
        await recovering
    await service.serve()
    assert await page(service._admin, "/readyz") == (200, "ok\n")
    reply = await connection.request(message(), body=(b"x",), timeout_ms=20_000)
    assert reply.code == Code.SUCCESS
    connection.close()
    await service.drain()
    assert await page(service._admin, "/readyz") == (503, "not serving\n")
    await service.stop()


async def test_open_to_the_network_it_says_so_again_and_again(
    tmp_path, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(tcp_server, "CLEAR_TEXT_WARNING_S", 0.0)
    monkeypatch.setattr(clear_text, "WARNING_PERIOD_S", 0.0)
    given = settings(
        tmp_path,
        bind_address="0.0.0.0",
        admin_host="0.0.0.0",
        admin_enabled=True,
        insecure_network=True,
    )
    with caplog.at_level(logging.WARNING, "kourou"):
        service = BrokerService(given)
        await service.recover(lambda _error: None)
        for sentence in ("in clear text", "any host can read them"):
            await until(lambda said=sentence: caplog.text.count(said) >= 3)
        await service.stop()


async def test_every_answer_carries_the_trace_of_its_request(tmp_path) -> None:
    """By the desks, by the frame reader that refuses, and by a full inbox alike."""
    trace = bytes(range(1, 26))
    outcomes: list[Frame] = []
    async with running(settings(tmp_path, admin_enabled=False)) as (service, connection):
        for number, request in enumerate(
            [GetBrokerConfig(), GetRouteInfoByTopic(topic="orders")], start=1
        ):
            head = encode_request(request, correlation=number, deadline_ms=9_000, trace=trace)
            deadline_ms = service._clock.monotonic_ms() + 20_000
            connection.submit([head], number, outcomes.append, deadline_ms)
        await until(lambda: len(outcomes) == 2)
    assert [frame.trace for frame in outcomes] == [trace, trace]
    assert {frame.code for frame in outcomes} == {
        Code.SUCCESS,
        Code.REQUEST_CODE_NOT_SUPPORTED,
    }


@pytest.mark.feature("F350")
async def test_without_sync_flush_a_send_does_not_wait_for_the_disk(tmp_path, monkeypatch) -> None:
    given = settings(tmp_path)
    async with running(given) as (service, connection):
        store, may_flush = service._session.store, threading.Event()
        flush = store.flush

        def held() -> int:
            may_flush.wait(60)
            return flush()

        monkeypatch.setattr(store, "flush", held)
        before = store.flushed
        reply = await connection.request(message(), body=(b"x",), timeout_ms=20_000)
        assert reply.code == Code.SUCCESS
        assert store.flushed == before < store.end
        may_flush.set()


async def test_an_end_that_nobody_waits_for_follows_the_send_that_came_with_it(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(loop_module, "PATIENT_S", 3_600)  # it waits for no timer
    half = message(properties="TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01ID1")
    async with running(settings(tmp_path)) as (service, connection):
        stored = await connection.request(half, body=(b"half",), timeout_ms=20_000)
        _, position = decode_offset_id(stored.header.msg_id)
        end = EndTransaction(
            producer_group="p",
            tran_state_table_offset=stored.header.queue_offset,
            commit_log_offset=position,
            commit_or_rollback=int(SysFlag.TRANSACTION_COMMIT),
            msg_id="ID1",
        )
        replies: list[Frame] = []
        deadline_ms = service._clock.monotonic_ms() + 20_000
        connection.gather()
        for number, (request, body) in enumerate([(end, ()), (message(), (b"next",))], start=101):
            head = encode_request(request, correlation=number, deadline_ms=20_000)
            connection.submit([head, *body], number, replies.append, deadline_ms)
        await until(lambda: len(replies) == 2)
        assert [frame.code for frame in replies] == [Code.SUCCESS, Code.SUCCESS]
        assert [frame.correlation for frame in replies] == [102, 101], "the producer waits for 102"
        await until(lambda: service._session.store.queue_range("orders", 0) == (0, 2))


class NameServer(ZmqServer):
    """Accepts every registration, and keeps what it heard."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:0", self._answer, lambda _peer: None)
        self.heard: list[Request] = []

    def _answer(self, frames: list[Inbound]) -> None:
        for inbound in frames:
            self.heard.append(decode_request(inbound.frame))
            self.send(inbound.peer, (encode_reply(inbound.frame.correlation, Code.SUCCESS),))


@pytest.fixture
async def name_server():
    made = NameServer()
    made.start()
    yield made
    made.close()


@pytest.mark.feature("F326")
async def test_it_registers_with_the_name_servers_that_are_named(tmp_path, name_server) -> None:
    async with running(settings(tmp_path)) as (service, _):
        assert service._registration is None, "none is named by default"
    assert name_server.heard == []
    async with running(settings(tmp_path, namesrv_addr=f" {name_server.address}; ")):
        assert [request.broker_name for request in name_server.heard] == ["broker-a"]


@pytest.mark.feature("F334")
async def test_it_registers_with_the_name_servers_that_the_address_server_lists(
    tmp_path, name_server, caplog
) -> None:
    async with ListServer([answer_of(name_server.address.encode())]).running() as http:
        asks = {"fetch_namesrv_addr": True, "address_server": http.address}
        async with running(settings(tmp_path, **asks)) as (service, _):
            assert service._statistics()["name_servers"] == {name_server.address: True}
            assert [type(each) for each in name_server.heard] == [RegisterBroker]
        assert [type(each) for each in name_server.heard] == [RegisterBroker, UnregisterBroker]
        assert http.paths == ["/rocketmq/nsaddr"]
    name_server.close()
    async with running(settings(tmp_path, **asks)) as (service, connection):
        assert "cannot find this broker through a name server" in caplog.text, (
            "it says so, and serves all the same"
        )
        reply = await connection.request(message(), body=(b"x",), timeout_ms=60_000)
        assert reply.code == Code.SUCCESS
        assert service._statistics()["name_servers"] == {}


async def test_without_its_database_the_broker_serves(tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/no/such/folder/events.db"
    (tmp_path / "no").write_text("a file where a folder is needed")
    async with running(settings(tmp_path, event_store_url=url)) as (service, connection):
        reply = await connection.request(message(), body=(b"x",), timeout_ms=60_000)
        assert reply.code == Code.SUCCESS
        await until(lambda: bool(service._statistics()["event_store"]["trouble"]))


async def test_a_request_beyond_the_inbox_limit_is_refused(tmp_path, monkeypatch) -> None:
    async with running(settings(tmp_path, inbox_inputs_max=20)) as (service, connection):
        await connection.request(GetBrokerConfig(), timeout_ms=60_000)
        sent: list[int] = []
        carrier = service._listening.zmq
        monkeypatch.setattr(
            carrier.server(), "send", lambda _peer, parts: sent.append(decode_frame(parts).code)
        )
        peer = Peer(1, "zmq", ("127.0.0.1", 1))

        def inbound(number: int, kind: FrameKind = FrameKind.REQUEST) -> Inbound:
            head = encode_request(message(), correlation=number, deadline_ms=0, kind=kind)
            return Inbound(peer, decode_frame([head, b"x"]))

        carrier._arrived([inbound(number) for number in range(50)])
        await until(lambda: len(sent) == 50)
        assert set(sent) == {0, int(Code.SYSTEM_BUSY)}
        assert 10 <= sent.count(0) <= 20, "the broker's own inputs, ticks above all, wait there too"
        sent.clear()
        carrier._arrived([inbound(9, FrameKind.ONEWAY), inbound(10, FrameKind.NOTIFY)])
        assert sent == []


async def test_a_stop_answers_history_queries_of_a_database_that_hangs(tmp_path) -> None:
    entered, released = threading.Event(), threading.Event()

    class Hanging:
        def info(self) -> None:
            entered.set()
            released.wait(30)

    service = BrokerService(settings(tmp_path))
    await service.recover(pytest.fail)
    connection = ZmqConnection((await service.serve())["zmq"].removeprefix("tcp://"))
    service._session.history._events = Hanging()
    asking = asyncio.create_task(connection.request(GetHistory(max_count=1), timeout_ms=30_000))
    await asyncio.to_thread(entered.wait, 20)
    sent = await connection.request(message(), body=(b"x",), timeout_ms=60_000)
    assert sent.code == Code.SUCCESS
    assert service._statistics()["history"]["waiting"] == 1
    await service.drain()
    await service.stop()
    reply = await asking
    assert (reply.code, reply.remark) == (Code.SERVICE_NOT_AVAILABLE, app.STOPPING)
    released.set()
    connection.close()


async def test_a_log_with_replicas_has_users_only_with_the_keys_of_the_replicas(tmp_path) -> None:
    async with running(settings(tmp_path)) as (service, connection):
        heard: list[Frame] = []
        replica = ZmqConnection(service._listening.members_address, on_notify=heard.append)
        attach = Attach(cluster="DefaultCluster", broker_name="broker-a", broker_id=1)
        replica.oneway(attach, timeout_ms=60_000)
        await until(lambda: bool(heard))
        body = b'{"userType":"Super","password":"a-secret-of-root"}'
        refused = await connection.request(
            AuthCreateUser(username="root"), body=(body,), timeout_ms=60_000
        )
        replica.close()
        assert "the first user cannot be created" in refused.remark
        assert "set curveMembers to a folder with the public keys" in refused.remark
    first = tmp_path / "first"
    first.write_text(f"root:curve:{'k' * 40}\n")
    asks_for_users = {"initial_admin_file": first}
    for given, users in ((asks_for_users, set()), ({}, {"root"})):
        if users:
            closed = settings(tmp_path, replication_enabled=False, **asks_for_users)
            async with running(closed) as (service, _):
                assert set(service._view().control.access.users) == users
        service = BrokerService(settings(tmp_path, **given))
        with pytest.raises(ConfigError, match="curveMembers does not name the keys"):
            await service.recover(lambda _error: None)
        await service.stop()


async def test_files_with_users_count_before_the_first_request(tmp_path) -> None:
    keys, file = tmp_path / "access.keys", tmp_path / "plain_acl.yml"
    keys.touch(0o600)
    keys.write_text(new_key_line("one"))
    file.write_text("accounts: [{accessKey: owner-1, secretKey: secret1, admin: true}]")
    asks = {"acl_import_dir": file, "access_key_file": keys, "acl_enable": True}
    given = settings(tmp_path, replication_enabled=False, **asks)
    async with running(given) as (service, connection):
        assert set(service._view().control.access.users) == {"owner-1"}
        refused = await connection.request(message(), body=(b"x",), timeout_ms=60_000)
        assert refused.code == Code.NO_PERMISSION
        file.write_text("accounts: [")
    async with running(given) as (service, _):
        assert set(service._view().control.access.users) == {"owner-1"}


async def test_bad_files_with_users_stop_the_start_of_a_broker_that_has_none(tmp_path) -> None:
    """Else everybody could do everything until the file is repaired."""
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts: [")
    service = BrokerService(settings(tmp_path, acl_import_dir=file))
    await service.recover(lambda _error: None)
    with pytest.raises(ConfigError, match=r"aclImportDir: .*plain_acl.yml is not valid YAML"):
        await service.serve()
    await service.stop()


# -- A broker without tracing has the plain effect executor and no exporter ------------------------


SERVICE = "kourou-broker"


def test_the_key_turns_it_on_and_the_standard_variable_off() -> None:
    assert broker_spans(BrokerSettings(), {}, SERVICE) is None
    assert executor_of(None) is EffectExecutor
    with OtlpReceiver() as collector:
        settings = BrokerSettings(trace_otlp_endpoint=collector.endpoint)
        spans = broker_spans(settings, {}, SERVICE)
        assert spans is not None
        assert executor_of(spans) is not EffectExecutor
        spans.close()
        assert broker_spans(settings, {"OTEL_TRACES_EXPORTER": "none"}, SERVICE) is None


def test_an_endpoint_that_is_none() -> None:
    with pytest.raises(ConfigError, match="OTLP endpoint"):
        broker_spans(BrokerSettings(trace_otlp_endpoint="collector"), {}, SERVICE)
