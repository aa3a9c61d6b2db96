"""A broker's listeners: all or none, and the addresses that are reported."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from kourou.broker.config import BrokerSettings
from kourou.broker.network.connections import Listeners
from kourou.clock import SystemClock
from kourou.errors import ConfigError
from kourou.service.processes import free_port
from kourou.service.protocol_server import TransportCallbacks


def listening(folder: Path, **keys: object) -> Listeners:
    settings = BrokerSettings(store_root=folder, **{"listen_port": 0, **keys})  # type: ignore[arg-type]  # shorthand
    return Listeners(settings, TransportCallbacks(print, print), SystemClock())


def port_of(made: Listeners, protocol: str) -> int:
    return int(made.dial[protocol].rpartition(":")[2])


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


async def test_free_ports_are_reported(tmp_path: Path) -> None:
    made = listening(tmp_path)
    made.listen()
    assert set(made.addresses) == {"zmq", "tcp", "replication"}
    assert made.addresses["zmq"] == f"tcp://{made.dial['zmq']}"
    assert made.addresses["tcp"] == made.dial["tcp"]
    assert made.store_port == port_of(made, "tcp") == port_of(made, "zmq") - 10_000
    made.protocols.close()


async def test_the_other_port_has_its_usual_distance_to_a_configured_one(
    tmp_path: Path,
) -> None:
    """A broker that was started again with its former port keeps the host of its message ids."""
    first = listening(tmp_path)
    first.listen()
    zmq_port, tcp_port = port_of(first, "zmq"), port_of(first, "tcp")
    first.protocols.close()
    while not is_free(zmq_port):  # noqa: ASYNC110 - the library closes in a thread of its own
        await asyncio.sleep(0)
    again = listening(tmp_path, zmq_port=zmq_port)
    again.listen()
    assert port_of(again, "tcp") == tcp_port
    again.protocols.close()
    with socket.create_server(("127.0.0.1", tcp_port)):
        while not is_free(zmq_port):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        elsewhere = listening(tmp_path, zmq_port=zmq_port)
        elsewhere.listen()
        assert port_of(elsewhere, "tcp") not in (0, tcp_port)
        elsewhere.protocols.close()


async def test_where_no_pair_is_free_any_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.broker.network.connections.PORT_MAX", 1)
    made = listening(tmp_path)
    made.listen()
    assert 0 not in (port_of(made, "zmq"), port_of(made, "tcp"))
    assert made.store_port == port_of(made, "tcp")
    made.protocols.close()


async def test_the_second_port_is_two_below(tmp_path: Path) -> None:
    port = free_port(-2)
    made = listening(tmp_path, listen_port=port, zmq_port=0, replication_port=0)
    made.listen()
    assert made.addresses["tcp"] == f"127.0.0.1:{port}"
    assert made.addresses["tcp:vip"] == f"127.0.0.1:{port - 2}"
    assert made.store_port == port
    made.protocols.close()


@pytest.mark.parametrize(
    ("off", "left"),
    [("tcp_enabled", {"zmq", "replication"}), ("replication_enabled", {"zmq", "tcp"})],
)
async def test_what_is_switched_off_does_not_listen(
    tmp_path: Path, off: str, left: set[str]
) -> None:
    made = listening(tmp_path, **{off: False})
    made.listen()
    assert set(made.addresses) == left
    assert set(made.dial) == left - {"replication"}
    made.protocols.close()


async def test_a_taken_port_frees_the_others(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        made = listening(tmp_path, listen_port=port, zmq_port=0, replication_port=0)
        with pytest.raises(ConfigError, match="is taken"):
            made.listen()
        zmq_port = made.zmq.server().port
    while not is_free(zmq_port):  # noqa: ASYNC110 - the library closes in a thread of its own
        await asyncio.sleep(0)


async def test_with_an_advertised_host_that_is_what_is_dialled(tmp_path: Path) -> None:
    made = listening(tmp_path, broker_ip1="10.1.2.3")
    made.listen()
    assert {address.rpartition(":")[0] for address in made.dial.values()} == {"10.1.2.3"}
    made.protocols.close()
