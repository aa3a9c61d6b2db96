"""Every setting of a push consumer does what it says: F301 to F314, under RocketMQ's names."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from kourou import Client, ClientSettings, ConsumerSettings, sync
from kourou.errors import BadRequest, Code
from kourou.model.names import RETRY_PREFIX
from kourou.model.subscription import MATCH_ALL
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import PullFlag, PullMessage
from kourou_rigs.wire_faults import Answer, always

PATIENCE_S = 10
ROUND_TRIPS = 30
"""After so many turns of the client's loop all that would have been pulled has been."""


@pytest.fixture
def consumer(cluster, tools, tmp_path):
    """Makes clients whose consumers have settings as a file has them."""

    def make(**settings) -> Client:
        settings.setdefault("consumerGroup", "g")
        settings.setdefault("consumeFromWhere", "CONSUME_FROM_FIRST_OFFSET")
        made = ConsumerSettings.from_rocketmq(**settings)
        own = ClientSettings(local_offsets_dir=str(tmp_path))
        return Client(tools.NAMESRV, settings=own, consumer=made, dial=cluster.dial)

    return make


def pulls(broker) -> list[PullMessage]:
    """What was pulled but retries: the real core makes a group's retry topic at its first beat."""
    return [
        request
        for request in broker.seen
        if isinstance(request, PullMessage) and not request.topic.startswith(RETRY_PREFIX)
    ]


async def settled(listener) -> None:
    """Whatever can still be pulled by itself has been pulled: the cluster is on the same loop."""
    for _ in range(ROUND_TRIPS):
        await listener._client.io.run(asyncio.sleep(0))


def pauses(listener) -> tuple[int, int, int]:
    """How often pulls waited because of the number, the bytes and the span of messages."""
    counts = listener.counts
    return counts.paused_by_count, counts.paused_by_size, counts.paused_by_span


class Stuck:
    """A handler that lets nothing through until it is told."""

    def __init__(self, held=lambda _message: True) -> None:
        self.started = asyncio.Event()
        self.gate = asyncio.Event()
        self.held = held
        self.calls = 0
        self.bodies: list = []

    async def handle(self, message) -> None:
        self.calls += 1
        self.started.set()
        if self.held(message):
            await self.gate.wait()
        self.bodies.append(message.body)


@pytest.mark.feature("F301")
async def test_the_group_joins_pulls_and_commits(broker, consumer, tools):
    inbox = tools.Inbox(4)
    async with consumer(consumerGroup="billing") as mq:
        await mq.send_many("T", tools.numbers(4))
        async with mq.listen("T", inbox.handle):
            assert list(broker.members) == ["billing"]
            await inbox.full.wait()
    assert {request.consumer_group for request in pulls(broker)} == {"billing"}
    assert {group for group, _, _ in broker.committed} == {"billing"}


@pytest.mark.feature("F302", "F014", "F190", "F192")
@pytest.mark.parametrize(("model", "times"), [("CLUSTERING", 1), ("BROADCASTING", 2)])
async def test_members_share_the_messages_or_all_get_all(broker, consumer, tools, model, times):
    inbox = tools.Inbox(8 * times)
    settings = {"messageModel": model}
    async with consumer(**settings) as a, consumer(**settings) as b:
        await a.send_many("T", tools.numbers(8))
        async with a.listen("T", inbox.handle), b.listen("T", inbox.handle):
            await inbox.full.wait()
    assert {body: inbox.bodies.count(body) >= times for body in tools.numbers(8)} == dict.fromkeys(
        tools.numbers(8), True
    )
    assert bool(broker.committed) is (model == "CLUSTERING"), "broadcasting keeps it locally"


