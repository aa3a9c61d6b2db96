"""Users at a broker process: signed requests of RocketMQ's frames, CURVE keys of Kourou's.

The first administrator comes from a file, what is decided survives a restart, and the owner of the
machine gets back in.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kourou.access.signature import ACCESS_KEY, SIGNATURE, sign
from kourou.authorization.request_gate import USERS_UNREADABLE
from kourou.broker.administrators import recovery_file
from kourou.engine.transactions.half_messages import COMMIT
from kourou.errors import Code
from kourou.events.control_events import Cause, UnknownEvent, encode_record_body
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import Subscription
from kourou.protocol.bodies.access_bodies import (
    UserChange,
    decode_users,
    encode_user_change,
    parse_role,
)
from kourou.protocol.bodies.config_bodies import decode_topic_configs
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.access import (
    AuthCreateUser,
    AuthListUser,
    AuthUpdateUser,
    SetAccessMode,
)
from kourou.protocol.messages.broker_admin import GetAllTopicConfig, GetBrokerRuntimeInfo
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.pulls import QueryMessage, ViewMessageById
from kourou.protocol.messages.sends import ConsumerSendMsgBack
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.request import Request
from kourou.protocol.wire.ext_fields import encode_ext_fields
from kourou.protocol.wire.remoting import RemotingCommand, decode_header, encode_command
from kourou.service.processes import Child, Children
from kourou.store.real_disk import RealDisk
from kourou.store.settings import StoreSettings
from kourou.store.store import Store
from kourou.transport.addresses import split_address
from kourou.transport.curve_keys import ClientCurve, PairFile, ServerKeys, make_pair, read_pair
from kourou.transport.remoting_client import RemotingConnection
from kourou.transport.zmq_client import ZmqConnection
from kourou_rigs.access import send_to
from kourou_rigs.certificates import Authority
from kourou_rigs.forked_starts import run_kourou
from kourou_rigs.key_folder import first_user
from kourou_rigs.store import Draft, StoreWriter
from kourou_rigs.transacting import end

TIMEOUT_MS = 20_000
ROOT, ROOT_SECRET = "root", "a secret of the first one"
WRITER, WRITER_SECRET = "orders-writer", "orders-secret"


def conf_of(folder: Path, settings: Mapping[str, str]) -> Path:
    """Write the settings file of a broker in a folder, and what it names."""
    keys = {
        "listenPort": "0",
        "adminEnable": "false",
        "brokerIP1": "127.0.0.1",
        "mappedFileSizeCommitLog": str(1 << 20),
        "storePathRootDir": str(folder / "store"),
        **first_user(folder, f"{ROOT}:{ROOT_SECRET}"),
        **settings,
    }
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return conf


class Broker:
    """One broker process in a folder; requests are sent to its remoting listener."""

    def __init__(self, folder: Path, children: Children, **settings: str) -> None:
        conf = str(conf_of(folder, settings))
        self.child: Child = children.start_module("broker", "kourou_broker", "-c", conf)
        self.child.wait_for_ready()

    async def ask(
        self, request: Request, body: bytes = b"", *, user: str = "", secret: str = ""
    ) -> RemotingCommand:
        connection = RemotingConnection(str(self.child.ready["tcp"]))
        try:
            return await connection.exchange(
                command(request, body, user, secret), (body,), timeout_ms=TIMEOUT_MS
            )
        finally:
            connection.close()

    async def change(self, request: Request, change: UserChange) -> None:
        """Send a request about a user as the administrator."""
        body = encode_user_change(change)
        reply = await self.ask(request, body, user=ROOT, secret=ROOT_SECRET)
        assert reply.code == Code.SUCCESS, reply.remark

    async def create(self, name: str, secret: str, *roles: str) -> RemotingCommand:
        change = UserChange(secret=secret, roles=tuple(map(parse_role, roles)))
        return await self.ask(
            AuthCreateUser(username=name),
            encode_user_change(change),
            user=ROOT,
            secret=ROOT_SECRET,
        )


def command(request: Request, body: bytes, user: str, secret: str) -> RemotingCommand:
    """The header of a request as RocketMQ's clients sign it; without a user it is not signed."""
    fields = dict(encode_ext_fields(request))
    if user:
        fields[ACCESS_KEY] = user
        fields[SIGNATURE] = sign(fields, [body], secret)
    return RemotingCommand(request.code, ext_fields=fields)


