"""History, states and undo over a real broker: without its log's beginning, and its database."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from kourou import Client
from kourou.cli import main as command_line
from kourou.errors import MetadataUnavailable, Rejected, Throttled
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.broker_admin import GetControlEvents, GetControlEventsResponse
from kourou.sync import Client as SyncClient
from kourou.testing.cluster import Cluster
from kourou.transport.zmq_client import ZmqConnection
from kourou_rigs.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_MS = 30_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as running:
        yield running


# -- from end to end ------------------------------------------------------------------------------


@pytest.mark.feature("F358", "F267")
def test_who_changed_what_what_held_then_and_back(cluster: Cluster) -> None:
    with cluster.client("till") as mq:
        history = mq.admin.history
        mq.admin.topics.create("orders", queues=4)
        then = history.of("topic/orders").decisions[0]
        mq.admin.topics.create("orders", queues=8)
        mq.admin.brokers.update_config("broker-a", {"maxMessageSize": "2048"})
        mq.admin.groups.create("late")
        # What was decided a moment ago is there, though the log is flushed later by itself.
        told = history.of("topic/orders").decisions
        assert [one.fields["topic"]["write_queue_nums"] for one in told] == [8, 4]
        assert all(one.actor.startswith("zmq:127.0.0.1:") for one in told)
        assert history.state_at("topic/orders", at_ms=then.at_ms).value["write_queue_nums"] == 4
        assert history.state_at("topic/orders").value["write_queue_nums"] == 8
        assert history.state_at("group/late", offset=then.offset).value is None
        [narrower] = history.undo(told[0].offset, reason="four will do")
        assert (narrower.undoes, narrower.reason) == (told[0].offset, "four will do")
        assert mq.admin.topics.config("orders")["broker-a"].write_queue_nums == 4
        assert history.of("topic/orders", count_max=1).decisions == [narrower]
        [setting] = history.of("setting/maxMessageSize").decisions
        history.undo(setting.offset)
        assert mq.admin.brokers.config("broker-a")["maxMessageSize"] == "4194304"
        with pytest.raises(Rejected, match="has changed since"):
            history.undo(setting.offset)


@pytest.mark.feature("F267", "F364")
def test_a_reset_by_mistake_is_taken_back_in_every_queue(cluster: Cluster) -> None:
    async def story() -> None:
        async with cluster.async_client("till") as mq:
            await mq.admin.topics.create("orders", queues=4)
            await mq.admin.groups.create("till")
            for number in range(40):
                await mq.send("orders", b"%d" % number)
            puller = await mq.pull_consumer("till")
            queues = await puller.queues("orders")
            await puller.commit({queue: 5 + queue.queue_id for queue in queues})
            offsets = mq.admin.offsets
            before = {
                queue: one.consumer_offset for queue, one in (await offsets.of("till")).items()
            }
            assert sorted(before.values()) == [5, 6, 7, 8]
            assert set((await offsets.reset("till", "orders", 0)).values()) == {0}
            page = await mq.admin.history.of("progress/till", types=["OffsetsReset"])
            [again] = await mq.admin.history.undo(page.decisions[0].offset)
            assert again.type == "OffsetsReset"
            after = {
                queue: one.consumer_offset for queue, one in (await offsets.of("till")).items()
            }
            assert after == before
            await puller.close()

    asyncio.run(story())


def test_a_deleted_topic_comes_back_and_its_group_goes_on_with_what_comes_then(
    cluster: Cluster,
) -> None:
    with cluster.client("till") as mq:
        mq.admin.topics.create("orders", queues=1)
        for number in range(3):
            mq.send("orders", b"%d" % number)
        with mq.subscribe("orders") as messages:  # the last one is not finished when this ends
            assert [next(iter(messages)).offset for _ in range(3)] == [0, 1, 2]
        cluster.clock.advance(seconds=10)  # progress is recorded every 5 s
        mq.admin.topics.delete("orders")
        [gone, *_] = mq.admin.history.of("topic/orders").decisions
        assert gone.type == "TopicDeleted"
        back = mq.admin.history.undo(gone.offset, reason="the wrong one")
        assert [one.type for one in back] == ["TopicPut", "OffsetsReset"]
        stats = mq.admin.offsets.of("till")
        assert stats[MessageQueue("orders", "broker-a", 0)].consumer_offset == 2
        assert mq.send("orders", b"goes on").offset == 3
        with mq.subscribe("orders") as messages:
            assert next(iter(messages)).offset == 3


def test_a_command_of_each_kind(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    def kourou(*arguments: str) -> str:
        code = command_line.main([*arguments, "-n", cluster.address])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    def objects(*arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in kourou(*arguments, "--json").splitlines()]

    with cluster.client("till") as mq:
        mq.admin.topics.create("orders", queues=4)
        mq.admin.topics.create("orders", queues=8)
    wider, made = objects("history", "topic/orders")
    assert (wider["type"], wider["fields"]["before"]["write_queue_nums"]) == ("TopicPut", 4)
    assert wider["broker"] == "broker-a"
    table = kourou("history", "topic/orders", "--max", "1")
    assert "read_queue_nums 4 → 8, write_queue_nums 4 → 8" in table
    assert f"cut at 1; older ones: --before {wider['offset']}" in table
    assert objects("history", "topic/orders", "--before", str(wider["offset"])) == [made]
    [state] = objects("stateAt", "topic/orders", "--offset", str(made["offset"]))
    assert (state["value"]["write_queue_nums"], state["nextOffset"]) == (4, made["offset"] + 1)
    assert "write_queue_nums" in kourou("stateAt", "topic/orders", "--at", "now")
    assert "topic/orders" in kourou("stateAt")
    [undone] = objects("undo", str(wider["offset"]), "--reason", "four will do")
    assert (undone["undoes"], undone["reason"]) == (wider["offset"], "four will do")
    assert f"undoes {wider['offset']}: " in kourou("history", "topic/orders", "--max", "1")
    assert command_line.main(["undo", str(wider["offset"]), "-n", cluster.address]) == 1
    said = capsys.readouterr()
    assert "topic/orders has changed since" in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


# -- without the beginning of the log -------------------------------------------------------------


def test_history_outlives_the_segments_that_retention_deletes(tmp_path: Path) -> None:
    """The log forgets, and says where it begins now; history, states and undo go on."""
    settings = {
        "mappedFileSizeCommitLog": 65_536,
        "diskMaxUsedSpaceRatio": 95,
        "diskSpaceCleanForciblyRatio": 100,
        "diskSpaceWarningLevelRatio": 100,
    }
    with Cluster(tmp_path, storage="disk", settings=settings) as cluster:
        with cluster.client("till") as mq:
            mq.admin.topics.create("orders", queues=1)
            mq.admin.topics.create("orders", queues=2)
            mq.admin.brokers.update_config("broker-a", {"maxMessageSize": "4096"})
            wider, made = mq.admin.history.of("topic/orders").decisions
            [setting] = mq.admin.history.of("setting/maxMessageSize").decisions
            whole = mq.admin.history.state_at(offset=setting.offset)
            for _ in range(200):
                send_again_and_again(mq, "orders", b"x" * 1_000)
        cluster.clock.advance(seconds=3)  # the broker sees which segments are closed
        cluster.clock.leap(hours=100)
        with cluster.client("till") as mq:
            first = tmp_path / "broker-a" / "commitlog" / f"{0:020}"
            assert begin_of_log(cluster, mq, first) > setting.offset
            assert mq.admin.history.of("topic/orders").decisions == [wider, made]
            assert mq.admin.history.state_at(offset=setting.offset) == whole
            held = mq.admin.history.state_at("topic/orders", at_ms=made.at_ms).value
            assert held == made.fields["topic"]
            mq.admin.history.undo(setting.offset, reason="from before the log")
            assert mq.admin.brokers.config("broker-a")["maxMessageSize"] == "4194304"
        cluster.chaos.kill("broker-a")
        cluster.chaos.restart("broker-a")
        with cluster.client("till") as mq:
            assert mq.admin.history.of("topic/orders").decisions == [wider, made]
            [again, _] = mq.admin.history.of("setting/maxMessageSize").decisions
            assert (again.undoes, again.reason) == (setting.offset, "from before the log")


def send_again_and_again(mq: SyncClient, topic: str, body: bytes) -> None:
    """Small segments are filled faster than a slow disk allocates them; the broker says so."""
    while True:
        try:
            mq.send(topic, body)
        except Throttled:
            continue
        return


def begin_of_log(cluster: Cluster, mq: SyncClient, first: Path) -> int:
    """Where GET_CONTROL_EVENTS says that the log begins, once its first segment is gone."""

    async def ask() -> tuple[GetControlEventsResponse, list[dict[str, Any]]]:
        broker = mq.admin.cluster.info().brokers["broker-a"].master_addr()
        connection = ZmqConnection(broker)
        request = GetControlEvents(from_offset=0, max_count=1)
        reply = await connection.request(request, timeout_ms=TIMEOUT_MS)
        connection.close()
        assert isinstance(reply.header, GetControlEventsResponse), reply.remark
        return reply.header, json.loads(b"".join(bytes(part) for part in reply.body))

    for _ in range(100):
        mq.admin.brokers.delete_expired_log("broker-a")  # what is not checkpointed yet may not go
        cluster.clock.advance(seconds=5)
        header, events = asyncio.run(ask())
        if header.min_offset and not first.exists():  # it is forgotten first, then removed
            assert header.next_offset > header.min_offset
            assert events[0]["offset"] == header.min_offset
            return header.min_offset
    raise AssertionError("no segment was deleted")


# -- without the database -------------------------------------------------------------------------

Away = Callable[[PostgresServer], AbstractContextManager[None]]
AWAY: list[Away] = [PostgresServer.frozen, PostgresServer.gone]


@pytest.mark.fault
@pytest.mark.parametrize("away", AWAY)
def test_without_the_database_the_past_is_unavailable_and_the_data_path_goes_on(
    postgres: PostgresServer, tmp_path: Path, away: Away
) -> None:
    """Frozen it hangs, as behind a cut network; gone it refuses. Nobody waits beyond a deadline."""
    url = postgres.new_database()
    with Cluster(tmp_path, settings={"eventStoreUrl": url}) as cluster:

        async def story() -> None:
            async with cluster.async_client("till") as mq:
                await mq.admin.topics.create("orders", queues=4)
                [made] = (await mq.admin.history.of("topic/orders")).decisions
                with away(postgres):
                    await unavailable(mq, made.offset)
                again = (await mq.admin.history.of("topic/orders")).decisions
                assert [one.undoes for one in again] == [made.offset + 1, None, None]
                assert again[-1] == made

        async def unavailable(mq: Client, offset: int) -> None:
            questions: list[Awaitable[object]] = [
                mq.admin.history.of("topic/orders"),
                mq.admin.history.state_at("topic/orders", offset=offset),
            ]
            asked = [asyncio.ensure_future(each) for each in questions]
            for number in range(20):
                assert (await mq.send("orders", b"%d" % number)).status == "SEND_OK"
            await mq.admin.topics.create("orders", queues=8)
            # What the log still has is taken back without the database.
            [narrower] = await mq.admin.history.undo(offset + 1)
            assert narrower.fields["topic"]["write_queue_nums"] == 4
            for question in asked:
                with pytest.raises(MetadataUnavailable, match=r"event (database|store)"):
                    await question

        asyncio.run(story())


# -- the page for users ---------------------------------------------------------------------------


def test_the_examples_of_the_page_run(cluster: Cluster, tmp_path: Path) -> None:
    page = (ROOT / "docs/history.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example.replace("127.0.0.1:9876", cluster.address))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    [printed] = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert done.stdout == printed


def test_the_commands_of_the_page_run(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    with cluster.client("till") as mq:
        mq.admin.topics.create("orders", queues=4)
        mq.admin.topics.create("orders", queues=8)
        newest = mq.admin.history.of("topic/orders").decisions[0].offset
    page = (ROOT / "docs/history.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    commands = [line.partition("#")[0].split() for line in block.splitlines() if line]
    assert len(commands) >= 5
    for program, *arguments in commands:
        assert program == "kourou"
        given = [str(newest) if each == "17" else each for each in arguments]
        assert command_line.main([*given, "-n", cluster.address]) == 0, given
        capsys.readouterr()
