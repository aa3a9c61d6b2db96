"""Asking about a message: what names one, what is bounded, and what is said to be missing."""

from __future__ import annotations

import msgspec
import pytest

from kourou.client.admin.replicas import LogMember
from kourou.client.explain import api, lookup
from kourou.client.explain.api import deliveries_of, member_of
from kourou.client.explain.explanation import WIDTH, Explanation, lines_of
from kourou.client.explain.queries import responder_of
from kourou.errors import BadRequest, Code, Rejected, Unavailable
from kourou.protocol.bodies.broker_bodies import ReplicasView
from kourou.protocol.bodies.status_bodies import ConsumerRunningInfo, ProcessQueueInfo
from kourou.protocol.messages.broker_admin import GetHistory
from kourou.protocol.record.message_trace import Consumed, ConsumeStarted, ContextCode
from kourou.testing.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("explain")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mq(cluster):
    with cluster.client() as mq:
        yield mq


@pytest.mark.parametrize("text", ["", "x" * 2_000, "line\nline"])
def test_what_names_nothing_is_refused(mq, text):
    with pytest.raises(BadRequest, match="is not a message reference"):
        mq.admin.explain.message(text)


def test_names_of_topic_and_group_are_checked(mq):
    with pytest.raises(BadRequest, match="topic"):
        mq.admin.explain.message("A-1", topic="a b")
    with pytest.raises(BadRequest, match="group"):
        mq.admin.explain.message("A-1", group="a b")


def test_too_many_topics_are_cut_and_that_is_said(mq, cluster, monkeypatch):
    monkeypatch.setattr(lookup, "EXPLAIN_TOPICS_MAX", 1)
    topics = [cluster.create_topic(queues=1) for _ in range(2)]
    sent = mq.send(topics[1], b"x")
    explanation = mq.admin.explain.message(sent.message_id)
    assert "topics" in explanation.missing[0].what
    assert mq.admin.explain.message(sent.message_id, topic=topics[1]).message is not None


def test_too_many_groups_are_cut_and_that_is_reported(mq, cluster, monkeypatch):
    monkeypatch.setattr(api, "EXPLAIN_GROUPS_MAX", 1)
    topic = cluster.create_topic(queues=1)
    sent = mq.send(topic, b"x")
    for group in ("one", "two"):
        mq.admin.offsets.commit(group, {sent.queue: 1})
    explanation = mq.admin.explain.message(sent.message_id, topic=topic)
    assert ([one.group for one in explanation.groups], explanation.truncated) == (["one"], True)
    assert "select one with --group" in "\n".join(lines_of(explanation))


def test_members_beyond_the_limit_are_said_to_be_missing(mq, cluster, monkeypatch):
    monkeypatch.setattr(api, "EXPLAIN_MEMBERS_MAX", 0)
    topic = cluster.create_topic(queues=1)
    sent = mq.send(topic, b"x")
    with mq.listen(topic, lambda message: None, group="many"):
        explanation = mq.admin.explain.message(sent.message_id, topic=topic, group="many")
    assert [one.what for one in explanation.missing] == ["1 members of many"]


def test_a_question_that_fails_leaves_its_name_and_the_others_go_on(mq, cluster):
    topic = cluster.create_topic(queues=1)
    sent = mq.send(topic, b"x")
    mq.admin.offsets.commit("deaf", {sent.queue: 1})
    cluster.chaos.drop_requests(GetHistory, times=None, cut=True)
    try:
        explanation = mq.admin.explain.message(sent.message_id, topic=topic, group="deaf")
    finally:
        cluster.chaos.repair()
    assert explanation.groups[0].causes[0].code == "consumed"
    assert "history of progress/deaf at broker-a" in [one.what for one in explanation.missing]


def test_a_queue_that_the_topic_does_not_have(mq, cluster):
    topic = cluster.create_topic(queues=4)
    for asked, code, says in (
        (f"{topic}/broker-a/9@0", "not_found", "has 4 queues, 0 to 3, at broker-a"),
        (f"{topic}/broker-a/3@0", "never_stored", "ends at 0"),
    ):
        (cause,) = mq.admin.explain.message(asked).causes
        assert (cause.code, says in cause.sentence) == (code, True), cause.sentence


def test_a_dead_letter_may_be_all_that_is_left(mq, cluster):
    topic = cluster.create_topic(queues=1)
    sent = mq.send(topic, b"x")
    mq.admin.offsets.commit("other", {sent.queue: 0})
    with mq.listen(topic, lambda message: message.dead_letter("no"), group="gave-up"):
        for _ in range(300):
            explanation = mq.admin.explain.message(sent.message_id, topic=topic, group="gave-up")
            if explanation.groups[0].causes[0].code == "dead_lettered":
                break
            cluster.clock.advance(0.1)
    mq.admin.topics.delete(topic)
    explanation = mq.admin.explain.message(sent.message_id, topic=topic)
    assert (explanation.message.topic, [one.kind for one in explanation.places]) == (
        "%DLQ%gave-up",
        ["dead_letter"],
    )
    assert [(one.group, one.causes[0].code) for one in explanation.groups] == [
        ("gave-up", "dead_lettered")
    ]
    explanation = mq.admin.explain.message(sent.message_id, topic=topic, group="other")
    assert [one.code for one in explanation.groups[0].causes] == ["undecided"]
    assert mq.admin.explain.message(sent.message_id, topic="elsewhere").message is None


