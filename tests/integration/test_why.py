"""Why is a message where it is? Situations set up for real at one broker, and what is said."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import pytest

from kourou import ClientSettings, ConsumerSettings, Sql
from kourou.client.explain.explanation import ExplainedGroup, Explanation
from kourou.model.names import retry_topic
from kourou.model.subscription import ConsumeFromWhere, GroupConfig, MessageModel, Subscription
from kourou.model.topic import Permission
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.groups import HeartBeat
from kourou.testing.cluster import Cluster, unique_name
from kourou.transport.zmq_client import ZmqConnection

TRIES = 300
STEP_S = 0.1
SETTINGS = {
    "accessMessageInMemoryMaxRatio": 0,  # no queue counts as young: groups begin as they are told
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("why"), settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def operator(cluster):
    with cluster.client("operator") as mq:
        yield mq


@pytest.fixture
def topic(cluster):
    return cluster.create_topic(queues=1)


@pytest.fixture
def group():
    return unique_name("group")


@pytest.fixture
def why(cluster, operator):
    """Asks until the first cause has this code, while time goes on by little; the facts beside."""

    def ask(message, code, group=None, **more) -> Explanation:
        for _ in range(TRIES):
            told = operator.admin.explain.message(message, group=group, **more)
            answer = told.groups[0] if group is not None and told.groups else told
            if answer.causes[0].code == code:
                return told
            cluster.clock.advance(STEP_S)
        raise AssertionError(f"{[one.code for one in answer.causes]}, not {code}: {told}")

    return ask


def only(told: Explanation) -> ExplainedGroup:
    (group,) = told.groups
    return group


def codes(answer: Explanation | ExplainedGroup) -> list[str]:
    return [one.code for one in answer.causes]


def place(sent) -> str:
    return f"{sent.queue!s}@{sent.offset}"


@contextmanager
def member(
    cluster, group, topic, handler=None, expression="*", *, ordered=False, instance="", **settings
):
    """A member of the group that consumes from the first message on, unless told otherwise."""
    settings.setdefault("consume_from_where", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    own = ConsumerSettings(consumer_group=group, await_termination_ms=0, **settings)
    client = ClientSettings(
        persist_consumer_offset_interval_ms=100,
        local_offsets_dir=str(cluster.folder / "offsets"),
        instance_name=instance or "DEFAULT",
    )
    with (
        cluster.client(group, settings=client, consumer=own) as mq,
        mq.listen(topic, handler or (lambda message: None), expression, ordered=ordered),
    ):
        yield mq


class Gate:
    """A handler that waits before it takes a message, until the test ends."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, message) -> None:
        self.open.wait(60)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


# -- the message itself ---------------------------------------------------------------------------


def test_an_offset_beyond_the_end_was_never_stored(operator, topic):
    sent = operator.send(topic, b"x")
    told = operator.admin.explain.message(f"{sent.queue!s}@7")
    assert codes(told) == ["never_stored"]
    assert told.message is None
    assert told.causes[0].facts == {"offset": 7, "queue_end": 1}


def test_an_id_that_nobody_has_is_not_found_and_says_what_ids_look_like(operator, topic):
    told = operator.admin.explain.message("7F0000010001" + 20 * "A", topic=topic)
    assert codes(told) == ["not_found"]
    assert told.causes[0].facts["brokers"] == ("broker-a",)
    assert "32 hexadecimal digits" in told.causes[0].advice


def test_a_topic_without_a_group_is_consumed_by_nobody(operator, topic):
    sent = operator.send(topic, b"x", tag="paid", keys="A-1")
    told = operator.admin.explain.message(sent.message_id)
    assert codes(told) == ["nobody_consumes"]
    assert (told.message.topic, told.message.tag, told.message.keys) == (topic, "paid", ["A-1"])
    assert told.storage.confirmed is True
    assert [(one.role, one.written) for one in told.storage.copies] == [("leader", True)]
    assert told.missing == []


