"""Three processes of a Raft group: one is killed while messages are sent, and comes back.

What becomes of partitions, stopped processes and full disks is another test's matter.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.client.settings.client_settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from kourou.model.subscription import ConsumeFromWhere
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.sync import Client

SENT = 60
KILLED_AT, BACK_AT = 20, 40
SETTINGS = ClusterSettings(raft=3, broker={"mappedFileSizeCommitLog": "1048576"})
PATIENT = ProducerSettings(producer_group="p", send_timeout_ms=30_000)


def client(address: str) -> Client:
    return Client(
        address,
        settings=ClientSettings(poll_name_server_interval_ms=500),
        producer=PATIENT,
        consumer=ConsumerSettings(
            consumer_group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        ),
    )


@pytest.mark.feature("F148", "F149", "F153")
def test_the_leader_is_killed_and_comes_back_and_a_second_start_has_everything(
    tmp_path: Path,
) -> None:
    bodies = [b"%d" % number for number in range(SENT)]
    with LocalCluster(tmp_path, SETTINGS) as cluster:
        killed = cluster.leader_of()
        with client(cluster.address) as mq:
            mq.admin.topics.create("orders", queues=1)
            for number, body in enumerate(bodies):
                if number == KILLED_AT:
                    killed.kill()
                elif number == BACK_AT:
                    assert cluster.leader_of().name != killed.name
                    cluster.start_member(0, cluster.members.index(killed))
                assert mq.send("orders", body).status == "SEND_OK"
        codes = cluster.stop()
        bad = {name: code for name, code in codes.items() if code}
        assert bad == {killed.name: -9}, "the killed process; all others drained"
    with LocalCluster(tmp_path, SETTINGS) as cluster, client(cluster.address) as mq:
        with mq.subscribe("orders") as messages:
            received = [message.body for _, message in zip(bodies, messages, strict=False)]
        assert received == bodies, "in order"
        looking = mq.pull_consumer("x")
        (queue,) = looking.queues("orders")
        assert looking.max_offset(queue) == SENT, "and nothing twice"
