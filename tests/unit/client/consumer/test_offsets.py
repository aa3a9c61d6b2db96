"""Facts about queues, and the two places where progress is kept."""

from __future__ import annotations

import pytest

from kourou.client.consumer.offsets import LocalOffsets, RemoteOffsets, local_offsets_path
from kourou.errors import Code, Corrupt, NoPermission, TopicNotFound, Unavailable
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import UpdateConsumerOffset
from kourou_rigs.wire_faults import Answer, always

QUEUE = MessageQueue("T", "broker-a", 1)
OTHER = MessageQueue("T", "broker-a", 2)


@pytest.fixture
async def session(cluster, broker, producing, tools):
    await tools.fill(producing, 20)
    async with producing() as mq:
        yield mq._client.session


async def test_facts(broker, session):
    async def work():
        facts = session.facts
        broker.trim("T", 1, 2)
        first_ms = broker.stored("T", 1)[0].store_timestamp
        assert await facts.max_offset(QUEUE) == 5
        assert await facts.min_offset(QUEUE) == 2
        assert await facts.earliest_store_time(QUEUE) == first_ms
        assert await facts.offset_by_time(QUEUE, first_ms) == 2
        assert await facts.offset_by_time(QUEUE, first_ms + 3_600_000) == 5
        assert await facts.committed("g", QUEUE) is None
        await facts.commit("g", QUEUE, 4)
        assert await facts.committed("g", QUEUE) == 4
        with pytest.raises(Unavailable, match="nobody"):
            await facts.max_offset(MessageQueue("T", "nobody", 0))
        with pytest.raises(TopicNotFound):
            await facts.max_offset(MessageQueue("U", "broker-a", 0))

    await session.io.run(work())


@pytest.mark.feature("F191", "F307", "F322")
async def test_progress_at_the_brokers(broker, session):
    async def work():
        store = RemoteOffsets("g", session.facts)
        assert await store.load(QUEUE) is None
        await store.save({QUEUE: 3, OTHER: 4})
        assert await store.load(QUEUE) == 3
        await store.save({QUEUE: 1})
        assert await store.load(QUEUE) == 1, "lower is kept too"
        broker.faults[UpdateConsumerOffset] = always(
            lambda request: Answer(Code.NO_PERMISSION) if request.queue_id == 1 else None
        )
        with pytest.raises(NoPermission):
            await store.save({QUEUE: 9, OTHER: 9})

    await session.io.run(work())
    assert broker.committed["g", "T", 2] == 9, "one refusal keeps nobody else's back"


@pytest.mark.feature("F192")
async def test_progress_in_a_file(tmp_path):
    path = local_offsets_path(str(tmp_path), "1.2.3.4@x", "g")
    store = LocalOffsets(path)
    assert await store.load(QUEUE) is None
    await store.save({QUEUE: 3})
    await store.save({OTHER: 4})
    again = LocalOffsets(path)
    assert (await again.load(QUEUE), await again.load(OTHER)) == (3, 4)
    text = path.read_text()
    assert '{"brokerName":"broker-a","queueId":1,"topic":"T"}:3' in text
    assert path == tmp_path / "1.2.3.4@x" / "g" / "offsets.json"


async def test_saving_first_keeps_what_was_there(tmp_path):
    path = tmp_path / "offsets.json"
    await LocalOffsets(path).save({QUEUE: 3})
    await LocalOffsets(path).save({OTHER: 4})
    assert await LocalOffsets(path).load(QUEUE) == 3


def test_the_usual_place_is_rocketmqs():
    path = local_offsets_path("", "c", "g")
    assert path.parts[-4:] == (".rocketmq_offsets", "c", "g", "offsets.json")


@pytest.mark.fault
async def test_a_damaged_file_gives_way_to_its_backup(tmp_path):
    path = tmp_path / "offsets.json"
    store = LocalOffsets(path)
    await store.save({QUEUE: 3})
    await store.save({QUEUE: 4})
    path.write_text("{")
    assert await LocalOffsets(path).load(QUEUE) == 3
    path.with_name("offsets.json.bak").write_text("[]")
    with pytest.raises(Corrupt, match="move the file away"):
        await LocalOffsets(path).load(QUEUE)


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "{}",
        '{"offsetTable":[]}',
        '{"offsetTable":{"x":1}}',
        '{"offsetTable":{{"topic":"T"}:1}}',
        '{"offsetTable":{{"topic":"T","brokerName":"b","queueId":0}:"x"}}',
    ],
)
async def test_what_is_no_such_file(tmp_path, text):
    path = tmp_path / "offsets.json"
    path.write_text(text)
    with pytest.raises(Corrupt):
        await LocalOffsets(path).load(QUEUE)


async def test_a_file_of_a_java_client(tmp_path):
    """It is no standard JSON: its keys are objects."""
    path = tmp_path / "offsets.json"
    path.write_text(
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":1,\n'
        '\t\t\t"topic":"T"\n\t\t}:12\n\t}\n}'
    )
    assert await LocalOffsets(path).load(QUEUE) == 12
