"""Consumers with a filter through real processes: what passes, and what happens when things die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from kourou import Client, ConsumerSettings, Filter, PullConsumerSettings
from kourou.errors import FilterFailed
from kourou.model.subscription import ConsumeFromWhere
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.sync import Client as SyncClient
from kourou_filter_server.zygote_link import missing

PATIENCE_S = 60
PAUSE_MS = 50
BROKEN = "def match(message, context):\n    return message.json['nobody'] > 0\n"
MENDED = "def match(message, context):\n    return message.json['n'] % 3 == 0\n"


@Filter
def thirds(message, context):
    return message.json["n"] % 3 == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    lacking = missing()
    if lacking:
        pytest.skip("needs a kernel layer: " + ", ".join(layer.name for layer in lacking))
    settings = ClusterSettings(
        filter_servers=2, filter_server={"filterStrikes": "1000", "filterWorkersMax": "2"}
    )
    with LocalCluster(tmp_path_factory.mktemp("filters"), settings) as cluster:
        yield cluster


def consumer_settings(group: str, **settings) -> ConsumerSettings:
    return ConsumerSettings(
        consumer_group=group,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        pull_pause_ms_when_exception=PAUSE_MS,
        **settings,
    )


class Inbox:
    """A handler that keeps numbers, and waits for conditions."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._changed = asyncio.Event()

    async def handle(self, message) -> None:
        self.numbers.append(message.body["n"])
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._changed.clear()
                try:
                    # What is waited for may also change without a message.
                    await asyncio.wait_for(self._changed.wait(), 0.05)
                except TimeoutError:
                    continue

    async def has(self, numbers: list[int]) -> None:
        await self.until(lambda: len(self.numbers) >= len(numbers))
        assert sorted(self.numbers) == numbers


def passing(end: int) -> list[int]:
    return list(range(0, end, 3))


async def send(mq: Client, topic: str, first: int, end: int) -> None:
    await mq.send_many(topic, [{"n": number} for number in range(first, end)])


@pytest.mark.feature("F238", "F239", "F240", "F241", "F246")
async def test_never_unfiltered_never_lost_whatever_dies(cluster):
    inbox = Inbox()
    settings = consumer_settings("g-dying")
    async with Client(cluster.address, consumer=settings) as mq:
        await mq.admin.topics.create("dying", queues=4)
        await send(mq, "dying", 0, 300)
        async with mq.listen("dying", inbox.handle, thirds, body_type=dict) as listener:
            await inbox.has(passing(300))

            cluster.filter_servers[0].kill()
            await send(mq, "dying", 300, 600)
            await inbox.has(passing(600))

            cluster.filter_servers[1].kill()
            await send(mq, "dying", 600, 900)
            await inbox.until(lambda: len(listener.waiting) == 4)
            kinds = {error.kind for error in listener.waiting.values()}
            assert kinds == {"unserved"}
            assert sorted(inbox.numbers) == passing(600), "nothing passes around the filter"

            for index in range(2):
                # In this thread, whose end would be theirs; the client lives on another one.
                cluster.start_filter_server(0, index)
            await inbox.has(passing(900))
            await inbox.until(lambda: not listener.waiting)
            await listener.commit()
        ends = await mq.admin.offsets.lag("g-dying", "dying")
        assert ends == 0, "what did not pass is consumed, too"


@pytest.mark.feature("F238", "F242", "F243")
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_broken_filter_holds_until_a_fixed_version_runs(cluster, ordered):
    topic = group = f"mending-{ordered}"
    inbox = Inbox()
    async with Client(cluster.address, consumer=consumer_settings(group)) as mq:
        await mq.admin.topics.create(topic, queues=2)
        await send(mq, topic, 0, 60)
        broken = Filter(BROKEN, name="thirds")
        async with mq.listen(
            topic, inbox.handle, broken, body_type=dict, ordered=ordered
        ) as listener:
            await inbox.until(lambda: len(listener.waiting) == 2)
            reasons = [error.message for error in listener.waiting.values()]
            assert all("KeyError" in reason and "nobody" in reason for reason in reasons)
            assert {error.kind for error in listener.waiting.values()} == {"raised"}
            info = await mq.admin.members.running_info(group, mq.client_id)
            assert info.properties["PROP_FILTER_WAITING_QUEUES"] == "2"
            assert inbox.numbers == []

            changes = await mq.admin.filters.put(group, "thirds", MENDED, note="mended")
            assert [(one.version, one.active) for one in changes.values()] == [(2, 2)]
            await inbox.has(passing(60))
            assert listener.counts.filter_failures >= 2
        assert (await mq.admin.filters.source(group, "thirds")).source == MENDED
        assert sum(
            figures.passed
            for server in (await mq.admin.filters.statistics(group)).values()
            for figures in server
        ) == len(passing(60))


async def refused(consumer, queue):
    """The error of a pull; filter servers hear of a change on another connection than the pull."""
    while True:
        try:
            await consumer.pull(queue, 7, expression=thirds)
        except FilterFailed as error:
            return error


@pytest.mark.feature("F240")
async def test_a_pull_consumer_and_what_an_operator_decides(cluster):
    settings = PullConsumerSettings(consumer_group="g-pulls")
    async with Client(cluster.address) as mq:
        await mq.admin.topics.create("pulls", queues=1)
        await send(mq, "pulls", 0, 30)
        consumer = await mq.pull_consumer(settings=settings, body_type=dict)
        (queue,) = await consumer.queues("pulls")
        found = await consumer.pull(queue, 0, expression=thirds)
        assert [message.body["n"] for message in found.messages] == passing(30)
        assert found.next_offset == 30

        await mq.admin.filters.disable("g-pulls", "thirds", reason="lunch")
        assert (await refused(consumer, queue)).kind == "disabled"
        again = await mq.pull_consumer(
            settings=PullConsumerSettings(consumer_group="g-pulls-2"), body_type=dict
        )
        with pytest.raises(FilterFailed) as failed:
            await again.pull(queue, 0, expression=Filter.named("thirds"))
        assert failed.value.kind == "missing"
        await mq.admin.filters.enable("g-pulls", "thirds")
        found = None
        while found is None:
            with suppress(FilterFailed):
                found = await consumer.pull(queue, 7, expression=thirds)
        assert [message.body["n"] for message in found.messages] == passing(30)[3:]

        trial = await mq.admin.filters.try_out("g-pulls", "thirds", "pulls", count=9)
        (tried,) = trial.values()
        assert (tried.seen, tried.passed, tried.failed) == (9, 3, 0)


def test_the_blocking_face(cluster):
    with SyncClient(cluster.address, consumer=consumer_settings("g-blocking")) as mq:
        mq.admin.topics.create("blocking", queues=1)
        mq.send_many("blocking", [{"n": number} for number in range(10)])
        with mq.subscribe("blocking", thirds, body_type=dict) as numbers:
            assert [next(iter(numbers)).body["n"] for _ in range(4)] == passing(10)
        assert mq.admin.filters.servers()["broker-a"] == tuple(
            sorted(server.ready["zmq"].removeprefix("tcp://") for server in cluster.filter_servers)
        )
