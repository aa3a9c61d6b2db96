"""Whatever happens in whatever order: nothing is lost, nothing is held twice."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou_console.http.responses import HttpError
from kourou_console.leases.book import Book, Held, HeldState, LeaseEnd
from kourou_console.leases.leases import LeaseTokens

MIB = 1 << 20


def book(remembered_max: int = 1_000) -> Book[str]:
    numbers = count(1)
    return Book(lambda: next(numbers), remembered_max=remembered_max)


def lease(one: Book[str], number: int, now_ms: int) -> Held[str]:
    found = one.find(number, now_ms)
    assert isinstance(found, Held)
    return found


def test_messages_are_handed_out_in_order_and_expired_ones_first():
    one = book()
    for name in "abcd":
        one.arrived(name, "t", 10, 1)
    first = one.receive("t", 2, MIB, 1_000, 0)
    assert [held.message for held in first] == ["a", "b"]
    assert [held.message for held in one.expire(1_000)] == ["a", "b"]
    again = one.receive("t", 3, MIB, 1_000, 1_000)
    assert [(held.message, held.attempt) for held in again] == [("a", 2), ("b", 2), ("c", 1)]
    assert one.find(1, 1_000) is LeaseEnd.EXPIRED


def test_a_lease_nobody_heard_of_is_no_attempt_and_its_message_keeps_its_place():
    one = book()
    for name in "abcd":
        one.arrived(name, "t", 10, 1)
    [first] = one.receive("t", 1, MIB, 1_000, 0)
    rest = one.receive("t", 2, MIB, 9_000, 0)
    one.revoke(rest[1])
    one.revoke(rest[0])
    assert (one.out, one.ready("t")) == (1, 3)
    assert one.find(2, 0) is None
    assert one.expire(1_000) == [first]
    again = one.receive("t", 4, MIB, 1_000, 1_000)
    assert [(held.message, held.attempt) for held in again] == [
        ("a", 2),
        ("b", 1),
        ("c", 1),
        ("d", 1),
    ]
    one.revoke(again[1])
    one.revoke(again[0])
    assert [held.message for held in one.receive("t", 2, MIB, 1_000, 1_000)] == ["a", "b"]


def test_what_no_broker_takes_stays_under_its_lease():
    one = book()
    one.arrived("a", "t", 10, 1)
    [held] = one.receive("t", 1, MIB, 1_000, 0)
    one.returning(held)
    assert one.expire(10_000) == []
    one.kept(held, 10_000, 3_000)
    assert isinstance(one.find(1, 12_999), Held)
    assert one.expire(13_000) == [held]


def test_one_large_message_is_handed_out_alone():
    one = book()
    for name in "ab":
        one.arrived(name, "t", 5 * MIB, 1)
    assert [held.message for held in one.receive("t", 2, 4 * MIB, 1_000, 0)] == ["a"]


def test_ends_are_forgotten_at_last():
    one = book(remembered_max=2)
    for name in "abc":
        one.arrived(name, "t", 1, 1)
    for held in one.receive("t", 3, MIB, 1_000, 0):
        one.settle(held, LeaseEnd.ACKED)
    assert [one.find(number, 0) for number in (1, 2, 3)] == [None, LeaseEnd.ACKED, LeaseEnd.ACKED]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["arrive", "receive", "ack", "extend", "return", "returned", "kept", "pass", "forget"]
        ),
        st.integers(0, 7),
        st.integers(1, 4),
    ),
    max_size=60,
)


@given(STEPS)
@pytest.mark.feature("F228")
def test_any_history(steps: list[tuple[str, int, int]]) -> None:
    one = book(remembered_max=10_000)
    names = count()
    now_ms = 0
    settled: set[str] = set()
    lost: set[str] = set()
    came: list[str] = []
    numbers: dict[int, str] = {}
    for what, which, amount in steps:
        out = [held for held in one.held() if held.state is HeldState.LEASED]
        live = [held for held in out if held.expires_ms > now_ms]
        going = [held for held in one.held() if held.state is HeldState.RETURNING]
        if what == "arrive":
            for _ in range(amount):
                came.append(f"m{next(names)}")
                one.arrived(came[-1], f"t{which % 2}", 1, 1)
        elif what == "receive":
            for held in one.receive(f"t{which % 2}", amount, MIB, which * 100, now_ms):
                assert held.number not in numbers, "a number is given once"
                numbers[held.number] = held.message
        elif what == "ack" and live:
            held = live[which % len(live)]
            one.settle(lease(one, held.number, now_ms), LeaseEnd.ACKED)
            settled.add(held.message)
        elif what == "extend" and live:
            one.extend(live[which % len(live)], amount * 100, now_ms)
        elif what == "return" and live:
            one.returning(live[which % len(live)])
        elif what == "returned" and going:
            settled.add(going[0].message)
            one.returned(going[0], LeaseEnd.RETRIED)
        elif what == "kept" and going:
            one.kept(going[0], now_ms, 100)
        elif what == "pass":
            now_ms += amount * 100
            for held in one.expire(now_ms):
                assert held.state is HeldState.READY
        elif what == "forget":
            every = list(one.held())
            if every:
                lost.add(every[which % len(every)].message)
                one.forget(every[which % len(every)])
        here = [held.message for held in one.held()]
        assert len(here) == len(set(here)), "a message is held once"
        assert set(here) | settled | lost == set(came), "nothing leaves unsaid"
        assert not set(here) & (settled | lost), "what has left does not come again"
        assert one.out == sum(held.state is not HeldState.READY for held in one.held())
        for number, message in numbers.items():
            found = one.find(number, now_ms)
            assert not isinstance(found, Held) or found.message == message
    one.expire(now_ms + 10_000)
    left = sum(held.state is HeldState.RETURNING for held in one.held())
    handed = [held for topic in ("t0", "t1") for held in one.receive(topic, 999, MIB, 1, now_ms)]
    assert len(handed) + left == len(set(came) - settled - lost), "all that is left can be had"


# -- A token names one lease of one life of one gateway, and cannot be made up ---------------------


@pytest.mark.parametrize(
    "text", ["", "x", "é" * 35, "=" * 35, "A" * 34 + "!", "A" * 400, "\x00" * 35]
)
def test_what_is_no_token_is_refused(text: str):
    with pytest.raises(HttpError) as refused:
        LeaseTokens().read(text)
    assert refused.value.status == 404
    assert refused.value.hint


def test_a_changed_token_is_refused():
    tokens = LeaseTokens()
    token = tokens.make(7)
    for at in range(8, 32):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        with pytest.raises(HttpError, match="never issued") as refused:
            tokens.read(changed)
        assert refused.value.hint


@pytest.mark.fuzz
@given(st.text(max_size=40) | st.text("AZaz09-_", min_size=35, max_size=35))
def test_any_text_is_no_token_of_a_gateway_that_made_none(text: str) -> None:
    with pytest.raises(HttpError):
        LeaseTokens().read(text)
