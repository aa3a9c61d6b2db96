"""Sending by HTTP: what is stored is what was sent, whichever way it came."""

from __future__ import annotations

import threading

import msgspec
import pytest

from kourou.errors import BadRequest
from kourou.model.names import NOT_FOR_CLIENTS
from kourou_console.api.sends import message_of
from kourou_console.http.call import RequestContext
from kourou_rigs.console import ConsoleHere, HttpAnswer

MESSAGES = "/v1/topics/orders/messages"


def stored(console: ConsoleHere, answer: HttpAnswer):  # type: ignore[no-untyped-def]  # a message
    """The message that an answer says is there."""
    assert answer.status == 200, answer.text
    return console.run(console.gateway.admin.messages.by_id("orders", answer.json["message_id"]))


def test_a_raw_body_comes_with_its_headers(console):
    answer = console.post(
        MESSAGES,
        body=b'{"body": "\x00\xffraw"}',
        headers=[
            ("Content-Type", "text/plain"),
            ("Kourou-Tag", "paid"),
            ("KOUROU-KEY", "A-1"),
            ("Kourou-Key", "A-2"),
            ("Kourou-Property-colour", "größe"),
        ],
    )
    message = stored(console, answer)
    assert bytes(message.body) == b'{"body": "\x00\xffraw"}', "no JSON, as it is not called so"
    assert message.tag == "paid"
    assert list(message.keys) == ["A-1", "A-2"]
    assert message.properties["colour"] == "größe"
    result = answer.json
    assert (result["topic"], result["broker"]) == ("orders", message.queue.broker_name)
    assert (result["queue_id"], result["offset"]) == (message.queue.queue_id, message.offset)
    assert result["status"] == "SEND_OK"


@pytest.mark.parametrize(
    ("envelope", "body"),
    [
        ({"body": "text ü"}, "text ü".encode()),
        ({"body": {"a": [1.0, None]}}, b'{"a":[1.0,null]}'),
        ({"body": msgspec.Raw(b'{"n": 1.00, "u": "\\u00fc"}')}, b'{"n": 1.00, "u": "\\u00fc"}'),
        ({"body": 7}, b"7"),
        ({"body_base64": "AP8="}, b"\x00\xff"),
    ],
)
def test_an_envelope_holds_text_json_or_bytes(console, envelope, body):
    message = stored(
        console,
        console.post(
            MESSAGES, json={**envelope, "tag": "t", "keys": ["k"], "properties": {"p": "v"}}
        ),
    )
    assert bytes(message.body) == body
    assert (message.tag, list(message.keys), message.properties["p"]) == ("t", ["k"], "v")


@pytest.mark.parametrize(
    ("envelope", "named"),
    [
        ({}, "body"),
        ({"body": "a", "body_base64": "AA=="}, "body_base64"),
        ({"body": "a", "tagg": "x"}, "tagg"),
        ({"body": "a", "keys": "no list"}, "keys"),
        ({"body": "a", "delay_level": 1_001}, "delay_level"),
        ({"body": "a", "properties": {"KEYS": "x"}}, "KEYS"),
    ],
)
def test_what_is_wrong_in_an_envelope_is_named(console, envelope, named):
    answer = console.post(MESSAGES, json=envelope)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert named in answer.json["detail"]


def test_an_envelope_has_no_headers_beside_it(console):
    headers = {"Kourou-Tag": "t", "Content-Type": "application/json; charset=utf-8"}
    answer = console.post(MESSAGES, json={"body": "x"}, headers=headers)
    assert (answer.status, "Kourou-Tag" in answer.json["detail"]) == (400, True)


@pytest.mark.parametrize(
    "sent",
    [
        {"json": {"body": "x", "order_key": "o-7"}},
        {"body": b"x", "headers": {"Kourou-Order-Key": "o-7"}},
    ],
    ids=["envelope", "header"],
)
def test_messages_of_one_order_key_lie_in_one_queue(console, sent):
    answers = [console.post(MESSAGES, **sent) for _ in range(6)]
    assert len({(one.json["broker"], one.json["queue_id"]) for one in answers}) == 1
    offsets = [one.json["offset"] for one in answers]
    assert offsets == sorted(offsets)


def test_a_delayed_message_has_no_place_yet(console):
    by_level = console.post(MESSAGES, json={"body": "later", "delay_level": 3})
    by_time = console.post(MESSAGES, body=b"later", headers={"Kourou-Delay-Ms": "10000"})
    above = console.post(MESSAGES, json={"body": "later", "delay_level": 100})
    for answer in (by_level, by_time, above):
        assert answer.status == 200
        assert answer.json["offset"] is None
        assert answer.json["offset_message_id"] is None


def test_a_delay_that_brokers_do_not_have_names_the_nearest(console):
    answer = console.post(MESSAGES, json={"body": "later", "delay_ms": 10_500})
    assert answer.status == 400
    assert "0:00:10" in answer.json["hint"]


def test_a_batch_lies_together_in_its_order(console):
    answer = console.post(
        "/v1/topics/orders/batches",
        json={"messages": [{"body": "a"}, {"body": "b", "tag": "t"}, {"body": {"c": 1}}]},
    )
    assert answer.status == 200
    items = answer.json["items"]
    assert len({(one["broker"], one["queue_id"]) for one in items}) == 1
    assert [one["offset"] - items[0]["offset"] for one in items] == [0, 1, 2]
    assert answer.json["total"] == 3


def test_what_no_broker_takes_keeps_its_code(console):
    answer = console.post(f"/v1/topics/{min(NOT_FOR_CLIENTS)}/messages", body=b"x")
    assert answer.status == 403
    assert answer.json["code_name"] == "NO_PERMISSION"


def test_requests_that_come_together_travel_together(console, cluster):
    sends = 64
    turns: list[int] = []
    core = console.gateway.client._producer_core()
    take = core.outgoing._take

    def watched(bursts):
        turns.append(sum(map(len, bursts)))
        take(bursts)

    core.outgoing._take = watched
    ready = threading.Barrier(sends)
    answers: list[int] = []

    def send() -> None:
        ready.wait()
        answers.append(console.post(MESSAGES, body=b"together").status)

    try:
        threads = [threading.Thread(target=send) for _ in range(sends)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        core.outgoing._take = take
    assert answers == [200] * sends
    assert sum(turns) == sends
    assert len(turns) < sends, "each went by itself"


@pytest.mark.parametrize(
    "header",
    [
        ("Kourou-Tags", "t"),
        ("Kourou-Delay-Ms", "-1"),
        ("Kourou-Delay-Ms", "1.5"),
        ("Kourou-Delay-Level", "1001"),
        ("Kourou-Delay-Level", "9" * 30),
        ("Kourou-Tag", "\udcff"),
    ],
)
def test_a_wrong_header_is_named(header):
    with pytest.raises(BadRequest, match=header[0]):
        message_of(b"", RequestContext(headers=(header,)))
