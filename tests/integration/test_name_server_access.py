"""Users at a name server process: it has them from a broker process, and decides by them.

Requests are signed as RocketMQ's clients do, and go through RocketMQ's frames; brokers and the
command line have CURVE keys.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.access.signature import ACCESS_KEY, SIGNATURE, sign
from kourou.authorization.request_gate import NOT_A_MEMBER, NOT_YET
from kourou.cli.main import main
from kourou.clock import SystemClock
from kourou.errors import Code
from kourou.protocol.bodies.access_bodies import UserChange, encode_user_change, parse_role
from kourou.protocol.bodies.route_bodies import decode_cluster_info, decode_topic_route
from kourou.protocol.messages.access import AuthCreateUser, AuthUpdateUser
from kourou.protocol.messages.namesrv import (
    GetBrokerClusterInfo,
    GetRouteInfoByTopic,
    PutKvConfig,
    RegisterBroker,
)
from kourou.protocol.request import Request
from kourou.protocol.wire.ext_fields import encode_ext_fields
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.service.local_cluster import zmq_address
from kourou.service.processes import Child, Children, free_port
from kourou.transport.curve_keys import make_pair, read_pair, write_public
from kourou.transport.remoting_client import RemotingConnection
from kourou_rigs.access import send_to
from kourou_rigs.key_folder import first_user

TIMEOUT_MS = 20_000
HERE = ["127.0.0.1"]
SECRETS = {"root": "a secret of the first one", "till": "a secret of till"}
PUT = PutKvConfig(namespace="N", key="k", value="v")


class Suite:
    """A name server and a broker with users."""

    def __init__(self, folder: Path, children: Children) -> None:
        self._folder, self._children = folder, children
        for name, hosts in {"namesrv": HERE, "broker": HERE, "ops": [], "reader": []}.items():
            make_pair(folder / "keys" / name, name, hosts)
        self._first_user = first_user(folder, f"root:{SECRETS['root']}")
        self.zmq_port, self.tcp_port = free_port(), free_port()
        self.namesrv = self.start_name_server()
        self.broker = self.start_broker()

    def pair(self, name: str) -> Path:
        return self._folder / "keys" / name / f"{name}.key_secret"

    def public(self, name: str) -> Path:
        return self._folder / "keys" / name / f"{name}.key"

    def servers(self) -> Path:
        """A folder with the public keys of name server and broker."""
        folder = self._folder / "servers"
        for name, address in (
            ("namesrv", f"127.0.0.1:{self.zmq_port}"),
            ("broker", "127.0.0.1"),
        ):
            write_public(folder / f"{name}.key", read_pair(self.pair(name)).public, [address])
        return folder

    def start_name_server(self) -> Child:
        return self._start(
            "namesrv",
            "kourou_namesrv",
            {
                "listenPort": str(self.tcp_port),
                "zmqPort": str(self.zmq_port),
                "kvConfigPath": str(self._folder / "names" / "kvConfig.json"),
                "curveMembers": str(self.public("broker")),
            },
        )

    def start_broker(self) -> Child:
        return self._start(
            "broker",
            "kourou_broker",
            {
                "listenPort": "0",
                "brokerName": "broker-a",
                "brokerIP1": "127.0.0.1",
                "mappedFileSizeCommitLog": str(1 << 20),
                "storePathRootDir": str(self._folder / "store"),
                "initialAdminFile": self._first_user["initialAdminFile"],
                "curveServerKey": str(self.public("namesrv")),
                "namesrvAddr": zmq_address(self.namesrv),
                "registerNameServerPeriod": "60000",
            },
        )

    def _start(self, name: str, module: str, settings: dict[str, str]) -> Child:
        keys = {
            "adminEnable": "false",
            "accessKeyFile": self._first_user["accessKeyFile"],
            "curveKeyFile": str(self.pair(name)),
            "curveClients": "any",
            **settings,
        }
        conf = self._folder / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        child = self._children.start_module(name, module, "-c", str(conf))
        child.wait_for_ready()
        return child

    async def ask(
        self, child: Child, request: Request, body: bytes = b"", *, user: str = ""
    ) -> RemotingCommand:
        fields = dict(encode_ext_fields(request))
        if user:
            fields[ACCESS_KEY] = user
            fields[SIGNATURE] = sign(fields, [body], SECRETS[user])
        connection = RemotingConnection(str(child.ready["tcp"]).removeprefix("tcp://"))
        try:
            return await connection.exchange(
                RemotingCommand(request.code, ext_fields=fields), (body,), timeout_ms=TIMEOUT_MS
            )
        finally:
            connection.close()

    async def named(self, request: Request, *, user: str = "") -> tuple[int, str]:
        """Code and remark of the name server's reply."""
        reply = await self.ask(self.namesrv, request, user=user)
        return reply.code, reply.remark or ""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    folder = tmp_path_factory.mktemp("suite")
    with Children(folder) as children:
        made = Suite(folder, children)
        for name, role in (("ops", "administrator"), ("reader", "reader")):
            key = read_pair(made.pair(name)).public
            change = UserChange(roles=(parse_role(role),), curve_keys=(key,))
            asyncio.run(create(made, name, change))
        yield made


