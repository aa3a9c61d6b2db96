"""Filters at a broker: uploaded, decided about, fetched, and what they passed over."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from kourou.engine.effects import ConfigChanged
from kourou.engine.inputs import SpaceChanged
from kourou.engine.policy import BrokerPolicy
from kourou.errors import Code
from kourou.events.control_events import decode_record_body
from kourou.model.filter import FilterPolicy
from kourou.model.limits import (
    FILTER_AUTHOR_LENGTH_MAX,
    FILTER_CHECKED_BYTES_MAX,
    FILTER_NOTE_LENGTH_MAX,
    FILTER_SKIPS_REMEMBERED_MAX,
    FILTER_SOURCE_BYTES_MAX,
    FILTER_VERSIONS_MAX,
)
from kourou.protocol.bodies.filter_bodies import decode_filter_servers, decode_filters
from kourou.protocol.messages.broker_admin import Undo, UpdateAndCreateTopic
from kourou.protocol.messages.filter_server import (
    ChangeFilter,
    GetFilters,
    PutFilter,
    RecordFilterSkip,
    RegisterFilterServer,
)
from kourou.protocol.messages.groups import DeleteSubscriptionGroup
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


def decided(engine: Engine, since: int = 0) -> list[str]:
    return [stored.tag for stored in engine.events()[since:]]


# -- uploading -------------------------------------------------------------------------------------


@pytest.mark.feature("F240")
def test_an_upload_makes_group_version_and_runs(engine: Engine) -> None:
    before = len(engine.events())
    header = header_of(put(engine, author="ann", note="two\nhours  late"))
    assert (header.version, header.active, header.created) == (1, 1, True)
    assert (header.filters_version, header.quarantined) == (2, None)
    assert decided(engine, before) == ["GroupPut", "TopicPut", "FilterUploaded", "FilterEnabled"]
    stored = engine.events()[-2]
    recorded = decode_record_body(stored.body, offset=0, position=0)
    assert recorded.event.source == source().decode()
    assert (recorded.event.author, recorded.event.note) == ("ann", "two hours late")
    assert recorded.actor == "local:127.0.0.1:40001#1"
    assert engine.effects.count(ConfigChanged("filters")) == 1


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


@pytest.mark.feature("F240")
def test_the_same_source_again_is_the_same_version_and_no_event(engine: Engine) -> None:
    put(engine)
    before = len(engine.events())
    header = header_of(put(engine))
    assert (header.version, header.active, header.created) == (1, 1, False)
    header = header_of(put(engine, source(2)))
    assert (header.version, header.active, header.created) == (2, 2, True)
    header = header_of(put(engine))
    assert (header.version, header.active, header.created) == (1, 2, False)
    assert decided(engine, before) == ["FilterUploaded", "FilterEnabled"]


def test_an_upload_is_answered_when_it_is_confirmed() -> None:
    engine = Engine(sync_flush=True)
    digest = hashlib.sha256(source()).hexdigest()
    request = PutFilter(consumer_group="till", name="late", sha256=digest)
    first = engine.send(request, source())
    again = engine.send(request, source())
    assert not {first, again} & engine.replies.keys(), "it speaks of what is not confirmed yet"
    engine.flush()
    assert header_of(engine.replies[first]).created
    assert not header_of(engine.replies[again]).created


def test_versions_may_wait_for_an_operator(engine: Engine) -> None:
    put(engine)
    engine.core.parts.apply("filterAutoEnable", False)
    header = header_of(put(engine, source(2)))
    assert (header.version, header.active, header.created) == (2, 1, True)
    engine.core.parts.apply("filterAutoEnable", True)
    header = header_of(put(engine, source(3), enable=False))
    assert (header.version, header.active) == (3, 1)
    header = header_of(put(engine, source(2)))
    assert (header.version, header.active, header.created) == (2, 2, False)


def test_an_upload_of_what_is_in_quarantine_says_so(engine: Engine) -> None:
    put(engine)
    change(engine, "quarantine", version=1, reason="it died 3 times")
    header = header_of(put(engine))
    assert (header.version, header.active, header.quarantined) == (1, 1, "it died 3 times")


def test_a_broker_may_take_no_uploads(engine: Engine) -> None:
    engine.core.parts.apply("filterUploadEnable", False)
    reply = put(engine)
    assert (reply.code, "filterUploadEnable" in reply.remark) == (Code.NO_PERMISSION, True)


def test_a_group_that_may_not_be_made_has_no_filters() -> None:
    engine = Engine(policy=BrokerPolicy("C", "broker-a", auto_create_group=False))
    before = len(engine.events())
    assert put(engine).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
    assert len(engine.events()) == before
    assert len(engine.control.filters) == 0


@pytest.mark.parametrize(
    ("body", "fields", "why"),
    [
        (b"", {}, "0 bytes; 1 to 65536"),
        (b"#" * (FILTER_SOURCE_BYTES_MAX + 1), {}, "65537 bytes"),
        (source(), {"sha256": "0" * 64}, "does not match its SHA-256"),
        (b"#\xff", {}, "not UTF-8"),
        (source() + b"#\0", {}, "control character '\\x00'"),
        (source() + b"#\x7f", {}, "control character"),
        (source(), {"name": "a/b"}, "cannot be named"),
        (source(), {"consumer_group": "a/b"}, "outside a-z"),
        (source(), {"author": "x" * (FILTER_AUTHOR_LENGTH_MAX + 1)}, "author"),
        (source(), {"note": "x" * (FILTER_NOTE_LENGTH_MAX + 1)}, "note"),
        (source(), {"note": "a\0b"}, "note"),
        (b"def match(message, context):\n    return open('x')\n", {}, "2:12"),
        (b"def match(:\n", {}, "1:11"),
        (b"x = 1\n", {}, "match"),
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


def test_an_upload_that_finds_no_room_has_not_happened(engine: Engine) -> None:
    put(engine)
    engine.core.parts.appends._allocated_end = engine.store.end
    engine.handle(SpaceChanged(0, full=True))
    assert put(engine, source(2)).code == Code.DISK_FULL
    assert header_of(put(engine)).version == 1


# -- deciding --------------------------------------------------------------------------------------


@pytest.mark.feature("F240")
def test_an_operator_decides_which_version_runs(engine: Engine) -> None:
    for number in (1, 2, 3):
        put(engine, source(number))
    told = [
        (header.version, header.active)
        for header in (
            header_of(change(engine, "enable", version=1)),
            header_of(change(engine, "rollback")),
            header_of(change(engine, "disable", reason="too slow")),
            header_of(change(engine, "enable")),
            header_of(change(engine, "policy", policy="pass")),
            header_of(change(engine, "enable", version=3)),
        )
    ]
    assert told == [(1, 1), (3, 3), (3, None), (3, 3), (3, 3), (3, 3)]
    reasons = [
        decode_record_body(stored.body, offset=0, position=0).reason
        for stored in engine.events()[-5:]
    ]
    assert reasons == [
        "enable a filter",
        "rollback a filter",
        "too slow",
        "enable a filter",
        "policy a filter",
    ]


def test_a_filter_server_asks_for_quarantine_and_it_is_said_which(engine: Engine) -> None:
    put(engine)
    engine.ask(RegisterFilterServer(filter_server_addr="f:1", listeners={}), peer=7)
    request = ChangeFilter(
        consumer_group="till", name="late", action="quarantine", version=1, reason="it\ndied"
    )
    header = header_of(engine.ask(request, peer=7))
    assert (header.version, header.active, header.quarantined) == (1, 1, "it died")
    event = decode_record_body(engine.events()[-1].body, offset=0, position=0).event
    assert (event.server, event.reason) == ("f:1", "it died")
    before = len(engine.events())
    assert header_of(engine.ask(request, peer=8)).quarantined == "it died"
    assert len(engine.events()) == before, "two filter servers, one quarantine"
    assert header_of(change(engine, "enable", version=1)).quarantined is None


def test_a_quarantine_that_comes_too_late_changes_nothing_that_runs(engine: Engine) -> None:
    put(engine)
    put(engine, source(2))
    header = header_of(change(engine, "quarantine", version=1, reason="late"))
    assert (header.version, header.active, header.quarantined) == (1, 2, "late")
    assert header_of(change(engine, "quarantine", version=9, reason="gone")).active == 2


def test_what_cannot_be_decided(engine: Engine) -> None:
    for action in ("enable", "rollback", "disable", "policy", "quarantine", "delete", "dance"):
        assert change(engine, action).code == Code.QUERY_NOT_FOUND
    put(engine)
    assert change(engine, "dance").code == Code.SYSTEM_ERROR
    assert change(engine, "policy", policy="drop").code == Code.SYSTEM_ERROR
    assert change(engine, "rollback").code == Code.SYSTEM_ERROR
    assert change(engine, "enable", version=2).code == Code.QUERY_NOT_FOUND


@pytest.mark.feature("F240")
def test_a_decision_about_a_filter_is_undone(engine: Engine) -> None:
    put(engine)
    put(engine, source(2))
    header_of(change(engine, "delete"))
    deletion = engine.control.next_offset - 1
    assert engine.ask(GetFilters(consumer_group="till", name="late")).code == Code.QUERY_NOT_FOUND
    assert engine.ask(Undo(offset=deletion, reason="it is needed")).code == Code.SUCCESS
    [back] = filters_reported(engine)
    assert (back.active, back.before_active, back.newest) == (2, 1, 2)
    assert decided(engine)[-1] == "FilterRestored"
    assert engine.ask(Undo(offset=deletion)).code == Code.SYSTEM_ERROR


def test_a_groups_filters_go_with_it(engine: Engine) -> None:
    put(engine)
    assert engine.ask(DeleteSubscriptionGroup(group_name="till")).code == Code.SUCCESS
    assert filters_reported(engine) == []
    header = header_of(put(engine))
    assert (header.version, header.created) == (2, True)


@pytest.mark.feature("F240")
def test_a_restart_finds_every_filter_in_the_log(engine: Engine) -> None:
    make_topic(engine)
    put(engine)
    put(engine, source(2))
    change(engine, "policy", policy="skip")
    skip(engine, 5, version=2)
    change(engine, "quarantine", version=1, reason="it died")
    again = Engine(left=engine.store)
    assert again.control.filters == engine.control.filters
    [late] = filters_reported(again)
    assert (late.active, late.policy, late.skipped) == (2, FilterPolicy.SKIP, 1)


# -- passing messages over -------------------------------------------------------------------------


@pytest.mark.feature("F243")
def test_what_is_passed_over_is_recorded_once_and_before_the_answer() -> None:
    engine = Engine(sync_flush=True)
    make_topic(engine)
    engine.send(
        PutFilter(consumer_group="till", name="late", sha256=hashlib.sha256(source()).hexdigest()),
        source(),
    )
    engine.send(ChangeFilter(consumer_group="till", name="late", action="policy", policy="skip"))
    engine.flush()
    request = RecordFilterSkip(
        consumer_group="till",
        name="late",
        version=1,
        topic="flights",
        queue_id=0,
        offsets=[7, 9],
        reason="KeyError:\n'delay'",
    )
    first, again = engine.send(request, peer=7), engine.send(request, peer=8)
    assert not {first, again} & engine.replies.keys()
    engine.flush()
    assert engine.replies[first].code == engine.replies[again].code == Code.SUCCESS
    recorded = decode_record_body(engine.events()[-1].body, offset=0, position=0)
    assert recorded.event.offsets == (7, 9)
    assert recorded.event.reason == "KeyError: 'delay'"
    assert recorded.event.server == "local:127.0.0.1:40007#7"
    assert decided(engine).count("FilterMessagesSkipped") == 1
    assert engine.control.filters.table["till", "late"].skipped == 2


def test_what_may_not_be_passed_over(engine: Engine) -> None:
    assert skip(engine, 1).code == Code.TOPIC_NOT_EXIST
    make_topic(engine)
    assert skip(engine, 1).code == Code.QUERY_NOT_FOUND
    put(engine)
    assert skip(engine, 1).code == Code.SYSTEM_ERROR, "its policy is hold"
    change(engine, "policy", policy="skip")
    assert skip(engine).code == Code.SYSTEM_ERROR
    assert skip(engine, 1, queue_id=-1).code == Code.SYSTEM_ERROR
    assert skip(engine, 1).code == Code.SUCCESS
    change(engine, "policy", policy="hold")
    assert skip(engine, 1).code == Code.SYSTEM_ERROR, "remembered, and not allowed any more"


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


@pytest.mark.feature("F240")
def test_filters_are_reported_of_all_of_a_group_or_one(engine: Engine) -> None:
    assert filters_reported(engine) == []
    put(engine, name="b")
    put(engine, name="a")
    put(engine, consumer_group="desk", name="c")
    assert [one.key for one in filters_reported(engine)] == [
        ("desk", "c"),
        ("till", "a"),
        ("till", "b"),
    ]
    assert [one.name for one in filters_reported(engine, consumer_group="till")] == ["a", "b"]
    assert filters_reported(engine, consumer_group="nobody") == []
    [one] = filters_reported(engine, consumer_group="till", name="a")
    assert one.versions[0].source is None
    assert engine.ask(GetFilters(consumer_group="till", name="x")).code == Code.QUERY_NOT_FOUND


def test_one_version_is_reported_with_its_source(engine: Engine) -> None:
    def sources(**fields: Any) -> list[str | None]:
        [one] = filters_reported(
            engine, consumer_group="till", name="late", with_source=True, **fields
        )
        return [each.source for each in one.versions]

    put(engine)
    put(engine, source(2))
    assert sources() == [None, source(2).decode()]
    assert sources(version=1) == [source().decode(), None]
    change(engine, "disable")
    assert sources() == [None, None]
    fields = {"consumer_group": "till", "name": "late", "with_source": True}
    assert engine.ask(GetFilters(version=3, **fields)).code == Code.QUERY_NOT_FOUND
    assert engine.ask(GetFilters(version=1, with_source=True)).code == Code.SYSTEM_ERROR


def test_more_sources_than_an_answer_holds_are_asked_for_one_by_one(engine: Engine) -> None:
    big = source() + b"#" * (FILTER_SOURCE_BYTES_MAX - 100)
    for number in range(7 * FILTER_VERSIONS_MAX):
        group = f"till{number // FILTER_VERSIONS_MAX}"
        put(engine, big, consumer_group=group, name=f"f{number}")
        engine.advance(4_000)  # else they are too many to be checked at once
    reply = engine.ask(GetFilters(with_source=True))
    assert (reply.code, "one filter at a time" in reply.remark) == (Code.SYSTEM_ERROR, True)
    assert len(filters_reported(engine, consumer_group="till0", with_source=True)) == 16


def test_the_filter_servers_are_reported_with_the_address_of_the_request(engine: Engine) -> None:
    for number in (9, 8):
        table = {"local:internal": f"f{number}:1", "zmq:internal": f"z{number}:1"}
        engine.ask(
            RegisterFilterServer(filter_server_addr=f"f{number}:1", listeners=table), peer=number
        )
    reply = engine.ask(GetFilters())
    assert decode_filter_servers(b"".join(reply.body)) == ["f8:1", "f9:1"]


def test_figures(engine: Engine) -> None:
    make_topic(engine)
    put(engine)
    put(engine, source(2))
    put(engine, name="other")
    change(engine, "quarantine", version=1)
    change(engine, "disable", name="other")
    change(engine, "policy", policy="skip")
    skip(engine, 1, 2, version=2)
    assert engine.core.parts.filter_handler.statistics() == {
        "filters": 2,
        "versions": 3,
        "active": 1,
        "quarantined": 1,
        "skipped": 2,
        "source_bytes": 2 * len(source()) + len(source(2)),
        "servers": 0,
    }
