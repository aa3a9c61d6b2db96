"""What Apache's C++ client can do, through the package `rocketmq` that brings it along.

    python scenarios.py ADDRESS SCENARIO MARK

Runs one scenario in its own process, prints one JSON line, and ends without the library's own
clean-up, which is known to crash. The interpreter is that of a virtual environment with nothing
but requirements.txt in it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer
from rocketmq.exceptions import ProducerSendSyncFailed

PATIENCE_S = 45
"""The client looks for its queues every 20 s; what it waits for is never far beyond that."""


class Seen:
    """Messages that a consumer was given, and a way to wait for enough of them."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.changed = threading.Condition()

    def __call__(self, message: Any) -> None:
        """The consumer's callback; a message must not be kept beyond it."""
        told = {
            "body": message.body.decode(),
            "tags": message.tags.decode(),
            "keys": message.keys.decode(),
            "id": message.id,
            "queue": message.queue_id,
            "attempts": message.reconsume_times,
            "after_ms": int(time.time() * 1_000) - message.born_timestamp,
        }
        with self.changed:
            self.messages.append(told)
            self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Until so many have come; AssertionError if they do not."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.messages) >= count, PATIENCE_S)
        assert len(self.messages) >= count, f"{len(self.messages)} of {count} messages came"


def sent(producer: Any, message: Any) -> Any:
    """Send it. A busy name server may not reply in the client's 3 s; then nothing was sent yet."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return producer.send_sync(message)
        except ProducerSendSyncFailed as failure:
            if "No route info" not in str(failure) or time.monotonic() > end:
                raise


class Stand:
    """What one scenario works with."""

    def __init__(self, address: str, name: str, mark: str) -> None:
        self.address = address
        self.topic = f"Interop{mark}-{name}"
        self.group = f"interop{mark}-{name}"
        self.counts: dict[str, int] = {}

    def producer(self) -> Any:
        one = Producer(f"{self.group}-sender")
        one.set_namesrv_addr(self.address)
        one.start()
        return one

    def message(self, body: str) -> Any:
        one = Message(self.topic)
        one.set_keys("a-key")
        one.set_tags("a-tag")
        one.set_property("città", "Zürich")
        one.set_body(body)
        return one

    def consumed(
        self, callback: Callable[[Any], None], expression: str = "*", *, orderly: bool = False
    ) -> None:
        one = PushConsumer(self.group, orderly=orderly)
        one.set_namesrv_addr(self.address)
        one.subscribe(self.topic, callback, expression)
        one.start()
        self.consumer = one  # as long as the process lives


def send(stand: Stand) -> None:
    """Everything that a message has arrives; large bodies are compressed on the way."""
    producer = stand.producer()
    bodies = ["Grüße 🚀", "x" * 100_000]
    ids = [sent(producer, stand.message(body)).msg_id for body in bodies]
    properties: list[bytes] = []
    seen = Seen()

    def callback(message: Any) -> None:
        properties.append(message.get_property("città"))
        seen(message)

    stand.consumed(callback)
    seen.wait_for(2)
    found = sorted(seen.messages, key=lambda one: len(one["body"]))
    assert [one["body"] for one in found] == bodies
    assert sorted(one["id"] for one in found) == sorted(ids)
    assert {(one["tags"], one["keys"]) for one in found} == {("a-tag", "a-key")}
    assert properties == ["Zürich".encode()] * 2
    stand.counts["seen"] = len(found)


def send_otherwise(stand: Stand) -> None:
    """With a callback, and one-way."""
    producer = stand.producer()
    sent(producer, stand.message("first"))  # which makes the topic
    done = threading.Event()
    failures: list[object] = []
    producer.send_async(
        stand.message("async"),
        lambda _result: done.set(),
        lambda failure: (failures.append(failure), done.set()),
    )
    assert done.wait(PATIENCE_S)
    assert not failures, failures
    producer.send_oneway(stand.message("oneway"))
    seen = Seen()
    stand.consumed(seen)
    seen.wait_for(3)
    assert {one["body"] for one in seen.messages} == {"first", "async", "oneway"}
    stand.counts["seen"] = len(seen.messages)


def batch(stand: Stand) -> None:
    """RocketMQ stores what this client calls a batch as one message; it may be several."""
    producer = stand.producer()
    sent(producer, stand.message("first"))
    producer.send_batch([stand.message(f"batch-{number}") for number in range(3)])
    seen = Seen()
    stand.consumed(seen)
    seen.wait_for(2)
    stand.counts["sent"] = 4


def orderly(stand: Stand) -> None:
    """Same key, same queue, in order."""
    producer = stand.producer()
    sent(producer, stand.message("0"))
    for number in range(1, 31):
        producer.send_orderly(stand.message(str(number)), number % 2)
    seen = Seen()
    stand.consumed(seen, orderly=True)
    seen.wait_for(31)
    for queue in {one["queue"] for one in seen.messages}:
        numbers = [int(one["body"]) for one in seen.messages if one["queue"] == queue]
        assert numbers == sorted(numbers), (queue, numbers)
    stand.counts["seen"] = len(seen.messages)


def live(stand: Stand) -> None:
    """A consumer that waits gets what comes at once, by tag."""
    producer = stand.producer()
    sent(producer, stand.message("first"))
    seen = Seen()
    stand.consumed(seen, "a-tag")
    seen.wait_for(1)
    other = stand.message("other")
    other.set_tags("b-tag")
    sent(producer, other)
    sent(producer, stand.message("live"))
    seen.wait_for(2)
    assert [one["body"] for one in seen.messages] == ["first", "live"]
    assert seen.messages[1]["after_ms"] < 5_000, seen.messages
    stand.counts["seen"] = 2


def pull(stand: Stand) -> None:
    """The pull consumer goes through a topic."""
    producer = stand.producer()
    for number in range(20):
        sent(producer, stand.message(str(number)))
    consumer = PullConsumer(stand.group)
    consumer.set_namesrv_addr(stand.address)
    consumer.start()
    bodies: set[str] = set()
    end = time.monotonic() + PATIENCE_S
    while len(bodies) < 20 and time.monotonic() < end:
        bodies |= {message.body.decode() for message in consumer.pull(stand.topic)}
    assert bodies == {str(number) for number in range(20)}
    stand.counts["pulled"] = len(bodies)


def retry(stand: Stand) -> None:
    """An exception of the callback gives the message back."""
    producer = stand.producer()
    sent(producer, stand.message("again"))
    seen = Seen()

    def callback(message: Any) -> None:
        seen(message)
        if message.reconsume_times == 0:
            raise ValueError("on purpose")

    stand.consumed(callback)
    seen.wait_for(2)
    assert [one["attempts"] for one in seen.messages] == [0, 1]
    assert len({one["id"] for one in seen.messages}) == 1
    stand.counts["attempts"] = 2


def delay(stand: Stand) -> None:
    """A delayed message is never early."""
    producer = stand.producer()
    sent(producer, stand.message("first"))
    late = stand.message("late")
    late.set_delay_time_level(2)
    sent(producer, late)
    seen = Seen()
    stand.consumed(seen)
    seen.wait_for(2)
    assert {one["body"] for one in seen.messages} == {"first", "late"}
    assert next(one["after_ms"] for one in seen.messages if one["body"] == "late") >= 2_000
    stand.counts["seen"] = 2


SCENARIOS: dict[str, Callable[[Stand], None]] = {
    "send": send,
    "send-otherwise": send_otherwise,
    "batch": batch,
    "orderly": orderly,
    "live": live,
    "pull": pull,
    "retry": retry,
    "delay": delay,
}


def main(address: str, name: str, mark: str) -> None:
    stand = Stand(address, name, mark)
    began = time.monotonic()
    detail = ""
    try:
        SCENARIOS[name](stand)
    except Exception as failure:  # noqa: BLE001 - whatever it was, it becomes the line
        detail = f"{type(failure).__name__}: {failure}"
    line = {
        "name": name,
        "ok": not detail,
        "seconds": round(time.monotonic() - began, 3),
        "counts": stand.counts,
        "detail": detail,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