async def create(suite: Suite, name: str, change: UserChange) -> None:
    body = encode_user_change(change)
    made = await suite.ask(suite.broker, AuthCreateUser(username=name), body, user="root")
    assert made.code == Code.SUCCESS, made.remark


async def test_a_name_server_decides_by_the_users_of_its_broker(suite: Suite) -> None:
    assert "AclException" in (await suite.named(PUT))[1]
    assert (await suite.named(PUT, user="root"))[0] == Code.SUCCESS

    roles = tuple(map(parse_role, ("writer:orders-", "operator:orders-")))
    change = UserChange(secret=SECRETS["till"], roles=roles)
    await create(suite, "till", change)  # the reply waits for the name server
    stored = await suite.ask(suite.broker, send_to("orders-a"), b"one", user="till")
    assert stored.code == Code.SUCCESS, stored.remark
    signed = await suite.ask(suite.namesrv, GetRouteInfoByTopic(topic="orders-a"), user="till")
    route = decode_topic_route(bytes(signed.body))
    assert [one.broker_name for one in route.queue_datas] == ["broker-a"]
    unsigned = await suite.named(GetRouteInfoByTopic(topic="orders-a"))
    assert "anonymous has no right to Pub or Sub or Get on Topic:orders-a" in unsigned[1]
    other = await suite.named(GetRouteInfoByTopic(topic="bills-a"), user="till")
    assert "till has no right to" in other[1]
    assert "till has no right to Update on Cluster:" in (await suite.named(PUT, user="till"))[1]

    disabled = encode_user_change(UserChange(enabled=False))
    done = await suite.ask(suite.broker, AuthUpdateUser(username="till"), disabled, user="root")
    assert done.code == Code.SUCCESS, done.remark
    late = await suite.named(GetRouteInfoByTopic(topic="orders-a"), user="till")
    assert "the user is disabled" in late[1]


async def test_a_forged_broker_is_refused_also_by_its_administrator(suite: Suite) -> None:
    forged = RegisterBroker(
        cluster_name="DefaultCluster",
        broker_name="broker-a",
        broker_addr="127.0.0.1:1",
        broker_id=0,
    )
    for user in ("", "root"):
        assert await suite.named(forged, user=user) == (Code.NO_PERMISSION, NOT_A_MEMBER)
    known = await suite.ask(suite.namesrv, GetBrokerClusterInfo(), user="root")
    brokers = decode_cluster_info(bytes(known.body)).brokers
    assert "127.0.0.1:1" not in brokers["broker-a"].broker_addrs.values()


async def test_a_name_server_that_restarts_is_not_open(suite: Suite) -> None:
    assert (await suite.named(PUT, user="root"))[0] == Code.SUCCESS
    assert suite.namesrv.stop() == 0
    os.kill(suite.broker.pid, signal.SIGSTOP)  # else it registers again at once
    try:
        suite.namesrv = suite.start_name_server()
        assert await suite.named(PUT) == (Code.SERVICE_NOT_AVAILABLE, NOT_YET)
        route = GetRouteInfoByTopic(topic="orders-a")
        assert (await suite.named(route))[0] == Code.TOPIC_NOT_EXIST
    finally:
        os.kill(suite.broker.pid, signal.SIGCONT)
    async with asyncio.timeout(TIMEOUT_MS / 1_000):
        while (refused := await suite.named(PUT))[0] == Code.SERVICE_NOT_AVAILABLE:
            pass
    assert "AclException" in refused[1]
    assert (await suite.named(PUT, user="root"))[0] == Code.SUCCESS


def test_the_command_line_explains_decisions_of_the_past(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", zmq_address(suite.namesrv))
    monkeypatch.setenv("KOUROU_CURVE_KEY_FILE", str(suite.pair("ops")))
    monkeypatch.setenv("KOUROU_CURVE_SERVER_KEY", str(suite.servers()))
    times = [SystemClock().now_ms()]
    for words in (
        ("create", "clerk", "--no-secret"),
        ("allow", "clerk", "Sub", "Topic:orders"),
        ("revoke", "clerk", "Topic:orders"),
    ):
        assert main(("user", *words)) == 0
        times.append(SystemClock().now_ms())
    why = ("user", "why", "clerk", "Sub", "Topic:orders")
    answers = []
    for at_ms in times:
        capsys.readouterr()
        code = main((*why, "--at", str(at_ms)))
        answers.append((code, capsys.readouterr().out.splitlines()[1].split("  ")[0]))
    assert answers == [(1, "refused"), (1, "refused"), (0, "allowed"), (1, "refused")]
    assert main(why) == 1
    assert main(("user", "why", "ops", "Sub", "Topic:orders", "--at", str(times[0]))) == 0


def test_the_command_line_has_the_rights_of_its_key(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", zmq_address(suite.namesrv))
    monkeypatch.setenv("KOUROU_CURVE_KEY_FILE", str(suite.pair("reader")))
    monkeypatch.setenv("KOUROU_CURVE_SERVER_KEY", str(suite.public("namesrv")))
    assert main(("admin", "getNamesrvConfig")) == 0
    assert "curveMembers" in capsys.readouterr().out
    put = ("admin", "updateKvConfig", "-s", "N", "-k", "k", "-v", "v")
    assert main(put) != 0
    assert "user reader has no right to Update on Cluster:" in capsys.readouterr().err
