"""Control events: what is written is read back, and what is foreign never breaks the reader."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.access.api_token import ApiToken
from kourou.access.model import (
    AccessMode,
    Action,
    Effect,
    Pattern,
    Policy,
    RoleGrant,
    SealedSecret,
    User,
    UserRole,
)
from kourou.errors import BadRequest, DecodeError
from kourou.events.control_events import (
    EVENT_TYPES,
    AccessModeSet,
    AccessRecovered,
    ApiTokenCreated,
    ApiTokenRevoked,
    BatchDecided,
    BatchPrepared,
    BatchQueryForgotten,
    BatchResolved,
    Cause,
    EpochOpened,
    Event,
    EventLost,
    FilterDeleted,
    FilterDisabled,
    FilterEnabled,
    FilterMessagesSkipped,
    FilterPolicySet,
    FilterQuarantined,
    FilterReleased,
    FilterRestored,
    FilterUploaded,
    GroupDeleted,
    GroupPut,
    InSyncChanged,
    KeyValueDeleted,
    KeyValuePut,
    LogDeleted,
    OffsetsReset,
    PolicyPut,
    PolicyRemoved,
    ProgressRecorded,
    QueueLocksChanged,
    QuotaPut,
    QuotaRemoved,
    SettingChanged,
    TopicDeleted,
    TopicPut,
    UnknownEvent,
    UnreadExpiring,
    UnreadSpan,
    UserDeleted,
    UserPasswordSet,
    UserPut,
    UserSecretSet,
    decode_event,
    decode_record_body,
    encode_event,
    encode_record_body,
    record_properties,
)
from kourou.model.filter import FilterPolicy, FilterState, FilterVersion
from kourou.model.limits import ACTOR_LENGTH_MAX, REASON_LENGTH_MAX
from kourou.model.quota import Quota, QuotaKind
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig

FILTER = FilterState(
    "g",
    "com.acme.Late",
    (
        FilterVersion(2, "ab" * 32, "ann", "why", 5, 20, "source", 6),
        FilterVersion(4, "", "", "", 7, 0),
    ),
    active=2,
    before_active=4,
    policy=FilterPolicy.PASS,
    quarantined={4: "it lied"},
    skipped=9,
    next_version=5,
)

USER = User(
    name="till",
    roles=(RoleGrant(UserRole.WRITER, "orders-", 2**62),),
    curve_keys=("x" * 40,),
    certificate_subjects=("CN=till,O=Example",),
)
QUOTA = Quota(kind=QuotaKind.USER, name="till", publish_bytes=5, requests=7)
POLICY = Policy(
    id="till/Topic:orders/deny",
    user="till",
    resource=Pattern.parse("Topic:orders"),
    actions=(Action.PUB, Action.SUB),
    effect=Effect.DENY,
    networks=("10.0.0.0/8",),
    until_ms=2**62,
    reason="stock taking",
)

TOKEN = ApiToken(
    id="0123456789ab",
    user="till",
    digest="0123456789abcdef" * 4,
    scope=RoleGrant(UserRole.WRITER, "orders-"),
    created_ms=5,
    expires_ms=2**62,
)

EXAMPLES: list[tuple[Event, str]] = [
    (TopicPut(TopicConfig("A", 8, 8)), "topic/A"),
    (TopicPut(TopicConfig("A", 8, 4, 2, "MULTI_TAG", 1, True), TopicConfig("A")), "topic/A"),
    (TopicDeleted(TopicConfig("%RETRY%g")), "topic/%RETRY%g"),
    (GroupPut(GroupConfig("g", retry_max_times=3), GroupConfig("g")), "group/g"),
    (GroupDeleted(GroupConfig("g"), remove_offset=True), "group/g"),
    (SettingChanged("fileReservedTime", 24, 72), "setting/fileReservedTime"),
    (SettingChanged("traceOn", True, None), "setting/traceOn"),
    (SettingChanged("regionId", None, "x"), "setting/regionId"),
    (ProgressRecorded("g", {"A": {0: 2**62, 3: 0}, "B": {1: 7}}), "progress/g"),
    (OffsetsReset("g", "A", {0: 5, 1: None}, {0: None, 1: 9}), "progress/g"),
    (QueueLocksChanged("g", {"A": {0: "10.0.0.1@7", 3: None}}), "locks/g"),
    (KeyValuePut("ORDER_TOPIC_CONFIG", "T", "broker-a:4"), "kv/ORDER_TOPIC_CONFIG"),
    (KeyValueDeleted("ORDER_TOPIC_CONFIG", "T", "broker-a:4"), "kv/ORDER_TOPIC_CONFIG"),
    (LogDeleted(0, 2**40, "forced", (UnreadSpan("g", "A", 3, 0, 2**62),)), "log/retention"),
    (LogDeleted(4_096, 8_192, "expired"), "log/retention"),
    (UnreadExpiring(9, 3_600_000, (UnreadSpan("g", "%RETRY%g", 0, 5, 7),)), "log/retention"),
    (EventLost("quarantined"), "lost"),
    (EventLost("quarantined", about_users=True), "lost"),
    (FilterUploaded("g", "f", 3, "def match(…):\n\t…", "ab" * 32, "ann", "why"), "filter/g/f"),
    (FilterEnabled("g", "f", 3, None), "filter/g/f"),
    (FilterEnabled("g", "f", 3, 2), "filter/g/f"),
    (FilterDisabled("g", "f", 3), "filter/g/f"),
    (FilterPolicySet("g", "f", FilterPolicy.SKIP, FilterPolicy.HOLD), "filter/g/f"),
    (FilterQuarantined("g", "f", 3, "it died", "h:1"), "filter/g/f"),
    (FilterReleased("g", "f", 3, "it died"), "filter/g/f"),
    (FilterMessagesSkipped("g", "f", 3, "T", 7, (1, 2**62), "it raised"), "filter/g/f"),
    (BatchPrepared("q.1", 7, "broker-a", 12), "batches/q.1"),
    (BatchDecided("q.1", 7, {0: "t1", 31: "t2"}, {"broker-a": 12}), "batches/q.1"),
    (BatchResolved("q.1", 7), "batches/q.1"),
    (BatchQueryForgotten("q.1"), "batches/q.1"),
    (EpochOpened(3, 4_096, "broker-a/0", "SYNC_MASTER"), "replication/epoch"),
    (InSyncChanged((1, 2), (1,), "caught up"), "replication/in-sync"),
    (FilterDeleted(FILTER), "filter/g/com.acme.Late"),
    (FilterRestored(FILTER), "filter/g/com.acme.Late"),
    (UserPut(USER), "user/till"),
    (UserPut(USER, msgspec.structs.replace(USER, enabled=False)), "user/till"),
    (UserDeleted(USER, (POLICY,)), "user/till"),
    (UserSecretSet("till", SealedSecret("k1", b"nonce", b"\x00\xff")), "user/till"),
    (UserPasswordSet("till", SealedSecret("k1", b"nonce", b"\x00\xff")), "user/till"),
    (UserPasswordSet("till"), "user/till"),
    (ApiTokenCreated(TOKEN), "user/till"),
    (ApiTokenRevoked("till", TOKEN.id), "user/till"),
    (PolicyPut(POLICY, msgspec.structs.replace(POLICY, until_ms=None)), "user/till"),
    (PolicyRemoved(POLICY), "user/till"),
    (AccessModeSet(AccessMode.OBSERVE, AccessMode.ENFORCE), "access/mode"),
    (AccessRecovered("control event 7 (UserPut of user/till)"), "access/recovery"),
    (QuotaPut(QUOTA), "quota/user/till"),
    (QuotaPut(QUOTA, msgspec.structs.replace(QUOTA, requests=9)), "quota/user/till"),
    (QuotaRemoved(QUOTA), "quota/user/till"),
]


@pytest.mark.parametrize(("event", "aggregate"), EXAMPLES)
def test_every_event_comes_back_as_it_was(event: Event, aggregate: str):
    cause = Cause("admin:alice", "needed\nmore “queues”", "0af7651916cd43dd8448eb211c80319c")
    body = encode_record_body(event, at_ms=1_700_000_000_123, cause=cause)
    read = decode_record_body(body, offset=7, position=4096)
    assert read.event == event
    assert (read.offset, read.position, read.at_ms) == (7, 4096, 1_700_000_000_123)
    assert Cause(read.actor, read.reason, read.trace_id) == cause
    assert event.aggregate == aggregate
    assert record_properties(event) == {"KEYS": aggregate, "TAGS": type(event).__name__}


def test_an_event_names_the_one_that_it_takes_back():
    body = encode_record_body(EXAMPLES[0][0], at_ms=5, cause=Cause("ann", undoes=4))
    assert body.endswith(b',"undoes":4}')
    assert decode_record_body(body, offset=7, position=0).undoes == 4
    plain = encode_record_body(EXAMPLES[0][0], at_ms=5, cause=Cause("ann"))
    assert b"undoes" not in plain
    assert decode_record_body(plain, offset=7, position=0).undoes is None


def test_every_known_type_has_an_example():
    assert {event.type for event, _ in EXAMPLES} == EVENT_TYPES


def test_the_worked_example_of_the_format_page():
    event = TopicPut(TopicConfig("TopicA", 8, 8), TopicConfig("TopicA", 4, 4))
    body = encode_record_body(
        event,
        at_ms=1_795_228_849_207,
        cause=Cause("admin:alice", "four queues are too few", "0af7651916cd43dd8448eb211c80319c"),
    )
    assert body.decode() == (
        '{"at_ms":1795228849207,"actor":"admin:alice","reason":"four queues are too few",'
        '"trace_id":"0af7651916cd43dd8448eb211c80319c","aggregate":"topic/TopicA",'
        '"event":{"type":"TopicPut","topic":{"name":"TopicA","read_queue_nums":8,'
        '"write_queue_nums":8,"perm":6,"topic_filter_type":"SINGLE_TAG","topic_sys_flag":0,'
        '"order":false},"before":{"name":"TopicA","read_queue_nums":4,"write_queue_nums":4,'
        '"perm":6,"topic_filter_type":"SINGLE_TAG","topic_sys_flag":0,"order":false}}}'
    )


def test_an_event_of_a_newer_version_is_kept_byte_for_byte():
    raw = b'{"type":"LeaseGranted", "epoch":7,  "odd":{"a":[1,2.50]}}'
    body = (
        b'{"at_ms":5,"actor":"b","reason":"","trace_id":"","aggregate":"epoch","event":'
        + raw
        + b"}"
    )
    read = decode_record_body(body, offset=0, position=0)
    assert read.event == UnknownEvent("LeaseGranted", "epoch", raw)
    assert encode_event(read.event) == raw
    again = encode_record_body(read.event, at_ms=5, cause=Cause("b"))
    assert decode_record_body(again, offset=0, position=0) == read


def test_a_field_that_a_newer_version_added_is_passed_over():
    raw = b'{"type":"SettingChanged","name":"n","value":1,"before":null,"scope":"cluster"}'
    assert decode_event(raw, "setting/n") == SettingChanged("n", 1)


# -- users: builds of different ages ---------------------------------------------------------------


class OldRoleGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """RoleGrant as the first build with users had it; the structs below are of that build, too."""

    role: UserRole
    prefix: str = ""
    until_ms: int | None = None


class OldUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without subjects of certificates, and without a mark of imported users."""

    name: str
    kind: str = "service"
    enabled: bool = True
    roles: tuple[OldRoleGrant, ...] = ()
    node: str = ""
    curve_keys: tuple[str, ...] = ()


