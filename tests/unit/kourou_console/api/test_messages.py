"""Messages by id, key, time and place; followed; traced."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from kourou import ConsumerSettings, ProducerSettings
from kourou.client.admin.messages import MessageTrack, TrackKind
from kourou.errors import Unavailable
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import QueryMessage, ViewMessageById
from kourou.protocol.record.message_trace import Consumed, ConsumeStarted, ContextCode, TraceKind
from kourou.protocol.record.message_trace import TransactionEnded as Ended
from kourou.testing.cluster import Cluster, unique_name
from kourou_console.api import messages
from kourou_console.api.messages import spans_of
from kourou_console.messages.views import host_text
from kourou_rigs.console import ConsoleHere
from kourou_rigs.queues_read import message_at


@pytest.fixture
def cluster(suite: Any) -> Cluster:
    """Its cluster."""
    return suite.cluster


@pytest.fixture
def console(suite: Any) -> ConsoleHere:
    """Its console."""
    return suite.console


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic(queues=2)


@pytest.mark.feature("F260", "F265")
def test_by_either_id(cluster, console, topic):
    with cluster.client() as mq:
        sent = mq.send(topic, "hällo", tag="t", keys=["k1", "k2"], properties={"a": "b"})
    path = f"/v1/messages/{sent.message_id}"
    found = console.get(path, query={"topic": topic}).json
    message = found["message"]
    assert (message["id"], message["offset_id"]) == (sent.message_id, sent.offset_message_id)
    assert (message["body"], message["tag"], message["keys"]) == ("hällo", "t", ["k1", "k2"])
    assert message["properties"] == {"a": "b"}
    assert found["copies"] == []
    assert console.get(path).json["message"] == message  # the topic is found
    by_offset_id = console.get(f"/v1/messages/{sent.offset_message_id}").json
    assert by_offset_id["message"] == message
    none = console.get("/v1/messages/00000000000000000000000000000000")
    assert (none.status, none.json["code_name"]) == (404, "QUERY_NOT_FOUND")


def test_bodies_are_shown_as_far_as_wanted(cluster, console, topic):
    with cluster.client() as mq:
        text = mq.send(topic, "ääää")
        raw = mq.send(topic, b"\xff\x00" * 5)
    assert [
        console.get(f"/v1/messages/{text.message_id}", query={"body_max": str(n)}).json["message"][
            "body"
        ]
        for n in (0, 1, 2, 3, 8)
    ] == ["", "", "ä", "ä", "ääää"]
    none = console.get(f"/v1/messages/{text.message_id}", query={"body_max": "0"}).json["message"]
    assert (none["body_truncated"], none["body_bytes"]) == (True, 8)
    message = console.get(f"/v1/messages/{raw.message_id}", query={"body_max": "2"}).json["message"]
    assert (message["body"], message["body_base64"], message["body_truncated"]) == (
        None,
        "/wA=",
        True,
    )
    whole = console.get(f"/v1/messages/{raw.message_id}/body")
    assert whole.body == b"\xff\x00" * 5
    assert whole.headers["content-disposition"].startswith("attachment")


@pytest.mark.feature("F261", "F262")
def test_by_key_newest_first(cluster, console, topic):
    with cluster.client() as mq:
        for body in "abc":
            mq.send(topic, body, keys=["order-7"])
            cluster.clock.leap(seconds=1)
        mq.send(topic, "other", keys=["order-8"])
    found = console.get("/v1/messages", query={"topic": topic, "key": "order-7"}).json
    assert [one["body"] for one in found["items"]] == ["c", "b", "a"]
    few = console.get("/v1/messages", query={"topic": topic, "key": "order-7", "count": "2"}).json
    assert ([one["body"] for one in few["items"]], few["truncated"]) == (["c", "b"], True)


@pytest.mark.feature("F263")
def test_by_time_page_by_page(cluster, console, topic):
    with cluster.client() as mq:
        for number in range(13):
            mq.send(topic, f"{number}", tag="odd" if number % 2 else "even")
            cluster.clock.leap(seconds=1)
    query = {"topic": topic, "from_ms": "0", "count": "4"}
    bodies: list[str] = []
    pages = 0
    while True:
        page = console.get("/v1/messages", query=query).json
        bodies += [one["body"] for one in page["items"]]
        pages += 1
        if page["cursor"] is None:
            break
        query["cursor"] = page["cursor"]
    assert bodies == [str(number) for number in range(13)]
    assert pages > 3
    query = {"topic": topic, "from_ms": "0", "tag": "odd", "count": "200"}
    odd = console.get("/v1/messages", query=query).json
    assert [one["body"] for one in odd["items"]] == [str(number) for number in range(1, 13, 2)]
    middle = odd["items"][3]["stored_ms"]
    query = {"topic": topic, "from_ms": str(middle), "until_ms": str(middle + 1_500)}
    assert [one["body"] for one in console.get("/v1/messages", query=query).json["items"]] == [
        "7",
        "8",
    ]
    none = console.get("/v1/messages", query={"topic": topic})
    assert none.status == 400
    bad = console.get("/v1/messages", query={"topic": topic, "cursor": "xyz"})
    assert (bad.status, "is not a cursor" in bad.json["detail"]) == (400, True)


def test_pages_end_while_a_broker_is_silent_and_have_its_messages_when_it_answers(
    cluster, console, topic, monkeypatch
):
    """Three of one millisecond: a time alone would bring the first one again for ever."""
    with cluster.client() as mq:
        for number, broker in enumerate("aaab"):
            mq.send(topic, f"{number}", queue=MessageQueue(topic, f"broker-{broker}", 0))
    reading = console.gateway.admin.reading
    ask = reading.offset_by_time

    async def by_time(queue: MessageQueue, time_ms: int) -> int:
        if queue.broker_name == "broker-b":
            raise Unavailable("it swaps")
        return await ask(queue, time_ms)

    def pages(query: dict[str, str], count_max: int) -> tuple[list[str], dict[str, str]]:
        bodies: list[str] = []
        for _ in range(count_max):
            page = console.get("/v1/messages", query=query).json
            bodies += [one["body"] for one in page["items"]]
            if page["cursor"] is None:
                return bodies, {}
            query = query | {"cursor": page["cursor"]}
        return bodies, query

    whole = {"topic": topic, "from_ms": "0", "count": "1"}
    with monkeypatch.context() as patched:
        patched.setattr(reading, "offset_by_time", by_time)
        assert pages(whole, 9) == (["0", "1", "2"], {})
        begun, rest = pages(whole, 1)
    assert begun + sorted(pages(rest, 9)[0]) == ["0", "1", "2", "3"]


def test_the_latest_of_all_queues(cluster, console, topic):
    with cluster.client() as mq:
        for number in range(7):
            mq.send(topic, f"{number}")
            cluster.clock.leap(seconds=1)
    query = {"topic": topic, "latest": "true", "count": "3"}
    found = console.get("/v1/messages", query=query).json
    assert [one["body"] for one in found["items"]] == ["6", "5", "4"]
    assert (found["total"], found["truncated"], found["cursor"]) == (7, True, None)
    every = console.get("/v1/messages", query={"topic": topic, "latest": "true"}).json
    assert ([one["body"] for one in every["items"]], every["truncated"]) == (list("6543210"), False)
    for other in ({"key": "k"}, {"from_ms": "0"}, {"tag": "t"}, {"cursor": "c"}):
        assert console.get("/v1/messages", query={**query, **other}).status == 400
    nowhere = console.get("/v1/messages", query={"topic": "nobodys", "latest": "true"})
    assert nowhere.status == 404


@pytest.mark.feature("F266")
def test_what_became_of_a_message(cluster, console, topic):
    group = f"{topic}-readers"
    producer = ProducerSettings(producer_group="senders", message_trace=True)
    consumer = ConsumerSettings(consumer_group=group, message_trace=True)
    with cluster.client(producer=producer, consumer=consumer) as mq:
        sent = mq.send(topic, "traced")
        with mq.subscribe(topic) as messages:
            for message in messages:
                message.ack()
                break
            messages.commit()
    found = console.get(f"/v1/messages/{sent.message_id}/trace", query={"topic": topic}).json
    spans = {span["what"]: span for span in found["spans"]}
    assert (spans["send"]["who"], spans["send"]["ok"]) == ("senders", True)
    assert (spans["store"]["parent"], spans["store"]["who"][:6]) == ("send", "broker")
    assert (spans["consume"]["who"], spans["consume"]["ok"]) == (group, True)
    assert isinstance(spans["consume"]["duration_ms"], int)
    assert found["missing"] == []
    with cluster.client() as mq:
        plain = mq.send(topic, "not traced")
    untraced = console.get(f"/v1/messages/{plain.message_id}/trace", query={"topic": topic}).json
    assert [span["what"] for span in untraced["spans"]] == ["send", "store", "consume"]
    assert untraced["spans"][2]["start_ms"] is None
    assert [one["what"] for one in untraced["missing"]] == ["message traces"]


def test_what_may_be_at_a_broker_that_does_not_answer_is_not_said_to_be_nowhere(
    cluster, console, topic
):
    with cluster.client() as mq:
        sent = mq.send(topic, b"x")
    for kind in (ViewMessageById, QueryMessage):
        cluster.chaos.drop_requests(kind, times=None, cut=True)
    try:
        answers = [
            console.get(f"/v1/messages/{one}", query=query)
            for one in (sent.message_id, sent.offset_message_id)
            for query in ({}, {"topic": topic})
        ]
    finally:
        cluster.chaos.repair()
    assert {answer.status for answer in answers} <= {503, 504}
    assert console.get(f"/v1/messages/{sent.message_id}").status == 200


def test_what_is_at_another_broker_is_found_while_one_is_away(cluster, console, topic):
    for _ in range(3):
        cluster.create_topic(unique_name("a"))  # looked through before the topic
    with cluster.client() as mq:
        queue = MessageQueue(topic, "broker-a", 0)
        sent = mq.send(topic, b"x", keys=["here"], queue=queue)
    path = f"/v1/messages/{sent.message_id}"
    away = [
        cluster.chaos.drop_requests(kind, times=None, cut=True, broker="broker-b")
        for kind in (QueryMessage, ViewMessageById)
    ]
    try:
        found = console.get(path)
        questions = away[0].met
        named = console.get(path, query={"topic": topic})
        by_key = console.get("/v1/messages", query={"topic": topic, "key": "here"})
        trace = console.get(f"{path}/trace", query={"topic": topic})
    finally:
        cluster.chaos.repair()
    assert [one.status for one in (found, named, by_key, trace)] == [200] * 4
    assert found.json["message"]["body"] == named.json["message"]["body"] == "x"
    assert questions == 2, "the search, and its copies"
    for answer in (found, named):
        assert [one["what"] for one in answer.json["missing"]] == ["copies at broker-b"]
    assert [one["body"] for one in by_key.json["items"]] == ["x"]
    assert [one["what"] for one in by_key.json["missing"]] == ["broker-b"]


def test_a_search_ends(console, monkeypatch):
    monkeypatch.setattr(messages, "SEARCH_S", 0)
    late = console.get("/v1/messages/00000000000000000000000000000000")
    assert (late.status, "topic=" in late.json["hint"]) == (503, True)


# -- A queue is looked at from any place on, and nothing of it changes -----------------------------


def test_a_queue_from_an_offset_on(cluster, console, topic):
    queue = MessageQueue(topic, "broker-b", 1)
    with cluster.client() as mq:
        for number in range(30):
            mq.send(topic, f"{number}", queue=queue)
    path = f"/v1/topics/{topic}/queues/broker-b/1/messages"
    last = console.get(path).json
    assert [one["offset"] for one in last["items"]] == list(range(10, 30))
    assert (last["total"], last["truncated"], last["next_offset"]) == (30, False, 30)
    first = console.get(path, query={"offset": "0", "count": "3"}).json
    assert ([one["body"] for one in first["items"]], first["truncated"]) == (["0", "1", "2"], True)
    beyond = console.get(path, query={"offset": "999"}).json
    assert (beyond["items"], beyond["next_offset"]) == ([], 30)
    assert console.get(f"/v1/topics/{topic}/queues/broker-b/9/messages").status == 404
    assert console.get("/v1/topics/no-such/queues/broker-a/0/messages").status == 404


def test_numbers_out_of_range_are_refused(console, topic):
    path = f"/v1/topics/{topic}/queues/broker-a/0/messages"
    for name, value in (
        ("offset", str(10**30)),
        ("count", "0"),
        ("count", "x"),
        ("body_max", "-1"),
    ):
        answer = console.get(path, query={name: value})
        assert (answer.status, name in answer.json["detail"]) == (400, True)


# -- why a message is where it is, as an operation of the API --------------------------------------


@pytest.mark.feature("F265")
def test_a_message_is_explained_by_its_ids_and_by_its_place(cluster, console):
    """Over HTTP the slashes of a place are encoded."""
    topic = cluster.create_topic(queues=1)
    with cluster.client() as mq:
        sent = mq.send(topic, b"x")
        place = f"{sent.queue!s}@{sent.offset}"

        def explained(text: str, **query: str) -> Any:
            return console.get(f"/v1/messages/{quote(text, safe='')}/explain", query=query)

        answer = explained(place)
        assert (answer.status, answer.json["causes"][0]["code"]) == (200, "nobody_consumes")
        assert answer.json["message"]["topic"] == topic
        mq.admin.offsets.commit("till", {sent.queue: 1})
        for text in (sent.message_id, place, sent.offset_message_id):
            [group] = explained(text, group="till").json["groups"]
            assert group["causes"][0]["code"] == "consumed"
        [other] = explained(place, group="another").json["groups"]
        assert other["group"] == "another"
        beyond = explained(f"{sent.queue!s}@9").json
        assert (beyond["message"], beyond["causes"][0]["code"]) == (None, "never_stored")
    for refused in (explained("a\nb"), explained(place, nobody="1")):
        assert refused.status == 400
    assert "is not a message reference" in explained("a\nb").json["detail"]


# -- A waterfall is made of what was noted; what nobody noted is not made up -----------------------


MESSAGE = message_at(MessageQueue("t", "broker-a", 0), 3, stored_ms=1_000)


def begun(request_id: str, at_ms: int, times: int) -> ConsumeStarted:
    return ConsumeStarted(at_ms, "", "g", request_id, "id", times, "")


def test_calls_of_handlers_and_how_they_ended():
    failed = Consumed("r1", "id", 7, False, "", ContextCode.EXCEPTION)
    spans = spans_of(MESSAGE, [begun("r2", 3_000, 1), begun("r1", 2_000, 0), failed], [])
    assert [(one.what, one.start_ms, one.duration_ms, one.ok) for one in spans] == [
        ("send", 1_000, 0, True),
        ("store", 1_000, None, True),
        ("consume", 2_000, 7, False),
        ("consume", 3_000, None, None),
    ]
    assert [one.note for one in spans[2:]] == [
        "attempt 1, EXCEPTION",
        "attempt 2, its end was not noted",
    ]


def test_a_sender_without_a_trace_is_its_address_as_far_as_the_record_has_it():
    """Kourou's own clients write no port, for they encode the record before they dial."""
    assert [one.who for one in spans_of(MESSAGE, [], []) if one.what == "send"] == ["127.0.0.1:1"]
    assert host_text(("127.0.0.1", 0)) == "127.0.0.1"
    assert host_text(("::1", 0)) == "::1"
    assert host_text(("::1", 7)) == "[::1]:7"