def verifying(authority: Authority) -> dict[str, str]:
    """Settings of a broker that accepts clear text, TLS, and certificates of an authority."""
    certificate, key = authority.pair("broker")
    return {
        "tls.server.mode": "permissive",
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(key),
        "tls.server.trustCertPath": str(authority.path),
        "tls.server.need.client.auth": "optional",
    }


class SecureConnection:
    """A connection over TLS to a broker's remoting listener."""

    async def open(self, broker: Broker, context: ssl.SSLContext) -> SecureConnection:
        host, port = split_address(str(broker.child.ready["tcp"]))
        self._reader, self._writer = await asyncio.open_connection(host, port, ssl=context)
        return self

    async def send(self, topic: str, *, user: str = "", secret: str = "") -> str:
        """Send a message; returns why it is refused, "" if it is not."""
        body = b"one"
        self._writer.write(
            encode_command(replace(command(send_to(topic), body, user, secret), body=body))
        )
        size, word = struct.unpack(">II", await self._reader.readexactly(8))
        frame = await self._reader.readexactly(size - 4)
        reply = decode_header(word >> 24, frame[: word & 0xFFFFFF])
        assert reply.code in (Code.SUCCESS, Code.SYSTEM_ERROR), reply.remark
        return (reply.remark or "") if reply.code else ""

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):  # the broker has closed it
            await self._writer.wait_closed()


@contextmanager
def started(folder: Path, **settings: str) -> Iterator[Broker]:
    with Children(folder) as children:
        yield Broker(folder, children, **settings)