def test_it_travels_as_json_and_as_lines(mq, cluster):
    topic = cluster.create_topic(queues=1)
    sent = mq.send(topic, b"x", keys="A-7")
    mq.admin.offsets.commit("done", {sent.queue: 1})
    explanation = mq.admin.explain.message("A-7", topic=topic)
    # Tuples travel as lists, which is what programs read.
    raw = msgspec.json.encode(explanation)
    assert msgspec.json.encode(msgspec.json.decode(raw, type=Explanation)) == raw
    lines = list(lines_of(explanation))
    assert lines[0] == f"{sent.message_id}  {topic}/broker-a/0@0"
    assert any(line.startswith("stored: ") for line in lines)
    assert "group done" in lines
    assert max(map(len, lines)) <= WIDTH


# -- who answers ----------------------------------------------------------------------------------


def member(number, *, leads=False, end=0, error=None) -> LogMember:
    explanation = None
    if error is None:
        explanation = ReplicasView(
            cluster="C",
            broker_name="b",
            broker_id=number,
            broker_role="",
            leads=leads,
            epoch=1,
            leader="",
            first=0,
            end=end,
            flushed=0,
            confirmed=0,
        )
    return LogMember("b", number, f"h:{number}", explanation, error)


def test_a_leader_answers_or_whoever_has_most():
    unreachable = member(0, error=Unavailable("gone"))
    leader = responder_of("b", [member(1, end=9), member(0, leads=True, end=5)])
    assert (leader.address, leader.leads) == ("h:0", True)
    follower = responder_of("b", [unreachable, member(1, end=5), member(2, end=9)])
    assert (follower.address, follower.leads) == ("h:2", False)
    assert responder_of("b", [unreachable]) is None


def test_a_broker_of_another_make_knows_nothing_of_copies_and_answers():
    other = member(0, error=Rejected("what?", code=Code.REQUEST_CODE_NOT_SUPPORTED))
    assert responder_of("b", [other]).leads is True


# -- what is read ---------------------------------------------------------------------------------


def test_calls_of_handlers_are_joined_with_their_ends():
    started = [
        ConsumeStarted(1_000, "", "g", "r1", "ID", 0, ""),
        ConsumeStarted(2_000, "", "g", "r2", "ID", 1, ""),
        ConsumeStarted(3_000, "", "other", "r3", "ID", 0, ""),
    ]
    ends = [Consumed("r1", "ID", 50, False, "", ContextCode.EXCEPTION)]
    first, second = deliveries_of([*started, *ends], "g")
    assert (first.attempt, first.ended_ms, first.ok, first.how) == (1, 1_050, False, "exception")
    assert (second.attempt, second.ended_ms, second.ok) == (2, None, None)


def test_a_member_tells_of_its_queue(message):
    queue = ProcessQueueInfo(
        cached_msg_count=2, cached_msg_min_offset=5, cached_msg_max_offset=6, commit_offset=5
    )
    said = {
        "PROP_CONSUMEORDERLY": "true",
        "PROP_ORDERED_WAITS": "orders/broker-a/1@5 attempts=3 until=9000; nonsense",
        "PROP_STANDING_QUEUES": "orders/broker-a/2@1 since=3; orders/broker-a/1@5 since=4000",
        "pullThresholdForQueue": "1000",
        "consumeConcurrentlyMaxSpan": "many",
    }
    found = member_of("m1", ConsumerRunningInfo(said, (), {message.queue: queue}), message)
    assert (found.queue.first, found.queue.last, found.queue.since_ms) == (5, 6, 4_000)
    assert (found.ordered, found.waits.offset, found.waits.attempts) == (True, 5, 3)
    assert (found.count_max, found.span_max) == (1_000, None)
    empty = ConsumerRunningInfo({}, (), {message.queue: ProcessQueueInfo(commit_offset=8)})
    assert member_of("m1", empty, message).queue.first is None
    gone = ConsumerRunningInfo({}, (), {message.queue: ProcessQueueInfo(droped=True)})
    assert member_of("m1", gone, message).queue is None


def test_the_lock_is_whose_the_newest_event_says(message):
    events = [
        {"owners": {"orders": {"0": "m3"}}},
        {"owners": {"orders": {"1": "m2"}}},
        {"owners": {"orders": {"1": "m1"}}},
    ]
    assert api._owner(events, message) == "m2"
    freed = [{"owners": {"orders": {"1": None}}}, *events]
    assert api._owner(freed, message) is None