def test_a_message_has_four_names(operator, topic):
    key = unique_name("order")
    sent = operator.send(topic, b"x", keys=key)
    operator.send(topic, b"y", keys=key)
    for name in (sent.message_id, sent.offset_message_id, place(sent)):
        assert operator.admin.explain.message(name).message.offset == sent.offset
    told = operator.admin.explain.message(key)
    assert (told.message.offset, told.others) == (1, 1), "the newest of both"


def test_a_queue_beyond_the_read_queues_is_read_by_nobody(operator, cluster, group, why):
    topic = cluster.create_topic(queues=2)
    sent = operator.send(topic, b"x", selector=lambda queues, *_: queues[1])
    operator.admin.topics.create(topic, queues=1, read_queues=2)
    operator.admin.topics.create(topic, queues=1, read_queues=1)
    told = why(place(sent), "queue_not_read")
    assert told.causes[0].facts == {"queue_id": 1, "read_queues": 1}
    with member(cluster, group, topic):
        told = why(place(sent), "queue_not_read", group)
        assert only(told).next_offset in (None, 0)


def test_a_topic_that_may_not_be_read(operator, topic, group, why):
    sent = operator.send(topic, b"x")
    operator.admin.topics.set_perm(topic, Permission.WRITE)
    told = why(sent.message_id, "topic_unreadable", topic=topic)
    assert told.causes[0].facts == {"topic": topic}
    assert codes(only(why(sent.message_id, "topic_unreadable", group)))[-1] == "group_unknown"


def test_a_broker_that_may_not_be_read(operator, topic, why):
    sent = operator.send(topic, b"x")
    operator.admin.brokers.update_config("broker-a", {"brokerPermission": "2"})
    try:
        assert why(place(sent), "broker_unreadable").causes[0].facts == {"broker": "broker-a"}
    finally:
        operator.admin.brokers.update_config("broker-a", {"brokerPermission": "6"})


def test_a_delayed_message_tells_when_it_comes(operator, cluster, topic, group, why):
    sent = operator.send(topic, b"x", delay=timedelta(minutes=1))
    told = why(sent.message_id, "delayed")
    facts = told.causes[0].facts
    assert facts["level"] == 5
    assert facts["due_ms"] - told.message.stored_ms == 60_000
    assert [one.kind for one in told.places] == ["delayed"]
    assert codes(only(why(sent.message_id, "delayed", group)))[0] == "delayed"
    cluster.clock.advance(61)
    told = why(sent.message_id, "nobody_consumes", topic=topic)
    assert [one.kind for one in told.places] == ["delayed", "sent"]


# -- what became of it in a group -----------------------------------------------------------------


def test_progress_beyond_it_means_consumed(operator, cluster, topic, group, why):
    sent = operator.send(topic, b"x")
    with member(cluster, group, topic):
        told = why(sent.message_id, "consumed", group)
    assert only(told).causes[0].facts == {"proof": "progress", "next_offset": 1}
    assert codes(told) == ["stored"]


def test_a_message_trace_tells_when_it_was_consumed(operator, cluster, topic, group, why):
    sent = operator.send(topic, b"x")
    with member(cluster, group, topic, message_trace=True):
        for _ in range(TRIES):
            told = operator.admin.explain.message(sent.message_id, topic=topic, group=group)
            if only(told).causes[0].facts.get("proof") == "trace":
                break
            cluster.clock.advance(STEP_S)
    cause = only(told).causes[0]
    assert (cause.code, cause.facts["proof"], cause.facts["attempt"]) == ("consumed", "trace", 1)
    assert [(one.ok, one.how) for one in only(told).deliveries] == [(True, "success")]


def test_another_tag_is_filtered(operator, cluster, topic, group, why):
    sent = operator.send(topic, b"x", tag="paid")
    with member(cluster, group, topic, expression="opened || closed"):
        told = why(sent.message_id, "filtered_by_tag", group)
    assert only(told).causes[0].facts == {"tag": "paid", "expression": "opened || closed"}


