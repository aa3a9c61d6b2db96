"""Frames are filled to their limits, in the order of the rows, and no further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kourou.client.producer.drafts import DraftDestination
from kourou_spark_etl.sink import writers
from kourou_spark_etl.sink.draft_columns import Drafts
from kourou_spark_etl.sink.messages import DraftTarget
from kourou_spark_etl.sink.writers import Sender

TARGETS = [("orders", 0), ("orders", 1), ("bills", 0)]
Frames = list[tuple[str, list[tuple[tuple[str, int], bytes]]]]


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Frames:
    """What was sent: the address, and each draft with its target."""
    sent: Frames = []

    def send(_: object, frame: Any, __: int) -> None:
        queue_targets = list(frame.queue_targets)
        assert frame.size_bytes == sum(map(len, frame.drafts))
        named = [queue_targets[number] for number in frame.queue_target_of]
        sent.append((frame.address, list(zip(named, frame.drafts, strict=True))))

    monkeypatch.setattr(writers, "_sent", send)
    monkeypatch.setattr(writers, "FRAME_RECORDS_MAX", 5)
    monkeypatch.setattr(writers, "FRAME_RECORD_BYTES_MAX", 100)
    return sent


class Client:
    """Work is done when it is begun."""

    session = None

    def submit(self, work: None) -> Callable[[], None]:
        return lambda: work


def drafts(sizes: list[int], name: str = "a") -> Drafts:
    queue_target_of = np.arange(len(sizes)) % 2 * 2
    made = [bytes([number]) * size for number, size in enumerate(sizes)]
    return Drafts(name, f"{name}:1", TARGETS, queue_target_of, made)


def by_rows(one: Drafts, out: Sender) -> None:
    for number, draft in zip(one.queue_target_of.tolist(), one.drafts, strict=True):
        topic, queue_id = one.queue_targets[number]
        place = DraftDestination(topic.encode(), queue_id, "")
        out.put(DraftTarget(one.broker_name, one.address, topic, queue_id, place), draft)


@pytest.mark.parametrize(
    "sizes",
    [[10], [10] * 5, [10] * 6, [30] * 7, [100, 1, 100], [150, 10, 10], [10, 150, 10], [1] * 23],
)
@pytest.mark.parametrize("times", [1, 3])
def test_many_fill_frames_as_rows_do(frames: Frames, sizes: list[int], times: int) -> None:
    out = Sender(Client(), 1_000)  # type: ignore[arg-type]  # no more of it is used
    for _ in range(times):
        out.put_many(drafts(sizes))
    out.finish()
    together = list(frames)
    frames.clear()
    alone = Sender(Client(), 1_000)  # type: ignore[arg-type]  # as above
    for _ in range(times):
        by_rows(drafts(sizes), alone)
    alone.finish()
    assert together == frames
    assert out.counts == alone.counts == {"a": times * len(sizes)}


def test_each_broker_has_its_own_frames(frames: Frames) -> None:
    out = Sender(Client(), 1_000)  # type: ignore[arg-type]  # as above
    for name in ("a", "b", "a"):
        out.put_many(drafts([10, 10], name))
    assert frames == []
    out.finish()
    assert [(address, len(rows)) for address, rows in frames] == [("a:1", 4), ("b:1", 2)]
    assert [queue_target for queue_target, _ in frames[0][1]] == [("orders", 0), ("bills", 0)] * 2
