"""A Raft group of real processes that is lost as a whole, and comes back from one member's backup.

How a backup is taken and a store made of it is test_backup.py's matter.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from kourou import Client, ClientSettings, ProducerSettings
from kourou.cli.main import main
from kourou_rigs.raft_processes import BROKER, RaftProcesses
from kourou_rigs.reading import read_topic

QUICK = ClientSettings(poll_name_server_interval_ms=100)
PATIENT = ProducerSettings(producer_group="p", send_timeout_ms=30_000)
COUNT = 20


async def command(*arguments: str) -> None:
    said = StringIO()

    def run() -> int:
        with redirect_stdout(said), redirect_stderr(said):
            return main(arguments)

    assert await asyncio.to_thread(run) == 0, said.getvalue()


def client(group: RaftProcesses) -> Client:
    return Client(group.address, settings=QUICK, producer=PATIENT)


async def send(mq: Client, what: str) -> list[bytes]:
    bodies = [f"{what} {number}".encode() for number in range(COUNT)]
    for body in bodies:
        assert (await mq.send("orders", body)).status.value == "SEND_OK"
    return bodies


@pytest.mark.slow  # eight processes and three restores
async def test_a_group_comes_back_from_the_backup_of_one_member(tmp_path: Path) -> None:
    to = tmp_path / "backup"
    async with RaftProcesses(tmp_path / "lost") as lost:
        async with client(lost) as mq:
            await mq.admin.topics.create("orders", queues=1)
            bodies = await send(mq, "before the hand-over")
            led = await mq.admin.replicas.transfer_leader(BROKER)
            bodies += await send(mq, "after it")
            end = await lost.agreed()
            follower = next(one for one in await mq.admin.replicas.of(BROKER) if not one.view.leads)
        await command("backup", "-n", lost.address, "-b", BROKER, "--to", str(to),
                      "--member", str(follower.registered_id))  # fmt: skip
    log = lost.log_of(follower.view.member, end)

    group = RaftProcesses(tmp_path / "found")
    for name in group.names:
        await command("restore", "--from", str(to), "--to", str(group.store(name)))
        for computed in ("consumequeue", "index"):  # the kit's files are smaller than the usual
            shutil.rmtree(group.store(name) / computed)
    async with group:
        leader = await group.leader()
        await group.agreed()
        told = [await group.told(name) for name in group.names]
        assert [one.member for one in told if one.leads] == [leader]
        assert {one.epoch > led.epoch for one in told} == {True}, "what it promises is new"
        assert [group.log_of(name, end) == log for name in group.names] == [True] * 3
        async with client(group) as mq:
            bodies += await send(mq, "in the group that came back")
            found = await read_topic(mq, "orders", "reads")
        assert [found[0, offset].body for offset in range(len(found))] == bodies