class OldUserPut(msgspec.Struct, frozen=True, tag="UserPut", tag_field="type"):
    """The event about it."""

    user: OldUser
    before: OldUser | None = None


def test_a_user_that_uses_no_new_field_is_read_by_a_build_without_it() -> None:
    """A replica of the former build refuses fields that it does not know, and takes over."""
    disabled = User(name="till", enabled=False, curve_keys=("x" * 40,))
    read = msgspec.json.decode(encode_event(UserPut(disabled)), type=OldUserPut)
    assert (read.user.enabled, read.user.curve_keys) == (False, ("x" * 40,))


@pytest.mark.parametrize(
    ("event", "where"),
    [
        (UserPut(USER, USER), ("user",)),
        (UserPut(USER, USER), ("before", "roles", 0)),
        (UserDeleted(USER, (POLICY,)), ("policies", 0)),
        (UserSecretSet("till", SealedSecret("k1", b"nonce", b"\x00\xff")), ("secret",)),
        (ApiTokenCreated(TOKEN), ("token",)),
        (ApiTokenCreated(TOKEN), ("token", "scope")),
        (PolicyPut(POLICY), ("policy",)),
    ],
)
def test_a_new_field_of_what_is_stored_about_users_is_passed_over(
    event: Event, where: tuple[str | int, ...]
) -> None:
    fields = msgspec.json.decode(encode_event(event))
    inner = fields
    for step in where:
        inner = inner[step]
    inner["of_a_newer_build"] = {"any": 1}
    assert decode_event(msgspec.json.encode(fields), event.aggregate) == event