def test_properties_that_an_expression_does_not_want_are_filtered(
    operator, cluster, topic, group, why
):
    sent = operator.send(topic, b"x", properties={"price": "7"})
    with member(cluster, group, topic, expression=Sql("price > 10")):
        told = why(sent.message_id, "filtered_by_sql", group)
    assert only(told).causes[0].facts == {"expression": "price > 10"}


def test_a_reset_past_it_names_who_and_when(operator, cluster, topic, group, why):
    sent = operator.send(topic, b"x")
    operator.admin.offsets.commit(group, {sent.queue: 0})
    operator.send(topic, b"y")
    cluster.clock.advance(1)
    at_ms = cluster.clock.now_ms
    operator.admin.offsets.reset(group, topic, -1)
    told = why(sent.message_id, "reset_past", group)
    facts = only(told).causes[0].facts
    assert (facts["before"], facts["after"]) == (0, 2)
    assert facts["actor"]
    assert facts["at_ms"] >= at_ms
    operator.admin.offsets.reset(group, topic, 0)
    assert codes(only(why(sent.message_id, "no_member", group)))[0] == "no_member"


def test_a_group_that_begins_at_the_end_has_not_had_it(operator, cluster, topic, group, why):
    sent = operator.send(topic, b"x")
    cluster.clock.advance(1)
    last = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    with member(cluster, group, topic, consume_from_where=last):
        told = why(sent.message_id, "skipped_by_consume_from_last", group)
        facts = only(told).causes[0].facts
        assert facts["next_offset"] == 1
        assert facts["created_ms"] > told.message.stored_ms
        later = operator.send(topic, b"y")
        assert codes(only(why(later.message_id, "consumed", group))) == ["consumed"]


def test_broadcasting_is_each_members_own(operator, cluster, topic, group, why):
    sent = operator.send(topic, b"x")
    every = MessageModel.BROADCASTING
    with member(cluster, group, topic, message_model=every) as mq:
        for _ in range(TRIES):
            told = why(sent.message_id, "broadcasting", group, topic=topic)
            if only(told).causes[0].facts["beyond"]:
                break
        assert only(told).causes[0].facts["beyond"] == (mq._client.session.client_id,)
        operator.admin.groups.create(GroupConfig(group, consume_broadcast_enable=False))
        why(sent.message_id, "broadcast_forbidden", group)


# -- attempts that failed -------------------------------------------------------------------------


def failing(message) -> None:
    raise ValueError("no such flight")


def test_a_failed_attempt_comes_again_at_a_time_and_then_is_due(
    operator, cluster, topic, group, why
):
    sent = operator.send(topic, b"x")
    with member(cluster, group, topic, failing):
        told = why(sent.message_id, "in_retry", group)
    facts = only(told).causes[0].facts
    assert (facts["attempts"], facts["attempts_max"]) == (1, 16)
    assert facts["due_ms"] - told.places[-1].stored_ms == 10_000
    assert [one.kind for one in told.places] == ["sent", "retry_wait"]
    cluster.clock.advance(11)
    told = why(sent.message_id, "retry_due", group)
    assert codes(only(told)) == ["retry_due", "no_member"]
    assert only(told).causes[0].facts["attempt"] == 2
    with member(cluster, group, topic):
        told = why(sent.message_id, "consumed", group)
        assert only(told).causes[0].facts["attempt"] == 2


