"""A request under a key does its work once, whoever is asked again."""

from __future__ import annotations

import asyncio

import pytest

from kourou.errors import BadRequest, NoPermission, Rejected, TimedOut, Unavailable
from kourou.model.message import Message
from kourou.model.topic import MessageQueue
from kourou.operations import Right
from kourou.testing.cluster import unique_name
from kourou_console.http import idempotence
from kourou_console.http.call import Caller, RequestContext
from kourou_console.http.idempotence import KEPT_MS, Idempotence, Named, named
from kourou_console.http.responses import HttpError
from kourou_console.messages.transactions import half_of
from kourou_rigs.console import ConsoleHere

MESSAGES = "/v1/topics/orders/messages"
BATCHES = "/v1/topics/orders/batches"


def key(text: str) -> dict[str, str]:
    return {"Idempotency-Key": text}


def test_the_second_gets_the_first_ones_answer(console):
    first = console.post(MESSAGES, body=b"once", headers=key("a"))
    second = console.post(MESSAGES, body=b"once", headers=key("a"))
    assert not first.json["replayed"]
    assert second.json == {**first.json, "replayed": True}


def test_the_same_key_for_another_wishis_refused(console):
    console.post(MESSAGES, body=b"one", headers=key("b"))
    for other in (
        console.post(MESSAGES, body=b"two", headers=key("b")),
        console.post(MESSAGES, body=b"one", headers={**key("b"), "Kourou-Tag": "t"}),
        console.post("/v1/topics/others/messages", body=b"one", headers=key("b")),
        console.post(BATCHES, json={"messages": [{"body": "one"}]}, headers=key("b")),
    ):
        assert other.status == 422
        assert "Idempotency-Key" in other.json["detail"]


def test_a_gateway_that_was_started_meanwhile_does_not_store_it_again(console, cluster):
    first = console.post(MESSAGES, body=b"once more", headers=key("c"))
    batch = {"messages": [{"body": "x"}, {"body": "y"}]}
    first_batch = console.post(BATCHES, json=batch, headers=key("d"))
    with ConsoleHere(cluster) as another:
        second = another.post(MESSAGES, body=b"once more", headers=key("c"))
        assert not second.json["replayed"], "it cannot know"
        for name in ("message_id", "broker", "queue_id", "offset", "offset_message_id"):
            assert second.json[name] == first.json[name]
        second_batch = another.post(BATCHES, json=batch, headers=key("d"))
        assert [one["offset_message_id"] for one in second_batch.json["items"]] == [
            one["offset_message_id"] for one in first_batch.json["items"]
        ]
        assert another.post(MESSAGES, body=b"changed", headers=key("c")).status == 422
        longer = {"messages": [*batch["messages"], {"body": "z"}]}
        assert another.post(BATCHES, json=longer, headers=key("d")).status == 422


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("messages", {"body": b"x"}),
        ("batches", {"json": {"messages": [{"body": "x"}]}}),
    ],
)
def test_a_topic_that_is_made_by_its_first_message_is_made_under_a_key_too(cluster, kind, body):
    """Also by a gateway that has just been started, and therefore asks whether it is there."""
    with ConsoleHere(cluster) as another:
        topic = unique_name("new")
        sent = another.post(f"/v1/topics/{topic}/{kind}", headers=key("n"), **body)
        assert sent.status == 200, sent.text


def test_a_half_message_is_prepared_once(console, cluster):
    path = "/v1/topics/orders/transactions"
    first = console.post(path, body=b"half", headers=key("e"))
    assert first.status == 201
    with ConsoleHere(cluster) as another:
        second = another.post(path, body=b"half", headers=key("e"))
    assert second.json["transaction_id"] == first.json["transaction_id"]


def test_a_refused_wishleaves_its_key_free(console):
    assert console.post(MESSAGES, json={"body": "x", "delay_ms": 7}, headers=key("f")).status == 400
    assert console.post(MESSAGES, json={"body": "x"}, headers=key("f")).status == 200


@pytest.mark.parametrize("wrong", ["", "x" * 256, "ü"])
def test_a_key_is_printable_text(console, wrong):
    call = RequestContext(headers=(("Idempotency-Key", wrong),))
    with pytest.raises(BadRequest):
        named(console.gateway, call, "message", "orders", b"")


def test_other_callers_have_other_keys(console):
    ids = {
        named(
            console.gateway,
            RequestContext(Caller(who, Right.WRITE), (("Idempotency-Key", "same"),)),
            "message",
            "orders",
            b"",
        ).ids(1)[0]
        for who in ("ann", "bob")
    }
    assert len(ids) == 2


