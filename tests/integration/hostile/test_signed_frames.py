"""Signed frames that were changed: what RocketMQ's signature protects, and what protects the rest.

It covers the values and the body. Code, names of fields and boundaries are not signed, so what
counts is that the broker decides by exactly what its handlers then use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from kourou.access.signature import (
    ACCESS_KEY,
    SIGNATURE,
    SignedFields,
    SigningKey,
    sign,
    verify,
)
from kourou.authorization import request_gate
from kourou.errors import Code
from kourou.protocol.bodies.access_bodies import UserChange, encode_user_change
from kourou.protocol.messages.access import AuthCreateUser
from kourou.protocol.messages.broker_admin import GetBrokerConfig, UpdateAndCreateTopic
from kourou.protocol.wire.remoting import (
    HeaderType,
    RemotingCommand,
    decode_command,
    encode_command,
)
from kourou_rigs.access import curve_key
from kourou_rigs.attacked import ROOT, SECRETS, TILL, Attacked, raw_frame, signed

SEND, QUERY_MESSAGE, PULL, UPDATE_BROKER_CONFIG = 310, 12, 11, 25
LETTERS = {
    "a": "p", "b": "orders", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0",
}  # fmt: skip


async def give(
    to: Attacked, code: int, fields: dict[str, str], body: bytes = b"", kind: int = 0
) -> RemotingCommand:
    command = RemotingCommand(code, opaque=99_999, ext_fields=fields, header_type=HeaderType(kind))
    command.body = body
    [reply] = await to.answers(encode_command(command))
    return reply


def refused(reply: RemotingCommand) -> str:
    assert reply.code in (Code.SYSTEM_ERROR, Code.NO_PERMISSION)
    assert "AclException" in (reply.remark or "")
    return reply.remark or ""


@pytest.mark.fault
@pytest.mark.parametrize("kind", HeaderType)
async def test_a_signature_is_for_the_values_it_was_made_of(secured: Attacked, kind: int) -> None:
    good = signed(TILL, LETTERS, b"body")
    assert (await give(secured, SEND, good, b"body", kind)).code == Code.SUCCESS
    stored = secured.stored()
    changed = [
        ({**good, "b": "orders2"}, b"body"),
        ({**good, "a": "pp"}, b"body"),
        ({**good, "z": "1"}, b"body"),
        ({name: text for name, text in good.items() if name != "h"}, b"body"),
        ({**good, ACCESS_KEY: ROOT}, b"body"),
        ({**good, ACCESS_KEY: "x" * 5_000}, b"body"),
        ({**good, SIGNATURE: good[SIGNATURE].lower()}, b"body"),
        ({**good, SIGNATURE: good[SIGNATURE].rstrip("=")}, b"body"),
        ({**good, SIGNATURE: ""}, b"body"),
        ({**good, SIGNATURE: "\ud7ff\ufffd\U0001f600"}, b"body"),
        (good, b"bodY"),
        (good, b""),
    ]
    for fields, body in changed:
        why = refused(await give(secured, SEND, fields, body, kind))
        assert "Check signature failed" in why
        assert len(why) < 300
    assert secured.stored() == stored
    await secured.serves(TILL)


@pytest.mark.fault
async def test_a_signature_moved_to_another_code_has_that_codes_needs(secured: Attacked) -> None:
    """It proves who sends, since the code is not signed; the code that it came with is decided."""
    empty = signed(TILL, {})
    for code in (UPDATE_BROKER_CONFIG, 26, 28, 50, 51, 204, 3001, 3005):
        reply = await give(secured, code, empty)
        assert reply.code != Code.SUCCESS, code
    topic = {"topic": "orders", "key": "k", "maxNum": "1", "beginTimestamp": "0"}
    moved = signed(TILL, {**topic, "endTimestamp": "1"})
    missing = await give(secured, QUERY_MESSAGE, moved)
    assert "AclException" not in (missing.remark or ""), "a right that till has"
    assert "header of PULL_MESSAGE" in ((await give(secured, PULL, moved)).remark or "")
    await secured.serves(TILL)


@pytest.mark.fault
async def test_a_moved_boundary_is_decided_by_what_is_stored(secured: Attacked) -> None:
    """`a=p b=orders` and `a=porders b=...` have equal signed bytes."""
    good = signed(TILL, {**LETTERS, "a": "pbills-", "b": "orders"}, b"x")
    assert (await give(secured, SEND, good, b"x")).code == Code.SUCCESS
    moved = {**good, "a": "p", "b": "bills-orders"}
    why = refused(await give(secured, SEND, moved, b"x"))
    assert "Pub on Topic:bills-orders" in why
    assert secured.stored("bills-orders") == 0
    await secured.serves(TILL)


def json_frame(code: int, members: list[tuple[str, str]], body: bytes) -> bytes:
    """A frame whose extension fields are exactly these, repeated ones included."""
    fields = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members)
    text = f'{{"code":{code},"flag":0,"opaque":99999,"version":409,"extFields":{{{fields}}}}}'
    return raw_frame(text.encode(), body)


def binary_frame(code: int, members: list[tuple[str, str]], body: bytes) -> bytes:
    """The same with a binary header."""
    entries = b"".join(
        len(name).to_bytes(2, "big") + name.encode() + len(text).to_bytes(4, "big") + text.encode()
        for name, text in members
    )
    head = code.to_bytes(2, "big") + b"\0" + (409).to_bytes(2, "big") + (99_999).to_bytes(4, "big")
    header = head + bytes(4) + bytes(4) + len(entries).to_bytes(4, "big") + entries
    return raw_frame(header, body, 1)


@pytest.mark.fault
@pytest.mark.parametrize("frame", [json_frame, binary_frame])
@pytest.mark.parametrize("place", ["first", "last"])
async def test_of_a_field_that_occurs_twice_one_value_is_signed_and_stored(
    secured: Attacked, frame, place: str
) -> None:
    """Whichever value counts for the signature also counts for the right and for the handler."""
    good = signed(TILL, LETTERS, b"x")
    again = ("b", "bills")
    members = [again, *good.items()] if place == "first" else [*good.items(), again]
    sent = frame(SEND, members, b"x")
    counted = (decode_command(sent).ext_fields or {})["b"]
    [reply] = await secured.answers(sent)
    assert secured.stored("bills") == 0
    assert (reply.code == Code.SUCCESS) == (counted == "orders") == (secured.stored() == 1)
    spelled_twice = [*signed(TILL, {**LETTERS, "topic": "bills"}, b"x").items()]
    [reply] = await secured.answers(frame(SEND, spelled_twice, b"x"))
    if reply.code == Code.SUCCESS:
        assert secured.stored("bills") == 0
    else:
        assert "Topic:bills" in refused(reply)
    await secured.serves(TILL)


@pytest.mark.fault
async def test_an_unknown_field_is_signed_too(secured: Attacked) -> None:
    """The broker ignores an unknown field, and so could everybody who changes it on the way."""
    good = signed(TILL, LETTERS, b"x")
    [answered] = await secured.answers(json_frame(SEND, [*good.items()], b"x"))
    assert answered.code == Code.SUCCESS
    extra = json_frame(SEND, [*good.items(), ("unknown", "1")], b"x")
    refused((await secured.answers(extra))[0])
    await secured.serves(TILL)


@pytest.mark.fault
async def test_an_operator_of_some_topics_changes_nothing_else(secured: Attacked) -> None:
    new = UpdateAndCreateTopic(topic="orders-new", read_queue_nums=1, write_queue_nums=1, perm=6)
    assert (await secured.request(new, user=TILL)).code == Code.SUCCESS
    other = UpdateAndCreateTopic(topic="bills-new", read_queue_nums=1, write_queue_nums=1, perm=6)
    refused(await secured.request(other, user=TILL))
    refused(await secured.request(GetBrokerConfig(), user=TILL))
    assert "bills-new" not in secured.view.control.topics.table
    await secured.serves(TILL)


@pytest.mark.fault
async def test_a_wrong_secret_does_not_tell_who_exists(
    secured: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text and work are the same for all; who is disabled learns it with the right secret only.

    Also of those who sent before: what they may do is remembered.
    """
    for name, change in (
        ("disabled", UserChange(secret=SECRETS[TILL], enabled=False)),
        ("with-a-key", UserChange(curve_keys=(curve_key("with-a-key"),))),
    ):
        made = await secured.request(
            AuthCreateUser(username=name), encode_user_change(change), ROOT
        )
        assert made.code == Code.SUCCESS, made.remark
    for name in (ROOT, ROOT, TILL):  # the first one creates the topic
        sent = await give(secured, SEND, signed(name, LETTERS, b"x"), b"x")
        assert sent.code == Code.SUCCESS, sent.remark
    remembered = secured.view.control.access.remembered
    assert {one.user for one in remembered.values()} >= {ROOT, TILL}
    checked: list[str] = []

    def counted(given: SignedFields, body: Iterable[bytes], key: SigningKey) -> bool:
        checked.append(given.access_key)
        return verify(given, body, key)

    monkeypatch.setattr(request_gate, "verify", counted)
    names = [ROOT, TILL, "disabled", "with-a-key", "nobody-here"]
    texts = set()
    for name in names:
        fields = {**LETTERS, ACCESS_KEY: name}
        fields[SIGNATURE] = sign(fields, [b"x"], "a guessed secret")
        texts.add(refused(await give(secured, SEND, fields, b"x")).replace(name, "NAME"))
    assert len(texts) == 1
    assert checked == names
    fields = {**LETTERS, ACCESS_KEY: "disabled"}
    fields[SIGNATURE] = sign(fields, [b"x"], SECRETS[TILL])
    assert "the user is disabled" in refused(await give(secured, SEND, fields, b"x"))
    await secured.serves(TILL)
