"""Settings of a push consumer about messages that fail, hang or are too many."""

from __future__ import annotations

import pytest

from kourou import Client, ConsumerSettings

pytestmark = pytest.mark.both_brokers


@pytest.fixture
def consumer(cluster, tools):
    """Makes clients whose consumers have settings as a file has them."""

    def make(**settings) -> Client:
        made = ConsumerSettings.from_rocketmq(
            consumerGroup="g", consumeFromWhere="CONSUME_FROM_FIRST_OFFSET", **settings
        )
        return Client(tools.NAMESRV, consumer=made, dial=cluster.dial)

    return make


@pytest.fixture
def one_queue(cluster, broker):
    cluster.topics["T"] = (1, 1)
    return broker


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
