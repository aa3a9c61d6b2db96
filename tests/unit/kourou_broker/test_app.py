"""The broker's parts, connected: one life after another on one store, in this process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kourou.engine.peer import Peer
from kourou.errors import Code, ConfigError
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.frames import Kind, decode_frame, encode_request
from kourou.protocol.messages.broker_admin import GetBrokerConfig
from kourou.protocol.messages.namesrv import GetRouteInfoByTopic
from kourou.protocol.messages.sending import SendMessage
from kourou.store.config_files import TOPICS
from kourou.store.config_json import TopicTable, encode_topics
from kourou.transport.zmq_client import ZmqConnection
from kourou.transport.zmq_server import Inbound
from kourou_broker import app
from kourou_broker.app import BrokerService
from kourou_broker.config import BrokerSettings


def settings(root: Path, **changes: object) -> BrokerSettings:
    values = {
        "store_root": root / "store",
        "listen_port": 0,
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


@pytest.mark.feature("F113", "F164")
async def test_what_was_sent_is_there_in_the_next_life(tmp_path) -> None:
    given = settings(tmp_path)
    offsets = []
    for _ in range(2):
        async with running(given) as (service, connection):
            reply = await connection.request(message(), body=(b"x",), timeout_ms=5_000)
            assert reply.code == Code.SUCCESS
            offsets.append(service._parts.store.queue_range("orders", 0))
            assert service._statistics()["topics"] > 1
    assert offsets[0] in (None, (0, 1))
    assert offsets[1][1] in (1, 2)
    assert not (given.store_root / "abort").exists()


@pytest.mark.feature("F094")
async def test_sync_flush_from_end_to_end(tmp_path) -> None:
    from kourou_broker.store_keys import FlushDiskType

    given = settings(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    async with running(given) as (service, connection):
        reply = await connection.request(message(), body=(b"x",), timeout_ms=5_000)
        assert reply.code == Code.SUCCESS
        assert service._parts.store.flushed == service._parts.store.end


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
        control = service._parts.core.desks.control
        assert control.topics.get("TBW102").write_queue_nums == 5
        assert "t299" in control.topics
        assert "broker-a" in control.topics


async def test_a_taken_port_leaves_the_store_usable(tmp_path) -> None:
    async with running(settings(tmp_path / "one")) as (first, _):
        port = first._server.port
        second = BrokerService(settings(tmp_path / "two", zmq_port=port))
        with pytest.raises(ConfigError):
            await second.recover(lambda _error: None)
        await second.stop()
    async with running(settings(tmp_path / "two")):
        pass


async def test_without_its_database_the_broker_serves(tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/no/such/folder/events.db"
    (tmp_path / "no").write_text("a file where a folder is needed")
    async with running(settings(tmp_path, event_store_url=url)) as (service, connection):
        reply = await connection.request(message(), body=(b"x",), timeout_ms=5_000)
        assert reply.code == Code.SUCCESS
        assert service._statistics()["event_store"]["trouble"]


async def test_requests_that_are_not_a_brokers_are_answered_so(tmp_path) -> None:
    async with running(settings(tmp_path)) as (_, connection):
        request = GetRouteInfoByTopic(topic="orders")
        reply = await connection.request(request, timeout_ms=5_000)
        assert reply.code == Code.REQUEST_CODE_NOT_SUPPORTED
        assert (await connection.request(GetBrokerConfig(), timeout_ms=5_000)).code == 0


async def test_who_comes_when_too_many_wait_is_told_so(tmp_path, monkeypatch) -> None:
    async with running(settings(tmp_path, inbox_inputs_max=2)) as (service, connection):
        await connection.request(GetBrokerConfig(), timeout_ms=5_000)
        sent: list[int] = []
        monkeypatch.setattr(
            service._server, "send", lambda _peer, parts: sent.append(decode_frame(parts).code)
        )
        peer = Peer(1, "zmq", ("127.0.0.1", 1))

        def inbound(number: int, kind: Kind = Kind.REQUEST) -> Inbound:
            head = encode_request(message(), correlation=number, deadline_ms=0, kind=kind)
            return Inbound(peer, decode_frame([head, b"x"]))

        service._arrived([inbound(number) for number in range(5)])
        assert sent == [int(Code.SYSTEM_BUSY)] * 3, "two were admitted, and answered by the loop"
        sent.clear()
        service._arrived([inbound(9, Kind.ONEWAY), inbound(10, Kind.NOTIFY)])
        assert sent == []


def test_settings_that_are_wrong_end_with_one_sentence(capsys, tmp_path) -> None:
    assert app.run(["--brokerRole=SLAVE"]) == 2 or app.run(["brokerRole=SLAVE"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("kourou broker: ")
    assert err.count("Traceback") == 0
