"""The kit's cluster whose broker is a group of three: its leader dies, and clients go on."""

from __future__ import annotations

import pytest

from kourou.client.settings.client_settings import ProducerSettings
from kourou.errors import BadRequest

PATIENT = ProducerSettings(producer_group="g", send_timeout_ms=30_000)


@pytest.mark.feature("F148", "F149")
def test_a_leader_dies_and_a_producer_and_a_consumer_go_on(kourou_cluster) -> None:
    cluster = kourou_cluster(raft=3)
    assert cluster.brokers == ["broker-a"]
    first = cluster.leader()
    assert first in {"broker-a-n0", "broker-a-n1", "broker-a-n2"}
    topic = cluster.create_topic(queues=1)
    sent = cluster.sent()
    with cluster.client(producer=PATIENT) as mq, mq.subscribe(topic) as messages:
        assert mq.send(topic, b"before").status == "SEND_OK"
        received = iter(messages)
        assert next(received).body == b"before"
        cluster.chaos.kill(first)
        assert mq.send(topic, b"after").status == "SEND_OK"
        assert next(received).body == b"after"
        second = cluster.leader()
        assert second != first
        cluster.chaos.restart(first)
        third = next(
            name
            for name in ("broker-a-n0", "broker-a-n1", "broker-a-n2")
            if name not in (first, second)
        )
        cluster.chaos.kill(third)
        assert mq.send(topic, b"by the one that came back").status == "SEND_OK"
        assert next(received).body == b"by the one that came back"
    assert len(sent.all(topic)) == 3


def test_a_group_is_asked_for_alone(kourou_cluster) -> None:
    with pytest.raises(BadRequest, match="take raft alone"):
        kourou_cluster(raft=3, replicas=1)
    with pytest.raises(BadRequest, match="there is no Raft group 'broker-a'"):
        kourou_cluster(1).leader()
