"""Looking back and taking back, at a broker."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kourou.authorization.access_uses import TriedPolicies, UsesFound, UsesQuestion
from kourou.authorization.audit import AuditFound, AuditQuestion
from kourou.engine.admin.history import (
    EventFound,
    EventQuestion,
    HistoryFound,
    HistoryQuestion,
    StateFound,
    StateQuestion,
)
from kourou.engine.effects import AskHistory
from kourou.engine.inputs import HistoryAnswered
from kourou.errors import Code, MetadataUnavailable
from kourou.events.control_events import GroupDeleted, Recorded, TopicPut, decode_record_body
from kourou.model.limits import HISTORY_WAIT_MS_MAX
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.protocol.bodies.access_bodies import (
    AuditDecision,
    PolicyChange,
    PolicyChangeKind,
    encode_policy_changes,
)
from kourou.protocol.bodies.config_bodies import encode_group_config
from kourou.protocol.messages.access import GetAudit, TryPolicies
from kourou.protocol.messages.broker_admin import (
    DeleteTopicInBroker,
    GetHistory,
    GetStateAt,
    Undo,
    UpdateAndCreateTopic,
    UpdateBrokerConfig,
)
from kourou.protocol.messages.groups import (
    DeleteSubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import (
    UpdateConsumerOffset,
)
from kourou.protocol.request import Request
from kourou.runtime import Reply
from kourou.settings.declaration import Setting
from kourou_rigs.engine import Engine, header_of

SPECS = [
    Setting("traceOn", True, dynamic=True),
    Setting("brokerPermission", 6, dynamic=True, low=0, high=7),
]


@pytest.fixture
def engine() -> Engine:
    return Engine(specs=SPECS)


def topic(engine: Engine, queues: int = 4, name: str = "orders") -> int:
    """Create or change a topic; the offset of its event."""
    request = UpdateAndCreateTopic(
        topic=name, default_topic="", read_queue_nums=queues, write_queue_nums=queues, perm=6
    )
    assert engine.ask(request).code == Code.SUCCESS
    return engine.control.next_offset - 1


def setting(engine: Engine, text: str) -> int:
    assert engine.ask(UpdateBrokerConfig(), text.encode()).code == Code.SUCCESS
    return engine.control.next_offset - 1


def group(engine: Engine, name: str = "till") -> int:
    body = encode_group_config(GroupConfig(name))
    assert engine.ask(UpdateAndCreateSubscriptionGroup(), body).code == Code.SUCCESS
    return engine.control.next_offset - 1


def commit(engine: Engine, offset: int, queue: int = 0) -> None:
    request = UpdateConsumerOffset(
        consumer_group="till", topic="orders", queue_id=queue, commit_offset=offset
    )
    assert engine.ask(request).code == Code.SUCCESS


def asked(engine: Engine, request: Request, deadline_ms: int = 0) -> AskHistory:
    """The question that a request leads to; nothing is answered meanwhile."""
    engine.effects.clear()
    name = engine.send(request, deadline_ms=deadline_ms)
    (question,) = (each for each in engine.effects if isinstance(each, AskHistory))
    assert name not in engine.replies
    return question


def answer(engine: Engine, question: AskHistory, *found: Any, error: Any = None) -> Reply:
    engine.handle(HistoryAnswered(question.received, *found, error=error))
    to = question.received.to
    return engine.replies[to.peer.id, to.correlation]


def newest(engine: Engine) -> Recorded:
    stored = engine.events()[-1]
    return decode_record_body(stored.body, offset=stored.offset, position=stored.position)


# -- looking back ---------------------------------------------------------------------------------


def test_history_is_asked_of_the_database_up_to_what_was_decided(engine: Engine):
    offset = topic(engine)
    question = asked(
        engine,
        GetHistory(aggregate="topic/orders", before_offset=9, types=["TopicPut"], max_count=5),
    )
    assert question.question == HistoryQuestion("topic/orders", 5, 9, None, frozenset({"TopicPut"}))
    assert (question.upto, question.wait_ms) == (offset + 1, HISTORY_WAIT_MS_MAX)
    reply = answer(engine, question, HistoryFound(b"[]", 3, 1, 8))
    header = header_of(reply)
    assert (header.before_offset, header.begin_offset, header.end_offset) == (3, 1, 8)
    assert reply.body == (b"[]",)


def test_the_audit_is_searched_page_by_page(engine: Engine):
    wanted = GetAudit(
        user="eve", request="SendMessage", since_ms=5, max_count=7, before="3:900:2:5"
    )
    question = asked(engine, wanted)
    assert question.question == AuditQuestion("eve", "SendMessage", 5, None, 7, ((3, 900), (2, 5)))
    reply = answer(engine, question, AuditFound(b"[]", ((2, 11), (0, 0))))
    assert (header_of(reply).before, reply.body) == ("2:11:0:0", (b"[]",))
    question = asked(engine, GetAudit(decision="allowed"))
    assert question.question == AuditQuestion("", "", None, None, 100, None, AuditDecision.ALLOWED)
    last = answer(engine, question, AuditFound(b"[]", None))
    assert header_of(last).before == ""


def test_policies_are_tried_on_what_was_counted(engine: Engine):
    """The handler asks for what was counted, with the table as it is and as it would be."""
    change = PolicyChange(
        user="anonymous", change=PolicyChangeKind.ALLOW, resource="Topic:orders", actions=("Sub",)
    )
    body = encode_policy_changes([change])
    engine.effects.clear()
    engine.send(TryPolicies(since_ms=5), body)
    [question] = [one for one in engine.effects if isinstance(one, AskHistory)]
    wanted = question.question
    assert isinstance(wanted, UsesQuestion)
    assert (wanted.since_ms, wanted.wall_ms) == (5, engine.wall_ms)
    assert not wanted.now.policies
    assert list(wanted.proposed.policies) == ["anonymous/Topic:orders/allow"]
    assert not engine.control.access.policies, "nothing was changed"
    reply = answer(engine, question, UsesFound(TriedPolicies([], 7, 3, 1, more=True), 4))
    header = header_of(reply)
    assert (header.requests, header.refused, header.untried) == (7, 3, 1)
    assert (header.since_ms, header.more, reply.body) == (4, True, (b"[]",))
    for wrong in (b"{}", encode_policy_changes([msgspec.structs.replace(change, resource="?")])):
        assert engine.ask(TryPolicies(), wrong).code != Code.SUCCESS


def test_a_state_is_asked_at_an_instant_after_an_event_or_now(engine: Engine):
    offset = topic(engine)
    for request, question in (
        (GetStateAt(), StateQuestion("")),
        (GetStateAt(aggregate="topic/orders", at_ms=7), StateQuestion("topic/orders", 7)),
        (GetStateAt(aggregate="group/g", offset=offset), StateQuestion("group/g", None, offset)),
    ):
        found = asked(engine, request)
        assert found.question == question
        reply = answer(engine, found, StateFound(b"null", 4, 77, 2))
        header = header_of(reply)
        assert (header.next_offset, header.at_ms, header.begin_offset) == (4, 77, 2)
        assert reply.body == (b"null",)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (GetHistory(aggregate="topic/a\0b", max_count=1), "kind/name"),
        (GetHistory(aggregate="topic/" + "x" * 300, max_count=1), "kind/name"),
        (GetHistory(types=["T"] * 65, max_count=1), "at most 64"),
        (GetAudit(before="x"), "`before` of a reply"),
        (GetAudit(before="1:-1:2:5"), "`before` of a reply"),
        (GetAudit(before="3:900"), "`before` of a reply"),
        (GetAudit(max_count=0), "between 1 and"),
        (GetAudit(decision="all"), "not a decision"),
        (Undo(offset=0, reason="a\0b"), "NUL"),
    ],
)
def test_wrong_questions_are_refused_at_once(engine: Engine, request_: Request, sentence: str):
    before = len(engine.events())
    reply = engine.ask(request_)
    assert reply.code != Code.SUCCESS
    assert sentence in reply.remark
    assert len(engine.events()) == before


def test_what_the_database_says_wrong_is_the_answer(engine: Engine):
    question = asked(engine, GetHistory(max_count=1))
    reply = answer(engine, question, error=MetadataUnavailable("it is gone"))
    assert (reply.code, reply.remark) == (Code.METADATA_UNAVAILABLE, "it is gone")


@pytest.mark.parametrize(("left_ms", "wait_ms"), [(10_000, 5_000), (4_000, 3_500), (100, 50)])
def test_the_answer_comes_before_the_deadline(engine: Engine, left_ms: int, wait_ms: int):
    question = asked(engine, GetHistory(max_count=1), deadline_ms=engine.now_ms + left_ms)
    assert question.wait_ms == wait_ms


def test_after_the_deadline_nothing_is_undone(engine: Engine):
    group(engine)
    assert (
        engine.ask(DeleteSubscriptionGroup(group_name="till", remove_offset=True)).code
        == Code.SUCCESS
    )
    gone = newest(engine)
    question = asked(engine, Undo(offset=gone.offset), deadline_ms=engine.now_ms + 5_000)
    events = len(engine.events())
    engine.now_ms += 5_000
    reply = answer(engine, question, EventFound(gone))
    assert reply.code == Code.DEADLINE_PASSED
    assert "till" not in engine.control.groups
    assert len(engine.events()) == events


# -- taking back ----------------------------------------------------------------------------------


def test_a_deleted_topic_comes_back_with_its_groups_progress(engine: Engine):
    topic(engine)
    group(engine)
    commit(engine, 10)
    assert engine.ask(DeleteTopicInBroker(topic="orders")).code == Code.SUCCESS
    gone = newest(engine)
    question = asked(engine, Undo(offset=gone.offset, reason="not that one"))
    assert question.question == EventQuestion(gone.offset)
    assert question.upto == gone.offset + 1
    found = EventFound(gone, {"till": {"orders": {0: 10}}, "other": {"bills": {0: 1}}})
    reply = answer(engine, question, found)
    assert header_of(reply).next_offset == header_of(reply).first_offset + 2
    assert engine.control.topics.table["orders"] == TopicConfig("orders", 4, 4)
    assert engine.core.parts.commits.offset("till", "orders", 0) == 10
    assert engine.core.parts.commits.groups("bills") == []
    assert newest(engine).undoes == gone.offset


def test_a_group_that_was_deleted_with_its_offsets_comes_back_with_them(engine: Engine):
    topic(engine)
    group(engine)
    commit(engine, 10)
    deleting = DeleteSubscriptionGroup(group_name="till", remove_offset=True)
    assert engine.ask(deleting).code == Code.SUCCESS
    gone = newest(engine)
    assert gone.event == GroupDeleted(GroupConfig("till"), remove_offset=True)
    question = asked(engine, Undo(offset=gone.offset))
    found = EventFound(gone, {"till": {"orders": {0: 10}, "no such topic": {0: 1}}})
    assert answer(engine, question, found).code == Code.SUCCESS
    assert "till" in engine.control.groups
    assert engine.core.parts.commits.queues("till", "orders") == {0: 10}


def test_an_event_that_the_log_lost_is_asked_of_the_database(engine: Engine):
    offset = setting(engine, "traceOn=false")
    stored = newest(engine)
    target = (CONTROL_TOPIC, 0)
    engine.store.queues[target] = engine.store.queues[target][offset + 1 :]
    engine.store.firsts[target] = offset + 1
    question = asked(engine, Undo(offset=offset))
    assert question.question == EventQuestion(offset)
    assert answer(engine, question, EventFound(stored)).code == Code.SUCCESS
    assert engine.policy.trace_on is True


def test_a_topic_that_others_changed_meanwhile_is_not_touched(engine: Engine):
    """The database is asked off the loop; what is decided, is decided on the state afterwards."""
    topic(engine)
    assert engine.ask(DeleteTopicInBroker(topic="orders")).code == Code.SUCCESS
    gone = newest(engine)
    question = asked(engine, Undo(offset=gone.offset))
    topic(engine, 2)
    reply = answer(engine, question, EventFound(gone))
    assert "topic/orders has changed since" in reply.remark
    assert newest(engine).event == TopicPut(TopicConfig("orders", 2, 2))
