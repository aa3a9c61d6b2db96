"""Topics: what may be made, changed and deleted, and what is made by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.engine.admin import topic_table as topics
from kourou.engine.admin.topic_table import TopicAggregate, Unread
from kourou.engine.effects import DropTopic
from kourou.engine.inputs import RegistrationDone, StoreFailed
from kourou.engine.policy import TopicRules
from kourou.errors import Code, Rejected
from kourou.events.control_events import Event, TopicDeleted, TopicPut
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.messages.broker_admin import CleanUnusedTopic, UpdateAndCreateTopic
from kourou_rigs.engine import Engine

RULES = TopicRules(broker_name="broker-a")


def apply(state: TopicAggregate, events: list[Event], at_ms: int = 1) -> TopicAggregate:
    for event in events:
        assert isinstance(event, TopicPut | TopicDeleted)
        topics.evolve(state, event, at_ms)
    return state


def started(rules: TopicRules = RULES) -> TopicAggregate:
    return apply(TopicAggregate(), topics.decide_start(TopicAggregate(), rules))


def with_topic(config: TopicConfig) -> TopicAggregate:
    return apply(started(), [TopicPut(config)])


# -- made at start ------------------------------------------------------------------------------


@pytest.mark.feature("F056")
def test_a_broker_makes_the_topics_of_4_9_8_at_start():
    made = {each.name: (each.read_queue_nums, each.perm) for each in started()}
    assert made == {
        "TBW102": (8, 7),
        "DefaultCluster": (16, 7),
        "broker-a": (1, 7),
        "SELF_TEST_TOPIC": (1, 6),
        "OFFSET_MOVED_EVENT": (1, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
        "BenchmarkTest": (1024, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "rmq_sys_kourou_control": (1, 6),
    }
    assert all(each.read_queue_nums == each.write_queue_nums for each in started())


def test_start_follows_the_configuration_and_keeps_what_is_there():
    rules = replace(
        RULES, auto_create=False, cluster_topic=False, broker_topic=False, trace_topic=True
    )
    made = {each.name: each.perm for each in started(rules)}
    assert "TBW102" not in made
    assert (made["DefaultCluster"], made["broker-a"], made["RMQ_SYS_TRACE_TOPIC"]) == (1, 1, 6)
    assert topics.decide_start(started(), RULES) == []


def test_a_host_name_with_dots_makes_no_topic_and_one_name_for_both_makes_one():
    names = [each.name for each in topics.start_topics(TopicRules(broker_name="host.example"))]
    assert "host.example" not in names
    both = topics.start_topics(TopicRules(cluster_name="one", broker_name="one"))
    assert [each.read_queue_nums for each in both if each.name == "one"] == [16]


# -- made by sending ----------------------------------------------------------------------------


@pytest.mark.feature("F056")
def test_retry_and_dlq_topics_are_made_once_with_at_least_one_queue():
    state = started()
    retry = topics.decide_retry_topic(state, "g", 3)
    assert retry == [TopicPut(TopicConfig("%RETRY%g", 3, 3, 6))]
    assert topics.decide_retry_topic(apply(state, retry), "g", 3) == []
    assert topics.decide_retry_topic(state, "h", 0) == [TopicPut(TopicConfig("%RETRY%h", 1, 1))]
    assert topics.decide_dlq_topic(state, "g") == [TopicPut(TopicConfig("%DLQ%g", 1, 1, 6))]


# -- made and changed by administrators ---------------------------------------------------------


@pytest.mark.feature("F048")
def test_write_queues_that_nobody_can_read_are_refused_unless_forced():
    wanted = TopicConfig("TopicA", 4, 8)
    with pytest.raises(Rejected, match="8 write queues but only 4 read queues"):
        topics.decide_put(started(), RULES, wanted)
    assert topics.decide_put(started(), RULES, wanted, forced=True) == [TopicPut(wanted)]
    # A topic that is so already may be changed in other ways.
    state = with_topic(wanted)
    assert topics.decide_put(state, RULES, replace(wanted, perm=4))


@pytest.mark.feature("F051")
def test_a_topic_shrinks_by_write_queues_first_and_by_read_queues_when_they_are_consumed():
    state = with_topic(TopicConfig("TopicA", 4, 4))
    apply(state, topics.decide_put(state, RULES, TopicConfig("TopicA", 4, 2)))
    left = [Unread("g", 1, 5), Unread("g", 3, 2)]
    with pytest.raises(Rejected, match="g has 2 messages to consume in queue 3"):
        topics.decide_put(state, RULES, TopicConfig("TopicA", 2, 2), unread=left)
    assert topics.decide_put(state, RULES, TopicConfig("TopicA", 2, 2), unread=left, forced=True)
    assert topics.decide_put(state, RULES, TopicConfig("TopicA", 2, 2), unread=left[:1])


def test_beyond_the_maximum_no_topic_is_created_by_a_request(monkeypatch: pytest.MonkeyPatch):
    state = with_topic(TopicConfig("TopicA", 4, 4))
    monkeypatch.setattr("kourou.engine.admin.topic_table.TOPICS_MAX", len(state))
    with pytest.raises(Rejected, match=f"has {len(state)} topics, the maximum"):
        topics.decide_put(state, RULES, TopicConfig("TopicB", 4, 4))
    with pytest.raises(Rejected, match="the maximum"):
        topics.decide_auto_create(
            state, RULES, "TopicB", default_topic="TBW102", default_queue_nums=4
        )
    assert topics.decide_put(state, RULES, TopicConfig("TopicA", 8, 8)), "it exists"
    assert topics.decide_retry_topic(state, "g", 1), "its group was created"
    assert topics.decide_dlq_topic(state, "g")
    apply(state, [TopicDeleted(TopicConfig("TopicA", 4, 4))])
    assert topics.decide_put(state, RULES, TopicConfig("TopicB", 4, 4))


def test_the_permission_of_a_topic_that_a_send_creates_is_a_plain_number() -> None:
    """Every send checks it, and the operators of a flag take a microsecond."""
    [created] = topics.decide_auto_create(
        started(), RULES, "TopicA", default_topic="TBW102", default_queue_nums=4
    )
    assert isinstance(created, TopicPut)
    assert (type(created.topic.perm), created.topic.perm) == (int, 6)


# -- the table ----------------------------------------------------------------------------------


def test_every_change_makes_a_new_data_version():
    state = TopicAggregate()
    apply(state, [TopicPut(TopicConfig("A"))], at_ms=10)
    assert state.version == DataVersion(10, 1)
    apply(state, [TopicDeleted(TopicConfig("A"))], at_ms=12)
    assert state.version == DataVersion(12, 2)


def test_a_copy_and_a_rebuilt_table_are_equal_and_independent():
    state = with_topic(TopicConfig("A"))
    copy = state.copy()
    rebuilt = topics.topics_of(list(state), state.version, {})
    assert state == copy == rebuilt
    apply(state, [TopicDeleted(TopicConfig("A"))])
    assert "A" in copy
    assert copy != state
    for other in (copy, rebuilt):
        with pytest.raises(Rejected):
            topics.decide_put(other, RULES, TopicConfig("a"))


def test_the_last_spelling_to_go_frees_the_name():
    """RocketMQ allows names that differ in case only, and its tables are imported."""
    state = with_topic(TopicConfig("Orders"))
    apply(state, [TopicPut(TopicConfig("ORDERS")), TopicDeleted(TopicConfig("Orders"))])
    assert state.folded.clash("ORDERS") is None, "never with itself"
    with pytest.raises(Rejected, match="existing topic ORDERS"):
        topics.decide_put(state, RULES, TopicConfig("orders"))
    apply(state, [TopicDeleted(TopicConfig("ORDERS"))])
    assert topics.decide_put(state, RULES, TopicConfig("orders"))


# -- topics, as operators ask about and change them; the rest is in the transcripts ----------------


def create(name: str) -> UpdateAndCreateTopic:
    return UpdateAndCreateTopic(topic=name, read_queue_nums=4, write_queue_nums=4, perm=6)


def test_queues_that_no_table_names_are_dropped(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    engine.store.queues["left-over", 3] = []
    engine.store.queues["rmq_sys_other", 0] = []
    assert engine.ask(CleanUnusedTopic()).code == Code.SUCCESS
    dropped = [effect.topic for effect in engine.effects if isinstance(effect, DropTopic)]
    assert dropped == ["left-over"]
    assert engine.store.topics() == ["orders", "rmq_sys_kourou_control", "rmq_sys_other"]


def test_its_creator_waits_for_the_disk_and_for_the_name_servers() -> None:
    engine = Engine(sync_flush=True, name_servers=False)
    made = engine.send(create("fresh"))
    engine.flush()
    assert made not in engine.replies
    engine.handle(RegistrationDone(1))
    assert engine.replies[made].code == Code.SUCCESS
    again = engine.send(create("more"))
    engine.handle(RegistrationDone(2))
    assert again not in engine.replies
    engine.flush()
    assert engine.replies[again].code == Code.SUCCESS


def test_what_failed_is_reported_at_once() -> None:
    engine = Engine(sync_flush=True, name_servers=False)
    made = engine.send(create("fresh"))
    engine.handle(StoreFailed("EIO"))
    assert engine.replies[made].code == Code.OUTCOME_UNKNOWN