class Counted:
    """Work that fails as configured, and waits until it may end."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.calls += 1
        await self.may_end.wait()
        if self.failures:
            raise self.failures.pop(0)
        return self.calls


NAME = Named(("ann", "k"), b"print", b"seed")


def test_who_comes_while_it_is_done_waits_for_it(console):
    work = Counted()

    async def both() -> list[tuple[int, bool]]:
        keys = Idempotence(console.gateway)
        tasks = [asyncio.ensure_future(keys.once(NAME, work)) for _ in range(3)]
        await asyncio.sleep(0)
        work.may_end.set()
        return await asyncio.gather(*tasks)

    assert console.run(both()) == [(1, False), (1, True), (1, True)]


@pytest.mark.parametrize(
    ("failure", "other_is_refused"),
    [(Rejected("no"), False), (Unavailable("later"), True)],
)
def test_after_a_failure_it_is_tried_again(console, failure, other_is_refused):
    work = Counted(failure)
    work.may_end.set()

    async def twice() -> tuple[int, bool]:
        keys = Idempotence(console.gateway)
        with pytest.raises(type(failure)):
            await keys.once(NAME, work)
        if other_is_refused:
            with pytest.raises(HttpError):
                await keys.once(Named(NAME.key, b"other", b"seed"), work)
        return await keys.once(NAME, work)

    assert console.run(twice()) == (2, False)


def test_keys_are_forgotten_in_the_end(console, cluster):
    async def one(keys: Idempotence) -> tuple[int, bool]:
        work = Counted()
        work.may_end.set()
        return await keys.once(NAME, work)

    keys = Idempotence(console.gateway)
    console.run(one(keys))
    assert console.run(one(keys)) == (1, True)
    cluster.clock.leap(minutes=KEPT_MS / 60_000)
    assert console.run(one(keys)) == (1, False)


QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]
MORE = sorted([*QUEUES, *(MessageQueue("orders", "broker-b", number) for number in range(4))])


def choose(keys: Idempotence, name: Named, queues: list[MessageQueue]) -> MessageQueue:
    return keys.selector(name, None)(queues, Message("orders", b""), None)


def test_a_repeat_goes_where_the_first_went_though_there_are_more_queues(console):
    """Its outcome is not known, and only that broker would recognise it."""
    names = [Named(("ann", f"{number}"), b"print", b"%d" % number) for number in range(8)]
    keys = Idempotence(console.gateway)

    async def once(name: Named, queues: list[MessageQueue], failure: Exception) -> MessageQueue:
        found: list[MessageQueue] = []

        async def work() -> None:
            found.append(choose(keys, name, queues))
            raise failure

        with pytest.raises(type(failure)):
            await keys.once(name, work)
        return found[0]

    async def both(failure: Exception) -> list[bool]:
        firsts = [await once(name, QUEUES, failure) for name in names]
        return [
            await once(name, MORE, failure) == first
            for name, first in zip(names, firsts, strict=True)
        ]

    assert all(console.run(both(TimedOut("no answer"))))


def test_what_was_certainly_not_stored_may_go_elsewhere_and_what_may_be_may_not(console):
    async def attempts() -> None:
        keys = Idempotence(console.gateway)
        used: list[MessageQueue] = []
        failures: list[Exception] = [Unavailable("no leader"), TimedOut("no answer")]

        async def work() -> str:
            queues = [one for one in QUEUES if one not in used]
            used.append(choose(keys, NAME, queues))
            if failures:
                raise failures.pop(0)
            return "stored"

        with pytest.raises(Unavailable, match="no leader"):
            await keys.once(NAME, work)
        with pytest.raises(TimedOut):
            await keys.once(NAME, work)
        assert used[0] != used[1]
        for _ in range(2):  # its queue is not among those any more
            with pytest.raises(Unavailable, match=str(used[1])):
                await keys.once(NAME, work)
        del used[1:]
        assert await keys.once(NAME, work) == ("stored", False)

    console.run(attempts())


def test_a_repeat_that_is_refused_does_not_free_the_key_of_what_may_be_stored(console):
    """Its broker takes no messages for a while, and then the topic is at another one, too."""

    async def attempts() -> None:
        keys = Idempotence(console.gateway)
        failures: list[Exception] = [TimedOut("no answer"), NoPermission("not now")]
        used: list[MessageQueue] = []

        async def work() -> str:
            used.append(choose(keys, NAME, MORE if len(used) == 2 else QUEUES))
            if failures:
                raise failures.pop(0)
            return "stored"

        with pytest.raises(TimedOut):
            await keys.once(NAME, work)
        with pytest.raises(NoPermission):
            await keys.once(NAME, work)
        with pytest.raises(HttpError):
            await keys.once(Named(NAME.key, b"other", b"seed"), work)
        elsewhere = another(MORE, used[0])
        with pytest.MonkeyPatch.context() as moved:
            moved.setattr(idempotence, "queue_of_key", lambda *_: elsewhere)
            assert await keys.once(NAME, work) == ("stored", False)
        assert used == [used[0]] * 3

    console.run(attempts())


@pytest.mark.parametrize(
    ("path", "asked", "call"),
    [
        (MESSAGES, {"body": b"x"}, "send"),
        (BATCHES, {"json": {"messages": [{"body": "x"}, {"body": "y"}]}}, "send_batch"),
        ("/v1/topics/orders/transactions", {"body": b"half"}, "prepare"),
    ],
)
def test_who_heard_nothing_and_sends_again_finds_the_first_in_its_queue(
    console, monkeypatch, path, asked, call
):
    """Between the two the topic gets another number of queues, as the gateway sees them."""
    client = console.gateway.client
    really = getattr(client, call)
    first: list[MessageQueue] = []

    async def lost(*given, **how):
        result = await really(*given, **how)
        first.append((result[0] if isinstance(result, list) else result).queue)
        raise TimedOut("no answer came")

    monkeypatch.setattr(client, call, lost)
    name = key(f"lost {call}")
    assert console.post(path, headers=name, **asked).status == 504

    monkeypatch.setattr(client, call, really)
    monkeypatch.setattr(idempotence, "queue_of_key", lambda queues, _: another(queues, first[0]))
    fresh = console.post(path, headers=key(f"new {call}"), **asked)
    again = console.post(path, headers=name, **asked)
    assert again.status == fresh.status < 300
    assert place_of(fresh.json) != place_of(again.json) == first[0]


def place_of(answer):
    """The queue of the message, the first of a batch, or the half that was answered."""
    if "transaction_id" in answer:
        return half_of(answer["transaction_id"]).queue
    one = answer["items"][0] if "items" in answer else answer
    assert not one["replayed"]
    return MessageQueue(one["topic"], one["broker"], one["queue_id"])


def another(queues, not_this):
    """Any queue but that one."""
    return next(one for one in queues if one != not_this)
