"""Transactions that a real RocketMQ 4.9.8 stored: what we make of its records is what it made.

A commit, a rollback, and one that was asked about and then committed (the README lists them). Only
the order of properties may differ, which is that of a Java hash map, and our checksum at their end.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kourou.engine.groups.progress import Commits, ConsumerProgress
from kourou.engine.transactions.half_messages import (
    HalfRecord,
    checked,
    committed,
    half_of,
    operation,
    read_half,
)
from kourou.engine.transactions.open_halves import open_halves
from kourou.model.message import SysFlag
from kourou.model.names import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from kourou.model.transaction import ended_by
from kourou.protocol.record.layout import encode_host, parts_of
from kourou.protocol.record.message_record import decode_record, encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou.store.real_disk import RealDisk
from kourou.store.store import Store
from kourou_rigs.engine import hold
from kourou_rigs.store import small_settings

GOLDEN = Path(__file__).parent / "rocketmq-4.9.8"
WALL_MS = 1_795_228_900_000
BROKER = encode_host(("127.0.0.1", 23911))

COMMITTED = (2275, 2865, 3)
ROLLED_BACK = 2569
ASKED_ABOUT = (3141, 5210, 5531, 1)
OPS = [(3436, 0), (3571, 1), (5834, 3)]


@pytest.fixture(params=["store-clean", "store-live-abort"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / str(request.param)
    shutil.copytree(GOLDEN / str(request.param), root)
    return root


@pytest.fixture(scope="module")
def log() -> bytes:
    folder = GOLDEN / "store-clean" / "commitlog"
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def half_at(log: bytes, position: int) -> HalfRecord:
    size = int.from_bytes(log[position : position + 4], "big")
    return read_half(log[position : position + size])


def fields(raw: bytes, *left_out: str) -> dict[str, object]:
    """What a record says, but for its place, its time and its checksum."""
    stored = decode_record(raw, verify=False)
    named = {name: getattr(stored, name) for name in stored.__slots__}
    for name in ("position", "offset", "size", "store_timestamp", "store_host", *left_out):
        del named[name]
    return named


@pytest.mark.feature("F252", "F256")
@pytest.mark.parametrize(("half", "message", "queue_id"), [COMMITTED, ASKED_ABOUT[1:]])
def test_a_committed_message_is_rocketmqs(log, half, message, queue_id) -> None:
    ours = committed(half_at(log, half), queue_id)
    assert fields(ours) == fields(half_at(log, message).raw)
    assert decode_record(ours, verify=False).prepared_transaction_offset == half


@pytest.mark.feature("F254")
def test_a_half_message_that_is_asked_about_is_put_back_as_rocketmq_does(log) -> None:
    half, again, _, _ = ASKED_ABOUT
    assert fields(checked(half_at(log, half), 1)) == fields(half_at(log, again).raw)


def test_an_op_record_is_rocketmqs(log) -> None:
    for position, half_offset in OPS:
        theirs = half_at(log, position)
        ours = operation(half_offset, theirs.born_ms, BROKER)
        assert fields(ours) == fields(theirs.raw)
        assert ended_by(decode_record(theirs.raw).body) == [half_offset]


@pytest.mark.parametrize("position", [COMMITTED[0], ROLLED_BACK, ASKED_ABOUT[0]])
def test_a_half_message_is_rocketmqs(log, position: int) -> None:
    theirs = half_at(log, position)
    parts = parts_of(theirs.raw, 0, len(theirs.raw))
    properties = dict(theirs.properties)
    topic, queue_id = properties.pop("REAL_TOPIC"), int(properties.pop("REAL_QID"))
    sent = encode_draft(
        topic=topic.encode(),
        queue_id=queue_id,
        body=theirs.raw[parts.body_at : parts.body_end],
        properties=encode_properties(properties),
        sys_flag=int(SysFlag.TRANSACTION_PREPARED),
        born_timestamp=parts.born_timestamp,
        born_host=parts.born_host,
    )
    ours = half_of(sent, (topic, queue_id))
    assert fields(ours) == fields(theirs.raw)
    assert parts_of(ours, 0, len(ours)).sys_flag == 0


def test_what_rocketmq_left_open_is_open(root: Path) -> None:
    """All is resolved there, seen from its progress or from the beginning."""
    table = json_offsets(root)
    store = Store.open(small_settings(root), RealDisk())
    try:
        for progress in (table, {}):
            commits = Commits(ConsumerProgress({TRANSACTION_GROUP: progress} if progress else {}))
            halves = open_halves(store, commits, 0, WALL_MS)
            assert len(halves) == 0
            assert halves.done() == (4, 3)
        # As if the broker had died before its last op record.
        assert store.offset_position(OP_TOPIC, 0, 2) == OPS[2][0]
        halves = open_halves(_Before(store, 2), Commits(ConsumerProgress()), 0, WALL_MS)
        assert [(one.offset, one.position, one.checks) for one in halves] == [(3, 5210, 1)]
        assert halves.done() == (3, 2)
    finally:
        store.close()


class _Before:
    """A store whose op queue has so many records."""

    def __init__(self, store: Store, ops: int) -> None:
        self._store = store
        self._ops = ops

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        return (0, self._ops) if topic == OP_TOPIC else self._store.queue_range(topic, queue_id)

    def read_queue(self, topic: str, *where: int, **how: object):
        read = self._store.read_queue(topic, *where, **how)
        if topic == OP_TOPIC:
            hold(read, read.records[: self._ops])
            read.next_offset = self._ops
        return read


def json_offsets(root: Path) -> dict[str, dict[int, int]]:
    """RocketMQ's own progress in the two topics."""
    text = (root / "config" / "consumerOffset.json").read_text()
    found: dict[str, dict[int, int]] = {}
    for topic in (HALF_TOPIC, OP_TOPIC):
        after = text.split(f'"{topic}@{TRANSACTION_GROUP}":', 1)
        if len(after) == 2:
            number = after[1].split("{0:", 1)[1].split("\n", 1)[0].rstrip("}, \t")
            found[topic] = {0: json.loads(number)}
    return found