@pytest.mark.parametrize(
    ("raw", "aggregate"),
    [
        (b'{"type":"UserPut", "user":{"name":"till","roles":[{"role":"auditor"}]}}', "user/till"),
        (b'{"type":"PolicyPut", "policy":{"id":1}}', "user/till"),
        (b'{"type":"UserSuspended", "user":"till"}', "user/till"),
        (b'{"type":"AccessWindowSet", "hours":[8,18]}', "access/window"),
    ],
)
def test_an_event_about_users_that_cannot_be_read_is_kept_and_told(
    raw: bytes, aggregate: str
) -> None:
    event = decode_event(raw, aggregate)
    assert isinstance(event, UnknownEvent)
    assert event.about_users
    assert encode_event(event) == raw


def test_other_unknown_events_are_not_about_users() -> None:
    assert not UnknownEvent("LeaseGranted", "epoch", b"{}").about_users
    assert not UnknownEvent("UserBase", "users", b"{}").about_users


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"null",
        b'{"type":1}',
        b'{"type":"TopicPut"}',
        b'{"type":"TopicPut","topic":{"name":"a","perm":"six"}}',
        b'{"type":"ProgressRecorded","group":"g","offsets":{"t":{"0":-1}}}',
        b'{"type":"ProgressRecorded","group":"g","offsets":{"t":{"0":9223372036854775808}}}',
        b'{"type":"New","text":"\xff"}',
        b'{"type":"New","deep":' + b"[" * 100_000,
    ],
)
def test_what_is_no_event_raises_decode_error(body: bytes):
    with pytest.raises(DecodeError):
        decode_event(body, "x")
    with pytest.raises(DecodeError):
        decode_record_body(body, offset=0, position=0)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.fuzz
@given(st.sampled_from(EXAMPLES), st.text(max_size=12), _JSON, st.data())
def test_a_changed_event_is_read_or_refused_and_nothing_else(
    example: tuple[Event, str], key: str, value: object, data: st.DataObject
):
    fields = msgspec.json.decode(encode_event(example[0]))
    fields[data.draw(st.sampled_from([*fields, key]))] = value
    body = msgspec.json.encode(fields)
    cut = data.draw(st.integers(0, len(body)))
    for foreign in (body, body[:cut]):
        try:
            decode_event(foreign, "x")
        except DecodeError:
            continue


@pytest.mark.parametrize(
    ("actor", "reason"),
    [
        ("a" * (ACTOR_LENGTH_MAX + 1), ""),
        ("a", "r" * (REASON_LENGTH_MAX + 1)),
        ("a\0b", ""),
        ("a", "\ud800"),
    ],
)
def test_a_cause_has_limits(actor: str, reason: str):
    with pytest.raises(BadRequest):
        Cause(actor, reason)
