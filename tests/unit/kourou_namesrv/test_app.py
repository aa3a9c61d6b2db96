"""The parts of a name server, connected, in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import Code, ConfigError
from kourou.protocol.messages import namesrv as ask
from kourou.transport.zmq_client import ZmqConnection
from kourou_namesrv.app import NamesrvService
from kourou_namesrv.config import NamesrvSettings

TIMEOUT_MS = 20_000


def unexpected(error: BaseException) -> None:
    raise AssertionError from error


async def test_a_life(tmp_path: Path) -> None:
    settings = NamesrvSettings(listen_port=0, kv_config_path=tmp_path / "kvConfig.json")
    for value in ("1", "2"):
        service = NamesrvService(settings)
        await service.recover(unexpected)
        listening = await service.serve()
        assert set(listening) == {"zmq", "tcp", "admin"}
        connection = ZmqConnection(listening["zmq"])
        question = ask.GetKvConfig(namespace="N", key="a")
        before = await connection.request(question, timeout_ms=TIMEOUT_MS)
        assert (before.code == Code.SUCCESS) is (value == "2")
        change = ask.PutKvConfig(namespace="N", key="a", value=value)
        assert (await connection.request(change, timeout_ms=TIMEOUT_MS)).code == Code.SUCCESS
        connection.close()
        await service.drain()
        await service.stop()
    assert b'"a":"2"' in (tmp_path / "kvConfig.json").read_bytes()


async def test_a_start_that_fails_can_be_stopped(tmp_path: Path) -> None:
    first = NamesrvService(NamesrvSettings(listen_port=0, kv_config_path=tmp_path / "a.json"))
    await first.recover(unexpected)
    port = int((await first.serve())["zmq"].rpartition(":")[2])
    taken = NamesrvSettings(zmq_port=port, admin_port_wanted=0, kv_config_path=tmp_path / "b.json")
    second = NamesrvService(taken)
    with pytest.raises(ConfigError, match="is taken"):
        await second.recover(unexpected)
    await second.stop()
    await first.drain()
    await first.stop()


async def test_a_write_that_clashed_is_refused_once_and_not_for_good(tmp_path: Path) -> None:
    """Two name servers with one database, or a database lost while it committed."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    services, connections = [], []
    for number in (0, 1):
        settings = NamesrvSettings(
            listen_port=0, kv_config_path=tmp_path / f"{number}.json", event_store_url=url
        )
        service = NamesrvService(settings)
        await service.recover(unexpected)
        connections.append(ZmqConnection((await service.serve())["zmq"]))
        services.append(service)

    async def put(number: int, value: str) -> int:
        change = ask.PutKvConfig(namespace="N", key="a", value=value)
        return (await connections[number].request(change, timeout_ms=TIMEOUT_MS)).code

    assert await put(0, "1") == Code.SUCCESS
    assert await put(1, "2") == Code.METADATA_UNAVAILABLE
    question = ask.GetKvConfig(namespace="N", key="a")
    reply = await connections[1].request(question, timeout_ms=TIMEOUT_MS)
    assert reply.header == ask.GetKvConfigResponse(value="1")
    assert await put(1, "2") == Code.SUCCESS
    assert b'"a":"2"' in (tmp_path / "1.json").read_bytes()
    for connection, service in zip(connections, services, strict=True):
        connection.close()
        await service.drain()
        await service.stop()