@pytest.mark.feature("F303", "F193", "F194")
@pytest.mark.parametrize(
    ("where", "timestamp", "begins"),
    [
        ("CONSUME_FROM_FIRST_OFFSET", "", 0),
        ("CONSUME_FROM_LAST_OFFSET", "", 5),
        ("CONSUME_FROM_MAX_OFFSET", "", 5),  # a spelling that RocketMQ gave up
        ("CONSUME_FROM_TIMESTAMP", "19700101000000", 0),
        ("CONSUME_FROM_TIMESTAMP", "20300101000000", 5),
    ],
)
async def test_a_new_group_begins_there(one_queue, consumer, tools, where, timestamp, begins):
    await tools.fill(consumer, 5)
    settings = {"consumeFromWhere": where, "consumeTimestamp": timestamp}
    async with consumer(**settings) as mq, mq.listen("T", tools.Inbox(1).handle):
        await tools.until(one_queue, lambda: pulls(one_queue))
    assert pulls(one_queue)[0].queue_offset == begins


@pytest.mark.feature("F305", "F306")
async def test_topics_and_the_handler_may_stand_in_the_settings(cluster, broker, consumer, tools):
    cluster.topics["U"] = (1, 1)
    inbox = tools.Inbox(3)
    settings = {"subscription": "T=a || b; U", "messageListener": inbox.handle}
    async with consumer(**settings) as mq:
        for tag in ("a", "x", "b"):
            await mq.send("T", tag, tag=tag)
        await mq.send("U", "u", tag="x")
        async with mq.listen():
            await inbox.full.wait()
        async with mq.subscribe(group="other") as messages:
            seen = [(await anext(messages.__aiter__())).topic for _ in range(3)]
    assert sorted(inbox.bodies) == [b"a", b"b", b"u"]
    assert sorted(seen) == ["T", "T", "U"]
    assert {request.topic: request.subscription for request in pulls(broker)} == {
        "T": "a || b",
        "U": MATCH_ALL,
    }


@pytest.mark.feature("F305", "F306")
def test_the_same_for_threads(cluster, broker, tools):
    gate = tools.Gate(4)
    settings = ConsumerSettings(
        consumer_group="g",
        subscription={"T": "*"},
        message_listener=lambda _message: gate.count(),
    )
    with sync.Client(tools.NAMESRV, consumer=settings, dial=cluster.dial) as mq, mq.listen():
        mq.send_many("T", tools.numbers(4))
        assert gate._passed.wait(PATIENCE_S)


async def test_without_topic_or_handler_there_is_nothing_to_do(broker, consumer, tools):
    async with consumer() as mq:
        with pytest.raises(BadRequest, match="no topic"):
            mq.listen(handler=tools.Inbox(1).handle)
        with pytest.raises(BadRequest, match="no topic"):
            mq.subscribe()
        with pytest.raises(BadRequest, match="no handler"):
            mq.listen("T")


@pytest.mark.feature("F307")
async def test_progress_is_kept_in_the_store_of_the_settings(one_queue, consumer, tools):
    await tools.fill(consumer, 5)
    store, inbox = tools.Store(), tools.Inbox(5)
    async with consumer(offsetStore=store) as mq, mq.listen("T", inbox.handle):
        await inbox.full.wait()
    assert store[MessageQueue("T", "broker-a", 0)] == 5
    assert one_queue.committed == {}
    other = tools.Inbox(1)
    async with consumer(offsetStore=store) as mq, mq.listen("T", other.handle):
        await mq.send("T", b"new")
        await other.full.wait()
    assert other.bodies == [b"new"]


@pytest.mark.feature("F308", "F309")
@pytest.mark.parametrize(("least", "most"), [(2, 5), (3, 3), (None, 4)])
def test_threads_for_handlers(cluster, broker, tools, least, most):
    inside, gate = threading.Semaphore(0), threading.Event()

    def handler(_message):
        inside.release()
        gate.wait(10 * PATIENCE_S)

    numbers = {} if least is None else {"consumeThreadMin": str(least)}
    settings = ConsumerSettings.from_rocketmq(
        consumerGroup="counted", consumeThreadMax=str(most), **numbers
    )

    def threads() -> int:
        return sum(one.name.startswith("kourou-counted-") for one in threading.enumerate())

    client = sync.Client(tools.NAMESRV, consumer=settings, dial=cluster.dial)
    with client as mq, mq.listen("T", handler):
        try:
            assert threads() == (most if least is None else least)
            mq.send_many("T", tools.numbers(40))
            for number in range(most):
                assert inside.acquire(timeout=PATIENCE_S), f"only {number} handlers at once"
            assert threads() == most
        finally:
            gate.set()


