"""Addresses in requests: no service connects to one because a client names it.

Services connect to addresses of their settings, to brokers that name servers know, and to filter
servers that brokers know. A listener stands for what else an attacker could reach through them: no
connection may be waiting there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from socket import create_server, socket
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from kourou.protocol.request import Answerer
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.testing.cluster import Cluster
from kourou.transport.remoting_client import RemotingConnection
from kourou.transport.zmq_client import ZmqConnection
from kourou_console.http.request_input import path_names
from kourou_console.operation import BodyKind, Operation
from kourou_console.operations import OPERATIONS
from kourou_namesrv.app import NamesrvService
from kourou_namesrv.config import NamesrvSettings
from kourou_rigs.attacked import ASK_MS, ROOT, Attacked, signed
from kourou_rigs.console import ConsoleHere
from kourou_rigs.hostile import NAMES_IN_BODIES, fields_with, has_room, texts_of

UPDATE_BROKER_CONFIG, UPDATE_NAMESRV_CONFIG = 25, 318
SETTINGS = (
    "namesrvAddr={0}", "haMasterAddress={0}", "brokerIP1={0}", "traceOtlpEndpoint=http://{0}",
    "eventStoreUrl=postgresql://{0}/x", "kvConfigPath=http://{0}/x",
)  # fmt: skip


@pytest.fixture
def trap() -> Iterator[socket]:
    """A listener; at the end nobody may have connected to it."""
    with create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener
        with pytest.raises(BlockingIOError):
            listener.accept()


def forms(trap: socket) -> list[str]:
    """The listener's address as it stands in requests, settings and pages."""
    address = "{}:{}".format(*trap.getsockname())
    return [address, f"tcp://{address}", f"http://{address}/x"]


def bodies(text: str) -> list[bytes]:
    named = msgspec.json.encode(text).decode()
    found = [one.format(named) for one in NAMES_IN_BODIES]
    return [text.encode(), *(one.encode() for one in found)]


async def walk(
    remoting: RemotingConnection, zmq: ZmqConnection, answerer: Answerer, text: str, user: str = ""
) -> int:
    """Send every request of a service with an address in all its texts; returns how many."""
    count = 0
    for spec in REQUESTS.values():
        if answerer not in spec.answered_by:
            continue
        for body in bodies(text):
            count += 1
            if spec.remoting:
                fields: Mapping[str, str] = fields_with(spec, text)
                fields = signed(user, fields, body) if user else fields
                command = RemotingCommand(spec.code, ext_fields=dict(fields))
                await remoting.exchange(command, (body,), timeout_ms=ASK_MS)
            elif spec.oneway:
                zmq.oneway(texts_of(spec, text), body=(body,))
            else:
                await zmq.request(texts_of(spec, text), body=(body,), timeout_ms=ASK_MS)
    return count


@pytest.mark.fault
async def test_a_broker_connects_to_no_address_of_a_client(
    attacked: Attacked, trap: socket
) -> None:
    for text in forms(trap):
        assert await walk(attacked.remoting, attacked.client, Answerer.BROKER, text) > 100
        for line in SETTINGS:
            await attacked.say(UPDATE_BROKER_CONFIG, line.format(text).encode())
    await attacked.sent(b"by ZeroMQ")
    await attacked.serves()


@pytest.mark.fault
async def test_nor_to_one_of_an_administrator(secured: Attacked, trap: socket) -> None:
    address = forms(trap)[0]
    before = set(secured.view.control.access.users)
    assert await walk(secured.remoting, secured.client, Answerer.BROKER, address, ROOT) > 100
    for line in SETTINGS:
        await secured.say(UPDATE_BROKER_CONFIG, line.format(address).encode(), user=ROOT)
    assert before <= set(secured.view.control.access.users)
    await secured.serves(ROOT)


