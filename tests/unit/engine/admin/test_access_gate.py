"""Who may send a request. What replies and the audit show of it is in the transcripts, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from kourou.access.model import AccessMode
from kourou.access.signature import ACCESS_KEY, SIGNATURE
from kourou.authorization.audit import AccessDecided
from kourou.engine.effects import AskHistory
from kourou.engine.transactions.half_messages import COMMIT
from kourou.errors import Code, NoPermission
from kourou.model.names import CONTROL_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TRACE_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.protocol.bodies.broker_bodies import encode_attempts
from kourou.protocol.bodies.config_bodies import encode_group_config
from kourou.protocol.bodies.heartbeat_body import HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.access import (
    AuthCreateUser,
    AuthDeleteUser,
    AuthGetUser,
    AuthListUser,
    AuthUpdateUser,
    ExplainAccess,
    GetAudit,
    SetAccessMode,
)
from kourou.protocol.messages.broker_admin import (
    DeleteTopicInBroker,
    GetHistory,
    GetStateAt,
    UpdateAndCreateAclConfig,
    UpdateBrokerConfig,
)
from kourou.protocol.messages.filter_server import (
    RegisterFilterServer,
    UnregisterFilterServer,
)
from kourou.protocol.messages.groups import (
    GetConsumeStats,
    HeartBeat,
    QueryConsumeTimeSpan,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import (
    CloneGroupOffset,
    InvokeBrokerToResetOffset,
    PullFlag,
    PullMessage,
    QueryConsumerOffset,
    QueryCorrectionOffset,
    QueryMessage,
    UpdateConsumerOffset,
    ViewMessageById,
)
from kourou.protocol.messages.replication import Attach, Attached, FetchLog, GetLogBeginning
from kourou.protocol.messages.sends import ConsumerSendMsgBack, PrepareBatch, SendRecords, Target
from kourou.protocol.request import Request, RequestSpec
from kourou.protocol.table import REQUESTS
from kourou.runtime import MEMBERS, Disconnected
from kourou_rigs.access import (
    ANYBODY,
    SecuredBroker,
    Sender,
    SignedReplyTo,
    sample_request,
    secret_box,
    send_to,
    signed_fields,
    stored_at,
)
from kourou_rigs.engine import Engine, header_of
from kourou_rigs.transacting import end

TOPICS = ("orders", "secret")
ROOT = Sender(user="root", secret="secret-of-root")
HALF = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01U"


def may(broker: SecuredBroker, sender: Sender, request, *body: bytes) -> bool:
    """True unless the request is refused for lack of a right."""
    return broker.ask(sender, request, *body).code != Code.NO_PERMISSION


def audited(broker: SecuredBroker) -> list[AccessDecided]:
    """What was noted for the audit."""
    return [one for one in broker.engine.effects if isinstance(one, AccessDecided)]


@pytest.mark.fault
@pytest.mark.parametrize(
    "of_topic",
    [
        lambda topic: QueryConsumeTimeSpan(topic=topic, group="own"),
        lambda topic: GetConsumeStats(topic=topic, consumer_group="own"),
        lambda topic: QueryCorrectionOffset(topic=topic, compare_group="own", filter_groups=""),
        lambda topic: InvokeBrokerToResetOffset(topic=topic, group="own", timestamp=-1),
        lambda topic: QueryConsumerOffset(topic=topic, consumer_group="own", queue_id=0),
    ],
    ids=["time span", "lag", "corrections", "reset", "offset"],
)
def test_rights_on_a_group_tell_nothing_of_a_topic(
    broker: SecuredBroker, root: Sender, of_topic: Callable[[str], Request]
) -> None:
    """Neither its timestamps nor its offsets, nor whether there is such a topic."""
    eve = broker.create(root, "eve")
    broker.allow(root, "eve", "Group:own", "Get", "Update", "Sub", "Create")
    group = encode_group_config(GroupConfig("own"))
    assert broker.ask(eve, UpdateAndCreateSubscriptionGroup(), group).code == Code.SUCCESS
    for topic in ("secret", "not-there"):
        refused = broker.ask(eve, of_topic(topic))
        assert refused.code == Code.NO_PERMISSION
        assert f"Get or Sub on Topic:{topic}" in refused.remark
    broker.allow(root, "eve", "Topic:secret", "Sub")
    assert broker.ask(eve, of_topic("secret")).code == Code.SUCCESS


def test_offsets_of_groups_that_the_sender_does_not_see_do_not_count(
    broker: SecuredBroker, root: Sender
) -> None:
    group = encode_group_config(GroupConfig("others"))
    assert broker.ask(root, UpdateAndCreateSubscriptionGroup(), group).code == Code.SUCCESS
    committed = UpdateConsumerOffset(
        consumer_group="others", topic="orders", queue_id=0, commit_offset=7
    )
    assert broker.ask(root, committed).code == Code.SUCCESS
    eve = broker.create(root, "eve")
    broker.allow(root, "eve", "Group:own", "Get")
    broker.allow(root, "eve", "Topic:orders", "Get")
    asked = QueryCorrectionOffset(topic="orders", compare_group="own", filter_groups="")
    shown = [b"".join(map(bytes, broker.ask(one, asked).body)) for one in (root, eve)]
    assert shown == [b'{"correctionOffsets":{"0":7}}', b'{"correctionOffsets":{}}']


# -- who ----------------------------------------------------------------------------------------


def test_a_signature_counts_more_than_the_key_of_the_connection(
    broker: SecuredBroker, root: Sender
) -> None:
    nobody = broker.create(root, "nobody")
    mixed = replace(nobody, key=root.key)
    assert not may(broker, mixed, send_to("orders"), b"x")


def test_what_is_not_what_was_signed_is_refused(broker: SecuredBroker, root: Sender) -> None:
    request, other = send_to("orders", flag=1), send_to("orders", flag=2)
    signed = signed_fields(root, request, b"x")
    assert may(broker, root, request, b"x")
    of_other = signed_fields(root, other, b"x")
    for fields, body in (
        ({**of_other, SIGNATURE: signed[SIGNATURE]}, b"x"),
        (signed, b"y"),
        ({**signed, "extra": "1"}, b"x"),
        ({**signed, SIGNATURE: ""}, b"x"),
        ({**signed, SIGNATURE: (signed[SIGNATURE] or "")[:-4]}, b"x"),
        ({**signed, SIGNATURE: (signed[SIGNATURE] or "").lower()}, b"x"),
        ({name: text for name, text in signed.items() if name != SIGNATURE}, b"x"),
        ({**signed, ACCESS_KEY: None}, b"x"),
    ):
        reply = broker.ask(root, request, body, signed=fields)
        assert reply.remark.startswith("Check signature failed"), fields
    assert len(broker.engine.stored("orders")) == 1


def test_a_shifted_boundary_is_decided_by_the_fields_that_are_handled(
    broker: SecuredBroker, root: Sender
) -> None:
    """The boundaries between values are not signed, so what was parsed must be allowed."""
    user = broker.create(root, "till")
    broker.allow(root, "till", "Group:new", "Update")
    broker.allow(root, "till", "Group:g", "Get")
    signed = CloneGroupOffset(dest_group="new", src_group="g", topic="1orders")
    shifted = CloneGroupOffset(dest_group="new", src_group="g1", topic="orders")
    signature = signed_fields(user, signed)[SIGNATURE]
    assert signature == signed_fields(user, shifted)[SIGNATURE]
    assert may(broker, user, signed)
    assert "no right to Get on Group:g1" in broker.ask(user, shifted).remark


TEXTS = ("", "a/b", "%RETRY%", "%DLQ%", "\x00", "7F0000010000", "Z" * 32, "User:", "user/", "*")
NUMBERS = (-1, 0, 1, -(2**63), 2**63 - 1)
RAW = (b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b"[[" * 3_000)


def test_no_request_brings_the_broker_down(broker: SecuredBroker, root: Sender) -> None:
    """What a request needs is computed before its sender has any right."""
    user = broker.create(root, "writer", "writer", "operator", "filter-author")
    for spec in REQUESTS.values():
        kinds = {name: type(value) for name, value in fields_of(spec).items()}
        for number, body in enumerate(RAW * 2):
            values = {
                name: TEXTS[number % len(TEXTS)] if kind is str else NUMBERS[number % len(NUMBERS)]
                for name, kind in kinds.items()
                if kind in (str, int)
            }
            request = sample_request(spec, values)
            for sender in (ANYBODY, Sender(key=user.key)):
                given = broker.received(sender, request, body)
                broker.engine.core.parts.access_gate.allows(given, [])


def fields_of(spec: RequestSpec) -> dict[str, object]:
    """The required fields of a request, with empty values."""
    return msgspec.structs.asdict(sample_request(spec, {}))


# -- certificates ---------------------------------------------------------------------------------

SUBJECT = "CN=till,OU=Shop,O=Example"


@pytest.fixture
def certified(broker: SecuredBroker, root: Sender) -> Sender:
    """A client with a certificate that belongs to user till."""
    made = broker.create(root, "till", "writer", certificateSubjects=[SUBJECT])
    return replace(made, secret="", key="", subject=SUBJECT)


def test_a_certificate_is_its_user_without_a_signature(
    broker: SecuredBroker, certified: Sender
) -> None:
    assert may(broker, certified, send_to("orders"), b"x")
    assert may(broker, replace(certified, secret="secret-of-till"), send_to("orders"), b"x")
    for other in (
        "CN=till,OU=Bar,O=Example",
        "CN=till",
        "O=Example",
        "CN=Till,OU=Shop,O=Example",  # the case of a value counts
        "CN=till,OU=Shop,O=example",
        r"CN=evil,O=x\,CN=till\,OU=Shop\,O=Example",
        "CN=till,OU=Shop,O=Example,C=DE",
    ):
        stranger = replace(certified, subject=other)
        reply = broker.ask(stranger, send_to("orders"), b"x")
        assert (reply.code, "user anonymous has no right" in reply.remark) == (
            *(Code.NO_PERMISSION, True),
        )


def test_a_subject_that_belongs_to_nobody_leaves_signatures_as_they_are(
    broker: SecuredBroker, root: Sender
) -> None:
    user = replace(broker.create(root, "billing", "writer"), key="", subject="CN=unknown")
    assert may(broker, user, send_to("orders"), b"x")
    assert not may(broker, replace(user, secret="guessed-it"), send_to("orders"), b"x")


@pytest.mark.fault
def test_a_signature_must_be_of_the_owner_of_the_certificate(
    broker: SecuredBroker, root: Sender, certified: Sender
) -> None:
    billing = broker.create(root, "billing", "writer")
    both = replace(billing, key="", subject=certified.subject)
    reply = broker.ask(both, send_to("orders"), b"x")
    assert reply.code == Code.NO_PERMISSION
    assert reply.remark == "the connection's certificate does not belong to user billing"
    wrong = broker.ask(replace(both, secret="guessed-it"), send_to("orders"), b"x")
    assert wrong.remark == "Check signature failed for accessKey=billing"


def test_what_ends_a_certificate_ends_it_on_open_connections(
    broker: SecuredBroker, root: Sender, certified: Sender
) -> None:
    for changed, restored in (
        ({"userStatus": "disable"}, {"userStatus": "enable"}),
        ({"certificateSubjects": []}, {"certificateSubjects": [SUBJECT]}),
        ({"roles": []}, {"roles": ["writer"]}),
    ):
        assert may(broker, certified, send_to("orders"), b"x"), changed
        assert change(broker, root, "till", **changed).code == Code.SUCCESS
        assert not may(broker, certified, send_to("orders"), b"x"), changed
        assert change(broker, root, "till", **restored).code == Code.SUCCESS
    assert broker.ask(root, AuthDeleteUser(username="till")).code == Code.SUCCESS
    assert not may(broker, certified, send_to("orders"), b"x")


def test_who_may_not_give_rights_gives_no_certificates(
    broker: SecuredBroker, root: Sender, certified: Sender
) -> None:
    clerk = broker.create(root, "clerk")
    broker.allow(root, "clerk", "User:*", "Create", "Update")
    assert change(broker, clerk, "till", certificateSubjects=["CN=clerk"]).code != Code.SUCCESS
    assert may(broker, certified, send_to("orders"), b"x")


def waiting_pull() -> PullMessage:
    flags = PullFlag.SUSPEND | PullFlag.SUBSCRIPTION
    return PullMessage(
        consumer_group="g",
        topic="orders",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=int(flags),
        suspend_timeout_millis=60_000,
        subscription="*",
    )


@pytest.mark.fault
@pytest.mark.parametrize(
    "changed", [{"userStatus": "disable"}, {"roles": []}, {"password": "another-secret"}]
)
def test_a_pull_does_not_wait_longer_than_its_right(
    broker: SecuredBroker, root: Sender, changed: dict[str, object]
) -> None:
    """It was allowed when it came; the message that it waits for comes after the change."""
    till = replace(broker.create(root, "till", "writer"), key="")
    broker.engine.advance(100)
    pull = broker.received(till, waiting_pull(), b"x" * 100)
    assert broker.give(pull) == [None]
    broker.engine.advance(100)
    assert (pull.to.peer.id, pull.to.correlation) not in broker.engine.replies, (
        "a tick alone ends nothing"
    )
    assert change(broker, root, "till", **changed).code == Code.SUCCESS
    broker.engine.advance(100)
    reply = broker.engine.replies[pull.to.peer.id, pull.to.correlation]
    assert reply.code == Code.PULL_NOT_FOUND
    assert not reply.body
    assert broker.ask(root, send_to("orders"), b"secret").code == Code.SUCCESS
    assert not may(broker, till, waiting_pull())


@pytest.mark.fault
def test_a_pull_ends_with_a_grant_that_ends(broker: SecuredBroker, root: Sender) -> None:
    guest = broker.create(root, "guest")
    end_ms = broker.engine.wall_ms + 5_000
    broker.allow(root, "guest", "Topic:orders", "Sub", until_ms=end_ms)
    broker.allow(root, "guest", "Group:g", "Sub")
    broker.engine.advance(100)
    pull = broker.received(guest, waiting_pull())
    assert broker.give(pull) == [None]
    broker.engine.advance(1_000)
    assert (pull.to.peer.id, pull.to.correlation) not in broker.engine.replies
    broker.engine.advance(4_000)
    assert broker.engine.replies[pull.to.peer.id, pull.to.correlation].code == Code.PULL_NOT_FOUND


@pytest.mark.fault
def test_a_pull_that_waits_keeps_nothing_large(broker: SecuredBroker, root: Sender) -> None:
    """A client may wait with many pulls, and gives each a body, fields and texts of any size."""
    large = "x" * 100_000
    till = broker.create(root, "till", "writer")
    pull = broker.received(till, waiting_pull(), large.encode())
    dropped: list[bool] = []
    pull.to = DroppingReplyTo(pull.to.peer, 1, signed=pull.to.signed, dropped=dropped)
    assert broker.give(pull) == [None]
    assert dropped == [True]
    assert pull.body == ()


@dataclass(slots=True)
class DroppingReplyTo(SignedReplyTo):
    """Notes that its signed fields may be dropped."""

    dropped: list[bool] = field(default_factory=list)

    def drop_signed(self) -> None:
        self.dropped.append(True)


def change(broker: SecuredBroker, root: Sender, name: str, **fields: object):
    return broker.ask(root, AuthUpdateUser(username=name), msgspec.json.encode(fields))


# -- policies -------------------------------------------------------------------------------------


def test_every_user_writes_traces_and_nobody_reads_them_so(
    broker: SecuredBroker, root: Sender
) -> None:
    topic = broker.engine.control.topics.table["orders"]
    broker.engine.control.topics.table[TRACE_TOPIC] = replace(topic, name=TRACE_TOPIC)
    user = broker.create(root, "till")
    assert may(broker, user, send_to(TRACE_TOPIC), b"x")
    assert not may(broker, ANYBODY, send_to(TRACE_TOPIC), b"x")
    query = QueryMessage(topic=TRACE_TOPIC, key="k", max_num=1, begin_timestamp=0, end_timestamp=1)
    assert not may(broker, user, query)


OPEN_TO_ANONYMOUS = {
    "HEART_BEAT",
    "UNREGISTER_CLIENT",
    # what the handlers decide
    "GET_ALL_TOPIC_CONFIG",
    "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
    "GET_ALL_CONSUMER_OFFSET",
    "GET_BROKER_CONSUME_STATS",
    "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
    "GET_TOPICS_BY_CLUSTER",
    "GET_UNIT_TOPIC_LIST",
    "GET_HAS_UNIT_SUB_TOPIC_LIST",
    "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST",
    "GET_BATCH_STATE",
    "PREPARE_BATCH",
    "DECIDE_BATCH",
    "RESOLVE_BATCH",
}


def test_a_policy_for_clients_without_credentials_opens_what_they_need(
    broker: SecuredBroker, root: Sender
) -> None:
    """With a policy about one topic, not every request that any user may send."""
    broker.allow(root, "anonymous", "Topic:orders", "Sub")
    gate = broker.engine.core.parts.access_gate
    beat = encode_heartbeat(HeartbeatBody("c", ("p",)))
    admitted = set[str]()
    for spec in REQUESTS.values():
        request = sample_request(spec, {"topic": "secret"})
        body = beat if isinstance(request, HeartBeat) else b""
        if gate.allows(broker.received(ANYBODY, request, body), []):
            admitted.add(spec.name)
    assert admitted == OPEN_TO_ANONYMOUS


def test_clients_without_credentials_write_traces_only_by_a_policy(
    broker: SecuredBroker, root: Sender
) -> None:
    broker.engine.control.topics.table[TRACE_TOPIC] = TopicConfig(TRACE_TOPIC, 1, 1)
    gate = broker.engine.core.parts.access_gate
    both = SendRecords(
        targets=[Target("orders", 0), Target(TRACE_TOPIC, 0)], sizes=b"", producer_group="p"
    )
    broker.allow(root, "anonymous", "Topic:orders", "Pub")
    assert may(broker, ANYBODY, send_to("orders"), b"x")
    assert not may(broker, ANYBODY, send_to(TRACE_TOPIC), b"x")
    assert not gate.allows(broker.received(ANYBODY, both), [])
    broker.allow(root, "anonymous", f"Topic:{TRACE_TOPIC}", "Pub")
    assert may(broker, ANYBODY, send_to(TRACE_TOPIC), b"x")
    assert gate.allows(broker.received(ANYBODY, both), [])


# -- the message that a request names -------------------------------------------------------------


@pytest.fixture
def till(broker: SecuredBroker, root: Sender) -> Sender:
    """A user who may do with `orders` and the group g what clients do, and with nothing else."""
    user = broker.create(root, "till")
    broker.allow(root, "till", "Topic:orders", "Pub", "Sub")
    broker.allow(root, "till", "Group:g", "Sub")
    return user


def test_the_end_of_a_transaction_may_come_before_the_message_is_in_a_file(
    broker: SecuredBroker, till: Sender
) -> None:
    half = send_to("orders", sys_flag=4, properties=HALF)
    dispatch, broker.engine.store.dispatch = broker.engine.store.dispatch, list
    assert broker.ask(till, half, b"x").code == Code.SUCCESS
    position, raw = broker.engine.store.records.popitem()
    assert may(broker, till, end((0, position), COMMIT, group="p"))
    broker.engine.store.records[position] = raw
    broker.engine.store.dispatch = dispatch


def test_a_half_message_is_shown_only_to_producers_who_may_send_to_its_topic(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    """Every client can say that it is a producer of any group."""
    born_ms = broker.engine.wall_ms
    half = send_to("orders", sys_flag=4, properties=HALF, born_timestamp=born_ms)
    assert broker.ask(till, half, b"content").code == Code.SUCCESS
    stranger = broker.create(root, "stranger", "reader")
    beats = {
        name: broker.received(sender, HeartBeat(), encode_heartbeat(HeartbeatBody(name, ("p",))))
        for name, sender in (("stranger", stranger), ("anonymous", ANYBODY), ("till", till))
    }
    for name, shown in (("stranger", []), ("anonymous", []), ("till", ["till"])):
        broker.give(beats[name])
        broker.engine.notices.clear()
        broker.engine.advance(60_000)
        peers = [one.peer for one in broker.engine.notices]
        assert [name for name, beat in beats.items() if beat.to.peer in peers] == shown


def test_ends_of_transactions_in_one_batch_are_decided_one_by_one(
    broker: SecuredBroker, root: Sender, till: Sender
) -> None:
    for number, topic in enumerate(("orders", "secret", "orders")):
        properties = f"{HALF}{number}"
        assert broker.ask(root, send_to(topic, sys_flag=4, properties=properties), b"x").code == 0
    halves = broker.engine.stored(HALF_TOPIC)
    ends = [end((one.offset, one.position), COMMIT, group="p") for one in halves]
    replies = broker.give(*(broker.received(till, one) for one in ends))
    codes = [None if reply is None else reply.code for reply in replies]
    assert codes == [Code.SUCCESS, Code.NO_PERMISSION, Code.SUCCESS]
    assert [len(broker.engine.stored(name)) for name in TOPICS] == [2, 0]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_delayed_message_is_decided_by_where_it_goes(
    broker: SecuredBroker, root: Sender, till: Sender, topic: str
) -> None:
    assert broker.ask(root, send_to(topic, properties="DELAY\x013"), b"x").code == Code.SUCCESS
    [stored] = broker.engine.stored(SCHEDULE_TOPIC, 2)
    assert may(broker, till, ViewMessageById(offset=stored.position)) is (topic == "orders")


@pytest.mark.parametrize("kind", ["DELAY\x013", HALF])
@pytest.mark.parametrize(
    "form", ["{real}\x02{kind}", "{kind}\x02{real}", "{real}\x02{kind}\x02{real}"]
)
def test_a_sender_cannot_name_the_topic_where_a_message_goes_later(
    broker: SecuredBroker, till: Sender, kind: str, form: str
) -> None:
    real = "REAL_TOPIC\x01secret\x02REAL_QID\x010"
    properties = form.format(kind=kind, real=real)
    request = send_to("orders", properties=properties, born_timestamp=broker.engine.wall_ms)
    assert broker.ask(till, request, b"x").code == Code.SUCCESS
    moved = broker.engine.stored(SCHEDULE_TOPIC, 2) + broker.engine.stored(HALF_TOPIC)
    for stored in moved:
        broker.ask(till, end((stored.offset, stored.position), COMMIT, group="p"))
    broker.engine.advance(60_000)
    assert len(moved) == len(broker.engine.stored("orders")) == 1
    assert broker.engine.stored("secret") == []


@pytest.mark.parametrize(
    ("topic", "group", "allowed"),
    [
        ("orders", "g", True),
        ("orders", "h", False),
        ("%RETRY%g", "g", True),
        ("%RETRY%h", "g", False),
        ("%DLQ%g", "g", True),
        ("%DLQ%h", "g", False),
        ("secret", "g", False),
    ],
)
def test_a_message_is_sent_back_only_by_its_group_and_from_its_topic(
    broker: SecuredBroker, root: Sender, till: Sender, topic: str, group: str, *, allowed: bool
) -> None:
    for name in ("g", "h"):
        body = encode_group_config(GroupConfig(name))
        assert broker.ask(root, UpdateAndCreateSubscriptionGroup(), body).code == Code.SUCCESS
    broker.engine.control.topics.table.setdefault(topic, TopicConfig(topic, 1, 1))
    assert broker.ask(root, send_to(topic), b"x").code == Code.SUCCESS
    end_of_log = broker.engine.store.end
    back = ConsumerSendMsgBack(offset=stored_at(broker, topic), group=group, delay_level=0)
    assert may(broker, till, back) is allowed
    assert (broker.engine.store.end > end_of_log) is allowed


def test_a_denied_topic_cannot_be_read_in_the_topics_of_the_broker(
    broker: SecuredBroker, root: Sender
) -> None:
    user = broker.create(root, "reader-of-all", "writer")

    def pull(topic: str) -> PullMessage:
        return PullMessage(
            consumer_group="g", topic=topic, queue_id=0, queue_offset=0, max_msg_nums=1
        )

    assert may(broker, user, pull(HALF_TOPIC))
    broker.allow(root, "reader-of-all", "Topic:secret", "Sub", effect="deny")
    assert may(broker, user, pull("orders"))
    for name in (HALF_TOPIC, SCHEDULE_TOPIC, "rmq_sys_kourou_control"):
        assert not may(broker, user, pull(name))


@pytest.mark.fault
def test_names_that_no_resource_can_have_are_refused_and_not_kept(
    broker: SecuredBroker, root: Sender
) -> None:
    """Decisions and refusals are remembered, so names in them must not be of any length."""
    user = broker.create(root, "all", "writer", "operator")
    long = "x" * 200_000
    gate = broker.engine.core.parts.access_gate
    for sender in (ANYBODY, Sender(user=long, secret="s"), user, root):
        for request in (
            send_to(long),
            QueryMessage(
                topic=long, key="k", max_num=1, begin_timestamp=0, end_timestamp=2**63 - 1
            ),
            PullMessage(consumer_group=long, topic="t", queue_id=0, queue_offset=0, max_msg_nums=1),
        ):
            reply = broker.ask(sender, request, b"x")
            assert reply.code == Code.NO_PERMISSION
            assert len(reply.remark) < 500
    assert "at most 256 are allowed" in reply.remark
    kept = [one for refusal in gate.refusals() for one in msgspec.structs.astuple(refusal)]
    assert max(len(one) for one in kept if isinstance(one, str)) < 500
    noted = [one for one in broker.engine.effects if isinstance(one, AccessDecided)]
    assert max(len(one.need) + len(one.by) for one in noted) < 1_000
    assert not any(long in repr(one) for one in gate.authorizer._decisions)


# -- observing, counting, and what is not decided -------------------------------------------------


def reads_of_users(broker: SecuredBroker) -> list[Request]:
    """Requests whose replies have users with their credentials, encrypted or not."""
    position = stored_at(broker, CONTROL_TOPIC)
    known = {"topic": CONTROL_TOPIC, "consumer_group": "g", "max_msg_nums": 32}
    return [
        sample_request(REQUESTS[PullMessage.code], known),
        QueryMessage(
            topic=CONTROL_TOPIC,
            key="user/root",
            max_num=9,
            begin_timestamp=0,
            end_timestamp=1 << 50,
        ),
        ViewMessageById(offset=position),
        ConsumerSendMsgBack(offset=position, group="g", delay_level=0),
        FetchLog(group="broker-a", position=0, max_bytes=1 << 20),
        GetLogBeginning(group="broker-a"),
        GetHistory(aggregate="user/root", max_count=9),
        GetStateAt(aggregate="user/root"),
        AuthGetUser(username="root"),
    ]


@pytest.mark.parametrize("mode", list(AccessMode))
def test_nobody_without_a_right_to_users_copies_them_in_any_mode(
    broker: SecuredBroker, root: Sender, console: Sender, mode: AccessMode
) -> None:
    reader = broker.create(root, "reader", "viewer", "writer", "operator")
    copying = broker.create(root, "copying", "backup", "writer")
    assert broker.ask(root, send_to("orders"), b"x").code == Code.SUCCESS
    assert broker.ask(root, SetAccessMode(mode=mode)).code == Code.SUCCESS
    gate = broker.engine.core.parts.access_gate
    senders = [(one, "") for one in (ANYBODY, replace(reader, secret=""), reader)]
    senders += [
        (replace(root, secret="a-wrong-secret"), ""),
        (console, "root"),
        (console, "reader"),
    ]
    for request in reads_of_users(broker):
        for sender, named in senders:
            reply = broker.ask(sender, request, on_behalf_of=named)
            assert reply.code == Code.NO_PERMISSION, (type(request), sender)
            assert not reply.body
        assert gate.allows(broker.received(copying, request), []), type(request)
    if mode is not AccessMode.ENFORCE:
        assert may(broker, ANYBODY, ViewMessageById(offset=stored_at(broker, "orders")))


@pytest.mark.parametrize("mode", list(AccessMode))
def test_who_asks_for_rights_on_users_gets_the_same_answer_in_every_mode(
    broker: SecuredBroker, root: Sender, console: Sender, mode: AccessMode
) -> None:
    reader = replace(broker.create(root, "reader", "operator"), secret="")
    assert broker.ask(root, SetAccessMode(mode=mode)).code == Code.SUCCESS
    question = ExplainAccess(username="", action="List", resource="User:*")
    for sender, named, allowed in (
        (reader, "", False),
        (console, "reader", False),
        (console, "root", True),
        (replace(root, secret=""), "", True),
    ):
        answer = header_of(broker.ask(sender, question, on_behalf_of=named))
        assert answer.allowed is allowed, (sender, named)


@pytest.mark.parametrize("mode", list(AccessMode))
def test_the_handler_of_states_checks_the_right_to_a_user_itself(
    broker: SecuredBroker, root: Sender, mode: AccessMode
) -> None:
    clerk = broker.create(root, "clerk")
    broker.allow(root, "clerk", "User:till", "Get")
    assert broker.ask(root, SetAccessMode(mode=mode)).code == Code.SUCCESS
    handle = broker.engine.core.parts.history.state_at
    for sender, name, expected in (
        (ANYBODY, "till", False),
        (clerk, "till", True),
        (clerk, "root", False),
        (root, "root", True),
    ):
        request = GetStateAt(aggregate=f"user/{name}")
        received = broker.received(sender, request)
        if expected:
            assert handle(0, received, request)
            continue
        with pytest.raises(NoPermission, match=f"no right to Get on User:{name}"):
            handle(0, received, request)


def test_a_filter_server_registers_at_its_own_broker_and_only_as_itself(
    broker: SecuredBroker, root: Sender
) -> None:
    nodes = {
        name: replace(broker.create(root, name, kind="node", node=node), secret="")
        for name, node in (
            ("fs-1", "DefaultCluster/broker-a/fs-1"),
            ("fs-2", "DefaultCluster/broker-a/fs-2"),
            ("elsewhere", "DefaultCluster/broker-a2/0"),
            ("other-cluster", "Other/broker-a/0"),
            ("nowhere", "fs-1"),
        )
    }
    register = RegisterFilterServer(filter_server_addr="f1:1", listeners={"zmq:internal": "f1:1"})
    own = broker.received(nodes["fs-1"], register)
    assert [reply.code for reply in broker.give(own) if reply is not None] == [Code.SUCCESS]
    for name in ("elsewhere", "other-cluster", "nowhere"):
        for request in (register, UnregisterFilterServer(filter_server_addr="f1:1")):
            reply = broker.ask(nodes[name], request)
            assert (reply.code, reply.remark) == (
                Code.NO_PERMISSION,
                f"user {name} is the node {broker.access.users[name].node}, and this is "
                "DefaultCluster/broker-a/",
            )
    taken = broker.ask(nodes["fs-2"], register)
    assert (taken.code, taken.remark) == (
        Code.NO_PERMISSION,
        "another user has registered the filter server f1:1 "
        "(give each filter server an address of its own)",
    )
    broker.ask(nodes["fs-2"], UnregisterFilterServer(filter_server_addr="f1:1"))
    servers = broker.engine.core.parts.filter_servers
    assert [(one.address, one.peer, one.user) for one in servers] == [("f1:1", own.to.peer, "fs-1")]
    broker.engine.handle(Disconnected(own.to.peer))
    assert broker.ask(nodes["fs-2"], register).code == Code.SUCCESS, "the address is free again"


# -- the listener for replicas --------------------------------------------------------------------


REPLICA = Sender(protocol="zmq", listener=MEMBERS, key="r" * 40)
FETCH = FetchLog(group="broker-a", position=0, max_bytes=1_000)
ATTACH = Attach(cluster="DefaultCluster", broker_name="broker-a", broker_id=1)
OF_STRANGERS: tuple[tuple[Request, bytes], ...] = (
    (FETCH, b""),
    (GetLogBeginning(group="broker-a"), b""),
    (ATTACH, b""),
    (UpdateBrokerConfig(), b"brokerPermission=2"),
    (DeleteTopicInBroker(topic="orders"), b""),
    (AuthListUser(), b""),
    (send_to("orders"), b"x"),
)


@pytest.mark.parametrize("mode", list(AccessMode))
def test_who_may_be_anybody_gets_nothing_on_the_listener_for_replicas(
    broker: SecuredBroker, root: Sender, mode: AccessMode
) -> None:
    """In every mode, because the log contains the users."""
    assert broker.ask(root, SetAccessMode(mode=mode)).code == Code.SUCCESS
    events = len(broker.engine.events())
    for request, body in OF_STRANGERS:
        for named in ("", "root//127.0.0.1/zmq", "root"):
            reply = broker.ask(REPLICA, request, body, on_behalf_of=named)
            assert reply.code == Code.NO_PERMISSION, request
            assert "curveMembers does not name the keys" in reply.remark
    assert (len(broker.engine.events()), broker.engine.stored("orders")) == (events, [])
    noted = [one for one in audited(broker) if not one.allowed]
    assert {(one.user, one.handled) for one in noted} == {("anonymous", False)}


def test_without_users_the_listener_for_replicas_serves_everybody(broker: SecuredBroker) -> None:
    assert broker.ask(REPLICA, FETCH).code != Code.NO_PERMISSION
    assert broker.ask(REPLICA, send_to("orders"), b"x").code == Code.SUCCESS


def test_a_follower_whose_key_is_not_known_is_told_why() -> None:
    broker = SecuredBroker(Engine(leads=True, secrets=secret_box()))
    broker.administrator()
    broker.give(broker.received(REPLICA, ATTACH, oneway=True))
    [notice] = broker.engine.notices
    assert isinstance(notice.request, Attached)
    assert (notice.request.broker_name, notice.request.broker_id) == ("broker-a", 1)
    assert "curveMembers does not name the keys" in notice.request.refusal
    assert broker.engine.core.role.followers == []


@pytest.mark.parametrize("knows", [False, True])
def test_a_log_with_replicas_gets_users_only_if_their_keys_are_known(knows: bool) -> None:
    """Otherwise its replication would stop with the first user."""
    broker = SecuredBroker(Engine(leads=True, secrets=secret_box(), knows_replicas=knows))
    broker.give(broker.received(REPLICA, ATTACH, oneway=True))
    body = msgspec.json.encode({"userType": "Super", "password": "a-secret-of-root"})
    made = broker.ask(ANYBODY, AuthCreateUser(username="root"), body)
    account = UpdateAndCreateAclConfig(
        access_key="root-two", secret_key="a-secret-of-root", admin=True
    )
    second = broker.ask(replace(ROOT, secret="a-secret-of-root") if knows else ANYBODY, account)
    assert (made.code == Code.SUCCESS, second.code == Code.SUCCESS) == (knows, knows)
    assert set(broker.access.users) == ({"root", "root-two"} if knows else set())
    if not knows:
        for reply in (made, second):
            assert "the first user cannot be created" in reply.remark
            assert "set curveMembers to a folder with the public keys" in reply.remark


@pytest.fixture
def group() -> SecuredBroker:
    """A broker that knows the keys of its replicas, with two topics, and root and till."""
    made = SecuredBroker(Engine(secrets=secret_box(), knows_replicas=True))
    made.create_topics(*TOPICS)
    root = made.administrator()
    made.create(root, "till")
    made.allow(root, "till", "Topic:orders*", "Pub", "Create", networks=("10.0.0.0/8",))
    return made


def test_replicas_copy_the_log_and_send_nothing_of_their_own(group: SecuredBroker) -> None:
    assert group.ask(REPLICA, FETCH).code != Code.NO_PERMISSION
    for request, body in OF_STRANGERS[3:]:
        for named in ("", "root", "root/", "a/b/c/d/e", "nobody//10.1.1.1/zmq", "//10.1.1.1/zmq"):
            reply = group.ask(REPLICA, request, body, on_behalf_of=named)
            assert reply.code == Code.NO_PERMISSION, (request, named)
    assert group.engine.stored("orders") == []


def test_a_forwarded_request_is_decided_and_recorded_as_its_users(group: SecuredBroker) -> None:
    sent = group.ask(REPLICA, send_to("orders-2"), b"x", on_behalf_of="till//10.1.2.3/zmq")
    assert sent.code == Code.SUCCESS, sent.remark
    actors = [one.actor for one in group.events() if one.event.aggregate == "topic/orders-2"]
    assert actors == ["User:till"]
    for named in ("till//192.0.2.1/zmq", "till///zmq", "till//no-address/tcp"):
        reply = group.ask(REPLICA, send_to("orders"), b"x", on_behalf_of=named)
        assert "user till has no right to Pub on Topic:orders" in reply.remark, named
    group.engine.effects.clear()
    group.ask(REPLICA, send_to("secret"), b"x", on_behalf_of="till//10.1.2.3/zmq")
    [noted] = [one for one in group.engine.effects if isinstance(one, AccessDecided)]
    assert (noted.user, noted.source, noted.door) == ("till", "10.1.2.3", "zeromq")


def test_a_forwarded_request_has_the_mode_of_the_door_where_it_came_in(
    group: SecuredBroker,
) -> None:
    group.create(ROOT, "console-1", "console")
    for door, origin in (
        ("remoting", "till//192.0.2.1/tcp"),
        ("zeromq", "//192.0.2.1/zmq"),
        ("http", "console-1/till/192.0.2.1/zmq"),
    ):
        for mode in ("observe", "off", "enforce"):
            assert group.ask(ROOT, SetAccessMode(mode=mode, door=door)).code == Code.SUCCESS
            reply = group.ask(REPLICA, send_to("secret"), b"x", on_behalf_of=origin)
            assert (reply.code == Code.SUCCESS) == (mode != "enforce"), (door, mode)


def test_a_forwarded_batch_belongs_to_the_user_who_prepared_it(group: SecuredBroker) -> None:
    prepare = PrepareBatch(query="q-1", batch=0, coordinator="broker-a")
    reply = group.ask(REPLICA, prepare, encode_attempts({}), on_behalf_of="till//10.1.2.3/zmq")
    assert reply.code == Code.SUCCESS, reply.remark
    assert group.engine.control.batches.table["q-1"].user == "till"
    group.create(ROOT, "rival")
    again = msgspec.structs.replace(prepare, batch=1)
    refused = group.ask(REPLICA, again, encode_attempts({}), on_behalf_of="rival//10.1.2.3/zmq")
    assert "no batch of query q-1 was prepared by user rival" in refused.remark


def test_a_forwarded_request_of_a_console_is_decided_again(group: SecuredBroker) -> None:
    group.create(ROOT, "console-1", "console")
    group.create(ROOT, "writer", "writer", "operator")
    origin = "console-1/writer/10.1.2.3/zmq"
    sent = group.ask(REPLICA, send_to("orders-3"), b"x", on_behalf_of=origin)
    assert sent.code == Code.SUCCESS, sent.remark
    actors = [one.actor for one in group.events() if one.event.aggregate == "topic/orders-3"]
    assert actors == ["User:writer through User:console-1"]
    for origin, text in (
        ("writer/till/10.1.2.3/zmq", "user writer may not send on behalf of user till"),
        ("console-1/nobody/10.1.2.3/zmq", "user nobody cannot sign in"),
    ):
        reply = group.ask(REPLICA, send_to("orders"), b"x", on_behalf_of=origin)
        assert (reply.code, reply.remark) == (Code.NO_PERMISSION, text)
    assert change(group, ROOT, "console-1", roles=[]).code == Code.SUCCESS
    reply = group.ask(
        REPLICA, send_to("orders"), b"x", on_behalf_of="console-1/writer/10.1.2.3/zmq"
    )
    assert reply.remark == "user console-1 may not send on behalf of user writer"


def test_only_the_listener_for_replicas_takes_an_origin(
    broker: SecuredBroker, root: Sender, till: Sender, console: Sender
) -> None:
    for sender in (till, root, console):
        named = "root//127.0.0.1/zmq"
        reply = broker.ask(replace(sender, secret=""), send_to("orders"), b"x", on_behalf_of=named)
        assert reply.code == Code.NO_PERMISSION
    assert broker.engine.stored("orders") == []


# -- consoles: requests on behalf of users --------------------------------------------------------


@pytest.fixture
def console(broker: SecuredBroker, root: Sender) -> Sender:
    """A console, which sends with its CURVE key."""
    return replace(broker.create(root, "console-1", "console"), secret="")


def test_a_console_sees_no_users_in_the_history_of_an_administrator(
    broker: SecuredBroker, root: Sender, console: Sender
) -> None:
    gate = broker.engine.core.parts.access_gate
    for sender, named, sees in ((root, "", True), (console, "root", False)):
        asked = broker.received(sender, GetHistory(max_count=1), on_behalf_of=named)
        assert gate.allows(asked, [])
        assert gate.may_see_users(asked) == sees


def test_a_console_shows_the_audit_to_administrators_only(
    broker: SecuredBroker, root: Sender, console: Sender, till: Sender
) -> None:
    broker.give(broker.received(console, GetAudit(), on_behalf_of="root"))
    assert any(isinstance(one, AskHistory) for one in broker.engine.effects)
    reply = broker.ask(console, GetAudit(), on_behalf_of="till")
    assert "user till has no right to List on User:" in reply.remark
    assert broker.ask(console, GetAudit()).code == Code.NO_PERMISSION


def test_what_a_console_refuses_for_lack_of_a_right_is_noted(
    broker: SecuredBroker, root: Sender, console: Sender, till: Sender
) -> None:
    """It asks the broker about its user; a question about somebody refuses nothing."""
    broker.engine.effects.clear()
    for request, sender, user in (
        (ExplainAccess(username="", action="Get", resource="Cluster:*"), console, "till"),
        (ExplainAccess(username="", action="Pub", resource="Topic:orders"), console, "till"),
        (ExplainAccess(username="", action="Get", resource="Cluster:*"), till, ""),
        (ExplainAccess(username="till", action="Get", resource="Cluster:*"), root, ""),
    ):
        assert broker.ask(sender, request, on_behalf_of=user).code == Code.SUCCESS
    long = ExplainAccess(username="", action="Pub", resource=f"Topic:{'x' * 10_000}")
    assert "at most 256 are allowed" in broker.ask(console, long, on_behalf_of="till").remark
    [noted] = audited(broker)
    assert (noted.user, noted.console, noted.request) == ("till", "console-1", "ExplainAccess")
    assert (noted.allowed, noted.need) == (False, "Get on Cluster:")


def test_half_messages_are_shown_to_a_console_of_a_user_who_may_send(
    broker: SecuredBroker, root: Sender, console: Sender, till: Sender
) -> None:
    broker.create(root, "stranger", "reader")
    broker.allow(root, "till", "Topic:orders", "Pub", "Sub", networks=("127.0.0.0/8",))
    for name in ("stranger", "till"):
        beat = encode_heartbeat(HeartbeatBody(name, ("p",)))
        assert broker.ask(console, HeartBeat(), beat, on_behalf_of=name).code == Code.SUCCESS
    parts = broker.engine.core.parts
    members = {one.user: one for one in parts.context.members.producers("p")}
    now = broker.engine.wall_ms
    assert not parts.access_gate.may_know(members["stranger"], "orders", now)
    assert not parts.access_gate.may_know(members["till"], "orders", now)
    broker.allow(root, "till", "Topic:orders", "Pub")
    assert parts.access_gate.may_know(members["till"], "orders", now)
    by_key = replace(root, secret="")
    assert broker.ask(by_key, SetAccessMode(mode="observe", door="http")).code == Code.SUCCESS
    assert parts.access_gate.may_know(members["stranger"], "orders", now)
