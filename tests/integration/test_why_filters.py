"""Why is a message where it is, when a group chooses its messages by a filter of its own?"""

from __future__ import annotations

import time

import pytest

from kourou import ConsumerSettings, Filter
from kourou.model.subscription import ConsumeFromWhere
from kourou.testing.cluster import Cluster, unique_name
from kourou_filter_server.zygote_link import missing

PATIENCE_S = 60
EVEN = Filter("def match(message, context):\n    return int(message.body) % 2 == 0\n", name="even")
BROKEN = Filter("def match(message, context):\n    return message.json['n'] > 0\n", name="broken")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    lacking = missing()
    if lacking:
        pytest.skip("needs a kernel layer: " + ", ".join(layer.name for layer in lacking))
    filters = {"filterStrikes": 3, "filterWorkersMax": 2}
    folder = tmp_path_factory.mktemp("why")
    with Cluster(folder, filter_servers=1, filter_settings=filters) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def operator(cluster):
    with cluster.client("operator") as mq:
        yield mq


@pytest.fixture
def consuming(cluster):
    """A new topic's group whose only member has this filter."""
    opened = []

    def make(wanted):
        topic, group = cluster.create_topic(queues=1), unique_name("group")
        settings = ConsumerSettings(
            consumer_group=group,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            pull_pause_ms_when_exception=50,
        )
        client = cluster.client(group, consumer=settings).open()
        opened.append(client)
        opened.append(client.listen(topic, lambda message: None, wanted).start())
        return topic, group

    yield make
    for one in reversed(opened):
        one.close()


@pytest.fixture
def why(operator):
    """Asks about a message and a group until the first cause has one of these codes; returns that.

    Workers run by the machine's time, so the cluster's is left alone.
    """

    def ask(sent, group, *codes):
        late = time.monotonic() + PATIENCE_S
        while time.monotonic() < late:
            told = operator.admin.explain.message(
                sent.message_id, topic=sent.queue.topic, group=group
            )
            (found,) = told.groups
            if found.causes[0].code in codes:
                return found.causes[0]
        raise AssertionError(f"{[one.code for one in found.causes]}, not {codes}: {told}")

    return ask


def test_a_filter_says_no_and_which_version_did(operator, consuming, why):
    topic, group = consuming(EVEN)
    odd, even = operator.send(topic, b"1"), operator.send(topic, b"2")
    facts = why(odd, group, "filtered_by_filter").facts
    assert (facts["filter"], facts["version"]) == ("even", 1)
    assert facts["since_ms"] is not None
    assert why(even, group, "consumed").facts["proof"] == "progress"


def test_a_filter_that_is_disabled_or_gone_or_has_no_server(operator, cluster, consuming, why):
    topic, group = consuming(EVEN)
    why(operator.send(topic, b"2"), group, "consumed")
    operator.admin.filters.disable(group, "even", reason="a try")
    while True:  # the filter server hears of it after the operator, and may let one through
        sent = operator.send(topic, b"4")
        cause = why(sent, group, "filter_disabled", "consumed")
        if cause.code == "filter_disabled":
            break
    assert cause.facts == {"filter": "even", "policy": "hold"}
    operator.admin.filters.enable(group, "even")
    why(sent, group, "consumed")
    cluster.stop_filter_server(0)
    sent = operator.send(topic, b"6")
    assert why(sent, group, "filter_holds").facts["servers"] == 0
    # Deleted while nobody judges: the consumer brings its filter again when a server misses it.
    operator.admin.filters.delete(group, "even")
    assert why(sent, group, "filter_missing").facts == {"filter": "even"}
    cluster.start_filter_server(0)
    why(sent, group, "consumed")


def test_a_filter_that_fails_is_in_quarantine_and_then_lets_all_through(operator, consuming, why):
    topic, group = consuming(BROKEN)
    sent = operator.send(topic, b"no json")
    facts = why(sent, group, "filter_quarantined").facts
    assert (facts["filter"], facts["version"], facts["policy"]) == ("broken", 1, "hold")
    assert facts["reason"]
    operator.admin.filters.set_policy(group, "broken", "pass")
    why(sent, group, "consumed")
    told = operator.admin.explain.message(sent.message_id, topic=topic, group=group)
    assert [one.code for one in told.groups[0].causes] == ["consumed", "passed_unfiltered"]


def test_what_a_filter_could_not_judge_was_passed_over(operator, consuming, why):
    topic, group = consuming(BROKEN)
    operator.admin.filters.set_policy(group, "broken", "skip")
    sent = operator.send(topic, b"no json")
    cause = why(sent, group, "filter_skipped")
    assert (cause.facts["filter"], cause.facts["version"]) == ("broken", 1)
    assert cause.severity == "gone"
