"""Pulls of groups that want messages by their properties, and what is counted of filters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kourou.engine.pulls import pull_handler as pulls
from kourou.errors import Code
from kourou.model.subscription import SQL92, TAG, MessageModel, Subscription
from kourou.protocol.bodies.heartbeat_body import (
    ConsumerData,
    HeartbeatBody,
    SubscriptionCheck,
    encode_heartbeat,
    encode_subscription_check,
)
from kourou.protocol.bodies.lists_body import decode_consumer_connection
from kourou.protocol.messages.filter_server import RegisterFilterServer
from kourou.protocol.messages.groups import (
    CheckClientConfig,
    GetConsumerConnectionList,
    HeartBeat,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import PullFlag, PullMessage
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou.runtime.core import Disconnected, LogWarning, Reply
from kourou_rigs import engine as testing_engine
from kourou_rigs.engine import Engine, header_of
from kourou_rigs.records import decode_many

Send = Callable[..., None]
BY_REQUEST = int(PullFlag.SUBSCRIPTION)


@pytest.fixture
def group(engine: Engine) -> str:
    engine.ask(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    return "g"


@pytest.fixture
def send(engine: Engine, records) -> Send:
    """Store messages with these properties; a body is the message's number."""

    def store(*given: dict[str, str]) -> None:
        drafts = [
            encode_draft(
                topic=b"orders",
                queue_id=0,
                body=b"%d" % number,
                properties=encode_properties(properties),
                born_timestamp=1,
                born_host=bytes(8),
            )
            for number, properties in enumerate(given)
        ]
        assert engine.ask(*records(drafts)).code == Code.SUCCESS

    return store


def pull(text: str, offset: int = 0, *, flags: int = BY_REQUEST, **fields: object) -> PullMessage:
    return PullMessage(
        **{
            "consumer_group": "g",
            "topic": "orders",
            "queue_id": 0,
            "queue_offset": offset,
            "max_msg_nums": 32,
            "sys_flag": flags,
            "subscription": text,
            "expression_type": SQL92,
            **fields,
        }
    )


def waiting(text: str, offset: int) -> PullMessage:
    return pull(
        text, offset, flags=BY_REQUEST | int(PullFlag.SUSPEND), suspend_timeout_millis=10_000
    )


def found(reply: Reply) -> list[int]:
    return [int(message.body) for part in reply.body for message in decode_many(part)]


def beat(engine: Engine, text: str, *, version: int = 1, kind: str = SQL92, peer: int = 1) -> Reply:
    consumer = ConsumerData(
        "g", subscriptions=(Subscription("orders", text, kind, version=version),)
    )
    body = encode_heartbeat(HeartbeatBody(f"c{peer}", consumers=(consumer,)))
    return engine.ask(HeartBeat(), body, peer=peer)


@pytest.mark.feature("F237")
def test_only_what_matches_is_given(engine, send, group) -> None:
    send(*({"status": str(1 + number % 2), "n": str(number)} for number in range(10)))
    reply = engine.ask(pull("status = 1 AND n BETWEEN 2 AND 6"))
    assert found(reply) == [2, 4, 6]
    header = header_of(reply)
    assert (header.next_begin_offset, header.min_offset, header.max_offset) == (10, 0, 10)


def test_a_full_answer_ends_before_the_next_match(engine, send, group) -> None:
    send(*({"a": str(number % 3)} for number in range(12)))
    first = engine.ask(pull("a = 0", max_msg_nums=2))
    assert found(first) == [0, 3]
    assert first.header.next_begin_offset == 6, "what does not match is passed over"
    assert found(engine.ask(pull("a = 0", 6, max_msg_nums=2))) == [6, 9]


def test_the_budget_counts_what_is_given(engine, send, group) -> None:
    send(*({"a": str(number), "pad": "x" * 1_000} for number in range(5)))
    assert found(engine.ask(pull("a > 2", max_msg_bytes=1))) == [3]
    assert found(engine.ask(pull("a <> 3", max_msg_bytes=2_500))) == [0, 1]


