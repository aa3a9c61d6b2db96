from kourou.protocol.record.message_record import decode_record
from kourou_rigs.records import RecordRun


def test_a_run_numbers_messages_as_a_broker_does():
    run = RecordRun(position=16_384, store_ms=1_000)
    run.add("TopicA", 1, tag="t", unique_key="u", keys="a b", properties={"x": "y"})
    run.add("TopicA", 0)
    run.add("TopicA", 1, after_ms=5)
    columns = run.columns()
    assert columns.positions.tolist() == run.positions
    assert columns.queue_offsets.tolist() == [0, 0, 1]
    assert columns.store_timestamps.tolist() == [1_001, 1_002, 1_007]
    assert run.store_ms_of(run.positions[2]) == 1_007
    assert (run.positions[0], run.end) == (16_384, 16_384 + len(run.data))
    first = decode_record(run.data)
    assert first.properties["x"] == "y"
    assert (first.tag, first.message_id, first.keys) == ("t", "u", ("a", "b"))
    assert run.columns(1, 2).positions.tolist() == run.positions[1:2]
    assert len(run.columns(3)) == 0
