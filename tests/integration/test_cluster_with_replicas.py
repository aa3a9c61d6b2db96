"""The kit's cluster with followers: a leader is killed, and its follower promoted."""

from __future__ import annotations

import pytest

from kourou.errors import BadRequest


@pytest.mark.feature("F137")
def test_a_leader_is_killed_and_its_follower_promoted(kourou_cluster) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 60_000}
    cluster = kourou_cluster(brokers=1, replicas=1, settings=settings)
    assert cluster.brokers == ["broker-a"]
    assert cluster.is_up("broker-a-s1")
    with pytest.raises(BadRequest, match="known: broker-a, broker-a-s1"):
        cluster.is_up("broker-a-s2")
    with cluster.client() as mq:
        mq.admin.topics.create("orders", queues=1)
        while mq.send("orders", b"who copies?").status.value != "SEND_OK":
            pass
        cluster.chaos.kill("broker-a")
        view = mq.admin.replicas.promote("broker-a", 1)
        assert (view.broker_id, view.broker_role, view.leads) == (1, "SYNC_MASTER", True)
    with cluster.client() as mq:
        assert mq.send("orders", b"on the promoted one").status.value == "SLAVE_NOT_AVAILABLE"
        cluster.chaos.restart("broker-a")
        (only,) = mq.admin.replicas.of("broker-a")
        assert (only.registered_id, only.view.broker_id) == (0, 1), "the old one is refused"
        old = cluster.members[0].service.view.replicas(0)
        assert (old.fenced, old.epoch) == (view.epoch, 128)

        # No name server knows it; by its address, however that is spelled, and by force, it is
        # taken back.
        address = f"localhost:{cluster.members[0].service.server.port}"
        back = mq.admin.replicas.promote("broker-a", address=address, force=True)
        assert (back.broker_id, back.fenced, back.epoch) == (0, 0, 2 * 2**32 + 64)
        (leader,) = [one.view for one in mq.admin.replicas.of() if one.registered_id == 0]
        assert leader == back
