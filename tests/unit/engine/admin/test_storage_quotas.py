"""Sends to a topic that takes more than its quota of stored bytes are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.engine.admin import storage_quotas
from kourou.engine.admin.storage_quotas import LOOK_MS, StoredBytes
from kourou.errors import Code
from kourou.model.quota import QuotaUnit
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.protocol.messages.quotas import RemoveQuota, SetQuota
from kourou.protocol.messages.sends import ConsumerSendMsgBack
from kourou.runtime import LogWarning
from kourou_rigs.access import SecuredBroker, new_topic, send_to
from kourou_rigs.engine import Engine

BODY = b"x" * 1_000


@pytest.fixture
def broker(engine: Engine) -> Engine:
    """A broker with two topics; `orders` may have 2,000 bytes."""
    for name in ("orders", "bills"):
        assert engine.ask(new_topic(name)).code == Code.SUCCESS
    assert engine.ask(SetQuota(kind="topic", name="orders", stored_bytes=2_000)).code == 0
    return engine


def fill(broker: Engine, topic: str = "orders", count: int = 2) -> None:
    """Send so many messages, and let the broker look."""
    for _ in range(count):
        assert broker.ask(send_to(topic), BODY).code == Code.SUCCESS
    broker.advance(LOOK_MS)


def refusal(broker: Engine, topic: str = "orders") -> str:
    reply = broker.ask(send_to(topic), BODY)
    assert reply.code not in (Code.SUCCESS, Code.FLOW_CONTROL), "clients would repeat it"
    return reply.remark


def accepts(broker: Engine, topic: str = "orders") -> bool:
    return broker.ask(send_to(topic), BODY).code == Code.SUCCESS


def test_a_topic_over_its_quota_gets_no_more_messages(broker: Engine) -> None:
    fill(broker, count=1)
    fill(broker, count=1)
    before = broker.store.end
    text = refusal(broker)
    stored = sum(len(broker.store.records[one.position]) for one in broker.stored("orders"))
    assert f"the messages of topic orders take {stored} bytes at this broker" in text
    assert "the quota is 2000 stored bytes; nothing was stored" in text
    assert broker.store.end == before
    counts = broker.core.parts.quota_gate.counts
    assert [(unit, n) for (unit, _), n in counts.items() if n] == [(QuotaUnit.STORED_BYTES, 1)]
    assert accepts(broker, "bills"), "another topic"
    broker.advance(LOOK_MS)
    told = [one for one in broker.effects if isinstance(one, LogWarning)]
    assert [one.fields["topic"] for one in told] == ["orders"], "once"


@pytest.mark.parametrize(
    "change",
    [
        SetQuota(kind="topic", name="orders", stored_bytes=1 << 20),
        RemoveQuota(kind="topic", name="orders"),
    ],
)
def test_a_larger_quota_or_none_is_effective_at_the_next_look(
    broker: Engine, change: SetQuota | RemoveQuota
) -> None:
    fill(broker)
    assert refusal(broker)
    assert broker.ask(change).code == Code.SUCCESS
    broker.advance(LOOK_MS)
    assert accepts(broker)


def test_messages_that_retention_deleted_do_not_count(broker: Engine) -> None:
    fill(broker)
    assert refusal(broker)
    broker.store.queues["orders", 0].pop(0)
    broker.store.firsts["orders", 0] += 1
    broker.advance(LOOK_MS)
    assert accepts(broker)


def test_a_topic_that_was_deleted_and_created_again_begins_with_nothing(broker: Engine) -> None:
    fill(broker)
    assert broker.ask(DeleteTopicInBroker(topic="orders")).code == Code.SUCCESS
    assert broker.ask(new_topic("orders")).code == Code.SUCCESS
    broker.advance(LOOK_MS)
    assert accepts(broker)


def test_all_topics_have_the_quota_of_every_topic_each(broker: Engine) -> None:
    assert broker.ask(RemoveQuota(kind="topic", name="orders")).code == Code.SUCCESS
    assert broker.ask(SetQuota(kind="topic", name="*", stored_bytes=2_000)).code == Code.SUCCESS
    fill(broker)
    assert "topic orders" in refusal(broker)
    assert accepts(broker, "bills")


def test_what_a_broker_stores_by_itself_is_not_refused(broker: Engine) -> None:
    """A consumer returns messages, each to a retry topic that is over its quota."""
    group = b'{"groupName":"g"}'
    assert broker.ask(UpdateAndCreateSubscriptionGroup(), group).code == Code.SUCCESS
    assert broker.ask(SetQuota(kind="topic", name="*", stored_bytes=1)).code == Code.SUCCESS
    fill(broker)
    for one in broker.stored("orders"):
        back = ConsumerSendMsgBack(offset=one.position, group="g", delay_level=1)
        assert broker.ask(back).code == Code.SUCCESS
        broker.advance(LOOK_MS)


def test_a_user_is_limited_by_all_topics_that_it_created() -> None:
    broker = SecuredBroker()
    engine = broker.engine
    assert engine.ask(new_topic("before")).code == Code.SUCCESS
    root = broker.administrator()
    till = broker.create(root, "till", "operator", "writer")
    quota = SetQuota(kind="user", name="till", stored_bytes=2_000)
    assert broker.ask(root, quota).code == Code.SUCCESS
    for name in ("a", "b"):
        assert broker.ask(till, new_topic(name)).code == Code.SUCCESS
        assert broker.ask(till, send_to(name), BODY).code == Code.SUCCESS
    engine.advance(LOOK_MS)
    for name in ("a", "b"):
        for who in (till, root):
            refused = broker.ask(who, send_to(name), BODY)
            assert "the messages of user till's topics take" in refused.remark
            assert refused.code not in (Code.SUCCESS, Code.FLOW_CONTROL)
    assert broker.ask(till, send_to("before"), BODY).code == Code.SUCCESS, "not its topic"
    assert broker.ask(root, DeleteTopicInBroker(topic="b")).code == Code.SUCCESS
    engine.advance(LOOK_MS)
    assert broker.ask(till, send_to("a"), BODY).code == Code.SUCCESS


# -- counting -------------------------------------------------------------------------------------


class Queues:
    """Queues of topic `t`, of which sizes are known; counts what is read of them."""

    def __init__(self, count: int) -> None:
        self.sizes: list[list[int]] = [[] for _ in range(count)]
        self.firsts = [0] * count
        self.read = 0

    def queue_ids(self, topic: str) -> list[int]:
        return list(range(len(self.sizes))) if topic == "t" else []

    def queue_range(self, _topic: str, queue_id: int) -> tuple[int, int]:
        return self.firsts[queue_id], len(self.sizes[queue_id])

    def queue_bytes(self, _topic: str, queue_id: int, first: int, end: int) -> int:
        assert self.firsts[queue_id] <= first, "these units may be deleted"
        self.read += max(0, end - first)
        return sum(self.sizes[queue_id][first:end])

    @property
    def stored(self) -> int:
        return sum(sum(sizes[first:]) for sizes, first in zip(self.sizes, self.firsts, strict=True))


STEPS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 30)), max_size=20)


@given(STEPS, st.integers(1, 40))
def test_the_sums_are_right_as_soon_as_all_is_counted(
    steps: list[tuple[int, int, int]], per_look: int
) -> None:
    """Messages come and go in any way, and a look may count only some of them."""
    queues = Queues(2)
    stored = StoredBytes(queues)  # type: ignore[arg-type]  # what it needs of a view
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_quotas, "BLOCK_UNITS", 8)
        patch.setattr(storage_quotas, "UNITS_PER_LOOK", per_look)
        for queue_id, came, gone in steps:
            sizes = queues.sizes[queue_id]
            sizes += range(len(sizes) + 1, len(sizes) + 1 + came)
            queues.firsts[queue_id] = min(len(sizes), queues.firsts[queue_id] + gone)
            stored.begin(["t"])
            assert 0 <= stored.of("t") <= queues.stored
        for _ in range(sum(map(len, queues.sizes)) // per_look + 1):
            stored.begin(["t"])
            counted = stored.of("t")
        assert counted == queues.stored
        queues.read = 0
        assert stored.of("t") == counted
        assert queues.read == 0, "nothing is read twice"


def test_a_topic_without_a_quota_is_forgotten() -> None:
    queues = Queues(1)
    queues.sizes[0] = [5]
    stored = StoredBytes(queues)  # type: ignore[arg-type]  # what it needs of a view
    stored.begin(["t"])
    assert stored.of("t") == 5
    stored.begin([])
    stored.begin(["t"])
    queues.read = 0
    assert stored.of("t") == 5
    assert queues.read == 1
