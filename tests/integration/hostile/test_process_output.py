"""What a broker process writes and shows while clients put anything into names, keys and texts.

Each line of its log and of its audit is one line with escaped control characters, its pages have no
lines of an attacker's, and no secret is in any of them, in its store, or in `/proc`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.access.signature import ACCESS_KEY, SIGNATURE, sign
from kourou.errors import Code
from kourou.protocol.bodies.access_bodies import UserChange, encode_user_change, parse_role
from kourou.protocol.messages.access import AuthCreateUser
from kourou.protocol.request import Answerer
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.ext_fields import encode_ext_fields
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.service.processes import Child, Children
from kourou.transport.remoting_client import RemotingConnection
from kourou_rigs.attacked import ASK_MS, ROOT, SECRETS, TILL, raw_frame, signed
from kourou_rigs.certificates import Authority
from kourou_rigs.forked_starts import run_kourou
from kourou_rigs.hostile import fields_with
from kourou_rigs.key_folder import first_user

TEXTS = (
    "a\r\nb",
    '\n{"event":"forged","level":"info"}',
    "\x1b[2J\x1b]0;title\x07",
    "\u2028\u2029\x85\x0b\x0c",
    "\u202egnp.exe",
    "%s%s%n%x",
    "{0.__class__.__init__.__globals__}",
    "${jndi:ldap://127.0.0.1/x}",
    "$(touch outside)",
    '"} 1\nevil_metric{a="',
    'x"} evil_metric{a="1',
    "<script>alert(1)</script>",
    "\0" * 10,
    "x" * 20_000,
    "\ud83d\ude00",
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Child]:
    """A broker process with an administrator, whose secret is in a file."""
    keys = {
        "listenPort": "0",
        "brokerIP1": "127.0.0.1",
        "adminPort": "0",
        "mappedFileSizeCommitLog": str(1 << 20),
        "storePathRootDir": str(tmp_path / "store"),
        **first_user(tmp_path, f"{ROOT}:{SECRETS[ROOT]}"),
    }
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    with Children(tmp_path) as children:
        child = children.start_module("broker", "kourou_broker", "-c", str(conf))
        child.wait_for_ready()
        yield child


def test_a_crash_writes_no_memory(broker: Child) -> None:
    limits = Path(f"/proc/{broker.pid}/limits").read_text("ascii").splitlines()
    (core,) = [line.split() for line in limits if line.startswith("Max core file size")]
    assert core[4:6] == ["0", "0"]


def page(address: str, path: str) -> str:
    with urllib.request.urlopen(f"{address}{path}", timeout=ASK_MS / 1_000) as reply:
        text: str = reply.read().decode()
        return text


def checked_log(child: Child) -> str:
    """The log of a process; each of its lines is one that the process wrote itself."""
    log = child.log_path.read_text(encoding="utf-8")
    lines = [line for line in log.splitlines() if " is ready: " not in line[:40]]
    assert len(lines) == len(log.splitlines()) - 1
    for line in lines:
        record = json.loads(line)
        assert record.get("event") != "forged"
        texts = (str(value) for key, value in record.items() if key != "exception")
        assert all(text.isprintable() for text in texts)
        assert len(line) < 100_000
    return log


async def attack(to: RemotingConnection, text: str) -> None:
    """Put a text wherever a request has room for one, with credentials and without."""

    async def say(code: int, body: bytes = b"", **fields: str) -> None:
        await to.exchange(RemotingCommand(code, ext_fields=fields), (body,), timeout_ms=ASK_MS)

    plain = text.encode("utf-8", "replace").decode()
    named = json.dumps(plain)
    await say(310, a=plain, b=plain, c=plain, d="1", e="0", f="0", g="1", h="0", i=plain)
    await say(310, **{ACCESS_KEY: plain, SIGNATURE: plain}, b="orders", a="p", e="0", g="1")
    await say(34, f'{{"clientID":{named},"producerDataSet":[{{"groupName":{named}}}]}}'.encode())
    good = signed(TILL, {})
    heartbeat = f'{{"clientID":{named},"producerDataSet":[{{"groupName":"p"}}]}}'.encode()
    await say(34, heartbeat, **signed(TILL, {}, heartbeat))
    for code, fields in (
        (310, {"a": "p", "b": plain, "c": plain, "d": "1", "e": "0", "f": "0", "g": "1"}),
        (310, {"a": "p", "b": "orders", "c": "TBW102", "d": "1", "e": "0", "g": "1", "i": plain}),
        (11, {"consumerGroup": plain, "topic": plain, "queueId": "0", "queueOffset": "0",
              "maxMsgNums": "1"}),
        (12, {"topic": "orders", "key": plain, "maxNum": "1", "beginTimestamp": "0",
              "endTimestamp": "1"}),
        (3005, {"filter": plain}),
    ):  # fmt: skip
        await say(code, **signed(TILL, fields))
    await say(25, f"{plain}={plain}\n".encode(), **good)
    await say(99, plain.encode())


@pytest.mark.fault
async def test_no_text_forges_a_line_and_no_secret_is_written(
    broker: Child, tmp_path: Path
) -> None:
    connection = RemotingConnection(str(broker.ready["tcp"]))
    roles = (parse_role("writer"), parse_role("operator"))
    body = encode_user_change(UserChange(secret=SECRETS[TILL], roles=roles))
    fields = {**encode_ext_fields(AuthCreateUser(username=TILL)), ACCESS_KEY: ROOT}
    fields[SIGNATURE] = sign(fields, [body], SECRETS[ROOT])
    made = await connection.exchange(
        RemotingCommand(3001, ext_fields=fields), (body,), timeout_ms=ASK_MS
    )
    assert made.code == Code.SUCCESS, made.remark
    for text in TEXTS:
        await attack(connection, text)
        host, _, port = connection.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        raw = text.encode("utf-8", "replace")
        writer.write(raw_frame(raw) + b"GET /" + raw)
        await writer.drain()
        writer.close()
    address = str(broker.ready["admin"])
    pages = [page(address, path) for path in ("/metrics", "/config", "/statistics")]
    shown = "\n".join(pages)
    assert not [line for line in shown.splitlines() if line.startswith("evil_metric")]
    process = Path(f"/proc/{broker.pid}")
    visible = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    connection.close()
    assert broker.stop() == os.EX_OK
    log = checked_log(broker)
    audited = [
        line
        for path in (tmp_path / "store" / "kourou" / "audit").glob("*.jsonl")
        for line in path.read_text(encoding="utf-8").split("\n")
        if line
    ]
    assert len(audited) > len(TEXTS)
    assert all("\x1b" not in line and len(line) < 3_000 for line in audited)
    assert {"anonymous", TILL} <= {json.loads(line)["user"] for line in audited}
    _check_secrets(tmp_path, shown + log, visible)


def _check_secrets(folder: Path, shown: str, visible: bytes) -> None:
    """No secret, and not the key of the secrets, is in a page, a log, a file or `/proc`."""
    key = (folder / "access.keys").read_text().strip().partition(":")[2]
    secrets = [key.encode(), base64.b64decode(key)]
    secrets += [form for one in SECRETS.values() for form in (
        one.encode(), base64.b64encode(one.encode())[:-4], one.encode().hex().encode(),
        one.encode("utf-16-le"),
    )]  # fmt: skip
    files = [path for path in (folder / "store").rglob("*") if path.is_file()]
    assert any(path.name.startswith("0000") for path in files)
    for content in (shown.encode(), visible, *(path.read_bytes() for path in files)):
        assert not [one for one in secrets if one in content]


@pytest.mark.fault
async def test_no_text_forges_a_line_of_a_name_server(tmp_path: Path) -> None:
    """Whoever reaches it may register brokers and change values, with any text."""
    conf = tmp_path / "namesrv.conf"
    keys = {"listenPort": "0", "adminPort": "0", "kvConfigPath": str(tmp_path / "kv.json")}
    conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    specs = [
        spec for spec in REQUESTS.values() if Answerer.NAMESRV in spec.answered_by and spec.remoting
    ]
    with Children(tmp_path) as children:
        child = children.start_module("namesrv", "kourou_namesrv", "-c", str(conf))
        child.wait_for_ready()
        connection = RemotingConnection(str(child.ready["tcp"]))
        for text in TEXTS:
            plain = text.encode("utf-8", "replace").decode()
            for spec in specs:
                command = RemotingCommand(spec.code, ext_fields=dict(fields_with(spec, plain)))
                await connection.exchange(command, (plain.encode(),), timeout_ms=ASK_MS)
        shown = page(str(child.ready["admin"]), "/metrics")
        connection.close()
        assert child.stop() == os.EX_OK
        checked_log(child)
    assert not [line for line in shown.splitlines() if line.startswith("evil_metric")]


HIDDEN = "a-secret-that-no-text-shows"
FILES = {
    "accessKeyFile": ("keys", f"one:{HIDDEN}\n"),
    "initialAdminFile": ("first", f"{HIDDEN}\n"),
    "curveKeyFile": ("pair", f'public-key = "{HIDDEN}"\nsecret-key = "{HIDDEN}"\n'),
    "tls.server.keyPath": ("tls.key", f"-----BEGIN PRIVATE KEY-----\n{HIDDEN}\n"),
}


def started(*arguments: str) -> str:
    """What a broker that does not start says."""
    done = run_kourou("broker", *arguments)
    return done.stdout + done.stderr


@pytest.mark.fault
@pytest.mark.parametrize("key", FILES)
def test_a_refused_start_names_the_file_and_not_its_secret(tmp_path: Path, key: str) -> None:
    name, text = FILES[key]
    file = tmp_path / name
    file.touch(0o600)
    file.write_text(text)
    keys = {
        "listenPort": "0",
        "mappedFileSizeCommitLog": str(1 << 20),
        "storePathRootDir": str(tmp_path / "store"),
        key: str(file),
    }
    if key == "curveKeyFile":
        keys["curveClients"] = "any"
    if key == "tls.server.keyPath":
        certificate = Authority(tmp_path / "tls", "tests").pair("server")[0]
        keys |= {"tls.server.mode": "enforcing", "tls.server.certPath": str(certificate)}
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in keys.items()))
    said = started("-c", str(conf))
    assert str(file) in said
    assert "is ready" not in said
    assert HIDDEN not in said
    for option in ("-p", "-m"):
        assert HIDDEN not in started("-c", str(conf), option)


@pytest.mark.fault
def test_settings_are_printed_without_the_password_of_a_url(tmp_path: Path) -> None:
    """It should be in a file of its own, but a URL may have one."""
    url = f"postgresql://kourou:{HIDDEN}@127.0.0.1:1/events"
    arguments = ("--set", f"storePathRootDir={tmp_path}", "--set", f"eventStoreUrl={url}")
    for option in ("-p", "-m"):
        printed = started(*arguments, option)
        assert "***@127.0.0.1" in printed
        assert HIDDEN not in printed
