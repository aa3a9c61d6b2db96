"""Opening and closing, options of the process, and what a fork leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kourou import ClientSettings, ProducerSettings, SendStatus
from kourou.client.client_core import ClientCore, client_id, local_address, process_options
from kourou.client.session.discovery import NameServers
from kourou.client.session.io_thread import ClientClosed, ForkedClient
from kourou.errors import BadRequest, ConfigError


def core(cluster, **settings) -> ClientCore:
    return ClientCore(
        "127.0.0.1:9876", ClientSettings(client_ip="1.2.3.4", **settings), dial=cluster.dial
    )


def opened(client: ClientCore) -> ClientCore:
    client.acquire().submit(client.open()).result(60)
    return client


def closed(client: ClientCore) -> None:
    client.io.submit(client.close()).result(60)
    client.release()


@pytest.mark.feature("F031")
def test_discovery_happens_when_it_is_made(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        ClientCore(None, ClientSettings())
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    ClientCore(None, ClientSettings())
    ClientCore(None, ClientSettings(namesrv_addr="127.0.0.1:2"))
    with pytest.raises(ConfigError, match="is not an address"):
        ClientCore(None, ClientSettings(), options={"rocketmq.namesrv.addr": "a b"})


@pytest.mark.feature("F031")
def test_options_of_the_interpreter():
    script = "from kourou.client.client_core import process_options as p; print(p())"
    option = "rocketmq.namesrv.addr=h:1"
    run = subprocess.run(
        [sys.executable, "-X", option, "-c", script], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "{'rocketmq.namesrv.addr': 'h:1'}"
    assert isinstance(process_options(), dict)


@pytest.mark.feature("F212", "F284", "F285")
def test_client_ids(cluster):
    first, second = opened(core(cluster)), opened(core(cluster, instance_name="blue"))
    try:
        assert first.session.client_id.startswith(f"1.2.3.4@{os.getpid()}#")
        assert second.session.client_id == "1.2.3.4@blue"
        assert first.io is second.io, "one thread for one set of name servers"
    finally:
        closed(first)
        closed(second)


def test_a_bad_name_is_refused_and_nothing_stays(cluster):
    from kourou import ProducerSettings

    client = opened(core(cluster))
    try:
        with pytest.raises(BadRequest):
            client.producer(ProducerSettings(producer_group="no group!"))
    finally:
        closed(client)


def test_addresses():
    assert local_address(NameServers(("127.0.0.1:9876",), "test")) == "127.0.0.1"
    assert local_address(NameServers(("tcp://[::1]:1",), "test")) in ("::1", "127.0.0.1")
    nowhere = NameServers(("tcp://host.invalid.:1",), "test")
    assert local_address(nowhere) == "127.0.0.1"


@pytest.mark.fault
def test_a_forked_child_gets_an_error_and_may_open_its_own(cluster):
    client = opened(core(cluster))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        outcome = b"nothing"
        try:
            try:
                client.session.client_id.encode()
            except ForkedClient:
                outcome = b"told"
            client.release()
            own = opened(core(cluster))
            outcome += b" and open" if own.is_open else b""
            closed(own)
        finally:
            os.write(write_end, outcome)
            os._exit(0)
    os.close(write_end)
    outcome = os.read(read_end, 100)
    os.close(read_end)
    os.waitpid(child, 0)
    assert outcome == b"told and open"
    assert client.is_open
    closed(client)


@pytest.mark.parametrize("name", ["tls.enable", "tls.client.authServer"])
def test_an_option_that_promises_tls_is_refused(name):
    """As RocketMQ's users write -Dtls.enable=true."""
    with pytest.raises(ConfigError, match=f"{name}=true is refused: Kourou does not use TLS in"):
        ClientCore("127.0.0.1:9876", ClientSettings(), options={name: "true"})
    ClientCore("127.0.0.1:9876", ClientSettings(), options={name: "false"})


# -- client IDs ------------------------------------------------------------------------------------


@pytest.mark.feature("F285")
def test_the_default_instance_is_unique_in_and_between_processes():
    ids = {client_id("1.2.3.4", "DEFAULT", pid=p, number=n) for p in (1, 2) for n in (1, 2)}
    assert len(ids) == 4
    assert "1.2.3.4@1#2" in ids


def test_an_id_has_a_limit():
    with pytest.raises(BadRequest):
        client_id("1.2.3.4", "x" * 300, pid=1, number=1)


def test_threads_open_no_connections_that_would_not_name_the_user():
    assert ClientCore("127.0.0.1:1", ClientSettings()).dials_in_clear
    assert not ClientCore("127.0.0.1:1", ClientSettings(on_behalf_of="till")).dials_in_clear


# -- clients ---------------------------------------------------------------------------------------


async def test_a_closed_client_says_so(cluster, producing):
    mq = producing()
    with pytest.raises(ClientClosed):
        await mq.send("T", b"")
    async with mq:
        pass
    with pytest.raises(ClientClosed):
        await mq.send("T", b"")


@pytest.mark.feature("F165")
async def test_closing_waits_for_outcomes(cluster, producing):
    broker = cluster.broker()
    async with producing() as mq:
        await mq.send("T", b"first")
        futures = [await mq.send_async("T", b"x") for _ in range(5)]
    assert len(broker.stored("T")) == 6
    assert all(future.result().status is SendStatus.SEND_OK for future in futures)


async def test_another_producer_beside_the_clients_own(cluster, producing):
    broker = cluster.broker()
    async with producing() as mq, mq.producer(ProducerSettings(producer_group="other")) as other:
        await other.send("T", b"")
        await mq.send("T", b"")
    assert [frame.producer_group for frame in broker.frames] == ["other", "p"]