def audit(folder: Path) -> list[dict[str, object]]:
    files = sorted((folder / "store" / "kourou" / "audit").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


async def test_signed_requests_are_decided_and_survive_a_restart(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        assert (await broker.ask(send_to("orders-a"))).code == Code.SYSTEM_ERROR
        created = await broker.create(WRITER, WRITER_SECRET, "writer:orders-", "operator:orders-")
        assert created.code == Code.SUCCESS, created.remark
        writer = {"user": WRITER, "secret": WRITER_SECRET}
        stored = await broker.ask(send_to("orders-a"), b"one", **writer)
        assert stored.code == Code.SUCCESS, stored.remark
        other = await broker.ask(send_to("bills-a"), b"one", **writer)
        assert "AclException" in (other.remark or "")
        assert "Pub on Topic:bills-a" in (other.remark or "")
        wrong = await broker.ask(send_to("orders-a"), b"one", user=WRITER, secret="guessed")
        unknown = await broker.ask(
            send_to("orders-a"), b"one", user="nobody-here", secret="guessed"
        )
        assert (wrong.remark or "").replace(WRITER, "X") == (unknown.remark or "").replace(
            "nobody-here", "X"
        )
        assert (await broker.ask(GetBrokerRuntimeInfo(), **writer)).code == Code.SYSTEM_ERROR
    lines = audit(tmp_path)
    assert {(line["user"], line["request"]) for line in lines} >= {
        ("anonymous", "SendMessage"),
        (WRITER, "SendMessage"),
        (WRITER, "GetBrokerRuntimeInfo"),
    }
    written = b"".join(
        path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()
    )
    assert ROOT_SECRET.encode() not in written
    assert WRITER_SECRET.encode() not in written
    with started(tmp_path) as broker:
        again = await broker.ask(send_to("orders-a"), b"two", **writer)
        assert again.code == Code.SUCCESS, again.remark
        assert (await broker.ask(send_to("orders-a"), b"two")).code == Code.SYSTEM_ERROR


async def test_users_of_a_file_exist_from_the_first_start_on(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(
        f'["{WRITER}"]\nroles = ["operator:orders-"]\nallow = ["Pub Topic:orders-*"]\n'
        'secret-file = "writer"\n[root]\nroles = ["administrator"]\nsecret-file = "root"\n'
    )
    (tmp_path / "writer").write_text(WRITER_SECRET)
    (tmp_path / "root").write_text(ROOT_SECRET)
    settings = {"initialAdminFile": "", "initialUsersFile": str(users)}
    writer = {"user": WRITER, "secret": WRITER_SECRET}
    with started(tmp_path, **settings) as broker:
        assert (await broker.ask(send_to("orders-a"))).code == Code.SYSTEM_ERROR
        assert (await broker.ask(send_to("orders-a"), **writer)).code == Code.SUCCESS
        assert (await broker.ask(send_to("bills-a"), **writer)).code == Code.SYSTEM_ERROR
        await broker.change(AuthUpdateUser(username=WRITER), UserChange(enabled=False))
    with started(tmp_path, **settings) as broker:  # who exists stays as they are
        assert (await broker.ask(send_to("orders-a"), **writer)).code == Code.SYSTEM_ERROR
    users.write_text(users.read_text() + "[double]\nroles = ['king']\n[late]\n")
    with started(tmp_path, **settings) as broker:  # it leads without a user that cannot be
        listed = await broker.ask(AuthListUser(), user=ROOT, secret=ROOT_SECRET)
        assert {one.name for one in decode_users(bytes(listed.body))} == {ROOT, WRITER, "late"}
        assert "user double: 'king' is not a role" in broker.child.log_path.read_text()


ACCOUNT = "  - accessKey: {0}\n    secretKey: secret-of-{0}\n    topicPerms: [news=PUB]\n"


async def test_users_of_a_file_come_and_go_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "acl"
    folder.mkdir()
    file = folder / "plain_acl.yml"
    file.write_text("accounts:\n" + ACCOUNT.format("till-01"))

    async def answer(name: str, *, refused: str) -> None:
        """Wait until sends of a user are refused by this text."""
        async with asyncio.timeout(TIMEOUT_MS / 1_000):
            while True:
                done = await broker.ask(
                    send_to("news"), b"one", user=name, secret=f"secret-of-{name}"
                )
                if refused in (done.remark or ""):
                    return

    unknown, known, disabled = "Check signature failed", "Create on Topic:news", "is disabled"
    with started(tmp_path, aclImportDir=str(folder)) as broker:
        await answer("till-01", refused=known)  # from the start on
        await answer("bill-01", refused=unknown)
        file.write_text("accounts:\n" + ACCOUNT.format("bill-01"))
        await answer("bill-01", refused=known)
        await answer("till-01", refused=disabled)
        file.write_text("accounts: [")
        (folder / "more.yml").write_text("accounts:\n" + ACCOUNT.format("news-01"))
        file.write_text("accounts: []")
        await answer("news-01", refused=known)
        await answer("bill-01", refused=disabled)
        listed = await broker.ask(AuthListUser(), user=ROOT, secret=ROOT_SECRET)
        enabled = {one.name: one.enabled for one in decode_users(bytes(listed.body))}
    assert enabled == {ROOT: True, "till-01": False, "bill-01": False, "news-01": True}
    file.write_text("accounts: [")
    with started(tmp_path, aclImportDir=str(folder)) as broker:  # a bad file, but there are users
        await answer("news-01", refused=known)


async def test_the_owner_of_the_machine_gets_back_in(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        assert (await broker.create(WRITER, WRITER_SECRET, "writer")).code == Code.SUCCESS
    recovery_file(tmp_path / "store").write_text("owner:a recovered secret\n")
    with started(tmp_path) as broker:
        listed = await broker.ask(AuthListUser(), user="owner", secret="a recovered secret")
        assert listed.code == Code.SUCCESS, listed.remark
        users = {one.name: one for one in decode_users(bytes(listed.body))}
        assert set(users) == {ROOT, WRITER, "owner"}
        assert users["owner"].administers
        assert not recovery_file(tmp_path / "store").exists()


async def test_a_broker_that_cannot_read_its_users_opens_to_its_owner_only(tmp_path: Path) -> None:
    """A newer version led the log and wrote a value that this one does not know."""
    with started(tmp_path) as broker:
        assert (await broker.create(WRITER, WRITER_SECRET, "writer")).code == Code.SUCCESS
    body = encode_record_body(
        UnknownEvent(
            "UserPut", f"user/{WRITER}", b'{"type":"UserPut","user":{"name":"x","kind":"new"}}'
        ),
        at_ms=1,
        cause=Cause("newer"),
    )
    store = Store.open(
        StoreSettings(root=tmp_path / "store", segment_size_bytes=1 << 20), RealDisk()
    )
    StoreWriter(store).write([Draft(CONTROL_TOPIC, 0, body, "UserPut")])
    store.close()
    writer = {"user": WRITER, "secret": WRITER_SECRET}
    for _ in range(2):
        with started(tmp_path) as broker:
            for who in ({"user": ROOT, "secret": ROOT_SECRET}, writer, {}):
                for request in (AuthListUser(), send_to("orders")):
                    reply = await broker.ask(request, b"one", **who)
                    assert USERS_UNREADABLE in (reply.remark or ""), reply
    log = broker.child.log_tail(1_000)
    assert f"(UserPut of user/{WRITER}) is about users, and cannot be read" in log
    recovery_file(tmp_path / "store").write_text("owner:a recovered secret\n")
    owner = {"user": "owner", "secret": "a recovered secret"}
    for _ in range(2):
        with started(tmp_path) as broker:
            listed = await broker.ask(AuthListUser(), **owner)
            assert listed.code == Code.SUCCESS, listed.remark
            enabled = {one.name: one.enabled for one in decode_users(bytes(listed.body))}
            assert enabled == {ROOT: False, WRITER: False, "owner": True}
            refused = await broker.ask(send_to("orders"), b"one", **writer)
            assert "is disabled" in (refused.remark or "")


USERS = ("app", "rival")


@dataclass(frozen=True)
class Secured:
    """A broker that accepts keys and certificates, and users with rights to NAME-."""

    folder: Path
    broker: Broker
    authority: Authority

    def pair(self, name: str) -> Path:
        return pair(self.folder, name)

    def connect(self, name: str) -> ZmqConnection:
        servers = ServerKeys(self.folder / "keys" / "broker" / "broker.key")
        address = str(self.broker.child.ready["zmq"]).removeprefix("tcp://")
        return ZmqConnection(address, curve=ClientCurve(PairFile(self.pair(name)), servers))

    async def create_users(self) -> None:
        """Each with a key and a secret; the chief administers by a key alone."""
        key = read_pair(self.pair("chief")).public
        chief = UserChange(roles=(parse_role("administrator"),), curve_keys=(key,))
        await self.broker.change(AuthCreateUser(username="chief"), chief)
        for name in USERS:
            change = UserChange(
                secret=f"secret-of-{name}",
                roles=(parse_role(f"writer:{name}-"), parse_role(f"operator:{name}-")),
                curve_keys=(read_pair(self.pair(name)).public,),
            )
            await self.broker.change(AuthCreateUser(username=name), change)


def pair(folder: Path, name: str) -> Path:
    return folder / "keys" / name / f"{name}.key_secret"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    for name in ("broker", "chief", *USERS, "stranger"):
        make_pair(folder / "keys" / name, name, ["127.0.0.1"] if name == "broker" else [])
    authority = Authority(folder / "tls", "own")
    curve = {"curveKeyFile": str(pair(folder, "broker")), "curveClients": "any"}
    with started(folder, **curve, tcpEnable="true", **verifying(authority)) as broker:
        made = Secured(folder, broker, authority)
        asyncio.run(made.create_users())
        yield made


class BothDoors:
    """The users' connections by their keys, and their signed requests."""

    def __init__(self, secured: Secured) -> None:
        self._broker = secured.broker
        self.links = {name: secured.connect(name) for name in USERS}

    async def ask(
        self, name: str, door: str, request: Request, body: bytes = b""
    ) -> tuple[bool, bytes]:
        """Send a request; returns whether it is allowed, and the reply's body."""
        if door == "tcp":
            secret = f"secret-of-{name}"
            signed = await self._broker.ask(request, body, user=name, secret=secret)
            refused = signed.code == Code.SYSTEM_ERROR and "AclException" in (signed.remark or "")
            return not refused, bytes(signed.body)
        reply = await self.links[name].request(
            request, body=(body,) if body else (), timeout_ms=TIMEOUT_MS
        )
        return reply.code != Code.NO_PERMISSION, b"".join(map(bytes, reply.body))


@pytest.fixture
async def doors(secured: Secured) -> AsyncIterator[BothDoors]:
    both = BothDoors(secured)
    yield both
    for link in both.links.values():
        link.close()


async def test_the_key_of_a_connection_is_its_user(secured: Secured) -> None:
    codes = {}
    for name in ("app", "stranger"):
        connection = secured.connect(name)
        reply = await connection.request(send_to("app-a"), body=(b"one",), timeout_ms=TIMEOUT_MS)
        codes[name] = reply.code
        connection.close()
    assert codes == {"app": Code.SUCCESS, "stranger": Code.NO_PERMISSION}


async def test_the_certificate_of_a_connection_is_its_user(secured: Secured) -> None:
    authority, broker = secured.authority, secured.broker
    subject = "CN=till,OU=Shop,O=Example"
    contexts = {
        "till": authority.trusted(authority.pair("till", subject=subject)),
        "renewed": authority.trusted(authority.pair("renewed", subject=subject)),
        "unknown": authority.trusted(authority.pair("other", subject="CN=till,OU=2,O=Example")),
        "none": authority.trusted(),
    }
    own_roles = (parse_role("writer:orders-"), parse_role("operator:orders-"))
    till = UserChange(roles=own_roles, certificate_subjects=("cn=till, ou=Shop, o=Example",))
    await broker.change(AuthCreateUser(username="till"), till)
    assert (await broker.create(WRITER, WRITER_SECRET, "writer", "operator")).code == 0
    writer = {"user": WRITER, "secret": WRITER_SECRET}
    links = {
        name: await SecureConnection().open(broker, context) for name, context in contexts.items()
    }
    for name, link in links.items():
        refused = await link.send("orders-a")
        assert bool(refused) == (name in ("unknown", "none")), (name, refused)
        assert not refused or "user anonymous has no right" in refused
    refused = await links["till"].send("bills-a")
    assert "user till has no right to Pub on Topic:bills-a" in refused
    assert "does not belong to user" in await links["till"].send("orders-a", **writer)
    assert await links["unknown"].send("orders-a", **writer) == ""
    for change, reason in (
        (UserChange(enabled=False), "the user is disabled"),
        (UserChange(enabled=True, certificate_subjects=()), "user anonymous has no right"),
    ):
        await broker.change(AuthUpdateUser(username="till"), change)
        assert reason in await links["till"].send("orders-a")
    for link in links.values():
        await link.close()


async def send_once(broker: Broker, context: ssl.SSLContext) -> None:
    link = await SecureConnection().open(broker, context)
    try:
        await link.send("orders-a")
    finally:
        await link.close()


@pytest.mark.fault
async def test_certificates_that_are_not_valid_get_no_connection(
    secured: Secured, tmp_path: Path
) -> None:
    authority, other = secured.authority, Authority(tmp_path / "other", "other")
    user = UserChange(roles=(parse_role("writer"),), certificate_subjects=("CN=expired",))
    await secured.broker.change(AuthCreateUser(username="expired"), user)
    for shown in (other.pair("expired"), authority.pair("expired", expired=True)):
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await send_once(secured.broker, authority.trusted(shown))


async def test_messages_and_topics_of_others_are_hidden_over_both_protocols(
    secured: Secured, doors: BothDoors
) -> None:
    half = "TRAN_MSG\x01true\x02PGROUP\x01g\x02UNIQ_KEY\x01U"
    positions = []
    for message in (
        send_to("app-a"),
        send_to("rival-a", properties="KEYS\x01k"),
        send_to("rival-a", properties=half, sys_flag=4),
    ):
        stored = await secured.broker.ask(message, b"x", user=ROOT, secret=ROOT_SECRET)
        assert stored.code == Code.SUCCESS, stored.remark
        positions.append(decode_offset_id((stored.ext_fields or {})["msgId"])[1])
    own, other, other_half = positions
    query = QueryMessage(
        topic="rival-a", key="k", max_num=9, begin_timestamp=0, end_timestamp=1 << 60
    )
    for door in ("tcp", "zmq"):
        for request in (
            ViewMessageById(offset=other),
            ViewMessageById(offset=other_half),
            query,
            ConsumerSendMsgBack(offset=other, group="app-g", delay_level=0),
            end((0, other_half), COMMIT, group="g"),
        ):
            assert not (await doors.ask("app", door, request))[0], (door, request)
        assert (await doors.ask("app", door, ViewMessageById(offset=own)))[0]
        _, body = await doors.ask("app", door, GetAllTopicConfig())
        found, _ = decode_topic_configs(body)
        assert [one.name for one in found] == ["app-a"]


async def test_one_protocol_is_enforced_while_the_other_is_observed(
    secured: Secured, doors: BothDoors
) -> None:
    chief = secured.connect("chief")

    async def let_through(*modes: tuple[str, str]) -> list[str]:
        for mode, door in modes:
            request = SetAccessMode(mode=mode, door=door)
            done = await chief.request(request, timeout_ms=TIMEOUT_MS)
            assert done.code == Code.SUCCESS, done.remark
        wanted = send_to("app-a")
        return [one for one in ("tcp", "zmq") if (await doors.ask("rival", one, wanted))[0]]

    assert await let_through() == []
    assert await let_through(("observe", ""), ("enforce", "remoting")) == ["zmq"]
    assert await let_through(("enforce", ""), ("observe", "remoting")) == ["tcp"]
    assert await let_through(("enforce", "")) == []
    chief.close()


async def test_a_client_id_is_of_its_connected_user_over_both_protocols(doors: BothDoors) -> None:
    def beat(name: str) -> bytes:
        data = ConsumerData(f"{name}-g", subscriptions=(Subscription(f"{name}-a"),))
        return encode_heartbeat(HeartbeatBody("c1", consumers=(data,)))

    assert (await doors.ask("app", "zmq", HeartBeat(), beat("app")))[0]
    for door in ("tcp", "zmq"):
        assert not (await doors.ask("rival", door, HeartBeat(), beat("rival")))[0]
        assert (await doors.ask("app", door, HeartBeat(), beat("app")))[0]
    doors.links["app"].close()
    for door in ("tcp", "zmq"):
        async with asyncio.timeout(TIMEOUT_MS / 1_000):  # until the broker sees that it closed
            while not (await doors.ask("rival", door, HeartBeat(), beat("rival")))[0]:
                pass


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("initialAdminFile", "first-admin-without-secret", "is not NAME:SECRET"),
        ("initialUsersFile", "first-admin-without-secret", "is not a file of users"),
        ("initialUsersFile", "no-users", "has no users"),
        ("aclImportDir", "no-folder-here", "aclImportDir"),
        ("accessKeyFile", "store/access.keys", "is inside storePathRootDir"),
        ("accessKeyFile", "link-into-store", "is inside storePathRootDir"),
    ],
)
def test_a_bad_file_stops_the_start_with_a_sentence(
    tmp_path: Path, setting: str, value: str, sentence: str
) -> None:
    (tmp_path / "first-admin-without-secret").write_text("root\n")
    (tmp_path / "no-users").write_text("# to be written\n")
    (tmp_path / "link-into-store").symlink_to(tmp_path / "store" / "access.keys")
    conf = conf_of(tmp_path, {"initialAdminFile": "", setting: str(tmp_path / value)})
    done = run_kourou("broker", "-c", str(conf))
    assert done.returncode == 2
    assert sentence in done.stderr
