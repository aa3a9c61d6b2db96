"""What a consume queue keeps, and whom it would go to."""

from __future__ import annotations

from kourou.model.topic import MessageQueue


def test_units_from_an_offset_on(suite) -> None:
    topic = suite.topic(queues=1)
    with suite.cluster.client() as mq:
        for number in range(3):
            mq.send(topic, f"{number}", tag="a", queue=MessageQueue(topic, "broker-a", 0))
    path = f"/v1/topics/{topic}/queues/broker-a/0/units"
    found = suite.console.get(path, query={"offset": 1, "count": 1}).json
    (unit,) = found["items"]
    assert (unit["offset"], unit["tag_code"], found["truncated"]) == (1, str(ord("a")), True)
    assert unit["size_bytes"] > 0
    assert (found["min_offset"], found["max_offset"], found["total"]) == (0, 3, 3)
    assert suite.console.get(path, query={"count": 1_001}).status == 400