def test_a_dead_letter_tells_why_and_whether_it_was_sent_again(
    operator, cluster, topic, group, why
):
    sent = operator.send(topic, b"x")
    with member(cluster, group, topic, lambda message: message.dead_letter("bad price")):
        told = why(sent.message_id, "dead_lettered", group)
    facts = only(told).causes[0].facts
    assert (facts["reason"], facts["attempts"], facts["redriven"]) == ("bad price", 1, False)
    letters = operator.admin.dead_letters.of(group)
    operator.admin.dead_letters.deal_with(group, letters)
    assert codes(only(why(sent.message_id, "dead_letter_dealt_with", group)))
    cluster.clock.advance(1)
    operator.admin.topics.create(retry_topic(group), queues=1)
    operator.admin.dead_letters.resend(group, letters)
    told = why(sent.message_id, "redriven", group)
    assert codes(only(told)) == ["redriven", "no_member"]
    assert [one.kind for one in told.places] == ["sent", "dead_letter", "retry"]
    with member(cluster, group, topic):
        assert codes(only(why(sent.message_id, "consumed", group))) == ["consumed", "redriven"]


# -- what keeps a group from it -------------------------------------------------------------------


def test_a_group_that_never_was(operator, topic, why, group):
    sent = operator.send(topic, b"x")
    assert only(why(sent.message_id, "group_unknown", group)).online is False


def test_a_group_whose_members_are_gone(operator, cluster, topic, group, why):
    sent = operator.send(topic, b"x")
    with member(cluster, group, topic):
        why(sent.message_id, "consumed", group)
    later = operator.send(topic, b"y")
    why(later.message_id, "no_member", group)
    told = operator.admin.explain.message(later.message_id)  # for all groups: there is one
    assert (only(told).group, only(told).causes[0].facts) == (group, {"next_offset": 1})


def test_a_group_whose_consumption_is_suspended(operator, cluster, topic, group, why):
    operator.admin.groups.create(GroupConfig(group, consume_enable=False))
    sent = operator.send(topic, b"x")
    with member(cluster, group, topic):
        told = why(sent.message_id, "consumption_disabled", group)
        assert "waiting_behind" in codes(only(told))


def test_a_group_that_wants_other_topics(operator, cluster, topic, group, why):
    sent = operator.send(topic, b"x")
    with member(cluster, group, cluster.create_topic(queues=1)):
        told = why(sent.message_id, "not_subscribed", group)
    assert only(told).causes[0].facts == {"topic": topic}


def test_members_that_want_different_things_are_named(operator, cluster, topic, group, why):
    with ExitStack() as stack:
        one = stack.enter_context(member(cluster, group, topic, expression="paid"))
        two = stack.enter_context(member(cluster, group, topic, expression="opened"))
        cluster.clock.advance(1)
        gone = operator.admin.offsets.of(group, topic)
        assert gone
        operator.admin.groups.create(GroupConfig(group, consume_enable=False))
        sent = operator.send(topic, b"x", tag="closed")
        told = why(sent.message_id, "consumption_disabled", group)
        clash = next(one for one in only(told).causes if one.code == "subscriptions_clash")
        ids = sorted(each._client.session.client_id for each in (one, two))
        assert sorted(text.split(": ")[0] for text in clash.facts["subscriptions"]) == ids
        assert sorted(text.split(": ")[1] for text in clash.facts["subscriptions"]) == [
            "opened",
            "paid",
        ]


def test_who_pulls_reads_when_it_likes(operator, cluster, topic, group, why):
    sent = operator.send(topic, b"x")
    with cluster.client(group) as mq:
        consumer = mq.pull_consumer(group)
        consumer.queues(topic)
        consumer.assign([sent.queue])
        told = why(sent.message_id, "pull_consumer", group)
        assert only(told).causes[0].facts == {"next_offset": 0}


def test_what_a_handler_has_is_in_its_hands_and_then_it_is_stuck(
    operator, cluster, topic, group, gate, why
):
    first, second = (operator.send(topic, b"x") for _ in range(2))
    with member(cluster, group, topic, gate) as mq:
        told = why(first.message_id, "in_progress", group)
        facts = only(told).causes[0].facts
        assert facts["member"] == mq._client.session.client_id
        assert (facts["smallest_unfinished"], facts["next_offset"]) == (0, 0)
        told = why(second.message_id, "in_progress", group)
        assert "the oldest unfinished" in only(told).causes[0].sentence
        cluster.clock.advance(70)
        told = why(second.message_id, "member_stuck", group)
        assert only(told).causes[0].facts["stands_ms"] >= 60_000
        assert codes(only(told)) == ["member_stuck", "in_progress"]


