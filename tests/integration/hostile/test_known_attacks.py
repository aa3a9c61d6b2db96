"""Attacks on RocketMQ that have a CVE number, as they were made."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.errors import Code
from kourou.protocol.wire.remoting import RemotingCommand
from kourou.transport.remoting_client import RemotingConnection
from kourou_namesrv.app import NamesrvService
from kourou_namesrv.config import NamesrvSettings
from kourou_rigs.attacked import ASK_MS, ROOT, SECRETS, TILL, Attacked

UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG = 25, 26
UPDATE_NAMESRV_CONFIG, GET_NAMESRV_CONFIG = 318, 319
GET_BROKER_CLUSTER_ACL_CONFIG = 54

COMMANDS = (
    "rocketmqHome=-c $@|sh . echo touch {0};\nfilterServerNums=1\n",
    "filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch {0};\n",
    "rocketmqHome={0}\n",
    "filterServerNums=1\n",
    "rocketmqHome:{0}\n",
    "  rocketmqHome = {0}\n",
    "rocketmqH\\u006fme={0}\n",
    "flushDiskType=SYNC_FLUSH\nrocketmqHome={0}\nfilterServerNums=1\n",
    "maxTransferCountOnMessageInMemory=64\\u000arocketmqHome={0}\n",
    "maxTransferCountOnMessageInMemory=64\\nrocketmqHome={0}\n",
)


def children() -> set[int]:
    """The processes that this one has started."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


@pytest.mark.fault
@pytest.mark.parametrize("user", ["", ROOT, TILL])
async def test_cve_2023_33246_a_setting_runs_no_command(
    secured: Attacked, tmp_path: Path, user: str
) -> None:
    """A home directory and a number of filter servers were a command line for a shell."""
    before = await secured.say(GET_BROKER_CONFIG, user=ROOT)
    running = children()
    for form in COMMANDS:
        body = form.format(tmp_path / "touched").encode()
        reply = await secured.say(UPDATE_BROKER_CONFIG, body, user=user)
        assert reply.code != Code.SUCCESS, form
    after = await secured.say(GET_BROKER_CONFIG, user=ROOT)
    assert bytes(after.body) == bytes(before.body)
    assert children() == running
    assert not (tmp_path / "touched").exists()
    await secured.serves(ROOT)


@pytest.mark.fault
async def test_cve_2023_33246_without_users(attacked: Attacked, tmp_path: Path) -> None:
    before = await attacked.say(GET_BROKER_CONFIG)
    running = children()
    for form in COMMANDS:
        reply = await attacked.say(UPDATE_BROKER_CONFIG, form.format(tmp_path / "touched").encode())
        assert reply.code != Code.SUCCESS, form
    assert bytes((await attacked.say(GET_BROKER_CONFIG)).body) == bytes(before.body)
    assert children() == running
    assert not (tmp_path / "touched").exists()
    await attacked.serves()


@pytest.fixture
async def names(tmp_path: Path) -> AsyncIterator[RemotingConnection]:
    """A connection to a name server."""
    failures: list[BaseException] = []
    service = NamesrvService(
        NamesrvSettings(
            listen_port=0, admin_enabled=False, kv_config_path=tmp_path / "names" / "kv.json"
        )
    )
    await service.recover(failures.append)
    connection = RemotingConnection(dict(await service.serve())["tcp"])
    yield connection
    connection.close()
    await service.drain()
    await service.stop()
    assert failures == []


@pytest.mark.fault
async def test_cve_2023_37582_a_name_server_writes_no_file(
    names: RemotingConnection, tmp_path: Path
) -> None:
    """It wrote its settings to a path that was one of the settings."""

    async def say(code: int, body: bytes = b"") -> RemotingCommand:
        return await names.exchange(RemotingCommand(code), (body,), timeout_ms=ASK_MS)

    target = tmp_path / "written"
    before = files(tmp_path)
    configured = (await say(GET_NAMESRV_CONFIG)).body
    known = [line.partition("=")[0] for line in bytes(configured).decode().splitlines() if line]
    assert known
    keys = {
        *known, "configStorePath", "configStorePathName", "kvConfigPath", "rocketmqHome",
        "configBlackList", "productEnvName", "eventStoreUrl", "logFile", "",
    }  # fmt: skip
    for key in keys:
        for text in (
            f"{key}={target}",
            f"{key}={target}\nproductEnvName=*/1 * * * * root touch {target}",
            f"{key}=a\\u000aconfigStorePath={target}",
            f"configBlackList=\n{key}={target}",
        ):
            reply = await say(UPDATE_NAMESRV_CONFIG, text.encode())
            assert reply.code != Code.SUCCESS, text
    assert (await say(GET_NAMESRV_CONFIG)).body == configured
    assert files(tmp_path) == before


@pytest.mark.fault
@pytest.mark.parametrize("user", ["", TILL, ROOT])
async def test_cve_2024_23321_no_reply_has_a_secret(secured: Attacked, user: str) -> None:
    """An ordinary account could read all accounts, with their secrets."""
    shown = []
    for code in (GET_BROKER_CLUSTER_ACL_CONFIG, 52, 26, 28, 21, 201, 3004, 3005, 3009, 3010):
        reply = await secured.say(code, user=user, username=TILL, subject=f"User:{TILL}", filter="")
        shown.append(f"{reply.remark}{reply.ext_fields}{bytes(reply.body)!r}")
        if code == GET_BROKER_CLUSTER_ACL_CONFIG:
            assert reply.code == Code.REQUEST_CODE_NOT_SUPPORTED
    for secret in SECRETS.values():
        assert not [text for text in shown if secret in text]
    if user == ROOT:
        assert any(TILL in text for text in shown), "users are shown, without their secrets"
    await secured.serves(ROOT)


@pytest.mark.fault
async def test_an_account_makes_no_administrator_and_no_white_address(secured: Attacked) -> None:
    """In RocketMQ 4.9 the requests about accounts were open to every account (issue 8524)."""
    accounts = {
        50: {"accessKey": "intruder", "secretKey": "intruder-secret", "admin": "true"},
        51: {"accessKey": ROOT},
        53: {"globalWhiteAddrs": "*"},
        3001: {"username": "intruder"},
        3002: {"username": TILL},
        3003: {"username": ROOT},
        3006: {"subject": f"User:{TILL}"},
        3008: {"subject": f"User:{ROOT}"},
    }
    user = {"username": "intruder", "password": "intruder-secret", "userType": "Super"}
    for code, fields in accounts.items():
        for by in ("", TILL):
            reply = await secured.say(code, json.dumps(user).encode(), user=by, **fields)
            assert reply.code == Code.SYSTEM_ERROR, code
            assert "AclException" in (reply.remark or "")
    assert set(secured.view.control.access.users) == {ROOT, TILL}
    assert secured.view.control.access.table.administrators == [ROOT]
    await secured.serves(TILL)
