"""A Raft group's leader lets another member lead while messages are sent, and tells of its members.

Who dies, and what comes of that, is another test's matter.
"""

from __future__ import annotations

import threading

import pytest

from kourou.client.settings.client_settings import ProducerSettings
from kourou.errors import Code, Rejected
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic

PATIENT = ProducerSettings(producer_group="g", send_timeout_ms=30_000)
SENT_BEFORE = 20


@pytest.mark.feature("F150", "F151", "F154", "F155")
def test_a_leader_hands_over_under_load_and_nothing_is_lost_or_doubled(kourou_cluster) -> None:
    cluster = kourou_cluster(raft=3)
    topic = cluster.create_topic(queues=1)
    sent = cluster.sent()
    with cluster.client(producer=PATIENT) as mq:
        members = {one.view.member: one for one in mq.admin.replicas.of("broker-a")}
        assert sorted(members) == ["n0", "n1", "n2"]
        (old,) = [one.view for one in members.values() if one.view.leads]
        assert old.leader == f"broker-a/{old.member}"
        assert {one.member for one in old.followers} == {"n0", "n1", "n2"} - {old.member}
        for name, one in members.items():
            assert (one.view.state, one.view.leader) == (
                ("", old.leader) if name == old.member else ("follower", old.leader)
            )

        # What only a leader does is done for whoever asks a follower.
        follower = next(one for name, one in members.items() if name != old.member)
        asked = UpdateAndCreateTopic(topic="asked", default_topic="TBW102", read_queue_nums=1,
                                     write_queue_nums=1, perm=6)  # fmt: skip
        io, session = mq._client.io, mq._client.session
        question = session.connections.ask(follower.address, asked, timeout_ms=30_000)
        assert io.submit(question).result().code == Code.SUCCESS
        assert "asked" in mq.admin.topics.list()

        bodies: list[bytes] = []
        enough, over = threading.Event(), threading.Event()

        def send() -> None:
            while not over.is_set():
                body = b"%d" % len(bodies)
                assert mq.send(topic, body).status == "SEND_OK"
                bodies.append(body)
                if len(bodies) == SENT_BEFORE:
                    enough.set()

        sender = threading.Thread(target=send)
        sender.start()
        try:
            assert enough.wait(60)
            view = mq.admin.replicas.transfer_leader("broker-a", follower.view.member)
        finally:
            over.set()
            sender.join()
        assert view.member == follower.view.member
        assert view.epoch > old.epoch
        assert mq.send(topic, b"last").status == "SEND_OK"
        with pytest.raises(Rejected, match="transfer-leader"):
            mq.admin.replicas.promote("broker-a", address=follower.address, force=True)
    assert [one.body for one in sent.all(topic)] == [*bodies, b"last"]