@pytest.mark.feature("F309")
async def test_coroutines_that_run_at_once(broker, consumer, tools):
    stuck = Stuck()
    async with consumer(consumeThreadMax="3", awaitTerminationMillisWhenShutdown="0") as mq:
        await mq.send_many("T", tools.numbers(20))
        async with mq.listen("T", stuck.handle) as listener:
            await stuck.started.wait()
            await settled(listener)
            assert stuck.calls == 3


@pytest.mark.feature("F310")
async def test_one_late_message_stops_the_pulls_behind_it(one_queue, consumer, tools):
    await tools.fill(consumer, 60)
    stuck = Stuck(lambda message: message.offset == 0)
    settings = {"consumeConcurrentlyMaxSpan": "10", "pullBatchSize": "1"}
    async with consumer(**settings) as mq, mq.listen("T", stuck.handle) as listener:
        async with asyncio.timeout(PATIENCE_S):
            await tools.until(one_queue, lambda: len(stuck.bodies) == 11)
        await settled(listener)
        assert listener.counts.pulled == 12, "offsets 0 to 11 lie further apart than 10"
        assert pauses(listener) == (0, 0, 1)
        stuck.gate.set()
        await tools.until(one_queue, lambda: len(stuck.bodies) == 60)


@pytest.mark.feature("F199", "F311")
@pytest.mark.parametrize(
    ("settings", "pulled"),
    [
        ({"pullThresholdForQueue": "5"}, 6),
        ({"pullThresholdForTopic": "7"}, 8),
        ({"pullThresholdForTopic": "7", "pullThresholdForQueue": "3"}, 8),
        ({"pullThresholdForTopic": "-1", "pullThresholdForQueue": "3"}, 4),
    ],
)
async def test_unfinished_messages_stop_the_pulls(one_queue, consumer, tools, settings, pulled):
    await tools.fill(consumer, 40)
    stuck = Stuck()
    settings |= {"pullBatchSize": "1", "awaitTerminationMillisWhenShutdown": "0"}
    async with consumer(**settings) as mq, mq.listen("T", stuck.handle) as listener:
        async with asyncio.timeout(PATIENCE_S):
            await tools.until(one_queue, lambda: listener.counts.pulled == pulled)
        await settled(listener)
        assert listener.counts.pulled == pulled
        assert pauses(listener) == (1, 0, 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"pullThresholdSizeForQueue": "1"},
        {"pullThresholdSizeForTopic": "1"},
    ],
)
async def test_so_many_bytes_stop_the_pulls(one_queue, consumer, settings):
    async with consumer() as mq:
        for _ in range(8):
            await mq.send("T", os.urandom(400 * 1024))  # three are above a MiB
    stuck = Stuck()
    settings |= {"pullBatchSize": "1", "awaitTerminationMillisWhenShutdown": "0"}
    async with consumer(**settings) as mq, mq.listen("T", stuck.handle) as listener:
        await stuck.started.wait()
        await settled(listener)
        assert listener.counts.pulled == 3
        assert pauses(listener) == (0, 1, 0)


async def test_a_topics_threshold_is_divided_among_its_queues_here(broker, consumer, tools):
    async with consumer(pullThresholdForTopic="100") as a, consumer() as b:
        handler = tools.Inbox(1).handle
        async with a.listen("T", handler) as one:
            assert _thresholds(one) == {25}
            async with b.listen("T", handler):
                await tools.until(broker, lambda: _thresholds(one) == {50})
            await tools.until(broker, lambda: _thresholds(one) == {25})


def _thresholds(listener) -> set[int]:
    queues = listener._consumer._queues
    return {consumed._limits.count_max for queue, consumed in queues.items() if queue.topic == "T"}


@pytest.mark.feature("F200", "F312")
async def test_a_pause_follows_a_pull_that_brought_messages(one_queue, consumer, tools):
    await tools.fill(consumer, 10)
    inbox = tools.Inbox(1)
    settings = {"pullInterval": "60000", "pullBatchSize": "1"}
    async with consumer(**settings) as mq, mq.listen("T", inbox.handle) as listener:
        await inbox.full.wait()
        await settled(listener)
        assert len(pulls(one_queue)) == 1


