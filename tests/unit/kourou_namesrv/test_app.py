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
        assert set(listening) == {"zmq", "admin"}
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
    second = NamesrvService(NamesrvSettings(zmq_port=port, kv_config_path=tmp_path / "b.json"))
    await second.recover(unexpected)
    with pytest.raises(ConfigError, match="is taken"):
        await second.serve()
    await second.stop()
    await first.drain()
    await first.stop()
