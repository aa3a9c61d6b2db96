"""One pull: what is asked, and how the answer is read."""

from __future__ import annotations

import pytest

from kourou.client.consumer.puller import PullAction, Puller, PullParams, PullStep, step_after
from kourou.errors import Code, Corrupt, Unavailable, UnknownOutcome
from kourou.filtering.tags import parse_tags
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou_rigs.wire_faults import Answer

QUEUE = MessageQueue("T", "broker-a", 0)
WISH = PullParams(count_max=10, bytes_max=10_000, hold_ms=0, timeout_ms=100)


@pytest.fixture
async def pull(cluster, broker, producing, tools):
    await tools.fill(producing, 40, tag="a")
    async with producing() as mq:
        session = mq._client.session
        puller = Puller("g", session.connections, session.routes, session.clock)

        def make(offset=0, params=WISH, expression="*", queue=QUEUE):
            subscription = parse_tags("T", expression, version=7)
            return session.io.run(puller.pull(queue, offset, subscription, params))

        make.puller = puller
        make.refresh = lambda: session.io.run(session.routes.refresh("T"))
        yield make


def last_pull(broker) -> PullMessage:
    return broker.requests(PullMessage)[-1]


@pytest.mark.feature("F188")
async def test_what_is_asked(broker, pull):
    params = PullParams(count_max=3, bytes_max=5_000, hold_ms=20, timeout_ms=100)
    pulled = await pull(2, params, "a || b")
    assert [message.offset for message in pulled.messages] == [2, 3, 4]
    request = last_pull(broker)
    assert (request.consumer_group, request.topic, request.queue_id) == ("g", "T", 0)
    assert (request.queue_offset, request.max_msg_nums, request.max_msg_bytes) == (2, 3, 5_000)
    assert request.sys_flag == PullFlag.SUSPEND | PullFlag.SUBSCRIPTION
    assert (request.suspend_timeout_millis, request.subscription) == (20, "a || b")
    assert request.sub_version == 7


async def test_a_refusal_has_no_place(broker, pull):
    place = PullResponse(suggest_which_broker_id=0, next_begin_offset=0, min_offset=0, max_offset=0)
    broker.faults[PullMessage] = [Answer(Code.NO_PERMISSION, place, remark="no")]
    pulled = await pull(3)
    assert (pulled.code, pulled.remark, pulled.next_offset) == (Code.NO_PERMISSION, "no", -1)


async def test_the_suggested_member_is_asked_next(cluster, broker, pull):
    follower = cluster.broker("follower")
    del cluster.brokers[follower.address]
    place = PullResponse(suggest_which_broker_id=1, next_begin_offset=0, min_offset=0, max_offset=0)
    broker.faults[PullMessage] = [Answer(Code.PULL_NOT_FOUND, place)]
    await pull(0)
    assert pull.puller._suggested[QUEUE] == 1
    pull.puller.forget(QUEUE)
    assert QUEUE not in pull.puller._suggested


@pytest.mark.fault
@pytest.mark.parametrize(("body", "error"), [(b"no record", Corrupt), (b"\x00" * 200, Corrupt)])
async def test_a_body_that_is_no_record(broker, pull, body, error):
    place = PullResponse(suggest_which_broker_id=0, next_begin_offset=9, min_offset=0, max_offset=9)
    broker.faults[PullMessage] = [Answer(0, place, body)]
    with pytest.raises(error):
        await pull(0)


async def test_a_queue_of_nobody(pull):
    with pytest.raises(Unavailable, match="nobody"):
        await pull(queue=MessageQueue("T", "nobody", 0))


@pytest.mark.feature("F027", "F135", "F140")
async def test_a_member_that_is_gone_is_passed_by(cluster, broker, pull):
    """At once, and from then on, until its connection stands again."""
    follower = cluster.follower(broker)
    await pull.refresh()
    await pull(0)
    cluster.down.add(broker.address)
    for _ in range(2):
        assert [message.offset for message in (await pull(3)).messages] == [3, 4, 5, 6, 7, 8, 9]
    assert len(follower.requests(PullMessage)) == 2
    cluster.down.clear()
    asked = len(broker.requests(PullMessage))
    await pull(3)
    assert len(broker.requests(PullMessage)) == asked + 1, "its leader again"


async def test_one_member_alone_is_asked_once(cluster, broker, pull):
    await pull(0)
    cluster.down.add(broker.address)
    with pytest.raises(UnknownOutcome):
        await pull(3)


async def test_a_follower_that_is_behind_leads_nobody_back(cluster, broker, pull):
    follower = cluster.follower(broker)
    cluster.nobody_leads(broker)
    await pull.refresh()
    pulled = await pull(25)
    assert (pulled.code, pulled.next_offset) == (Code.PULL_NOT_FOUND, 25)
    cluster.lead(follower)
    await pull.refresh()
    pulled = await pull(25)
    assert (pulled.code, pulled.next_offset) == (Code.PULL_OFFSET_MOVED, 10), "a leader knows"


# -- the step after each answer --------------------------------------------------------------------


def step(code, *, progressed=True, elapsed_ms=100, pull_interval_ms=0):
    return step_after(
        code,
        progressed=progressed,
        elapsed_ms=elapsed_ms,
        pull_interval_ms=pull_interval_ms,
        exception_pause_ms=1000,
    )


@pytest.mark.feature("F187", "F189")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (Code.SUCCESS, PullStep()),
        (Code.PULL_NOT_FOUND, PullStep()),
        (Code.PULL_RETRY_IMMEDIATELY, PullStep()),
        (Code.PULL_OFFSET_MOVED, PullStep(PullAction.CORRECT_OFFSET)),
        (Code.MESSAGE_CORRUPT, PullStep(PullAction.SKIP_CORRUPT)),
        (Code.FILTER_FAILED, PullStep(PullAction.FILTER_FAILED, 1000)),
        (Code.FLOW_CONTROL, PullStep(pause_ms=20)),
        (Code.SYSTEM_BUSY, PullStep(pause_ms=20)),
        (Code.POLLING_FULL, PullStep(pause_ms=20)),
        (Code.SUBSCRIPTION_NOT_EXIST, PullStep(PullAction.HEARTBEAT, 200)),
        (Code.SUBSCRIPTION_NOT_LATEST, PullStep(PullAction.HEARTBEAT, 200)),
        (Code.SUBSCRIPTION_GROUP_NOT_EXIST, PullStep(PullAction.HEARTBEAT, 200)),
        (Code.SYSTEM_ERROR, PullStep(PullAction.FIND_ROUTE, 1000)),
        (Code.TOPIC_NOT_EXIST, PullStep(PullAction.FIND_ROUTE, 1000)),
        (9_999, PullStep(PullAction.FIND_ROUTE, 1000)),
    ],
)
def test_the_table(code, expected):
    assert step(code) == expected


@pytest.mark.parametrize("code", [Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY])
def test_an_empty_answer_at_once_is_not_asked_again_at_once(code):
    assert step(code, progressed=False, elapsed_ms=1).pause_ms > 0
    assert step(code, progressed=False, elapsed_ms=15_000).pause_ms == 0
    assert step(code, progressed=True, elapsed_ms=1).pause_ms == 0


@pytest.mark.parametrize("code", [Code.PULL_OFFSET_MOVED, Code.MESSAGE_CORRUPT])
def test_a_correction_that_leads_nowhere_does_not_spin(code):
    assert step(code, progressed=False).pause_ms > 0
