"""A request under a key does its work once, whoever is asked again."""

from __future__ import annotations

import asyncio

import pytest

from kourou.errors import BadRequest, Rejected, Unavailable
from kourou.testing.console import ConsoleHere
from kourou_console.call import Call
from kourou_console.idempotence import KEPT_MS, Idempotence, Named, named
from kourou_console.problems import Refused

MESSAGES = "/v1/topics/orders/messages"
BATCHES = "/v1/topics/orders/batches"


def key(text: str) -> dict[str, str]:
    return {"Idempotency-Key": text}


def test_the_second_gets_the_first_ones_answer(console):
    first = console.post(MESSAGES, body=b"once", headers=key("a"))
    second = console.post(MESSAGES, body=b"once", headers=key("a"))
    assert not first.json["replayed"]
    assert second.json == {**first.json, "replayed": True}


def test_the_same_key_for_another_request_is_refused(console):
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


def test_a_half_message_is_prepared_once(console, cluster):
    path = "/v1/topics/orders/transactions"
    first = console.post(path, body=b"half", headers=key("e"))
    assert first.status == 201
    with ConsoleHere(cluster) as another:
        second = another.post(path, body=b"half", headers=key("e"))
    assert second.json["transaction_id"] == first.json["transaction_id"]


def test_a_refused_request_leaves_its_key_free(console):
    assert console.post(MESSAGES, json={"body": "x", "delay_ms": 7}, headers=key("f")).status == 400
    assert console.post(MESSAGES, json={"body": "x"}, headers=key("f")).status == 200


@pytest.mark.parametrize("wrong", ["", "x" * 256, "ü"])
def test_a_key_is_printable_text(console, wrong):
    call = Call(headers=(("Idempotency-Key", wrong),))
    with pytest.raises(BadRequest):
        named(console.gateway, call, "message", "orders", b"")


def test_other_callers_have_other_keys(console):
    from kourou_console.call import Caller, Right

    ids = {
        named(
            console.gateway,
            Call(Caller(who, Right.WRITE), (("Idempotency-Key", "same"),)),
            "message",
            "orders",
            b"",
        ).ids(1)[0]
        for who in ("ann", "bob")
    }
    assert len(ids) == 2


class Counted:
    """Work that fails as told, and waits until it may end."""

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
            with pytest.raises(Refused):
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