def test_a_member_that_has_enough_pulls_no_more(operator, cluster, topic, group, gate, why):
    sent = [operator.send(topic, b"x") for _ in range(5)]
    few = {"pull_threshold_for_queue": 1, "pull_batch_size": 1}
    with member(cluster, group, topic, gate, **few):
        told = why(sent[4].message_id, "flow_controlled", group)
        flow, waiting = only(told).causes
        assert "limit 1" in flow.facts["limit"]
        assert (waiting.code, waiting.facts["ahead"]) == ("waiting_behind", 4)
        assert waiting.facts["smallest_unfinished"] == 0


def test_a_member_that_says_nothing_is_named(operator, cluster, topic, group):
    sent = operator.send(topic, b"x")
    wire = cluster._thread.run(silent_member(cluster, group, topic))
    try:
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(
                operator.admin.explain.message, sent.message_id, topic=topic, group=group
            )
            while not asking.done():
                cluster.clock.advance(STEP_S)
        (found,) = asking.result().groups
        assert codes(found) == ["member_silent"]
        assert found.causes[0].facts["member"] == "silent@1"
        assert [(one.client_id, one.holds_queue) for one in found.members] == [("silent@1", None)]
        assert found.members[0].why
    finally:
        cluster._thread.run(hang_up(wire))


async def silent_member(cluster, group, topic) -> ZmqConnection:
    """A client that is in the group, and answers no question."""
    address = f"127.0.0.1:{cluster.members[0].service.server.port}"
    wire = ZmqConnection(address, clock=cluster._thread.clock)
    beat = HeartbeatBody(
        "silent@1", consumers=(ConsumerData(group, subscriptions=(Subscription(topic),)),)
    )
    await wire.request(HeartBeat(), body=(encode_heartbeat(beat),), timeout_ms=10_000)
    return wire


async def hang_up(wire) -> None:
    wire.close()


# -- in order -------------------------------------------------------------------------------------


def test_an_ordered_queue_waits_for_its_next_attempt(operator, cluster, topic, group, why):
    first, second = (operator.send(topic, b"x") for _ in range(2))
    slow = {"redelivery_delay_ms": 30_000, "max_reconsume_times": -1}
    began_ms = cluster.clock.now_ms
    with member(cluster, group, topic, failing, ordered=True, **slow) as mq:
        told = why(first.message_id, "ordered_retry", group)
        facts = only(told).causes[0].facts
        assert (facts["offset"], facts["attempts"]) == (0, 1)
        # The attempt may have failed while the question was on its way.
        assert began_ms <= facts["until_ms"] - 30_000 <= cluster.clock.now_ms
        assert facts["member"] == mq._client.session.client_id
        told = why(second.message_id, "ordered_retry", group)
        assert "before it" in only(told).causes[0].sentence


def test_a_queue_that_another_member_has_locked(operator, cluster, topic, group, gate, why):
    sent = operator.send(topic, b"x")
    with ExitStack() as stack:
        first = stack.enter_context(
            member(cluster, group, topic, gate, ordered=True, instance="second")
        )
        why(sent.message_id, "in_progress", group)
        # The queue falls to the lowest id; the handler of the other one still has its message.
        stack.enter_context(member(cluster, group, topic, gate, ordered=True, instance="first"))
        told = why(sent.message_id, "queue_locked", group)
        owner = first._client.session.client_id
    assert only(told).causes[0].facts == {"owner": owner, "connected": True}
    assert [one.holds_queue for one in only(told).members] == [False, False]
