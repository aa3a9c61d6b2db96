"""The topics of batches."""

from kourou.protocol.record.columns import scan
from kourou_rigs.records import RecordRun


def test_topics_of_a_batch() -> None:
    run = RecordRun()
    for topic in ("Ab", "Cd", "Ab", "Efg"):
        run.add(topic)
    topics, numbers = run.columns().topics()
    assert topics == [b"Ab", b"Cd", b"Efg"]
    assert numbers is not None
    assert numbers.tolist() == [0, 1, 0, 2]
    assert run.columns(0, 1).topics() == ([b"Ab"], None)


def test_nothing_has_no_topics() -> None:
    assert scan(b"").topics() == ([], None)