def test_a_group_without_a_trace_has_no_times():
    tracks = [
        MessageTrack("g", TrackKind.NOT_CONSUME_YET, False, 2),
        MessageTrack("h", TrackKind.PULL),
    ]
    spans = spans_of(MESSAGE, [begun("r", 2_000, 0)], tracks)
    assert [(one.who, one.start_ms, one.ok) for one in spans[3:]] == [("h", None, None)]


def test_a_group_that_filtered_it_did_not_consume_it():
    tracks = [
        MessageTrack("f", TrackKind.CONSUMED_BUT_FILTERED, True, 4, "filtered by SQL92"),
        MessageTrack("h", TrackKind.UNKNOWN, True, 4, "its filter is not asked"),
        MessageTrack("z", TrackKind.CONSUMED, True, 4),
    ]
    spans = [one for one in spans_of(MESSAGE, [], tracks) if one.what == "consume"]
    assert [(one.who, one.ok) for one in spans] == [("f", None), ("h", None), ("z", True)]
    assert spans[0].note == "CONSUMED_BUT_FILTERED: filtered by SQL92"


def test_the_end_of_a_transaction():
    end = Ended(
        1_500,
        "",
        "sellers",
        "t",
        "id",
        "",
        "",
        "",
        TraceKind.COMMIT,
        "tx",
        "ROLLBACK_MESSAGE",
        True,
    )
    found = next(one for one in spans_of(MESSAGE, [end], []) if one.what == "transaction")
    assert (found.ok, found.note) == (False, "ROLLBACK_MESSAGE after a question")
