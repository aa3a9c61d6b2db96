"""Every setting of a client does what it says: F283 to F289, under RocketMQ's names, as texts."""

from __future__ import annotations

import asyncio

import pytest

from kourou import Client, ClientSettings, ConsumerSettings
from kourou.engine.groups.membership import ConsumerPart, Heartbeat
from kourou.errors import BadRequest
from kourou.model.subscription import ConsumeFromWhere, MessageModel
from kourou.protocol.messages.groups import HeartBeat

PATIENCE_S = 10
FIRST = ConsumerSettings(
    consumer_group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
)


@pytest.fixture
def opened(cluster, tools):
    """Makes clients from settings as a file has them."""

    def make(**settings) -> Client:
        settings.setdefault("namesrvAddr", tools.NAMESRV)
        made = ClientSettings.from_rocketmq(**settings)
        return Client(settings=made, consumer=FIRST, dial=cluster.dial)

    return make


@pytest.mark.feature("F283")
async def test_name_servers_are_asked_in_turn_until_one_answers(cluster, broker, opened):
    cluster.down.add("10.0.0.1:19876")
    async with opened(namesrvAddr="10.0.0.1:9876;10.0.0.2:9876") as mq:
        await mq.send("T", b"x")
    assert {address for address, _ in cluster.asked} == {"10.0.0.2:19876"}


@pytest.mark.feature("F284")
async def test_a_forced_address_is_in_the_client_id_and_in_messages(broker, opened):
    async with opened(clientIP="10.1.2.3") as mq:
        await mq.send("T", b"x")
        assert mq.client_id.startswith("10.1.2.3@")
    assert broker.stored("T")[0].born_host == ("10.1.2.3", 0)


@pytest.mark.feature("F285")
async def test_instances_have_names(broker, opened):
    async with opened(instanceName="blue", unitName="u1") as one, opened() as other:
        await one.send("T", b"x")
        assert one.client_id.endswith("@blue@u1")
        assert not other.client_id.endswith("@DEFAULT"), "DEFAULT becomes unique"


@pytest.mark.feature("F285")
async def test_two_consumers_of_a_group_need_two_instance_names(broker, opened, tools):
    async with opened(instanceName="blue") as one, opened(instanceName="blue") as other:
        handler = tools.Inbox(1).handle
        async with one.listen("T", handler):
            with pytest.raises(BadRequest, match="instance name"):
                await other.listen("T", handler).start()
            async with other.listen("T", handler, group="another"):
                pass
        async with other.listen("T", handler):
            pass


@pytest.mark.feature("F288")
async def test_brokers_hear_of_the_client_in_this_interval(broker, opened, tools):
    def beats() -> int:
        return len(broker.requests(HeartBeat))

    async with opened(heartbeatBrokerInterval="10") as mq:
        await mq.send("T", b"x")
        async with asyncio.timeout(PATIENCE_S):
            await tools.until(broker, lambda: beats() >= 4)


@pytest.mark.feature("F289", "F195")
async def test_progress_is_committed_in_this_interval(broker, opened, tools):
    sent = 0

    def committed() -> bool:
        return sum(broker.committed.values()) == sent

    made = opened(persistConsumerOffsetInterval="10")
    async with made as mq, mq.listen("T", tools.Inbox(1).handle), asyncio.timeout(PATIENCE_S):
        for _ in range(3):  # three intervals of the usual length are beyond our patience
            await mq.send("T", b"x")
            sent += 1
            await tools.until(broker, committed)


async def test_local_offsets_lie_where_they_are_told_to(cluster, broker, tools, tmp_path):
    settings = ClientSettings.from_rocketmq(localOffsetStoreDir=str(tmp_path), clientIP="10.1.2.3")
    consumer = ConsumerSettings(consumer_group="g", message_model=MessageModel.BROADCASTING)
    made = Client(tools.NAMESRV, settings=settings, consumer=consumer, dial=cluster.dial)
    async with made as mq, mq.listen("T", tools.Inbox(1).handle):
        pass
    assert [path.parent.name for path in tmp_path.glob("10.1.2.3@*/g/offsets.json")] == ["g"]


@pytest.mark.feature("F202")
async def test_groups_are_shared_out_again_in_this_interval(cluster, broker, opened, tools):
    async with opened(rebalanceInterval="10") as mq, mq.listen("T", tools.Inbox(1).handle) as one:
        # Another member came, and the notice of it was lost.
        await mq._client.io.run(_seat(broker))
        async with asyncio.timeout(PATIENCE_S):
            await tools.until(broker, lambda: len(one.assigned) == 2)


async def _seat(broker):
    beat = Heartbeat("0.0.0.0@silent", consumers=(ConsumerPart("g"),))
    engine = broker.engine
    engine.core.parts.membership.heartbeat(engine.now_ms, engine.peer(99), beat)


async def test_requests_have_this_deadline(cluster, broker, opened):
    async with opened(mqClientApiTimeout="1234") as mq:
        await mq.admin.topics.list()
    [wire] = [wire for wire in cluster.wires if wire.deadlines]
    assert {deadline for _, deadline in wire.deadlines} == {1234}
