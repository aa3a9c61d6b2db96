"""What a process refuses itself: counted by kind, bounded, until it is reported."""

from __future__ import annotations

import msgspec
import pytest

from kourou.access.model import Door
from kourou.authorization.audit import OwnRefusals
from kourou.errors import KourouError
from kourou.model.limits import (
    AUDIT_TEXT_LENGTH_MAX,
    REPORTED_COUNT_MAX,
    REPORTED_REFUSALS_MAX,
)
from kourou.protocol.bodies.access_bodies import (
    ReportedRefusal,
    decode_reported,
    encode_reported,
)


def note(refusals: OwnRefusals, user: str = "eve", source: str = "192.0.2.7", **how: str) -> None:
    refusals.note(user, source, "SignIn", "unknown token", door=Door.HTTP, **how)


def test_a_kind_is_counted_until_it_is_taken() -> None:
    refusals = OwnRefusals()
    for user in ("eve", "mallory", "eve"):
        note(refusals, user)
    taken = refusals.take()
    assert [(one.user, one.count) for one in taken] == [("eve", 2), ("mallory", 1)]
    assert refusals.take() == []
    note(refusals)
    refusals.put_back(taken)
    assert [(one.user, one.count) for one in refusals.take()] == [("eve", 3), ("mallory", 1)]


def test_kinds_are_bounded_and_counts_exact() -> None:
    refusals = OwnRefusals()
    for number in range(REPORTED_REFUSALS_MAX + 50):
        note(refusals, f"user-{number}")
    taken = refusals.take()
    assert len(taken) == REPORTED_REFUSALS_MAX
    assert (taken[-1].user, sum(one.count for one in taken)) == (
        "others",
        REPORTED_REFUSALS_MAX + 50,
    )
    refusals.put_back(taken)
    refusals.put_back(taken)
    assert len(refusals) == REPORTED_REFUSALS_MAX
    huge = msgspec.structs.replace(taken[0], count=REPORTED_COUNT_MAX)
    refusals.put_back([huge])
    assert max(one.count for one in refusals.take()) == REPORTED_COUNT_MAX


def test_whatever_clients_send_can_be_reported() -> None:
    refusals = OwnRefusals()
    long = "\n\x00é" * AUDIT_TEXT_LENGTH_MAX
    for source in ("unknown", "::ffff:192.0.2.7", "", "2001:db8::1", long):
        note(refusals, long, source)
    taken = refusals.take()
    assert decode_reported(encode_reported(taken)) == taken
    assert {one.source for one in taken} == {"", "192.0.2.7", "2001:db8::1"}
    assert {len(one.user) for one in taken} == {AUDIT_TEXT_LENGTH_MAX}


GOOD = ReportedRefusal(user="eve", source="192.0.2.7", request="SignIn", by="x")


@pytest.mark.parametrize(
    "changed",
    [
        {"source": "192.0.2.7 user=root"},
        {"request": "SignIn\nforged"},
        {"request": ""},
        {"user": "x" * (AUDIT_TEXT_LENGTH_MAX + 1)},
        {"count": 0},
        {"count": REPORTED_COUNT_MAX + 1},
        {"door": "window"},
    ],
)
def test_a_report_that_forges_or_floods_is_refused(changed: dict[str, object]) -> None:
    body = msgspec.json.encode([{**msgspec.to_builtins(GOOD), **changed}])
    with pytest.raises(KourouError):
        decode_reported(body)


TOO_MANY_KINDS = encode_reported([GOOD] * (REPORTED_REFUSALS_MAX + 1))


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"\xff", b"[" * 100_000, TOO_MANY_KINDS])
def test_a_body_that_is_no_report_is_refused(body: bytes) -> None:
    with pytest.raises(KourouError):
        decode_reported(body)