@pytest.fixture
async def names(tmp_path: Path) -> AsyncIterator[tuple[RemotingConnection, ZmqConnection]]:
    """Connections to a name server."""
    failures: list[BaseException] = []
    settings = NamesrvSettings(
        listen_port=0, admin_enabled=False, kv_config_path=tmp_path / "names" / "kv.json"
    )
    service = NamesrvService(settings)
    await service.recover(failures.append)
    addresses = dict(await service.serve())
    remoting = RemotingConnection(addresses["tcp"])
    zmq = ZmqConnection(addresses["zmq"].removeprefix("tcp://"))
    yield remoting, zmq
    remoting.close()
    zmq.close()
    await service.drain()
    await service.stop()
    assert failures == []


@pytest.mark.fault
async def test_a_name_server_connects_to_nobody(
    names: tuple[RemotingConnection, ZmqConnection], trap: socket
) -> None:
    """It also keeps addresses of brokers, which others connect to."""
    for text in forms(trap):
        assert await walk(*names, Answerer.NAMESRV, text) > 30
        for line in SETTINGS:
            command = RemotingCommand(UPDATE_NAMESRV_CONFIG)
            body = line.format(text).encode()
            await names[0].exchange(command, (body,), timeout_ms=ASK_MS)


# -- the console ----------------------------------------------------------------------------------

KNOWN = {"topic": "orders", "group": "tests", "broker": "broker-a"}


def value_of(kind: inspect.Type, text: str) -> Any:
    """A value of a type whose texts are the address, flags true and numbers 0."""
    match kind:
        case inspect.UnionType(types=types):
            given = [one for one in types if not isinstance(one, inspect.NoneType)]
            return value_of(given[0], text)
        case inspect.StructType(fields=fields):
            return {
                one.encode_name: value_of(one.type, text)
                for one in fields
                if one.required or has_room(one.type) or isinstance(one.type, inspect.BoolType)
            }
        case inspect.StrType():
            return text
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 0
        case inspect.EnumType(cls=cls):
            return next(iter(cls)).value
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.DictType():
            return {text: text}
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return [value_of(item, text)]
    return None


def ask(console: ConsoleHere, operation: Operation, text: str, known: Mapping[str, str]) -> int:
    """Call an operation; what is not `known` has the address. Returns the status."""
    in_path = path_names(operation.path)
    path = operation.path
    for name in in_path:
        path = path.replace(f"{{{name}}}", known.get(name, text.replace("/", "%2F")))
    fields = msgspec.structs.fields(operation.parameters)
    query = {
        one.encode_name: known.get(one.encode_name, text)
        for one in fields
        if one.encode_name not in in_path and has_room(inspect.type_info(one.type))
    }
    options: dict[str, Any] = {}
    if operation.body_kind is BodyKind.BYTES:
        options["body"] = text.encode()
    elif operation.body is not None:
        options["json"] = value_of(inspect.type_info(operation.body), text)
    return console.request(operation.method, path, query=query, **options).status


@pytest.mark.fault
def test_a_console_connects_to_registered_brokers_only(tmp_path: Path, trap: socket) -> None:
    """Also where an operation takes the address of a broker or of a replica."""
    with Cluster(tmp_path) as cluster, ConsoleHere(cluster) as console:
        cluster.create_topic("orders")
        called = 0
        for text in forms(trap):
            for operation in OPERATIONS:
                if operation.stream:
                    continue
                for known in (KNOWN, {}):
                    status = ask(console, operation, text, known)
                    assert status != 500, (operation.name, known)
                    called += 1
        assert called > 300
        for header in ("host", "x-forwarded-host", "forwarded", "x-forwarded-for", "referer"):
            for path in ("/v1/topics", "/openapi.json", "/"):
                assert console.get(path, headers={header: forms(trap)[0]}).status < 500
        assert not console.failures


def test_a_connection_would_be_noticed(trap: socket) -> None:
    """The listener has it although nobody accepts it."""
    with socket() as client:
        client.connect(trap.getsockname())
        trap.accept()[0].close()
