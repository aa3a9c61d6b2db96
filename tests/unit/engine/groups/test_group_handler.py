"""Progress of groups, as operators ask about and change it; the rest is in the transcripts."""

from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.bodies.statistics_bodies import decode_correction_offsets, decode_offset_table
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.pulls import InvokeBrokerToResetOffset, QueryCorrectionOffset
from kourou.protocol.wire.lenient_json import loads


def test_each_member_gets_offsets_in_the_form_of_its_own_language(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    for peer, client in ((5, "c1"), (6, "c2")):
        body = encode_heartbeat(HeartbeatBody(client, consumers=(ConsumerData("g"),)))
        engine.ask(HeartBeat(), body, peer=peer)
    members = {one.client_id: one for one in engine.core.parts.membership.consumers("g")}
    members["c2"].language = "CPP"
    engine.notices.clear()
    engine.ask(InvokeBrokerToResetOffset(topic="orders", group="g", timestamp=0, is_force=True))
    bodies = {note.peer.id: b"".join(note.body) for note in engine.notices}
    assert isinstance(loads(bodies[5])["offsetTable"], dict)
    assert isinstance(loads(bodies[6])["offsetTable"], list)
    assert decode_offset_table(bodies[5]) == decode_offset_table(bodies[6])


def test_progress_below_what_is_kept_does_not_count(engine, draft, records) -> None:
    engine.ask(*records([draft() for _ in range(10)]))
    for group, offset in (("g", 2), ("h", 7)):
        engine.core.parts.commits.commit(group, "orders", 0, offset)
    engine.store.firsts["orders", 0] = 5
    request = QueryCorrectionOffset(topic="orders", compare_group="none")
    assert decode_correction_offsets(b"".join(engine.ask(request).body)) == {0: 7}
