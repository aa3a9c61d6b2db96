"""Filters at a broker: uploaded, decided about, fetched, and what they passed over."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from kourou.errors import Code
from kourou.model.limits import (
    FILTER_CHECKED_BYTES_MAX,
    FILTER_SKIPS_REMEMBERED_MAX,
    FILTER_SOURCE_BYTES_MAX,
    FILTER_VERSIONS_MAX,
)
from kourou.protocol.bodies.filter_bodies import decode_filters
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.filter_server import (
    ChangeFilter,
    GetFilters,
    PutFilter,
    RecordFilterSkip,
)
from kourou_rigs.engine import Engine, header_of


def source(number: int = 1) -> bytes:
    return f"def match(message, context):\n    return message.offset > {number}\n".encode()


def put(engine: Engine, body: bytes = source(), **fields: Any):
    wanted = {
        "consumer_group": "till",
        "name": "late",
        "sha256": hashlib.sha256(body).hexdigest(),
        **fields,
    }
    return engine.ask(PutFilter(**wanted), body)


def change(engine: Engine, action: str, **fields: Any):
    wanted = {"consumer_group": "till", "name": "late", "action": action, **fields}
    return engine.ask(ChangeFilter(**wanted))


def skip(engine: Engine, *offsets: int, peer: int = 1, **fields: Any):
    wanted = {
        "consumer_group": "till",
        "name": "late",
        "version": 1,
        "topic": "flights",
        "queue_id": 0,
        "reason": "it\nraised",
        **fields,
    }
    return engine.ask(RecordFilterSkip(offsets=list(offsets), **wanted), peer=peer)


def make_topic(engine: Engine) -> None:
    topic = UpdateAndCreateTopic(
        topic="flights", default_topic="", read_queue_nums=1, write_queue_nums=1, perm=6
    )
    name = engine.send(topic)
    engine.flush()
    assert engine.replies[name].code == Code.SUCCESS


# -- uploading -------------------------------------------------------------------------------------


def test_many_large_sources_are_not_checked_at_once(engine: Engine) -> None:
    """Half a second of work each, in which nobody else is answered."""
    large = b"\n#" + b"x" * (FILTER_SOURCE_BYTES_MAX - len(source()) - 2)
    names = [f"late{number}" for number in range(FILTER_CHECKED_BYTES_MAX // 65_536)]
    for name in names:
        header_of(put(engine, source() + large, name=name))
    reply = put(engine, source() + large, name="one-more")
    assert (reply.code, "at once" in reply.remark) == (Code.SYSTEM_BUSY, True)
    header_of(put(engine, source() + large, name=names[0]))  # it is known
    engine.advance(10_000)
    header_of(put(engine, source() + large, name="one-more"))


@pytest.mark.parametrize(
    ("body", "fields", "why"),
    [
        (b"#\xff", {}, "not UTF-8"),
        (source() + b"#\0", {}, "control character '\\x00'"),
        (source() + b"#\x7f", {}, "control character"),
        (source(), {"note": "a\0b"}, "note"),
    ],
)
def test_what_is_no_filter_is_refused_and_leaves_nothing(
    engine: Engine, body: bytes, fields: dict[str, Any], why: str
) -> None:
    before = len(engine.events())
    reply = put(engine, body, **fields)
    assert reply.code == Code.SYSTEM_ERROR
    assert why in reply.remark
    assert len(engine.events()) == before, "not even the group"


def test_a_digest_in_capitals_is_the_same(engine: Engine) -> None:
    digest = hashlib.sha256(source()).hexdigest()
    put(engine)
    assert header_of(put(engine, sha256=digest.upper())).version == 1


# -- passing messages over -------------------------------------------------------------------------


def test_so_many_skips_are_remembered(engine: Engine) -> None:
    make_topic(engine)
    put(engine)
    change(engine, "policy", policy="skip")
    for offset in range(FILTER_SKIPS_REMEMBERED_MAX):
        skip(engine, offset)
    before = len(engine.events())
    skip(engine, 0)
    assert len(engine.events()) == before
    skip(engine, FILTER_SKIPS_REMEMBERED_MAX)
    skip(engine, 0)
    assert len(engine.events()) == before + 1, "asked for lately"
    skip(engine, 1)
    assert len(engine.events()) == before + 2


# -- telling ---------------------------------------------------------------------------------------


def filters_reported(engine: Engine, **fields: Any):
    reply = engine.ask(GetFilters(**fields))
    assert header_of(reply).filters_version == engine.control.filters.version
    return decode_filters(b"".join(reply.body))


def test_more_sources_than_an_answer_holds_are_asked_for_one_by_one(engine: Engine) -> None:
    big = source() + b"#" * (FILTER_SOURCE_BYTES_MAX - 100)
    for number in range(7 * FILTER_VERSIONS_MAX):
        group = f"till{number // FILTER_VERSIONS_MAX}"
        put(engine, big, consumer_group=group, name=f"f{number}")
        engine.advance(4_000)  # else they are too many to be checked at once
    reply = engine.ask(GetFilters(with_source=True))
    assert (reply.code, "one filter at a time" in reply.remark) == (Code.SYSTEM_ERROR, True)
    assert len(filters_reported(engine, consumer_group="till0", with_source=True)) == 16