def test_nothing_that_matches_is_reported_with_the_place_to_go_on(engine, send, group) -> None:
    send({"a": "1"}, {"a": "2"})
    reply = engine.ask(pull("a > 5"))
    assert (reply.code, reply.remark) == (Code.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert reply.header.next_begin_offset == 2
    assert engine.ask(pull("a > 5", 2)).code == Code.PULL_NOT_FOUND


def test_one_pull_looks_at_so_many_records_and_no_more(
    engine, send, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing_engine, "FILTER_RECORDS_MAX", 4)
    send(*({"a": str(number)} for number in range(10)))
    name = engine.send(waiting("a = 9", 0))
    assert engine.replies[name].code == Code.PULL_RETRY_IMMEDIATELY
    assert engine.replies[name].header.next_begin_offset == 4
    assert found(engine.ask(waiting("a = 9", 8))) == [9]


def test_a_waiting_pull_is_not_woken_for_what_it_does_not_want(engine, send, group) -> None:
    send({"a": "1"})
    name = engine.send(waiting("a = 7", 1))
    for _ in range(3):
        send({"a": "2"}, {"a": "3"})
    assert name not in engine.replies
    send({"a": "2"}, {"a": "7"})
    assert found(engine.replies[name]) == [1]
    assert engine.replies[name].header.next_begin_offset == 9


def test_a_waiting_pull_with_more_to_look_at_than_one_look_goes_on_at_once(
    engine, send, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would sleep in front of messages that are there already."""
    monkeypatch.setattr(testing_engine, "FILTER_RECORDS_MAX", 2)
    send({"a": "1"})
    name = engine.send(waiting("a = 7", 1))
    send({"a": "2"}, {"a": "2"}, {"a": "7"})
    assert engine.replies[name].code == Code.PULL_RETRY_IMMEDIATELY
    assert engine.replies[name].header.next_begin_offset == 3


def test_at_its_end_a_waiting_pull_tells_how_far_it_came(engine, send, group) -> None:
    send({"a": "1"})
    name = engine.send(waiting("a = 7", 1))
    send({"a": "2"}, {"a": "3"})
    engine.advance(10_000)
    assert engine.replies[name].code == Code.PULL_NOT_FOUND
    assert engine.replies[name].header.next_begin_offset == 3
    assert engine.core.parts.pulls.held == 0


def test_a_lost_connection_ends_its_wait(engine, send, group) -> None:
    send({"a": "1"})
    engine.send(waiting("a = 7", 1))
    send({"a": "2"})
    engine.handle(Disconnected(engine.peer(1)))
    assert engine.core.parts.pulls.held == 0


def test_what_cannot_be_compared_is_not_given_counted_and_reported_once(
    engine, send, group
) -> None:
    send({"a": "7"}, {"a": "seven"}, {"a": "8"})
    warnings = []
    for _ in range(2):
        _, received = engine.received(pull("a > 5"))
        effects = engine.core.handle(engine.now_ms, [received])
        warnings += [effect.text for effect in effects if isinstance(effect, LogWarning)]
        assert found(effects[0]) == [0, 2]
    assert len(warnings) == 1
    for word in ("'a > 5'", "group g", "orders", "'seven' is not a whole number"):
        assert word in warnings[0]
    assert engine.core.parts.traffic.filter_failures["orders", "g"] == 2


def test_what_is_reported_once_is_forgotten_in_the_end(
    engine, send, group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulls, "FILTERS_REMEMBERED_MAX", 2)
    send({"a": "x"})
    for number in range(5):
        engine.ask(pull(f"a > {number}"))
    assert len(engine.core.parts.pulls._reported) <= 2


@pytest.mark.feature("F234")
def test_what_a_group_does_not_want_is_counted(engine, send, group) -> None:
    send(*({"TAGS": tag, "a": "1"} for tag in "ABAAB"))
    engine.ask(pull("A", expression_type=TAG))
    engine.ask(pull("*", expression_type=TAG))
    traffic = engine.core.parts.traffic
    assert traffic.filtered == {("orders", "g"): 2}
    engine.ask(pull("TAGS = 'B'"))
    assert traffic.filtered == {("orders", "g"): 5}
    assert traffic.messages_out["orders", "g"] == 3 + 5 + 2


def test_retried_messages_are_asked_for_their_own_properties(engine, group, records) -> None:
    """They keep them in the retry topic, whose subscription is every message, as in RocketMQ."""
    drafts = [
        encode_draft(
            topic=b"%RETRY%g",
            queue_id=0,
            body=body,
            properties=encode_properties({"a": body.decode(), "RETRY_TOPIC": "orders"}),
            born_timestamp=1,
            born_host=bytes(8),
        )
        for body in (b"1", b"2")
    ]
    beat(engine, "a = 1")
    engine.ask(*records(drafts, [("%RETRY%g", 0)]))
    every = pull("*", topic="%RETRY%g", expression_type=TAG)
    assert found(engine.ask(every)) == [1, 2]
    assert found(engine.ask(pull("a = 2", topic="%RETRY%g"))) == [2]


# -- filters that are told of by heartbeats -------------------------------------------------------


@pytest.mark.feature("F237")
def test_a_pull_uses_the_filter_of_the_heartbeat(engine, send, group) -> None:
    send({"a": "1"}, {"a": "2"})
    assert beat(engine, "a = 2").code == Code.SUCCESS
    assert found(engine.ask(pull("", flags=0, expression_type=None))) == [1]
    assert beat(engine, "a = 1", version=2).code == Code.SUCCESS
    assert found(engine.ask(pull("", flags=0, sub_version=2))) == [0]
    late = engine.ask(pull("", flags=0, sub_version=3))
    assert late.code == Code.SUBSCRIPTION_NOT_LATEST, "the filter is as new as the subscription"


def test_every_member_pulls_with_its_own_filter(engine, send, group) -> None:
    send({"a": "1"}, {"a": "2"})
    beat(engine, "a = 1", peer=1)
    beat(engine, "a = 2", peer=2)
    assert found(engine.ask(pull("", flags=0), peer=1)) == [0]
    assert found(engine.ask(pull("", flags=0), peer=2)) == [1]


def test_members_with_different_filters_are_warned_of_by_name(engine, group) -> None:
    beat(engine, "a = 1", peer=1)
    consumer = ConsumerData("g", subscriptions=(Subscription("orders", "a = 2", SQL92, version=1),))
    body = encode_heartbeat(HeartbeatBody("c2", consumers=(consumer,)))
    _, received = engine.received(HeartBeat(), body, peer=2)
    effects = engine.core.handle(engine.now_ms, [received])
    (warning,) = [effect.text for effect in effects if isinstance(effect, LogWarning)]
    assert "clients c2 and c1 differ in topics, filters or message model" in warning


def test_members_with_different_filters_are_refused_where_that_is_set(engine, group) -> None:
    engine.core.parts.apply("groupSubscriptionPolicy", "refuse")
    assert beat(engine, "a = 1", peer=1).code == Code.SUCCESS
    for text, kind in (("a = 2", SQL92), ("a = 1", TAG)):
        refused = beat(engine, text, kind=kind, peer=2)
        assert refused.code == Code.SUBSCRIPTION_PARSE_FAILED
        assert "clients c2 and c1 differ" in refused.remark
    assert beat(engine, "a = 1", version=9, peer=2).code == Code.SUCCESS


def test_broadcasting_groups_filter_as_well(engine, send, group) -> None:
    send({"a": "1"}, {"a": "2"})
    consumer = ConsumerData(
        "g",
        message_model=MessageModel.BROADCASTING,
        subscriptions=(Subscription("orders", "a = 2", SQL92, version=1),),
    )
    for peer in (1, 2):
        body = encode_heartbeat(HeartbeatBody(f"c{peer}", consumers=(consumer,)))
        assert engine.ask(HeartBeat(), body, peer=peer).code == Code.SUCCESS
        assert found(engine.ask(pull("", flags=0), peer=peer)) == [1]


# -- refusals -------------------------------------------------------------------------------------


def test_a_wrong_filter_is_refused_with_its_place(engine, send, group) -> None:
    """RocketMQ lets a pull that brings a wrong filter along match everything."""
    send({"a": "1"})
    brought = engine.ask(pull("a >"))
    assert brought.code == Code.SUBSCRIPTION_PARSE_FAILED
    assert beat(engine, "a >").code == Code.SUCCESS, "its other groups and topics live"
    told = engine.ask(pull("", flags=0))
    assert told.code == Code.FILTER_DATA_NOT_EXIST
    for reply in (brought, told):
        assert "at position 4: unexpected end; expected a property or a value" in reply.remark


def test_an_unknown_type_of_filter_is_refused(engine, send, group) -> None:
    send({"a": "1"})
    assert engine.ask(pull("a", expression_type="JEXL")).code == Code.SUBSCRIPTION_PARSE_FAILED
    assert beat(engine, "a", kind="JEXL").code == Code.SUCCESS
    assert engine.ask(pull("", flags=0)).code == Code.FILTER_DATA_NOT_EXIST


@pytest.mark.feature("F352")
def test_filters_can_be_switched_off(engine, send, group) -> None:
    send({"a": "1", "TAGS": "A"})
    beat(engine, "a = 1")
    engine.core.parts.apply("enablePropertyFilter", False)
    for request in (pull("a = 1"), pull("", flags=0), pull("a >")):
        reply = engine.ask(request)
        assert reply.code == Code.SYSTEM_ERROR
        assert "does not support consumer to filter message by SQL92" in reply.remark
    assert check(engine, "a = 1").code == Code.SYSTEM_ERROR
    assert check(engine, "A", kind=TAG).code == Code.SUCCESS
    assert found(engine.ask(pull("A", expression_type=TAG))) == [0]
    engine.core.parts.apply("enablePropertyFilter", True)
    assert found(engine.ask(pull("a = 1"))) == [0]


def check(engine: Engine, text: str, kind: str = SQL92) -> Reply:
    asked = SubscriptionCheck("c1", "g", Subscription("orders", text, kind))
    return engine.ask(CheckClientConfig(), encode_subscription_check(asked))


def test_a_consumer_asks_before_it_starts(engine) -> None:
    assert check(engine, "a = 1").code == Code.SUCCESS
    assert check(engine, "A || B", kind=TAG).code == Code.SUCCESS
    wrong = check(engine, "a = 1 garbage")
    assert wrong.code == Code.SUBSCRIPTION_PARSE_FAILED
    assert "at position 7: unexpected garbage" in wrong.remark
    assert check(engine, "a", kind="JEXL").code == Code.SUBSCRIPTION_PARSE_FAILED


# -- filters in Python -----------------------------------------------------------------------------

CLASS_FILTER = int(PullFlag.SUBSCRIPTION | PullFlag.CLASS_FILTER)


@pytest.mark.feature("F241", "F243")
def test_a_pull_that_names_a_filter_is_never_answered_unfiltered(
    engine: Engine, group: str, send: Send
) -> None:
    send({})
    named = pull("late", flags=CLASS_FILTER)
    reply = engine.ask(named)
    assert (reply.code, reply.body) == (Code.SYSTEM_ERROR, ())
    assert "start one with `kourou filter-server`" in reply.remark
    assert reply.header is not None
    listeners = {"local:internal": "f:20915", "zmq:internal": "z:1"}
    register = RegisterFilterServer(filter_server_addr="f:10915", listeners=listeners)
    assert engine.ask(register, peer=7).code == Code.SUCCESS
    assert "pull from one of these: f:20915" in engine.ask(named).remark
    commit = pull("late", flags=CLASS_FILTER | PullFlag.COMMIT_OFFSET, commit_offset=1)
    assert engine.ask(commit).code == Code.SYSTEM_ERROR
    assert engine.core.parts.commits.offset(group, "orders", 0) is None, "and it commits nothing"


@pytest.mark.feature("F241")
def test_a_heartbeat_that_names_a_filter_is_taken_and_its_pulls_are_not(
    engine: Engine, group: str, send: Send
) -> None:
    send({})
    beat = HeartbeatBody(
        "client",
        consumers=(
            ConsumerData(
                group,
                subscriptions=(
                    Subscription("orders", "com.acme.Late", version=5, class_filter_mode=True),
                ),
            ),
        ),
    )
    assert engine.ask(HeartBeat(), encode_heartbeat(beat)).code == Code.SUCCESS
    reply = engine.ask(pull("", flags=0))
    assert reply.code == Code.SYSTEM_ERROR
    assert "uses a filter for orders" in reply.remark
    of_filter_server = engine.ask(pull("*", expression_type=TAG), peer=7)
    assert (of_filter_server.code, len(of_filter_server.body)) == (Code.SUCCESS, 1)
    told = engine.ask(GetConsumerConnectionList(consumer_group=group))
    [shown] = decode_consumer_connection(b"".join(told.body)).subscriptions.values()
    assert (shown.class_filter_mode, shown.expression, shown.tags) == (
        True,
        "com.acme.Late",
        frozenset(),
    )
