"""A sender over its quota waits, or is refused for a moment; more is in the transcript."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.engine.admin import quota_gate
from kourou.engine.admin.quota_gate import LimitKey, QuotaOutcome, RateLimiter, UserConnections
from kourou.engine.control import ControlState, decode_state, encode_state, evolve
from kourou.errors import Code
from kourou.model.limits import QUOTA_BURST_MS, QUOTA_DEBT_MS_MAX, QUOTA_DEBTS_MIN
from kourou.model.quota import QuotaKind, QuotaUnit
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.access import SetAccessMode
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker
from kourou.protocol.messages.groups import (
    DeleteSubscriptionGroup,
    HeartBeat,
    UnregisterClient,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import GetMaxOffset, UpdateConsumerOffset
from kourou.protocol.messages.quotas import FlowControlled, ListQuotas, RemoveQuota, SetQuota
from kourou.protocol.messages.replication import FetchLog
from kourou.protocol.messages.sends import SendRecords
from kourou.protocol.record.layout import encode_batch
from kourou.runtime import MEMBERS, Peer, Received, Reply, user_of_actor
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, new_topic, secret_box, send_to
from kourou_rigs.engine import Engine, pull

KEY = LimitKey(QuotaKind.USER, "till", QuotaUnit.PUBLISH_BYTES)


def topic(engine: Engine, name: str = "orders") -> None:
    assert engine.ask(new_topic(name)).code == Code.SUCCESS


def limit(engine: Engine, kind: str, name: str, **limits: int) -> None:
    reply = engine.ask(SetQuota(kind=kind, name=name, **limits))
    assert reply.code == Code.SUCCESS, reply.remark


@pytest.fixture
def orders(engine: Engine) -> Engine:
    """A broker whose topic `orders` may get 10 messages a second; its group `g` is not limited."""
    topic(engine)
    group = b'{"groupName":"g"}'
    assert engine.ask(UpdateAndCreateSubscriptionGroup(), group).code == Code.SUCCESS
    limit(engine, "topic", "orders", publish_messages=10)
    return engine


def counted(engine: Engine) -> dict[tuple[str, str], int]:
    counts = engine.core.parts.quota_gate.counts
    return {(unit.value, outcome.value): n for (unit, outcome), n in counts.items() if n}


# -- the limiter ----------------------------------------------------------------------------------


@given(
    st.integers(1, 5_000),
    st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 20_000)), min_size=1, max_size=60),
)
def test_no_time_has_more_than_limit_burst_and_debt(
    per_s: int, requests: list[tuple[int, int]]
) -> None:
    """In any window: what was admitted, without the request with which the key went over."""
    limiter, now_ms = RateLimiter(), 0
    admitted: list[tuple[int, int]] = []
    for pause_ms, amount in requests:
        now_ms += pause_ms
        if limiter.owes_ms(now_ms, KEY) <= QUOTA_DEBT_MS_MAX:
            limiter.charge(now_ms, KEY, amount, per_s)
            admitted.append((now_ms, amount))
    for first, last in itertools.combinations_with_replacement(range(len(admitted)), 2):
        window_ms = admitted[last][0] - admitted[first][0]
        used = sum(amount for _, amount in admitted[first:last])
        assert used <= per_s * (window_ms + QUOTA_BURST_MS + QUOTA_DEBT_MS_MAX) / 1_000 + 1e-6


@given(st.integers(1, 5_000), st.lists(st.integers(0, 500), max_size=30))
def test_who_stays_below_the_limit_never_owes(per_s: int, pauses: list[int]) -> None:
    limiter, now_ms = RateLimiter(), 0
    for pause_ms in pauses:
        now_ms += pause_ms
        limiter.charge(now_ms, KEY, per_s * pause_ms // 1_000, per_s)
        assert limiter.owes_ms(now_ms, KEY) == 0


def test_keys_that_have_paid_are_forgotten() -> None:
    limiter = RateLimiter()
    limiter.charge(0, KEY, 10**6, 1)
    for number in range(10 * QUOTA_DEBTS_MIN):
        limiter.charge(10 * number, KEY._replace(name=str(number)), 1, 1_000)
    assert len(limiter) <= QUOTA_DEBTS_MIN
    assert limiter.owes_ms(10 * number, KEY) > 0


# -- sends ----------------------------------------------------------------------------------------


def test_a_refused_send_succeeds_when_the_broker_says(orders: Engine) -> None:
    for _ in range(21):
        orders.send(send_to("orders"), b"x")
    orders.advance(99)
    assert orders.ask(send_to("orders"), b"x").code == Code.FLOW_CONTROL
    assert counted(orders) == {
        ("publish_messages", "delayed"): 11,
        ("publish_messages", "refused"): 1,
    }
    orders.advance(1)
    late = orders.send(send_to("orders"), b"x")
    orders.advance(1_000)
    assert orders.replies[late].code == Code.SUCCESS
    assert len(orders.stored("orders")) == 22


def test_what_is_refused_costs_nothing(orders: Engine) -> None:
    for _ in range(500):
        orders.send(send_to("orders"), b"x")
    orders.advance(2_100)
    assert orders.ask(send_to("orders"), b"x").code == Code.SUCCESS


def test_a_reply_waits_for_a_third_of_its_time_at_most(orders: Engine) -> None:
    for _ in range(15):
        orders.send(send_to("orders"), b"x")
    name = orders.send(send_to("orders"), b"x", deadline_ms=orders.now_ms + 150)
    orders.advance(49)
    assert name not in orders.replies
    orders.advance(1)
    assert orders.replies[name].code == Code.SUCCESS


def test_a_one_way_send_over_the_quota_is_dropped_and_counted(orders: Engine) -> None:
    for _ in range(30):
        _, received = orders.received(send_to("orders"), b"x")
        received.to.oneway = True
        orders.handle(received)
    assert len(orders.stored("orders")) == 21
    assert counted(orders) == {("publish_messages", "dropped"): 9}


def test_a_frame_is_charged_to_each_of_its_topics(
    orders: Engine, draft: Callable[..., bytes], records: Callable[..., tuple[SendRecords, bytes]]
) -> None:
    topic(orders, "bills")
    drafts = [draft(topic="bills")] * 3 + [draft()] * 8
    request, body = records(drafts, [("bills", 0), ("orders", 0)], [0] * 3 + [1] * 8)
    assert orders.ask(request, body).code == Code.SUCCESS
    name = orders.send(*records([draft()] * 3))
    orders.advance(99)
    assert name not in orders.replies, "11 messages to orders, not 14"
    orders.advance(1)
    assert orders.replies[name].code == Code.SUCCESS
    assert orders.ask(*records([draft(topic="bills")], [("bills", 0)])).code == Code.SUCCESS


def test_the_messages_of_a_batch_count_one_by_one(orders: Engine) -> None:
    batch = encode_batch([(0, b"x", b"") for _ in range(12)])
    name = orders.send(send_to("orders", batch=True), batch)
    assert len(orders.stored("orders")) == 12
    orders.advance(199)
    assert name not in orders.replies
    orders.advance(1)
    assert orders.replies[name].code == Code.SUCCESS
    for broken in (b"", b"\x00", b"\xff" * 9, bytes(1_000)):
        assert orders.ask(send_to("orders", batch=True), broken).code != Code.SUCCESS


def test_sends_of_one_turn_are_decided_one_by_one(orders: Engine) -> None:
    turn = [orders.received(send_to("orders"), b"x") for _ in range(30)]
    orders.handle(*(received for _, received in turn))
    assert len(orders.stored("orders")) == 21
    replied = [orders.replies[name].code for name, _ in turn if name in orders.replies]
    assert sorted(replied) == [Code.SUCCESS] * 10 + [Code.FLOW_CONTROL] * 9


def test_a_topic_that_does_not_exist_has_no_quota(engine: Engine) -> None:
    limit(engine, "topic", "*", publish_messages=1)
    gate = engine.core.parts.quota_gate
    for number in range(50):
        assert engine.ask(send_to(f"no-{number}", default_topic=""), b"x").code != Code.SUCCESS
    assert len(gate._limiter) == 0


# -- what waits -----------------------------------------------------------------------------------


def over(engine: Engine) -> tuple[int, int]:
    """Let a reply wait for 100 ms; return its name."""
    for _ in range(10):
        engine.ask(send_to("orders"), b"x")
    name = engine.send(send_to("orders"), b"x")
    assert name not in engine.replies
    return name


def test_a_stop_releases_replies(orders: Engine) -> None:
    name = over(orders)
    stopped = orders.core.stop(orders.wall_ms)
    assert [(one.to.peer.id, one.to.correlation) for one in stopped if isinstance(one, Reply)] == [
        name
    ]


def test_too_many_do_not_wait(orders: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_gate, "QUOTA_HELD_MAX", 1)
    over(orders)
    assert orders.ask(send_to("orders"), b"x").code == Code.SUCCESS, "charged, but at once"


def test_a_reply_that_waits_for_the_disk_anyway_waits_no_longer() -> None:
    engine = Engine(sync_flush=True)
    made = new_topic("orders")
    engine.send(made)
    engine.send(SetQuota(kind="topic", name="orders", publish_messages=10))
    engine.flush()
    for _ in range(10):
        engine.send(send_to("orders"), b"x")
    engine.flush()
    name = engine.send(send_to("orders"), b"x")
    engine.advance(100)
    assert name not in engine.replies
    engine.flush()
    assert engine.replies[name].code == Code.SUCCESS


# -- pulls ----------------------------------------------------------------------------------------


def fill(engine: Engine, count: int = 60) -> None:
    gate = engine.core.parts.quota_gate
    assert not gate.active
    for _ in range(count):
        assert engine.ask(send_to("orders"), b"x" * 100).code == Code.SUCCESS


@pytest.fixture
def filled(engine: Engine) -> Engine:
    """A topic with 60 messages and a group `g` that may pull 10 a second."""
    topic(engine)
    for name in (b"g", b"h"):
        body = b'{"groupName":"%s"}' % name
        assert engine.ask(UpdateAndCreateSubscriptionGroup(), body).code == Code.SUCCESS
    fill(engine)
    limit(engine, "group", "g", fetch_messages=10)
    return engine


def test_a_role_that_ends_replies_to_requests_that_wait(filled: Engine) -> None:
    filled.ask(pull(max_msg_nums=15))
    name = filled.send(pull(15, max_msg_nums=5))
    [reply] = filled.core.parts.quota_gate.release()
    assert isinstance(reply, Reply)
    assert (reply.to.peer.id, reply.to.correlation) == name
    assert reply.code == Code.SERVICE_NOT_AVAILABLE
    assert not filled.core.parts.quota_gate.held


def test_a_pull_far_over_the_quota_is_refused_after_a_wait(filled: Engine) -> None:
    assert filled.ask(pull(max_msg_nums=32)).code == Code.SUCCESS
    name = filled.send(pull(32))
    filled.advance(999)
    assert name not in filled.replies
    filled.advance(1)
    refused = filled.replies[name]
    assert (refused.code, refused.header) == (
        Code.FLOW_CONTROL,
        FlowControlled(retry_after_ms=1_200),
    )
    filled.advance(1_200)
    assert filled.ask(pull(32)).code == Code.SUCCESS


def test_bytes_of_a_topic_are_limited_for_all_its_readers(filled: Engine) -> None:
    limit(filled, "topic", "orders", fetch_bytes=1_000)
    first = filled.ask(pull(max_msg_nums=8, group="h"))
    assert sum(map(len, first.body)) > 1_000
    name = filled.send(pull(max_msg_nums=1, group="h"))
    assert name not in filled.replies
    filled.advance(1_000)
    assert filled.replies[name].code == Code.SUCCESS


def test_a_parked_pull_is_charged_when_it_returns_messages(filled: Engine) -> None:
    parked = filled.send(pull(60, wait_ms=15_000))
    assert parked not in filled.replies
    for _ in range(12):
        filled.send(send_to("orders"), b"x")
        filled.send(pull(60, wait_ms=1))
    assert filled.replies[parked].code == Code.SUCCESS
    assert counted(filled).get(("fetch_messages", "delayed"), 0) > 0


# -- users ----------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> SecuredBroker:
    """A broker with users, whose topic `orders` exists; each user may send 10 messages a second."""
    made = SecuredBroker()
    topic(made.engine)
    root = made.administrator()
    assert made.ask(root, SetQuota(kind="user", name="*", publish_messages=10)).code == 0
    return made


def sent(broker: SecuredBroker, sender: Sender, count: int) -> list[Reply | None]:
    return [broker.give(broker.received(sender, send_to("orders"), b"x"))[0] for _ in range(count)]


def codes(replies: list[Reply | None]) -> list[int]:
    return [reply.code for reply in replies if reply is not None]


def test_one_user_never_slows_another(broker: SecuredBroker) -> None:
    root = Sender(user="root", secret="secret-of-root")
    greedy, modest = (broker.create(root, name, "writer") for name in ("greedy", "modest"))
    assert Code.FLOW_CONTROL in codes(sent(broker, greedy, 40))
    assert codes(sent(broker, modest, 10)) == [Code.SUCCESS] * 10
    mixed: list[Received] = []
    broker.engine.advance(1_000)
    for _ in range(10):
        mixed += [broker.received(one, send_to("orders"), b"x") for one in (greedy, modest)]
    replies = broker.give(*mixed)
    assert codes(replies[1::2]) == [Code.SUCCESS] * 10


def test_replicas_are_exempt_and_the_users_whose_requests_they_forward_are_not() -> None:
    broker = SecuredBroker(Engine(secrets=secret_box(), knows_replicas=True))
    topic(broker.engine)
    root = broker.administrator()
    broker.create(root, "till", "writer")
    quota = SetQuota(kind="user", name="till", publish_messages=10, requests=10)
    assert broker.ask(root, quota).code == Code.SUCCESS
    replica = Sender(protocol="zmq", listener=MEMBERS)
    forwarded = [
        broker.received(replica, send_to("orders"), b"x", on_behalf_of="till//10.0.0.1/zmq")
        for _ in range(40)
    ]
    assert Code.FLOW_CONTROL in codes(broker.give(*forwarded))
    fetch = FetchLog(group="broker-a", position=0, max_bytes=1_000)
    copies = [broker.received(replica, fetch, on_behalf_of="till//10.0.0.1/zmq") for _ in range(40)]
    assert Code.FLOW_CONTROL not in codes(broker.give(*copies))


def test_clients_without_credentials_are_one_user(broker: SecuredBroker) -> None:
    root = Sender(user="root", secret="secret-of-root")
    broker.allow(root, "anonymous", "Topic:orders", "Pub")
    assert len(codes(sent(broker, ANYBODY, 15))) == 10
    assert broker.ask(root, SetQuota(kind="user", name="anonymous")).code == Code.SUCCESS
    assert codes(sent(broker, ANYBODY, 50)) == [Code.SUCCESS] * 50


def test_while_decisions_are_observed_wrong_credentials_are_no_way_around(
    broker: SecuredBroker,
) -> None:
    root = Sender(user="root", secret="secret-of-root")
    assert broker.ask(root, SetAccessMode(mode="observe")).code == Code.SUCCESS
    guessed = Sender(user="root", secret="guessed-secret")
    assert len(codes(sent(broker, guessed, 15))) == 10
    assert broker.ask(root, SetAccessMode(mode="off")).code == Code.SUCCESS
    assert codes(sent(broker, guessed, 50)) == [Code.SUCCESS] * 50, "no user is known"


def test_requests_are_counted_but_for_what_must_go_through(broker: SecuredBroker) -> None:
    root = Sender(user="root", secret="secret-of-root")
    assert broker.ask(root, SetQuota(kind="user", name="root", requests=5)).code == 0
    asked = GetMaxOffset(topic="orders", queue_id=0)
    for _ in range(5):
        assert broker.ask(root, asked).code == Code.SUCCESS
    [waiting] = broker.give(broker.received(root, asked))
    assert waiting is None
    assert broker.ask(root, UnregisterClient(client_id="c")).code == Code.SUCCESS
    for _ in range(5):
        broker.give(broker.received(root, asked))
    assert broker.ask(root, asked).code == Code.FLOW_CONTROL
    assert broker.ask(root, ListQuotas()).code == Code.SUCCESS
    assert broker.ask(root, RemoveQuota(kind="user", name="root")).code == Code.SUCCESS
    assert broker.ask(root, asked).code == Code.SUCCESS
    gate = broker.engine.core.parts.quota_gate
    assert gate.counts[QuotaUnit.REQUESTS, QuotaOutcome.REFUSED] == 1


# -- connections ----------------------------------------------------------------------------------


@pytest.fixture
def two(broker: SecuredBroker) -> tuple[SecuredBroker, Sender]:
    """A broker with a user that may have two connections, and the user."""
    root = Sender(user="root", secret="secret-of-root")
    till = broker.create(root, "till", "reader")
    assert broker.ask(root, SetQuota(kind="user", name="till", connections=2)).code == Code.SUCCESS
    return broker, till


def connection(sender: Sender, peer: int) -> Peer:
    """A connection of a sender."""
    return Peer(peer, sender.protocol, (sender.source, 40_000), sender.listener, sender.key)


def asked_by(broker: SecuredBroker, sender: Sender, peer: int) -> Reply | None:
    """Ask on the connection with this number; None if there is no reply."""
    asked = GetMaxOffset(topic="orders", queue_id=0)
    return broker.give(broker.received(sender, asked, over=connection(sender, peer)))[0]


def codes_by(broker: SecuredBroker, sender: Sender, *peers: int) -> list[int]:
    return codes([asked_by(broker, sender, peer) for peer in peers])


def test_too_few_connections_can_be_changed_on_any(two: tuple[SecuredBroker, Sender]) -> None:
    """And the broker counts anew after a change."""
    broker, _ = two
    root = Sender(user="root", secret="secret-of-root")
    assert broker.ask(root, SetQuota(kind="user", name="root", connections=1)).code == 0
    assert codes_by(broker, root, 101, 102) == [Code.SUCCESS, Code.FLOW_CONTROL]
    raised = SetQuota(kind="user", name="root", connections=3)
    assert broker.ask(root, raised, over=connection(root, 102)).code == Code.SUCCESS
    assert codes_by(broker, root, 102, 103, 104) == [Code.SUCCESS] * 3
    assert codes_by(broker, root, 101) == [Code.FLOW_CONTROL]


def test_connections_are_counted_only_where_they_are_limited() -> None:
    connections = UserConnections()
    assert connections.open(1, "till", 1)
    assert connections.open(1, "till", 1)
    assert not connections.open(2, "till", 1)
    assert connections.open(2, "other", 1)
    for peer in (1, 1, 2, 3):
        connections.close(peer)
    assert (connections._users_of, dict(connections._counts)) == ({}, {})


# -- topics ---------------------------------------------------------------------------------------


@pytest.fixture
def creating() -> tuple[SecuredBroker, Sender, Sender]:
    """A broker, its administrator, and a user who may create two topics."""
    broker = SecuredBroker()
    topic(broker.engine, "before")
    root = broker.administrator()
    till = broker.create(root, "till", "operator", "writer")
    quota = SetQuota(kind="user", name="till", topics=2)
    assert broker.ask(root, quota).code == Code.SUCCESS
    return broker, root, till


def test_a_user_creates_so_many_topics_only(
    creating: tuple[SecuredBroker, Sender, Sender],
) -> None:
    broker, root, till = creating
    control = broker.engine.control
    assert broker.ask(till, new_topic("a")).code == Code.SUCCESS
    assert broker.ask(till, send_to("b"), b"first").code == Code.SUCCESS
    text = (
        "topic c is not created: user till has created 2 topics at this broker, and its quota is "
        "2 topics"
    )
    for request in (new_topic("c"), send_to("c")):
        refused = broker.ask(till, request, b"x")
        assert refused.code not in (Code.SUCCESS, Code.FLOW_CONTROL)
        assert text in refused.remark
    assert "c" not in control.topics
    assert counted(broker.engine) == {("topics", "refused"): 2}
    for known in (send_to("a"), send_to("before"), new_topic("before", 4), new_topic("a", 4)):
        assert broker.ask(till, known, b"x").code == Code.SUCCESS, "it exists"
    assert broker.ask(root, new_topic("c")).code == Code.SUCCESS, "another user"
    assert control.topics.creators == {"a": "till", "b": "till", "c": "root"}
    assert broker.ask(root, DeleteTopicInBroker(topic="a")).code == Code.SUCCESS
    assert broker.ask(till, new_topic("d")).code == Code.SUCCESS
    assert control.topics.creators == {"b": "till", "c": "root", "d": "till"}
    beat = encode_heartbeat(HeartbeatBody("c1", consumers=(ConsumerData("g"),)))
    assert broker.ask(till, HeartBeat(), beat).code == Code.SUCCESS
    assert "%RETRY%g" in control.topics, "a group's own topic is no topic of a user"
    assert len(control.topics.creators) == 3


def test_who_created_a_topic_is_in_the_snapshot_and_in_the_log(
    creating: tuple[SecuredBroker, Sender, Sender],
) -> None:
    broker, _, till = creating
    assert broker.ask(till, new_topic("a")).code == Code.SUCCESS
    control = broker.engine.control
    assert decode_state(encode_state(control)).topics == control.topics
    again = ControlState()
    for event in broker.events():
        evolve(again, event)
    assert again.topics.creators == {"a": "till"} == control.copy().topics.creators


def new_group(name: str, retry_max: int = 16) -> bytes:
    return b'{"groupName":"%s","retryMaxTimes":%d}' % (name.encode(), retry_max)


def beat_of(*groups: str) -> bytes:
    return encode_heartbeat(HeartbeatBody("c1", consumers=tuple(map(ConsumerData, groups))))


def test_a_user_creates_so_many_groups_only(
    creating: tuple[SecuredBroker, Sender, Sender],
) -> None:
    broker, root, till = creating
    control = broker.engine.control
    create = UpdateAndCreateSubscriptionGroup()
    assert broker.ask(root, create, new_group("before")).code == Code.SUCCESS
    assert broker.ask(root, SetQuota(kind="user", name="till", groups=3)).code == Code.SUCCESS
    assert broker.ask(till, create, new_group("a")).code == Code.SUCCESS
    refused = broker.ask(till, HeartBeat(), beat_of("before", "b", "c", "d", "e"))
    assert refused.code not in (Code.SUCCESS, Code.FLOW_CONTROL)
    text = (
        "group d is not created: user till has created 3 groups at this broker, and its quota is "
        "3 groups"
    )
    assert text in refused.remark
    assert "group e is not created" in refused.remark
    assert control.groups.creators == {"before": "root", "a": "till", "b": "till", "c": "till"}
    assert broker.engine.core.parts.membership.consumer_groups() == ["b", "before", "c"]
    assert {"d", "%RETRY%d"}.isdisjoint({*control.groups.table, *control.topics.table})
    commit = UpdateConsumerOffset(consumer_group="d", topic="before", queue_id=0, commit_offset=0)
    for request, body in ((pull(group="d"), b""), (commit, b""), (create, new_group("d"))):
        again = broker.ask(till, request, body)
        assert text in again.remark, request
    assert broker.ask(till, create, new_group("a", 3)).code == Code.SUCCESS, "it exists"
    assert broker.ask(root, create, new_group("d")).code == Code.SUCCESS, "another user"
    assert decode_state(encode_state(control)).groups == control.groups == control.copy().groups
    delete = DeleteSubscriptionGroup(group_name="a")
    assert broker.ask(root, delete).code == Code.SUCCESS
    assert broker.ask(till, HeartBeat(), beat_of("f")).code == Code.SUCCESS
    assert control.groups.created_by("till") == 3


@pytest.mark.parametrize(
    ("actor", "user"),
    [
        ("User:till", "till"),
        ("User:till:9f86d081884c through User:console-1", "till"),
        ("User:a b through User:console-1", "a b"),
        ("client c1", ""),
        ("zmq 127.0.0.1:1", ""),
        ("", ""),
    ],
)
def test_whose_topic_it_is(actor: str, user: str) -> None:
    assert user_of_actor(actor) == user