@pytest.mark.feature("F314")
@pytest.mark.parametrize(("count", "bulk_bytes"), [(7, "0"), (7, "1048576"), (32, "1048576")])
async def test_one_pull_asks_for_so_many_messages(one_queue, consumer, tools, bulk_bytes, count):
    await tools.fill(consumer, 3 * count)
    inbox = tools.Inbox(3 * count)
    settings = {"pullBatchSize": str(count), "pullSizeBytes": bulk_bytes}
    async with consumer(**settings) as mq, mq.listen("T", inbox.handle):
        await inbox.full.wait()
    assert {request.max_msg_nums for request in pulls(one_queue)} == {count}
    assert [request.queue_offset for request in pulls(one_queue)][:3] == [0, count, 2 * count]
    assert {request.max_msg_bytes for request in pulls(one_queue)} == {int(bulk_bytes) or None}


@pytest.mark.feature("F314")
async def test_by_default_a_pull_brings_what_fits(one_queue, consumer, tools):
    await tools.fill(consumer, 100)
    inbox = tools.Inbox(100)
    async with consumer() as mq, mq.listen("T", inbox.handle):
        await inbox.full.wait()
    assert pulls(one_queue)[0].max_msg_nums == 1_000


@pytest.mark.parametrize(("hold_ms", "held"), [("4321", True), ("0", False)])
async def test_pulls_are_held_so_long_and_waited_for_so_long(
    cluster, one_queue, consumer, tools, hold_ms, held
):
    settings = {
        "brokerSuspendMaxTimeMillis": hold_ms,
        "consumerTimeoutMillisWhenSuspend": "6543",
    }
    async with consumer(**settings) as mq, mq.listen("T", tools.Inbox(1).handle):
        await tools.until(one_queue, lambda: pulls(one_queue))
    first = pulls(one_queue)[0]
    assert first.suspend_timeout_millis == int(hold_ms)
    assert bool(first.sys_flag & PullFlag.SUSPEND) is held
    deadlines = [left for wire in cluster.wires for code, left in wire.deadlines if code == 11]
    assert set(deadlines) == {6543}


@pytest.mark.parametrize(("pause_ms", "asked"), [("3600000", 1), ("5", 12)])
async def test_a_failed_pull_is_asked_again_after_this_pause(
    one_queue, consumer, tools, pause_ms, asked
):
    one_queue.faults[PullMessage] = always(Answer(Code.SYSTEM_ERROR, remark="no"))
    settings = {"pullTimeDelayMillsWhenException": pause_ms}
    handler = tools.Inbox(1).handle
    async with consumer(**settings) as mq, mq.listen("T", handler) as listener:
        await tools.until(one_queue, lambda: len(pulls(one_queue)) >= asked)
        await settled(listener)
        assert len(pulls(one_queue)) == 1 or pause_ms == "5"


@pytest.mark.feature("F278")
@pytest.mark.parametrize(("over", "kept"), [("-1", 40), ("0", 0), ("7", 7), ("40", 40)])
async def test_a_backlog_is_passed_over(one_queue, consumer, tools, over, kept, caplog):
    await tools.fill(consumer, 40)
    inbox = tools.Inbox(kept + 1)
    settings = {"skipBacklogOver": over, "pullBatchSize": "4", "pullSizeBytes": "0"}
    async with consumer(**settings) as mq, mq.listen("T", inbox.handle) as listener:
        await tools.until(
            one_queue, lambda: listener.counts.skipped + listener.counts.consumed == 40
        )
        # Offset 40 lies one before the end, which is not beyond a limit of 1 or more.
        await mq.send("T", b"new")
        if over != "0":
            await inbox.full.wait()
            assert inbox.bodies[-1] == b"new"
            assert listener.counts.skipped == 40 - kept
    assert ("messages; skipped offsets" in caplog.text) is (kept < 40)
    assert inbox.bodies[:kept] == tools.numbers(40)[40 - kept :]
