"""Who may send replies; the rest is in the transcripts."""

from kourou.errors import Code
from kourou.model.names import AUTO_CREATE_TOPIC
from kourou.protocol.bodies.heartbeat_body import HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.sends import PushReplyMessageToClient, SendReplyMessage
from kourou.runtime import AskClient
from kourou_rigs.access import SecuredBroker

REPLIES = "DefaultCluster_REPLY_TOPIC"


def test_a_reply_reaches_another_client_only_with_a_right_to_the_reply_topic() -> None:
    broker = SecuredBroker()
    root = broker.administrator()
    victim, eve = broker.create(root, "victim"), broker.create(root, "eve")
    beat = encode_heartbeat(HeartbeatBody("victim@1", ("p",)))
    assert broker.ask(victim, HeartBeat(), beat).code == Code.SUCCESS

    def pushed() -> list[str]:
        asked = [one.request for one in broker.engine.effects if isinstance(one, AskClient)]
        return [one.topic for one in asked if isinstance(one, PushReplyMessageToClient)]

    def reply_in(topic: str) -> SendReplyMessage:
        return SendReplyMessage(
            producer_group="p",
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=0,
            born_timestamp=1,
            properties="REPLY_TO_CLIENT\x01victim@1",
        )

    for actions, missing in (
        (["Pub"], f"Pub on Topic:{REPLIES}"),
        (["Pub", "Create"], f"Pub on Topic:{REPLIES}"),
    ):
        broker.allow(root, "eve", "Topic:eve-*", *actions)
        reply = broker.ask(eve, reply_in("eve-1"), b"x")
        assert (reply.code, missing in reply.remark) == (Code.NO_PERMISSION, True)
    broker.allow(root, "eve", f"Topic:{REPLIES}", "Pub")
    broker.allow(root, "eve", "Topic:eve-*", "Pub")
    reply = broker.ask(eve, reply_in("eve-1"), b"x")
    assert (reply.code, "Create on Topic:eve-1" in reply.remark) == (Code.NO_PERMISSION, True)
    assert "eve-1" not in broker.engine.control.topics
    assert pushed() == []
    assert broker.give(broker.received(eve, reply_in(REPLIES), b"x")) == [None]
    assert pushed() == [REPLIES]
