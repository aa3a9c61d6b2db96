"""A jailed worker says of random messages what the same filter says at a consumer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from kourou.model.message import Compression, StoredMessage
from kourou.protocol.record.compression import compress
from kourou.protocol.record.hashes import java_hash
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft, stamp
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.records import decode_many

ROUNDS = 2_000
BATCH, SMALL_BATCH = 500, 100
"""A million messages with --slow, 20,000 without."""

TAGS = ["Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa", "Siblings", "Teheran", "late", ""]
"""The first two have the same hash in Java, and the next four, and the two behind those."""

HOSTS = [encode_host(("10.0.0.9", 1234)), encode_host(("2001:db8::9", 1234))]

SOURCE = """
import datetime, math

WANTED = {"Aa", "AaBB", "Siblings"}

def late(message):
    flight = message.json
    left = datetime.datetime.fromtimestamp(message.born_ms / 1000, datetime.timezone.utc)
    arrived = left + datetime.timedelta(minutes=flight["minutes"])
    return flight["late"] > 120 and arrived.date() > left.date()

def match(message, context):
    if message.tag in WANTED:
        return True
    if message.key is not None and message.key.endswith("7"):
        return message.properties.get("region") == "eu" and message.queue_id % 2 == 0
    if message.body[:1] == b"{":
        return late(message)
    return math.fsum(message.body) > 4000 and message.reconsume_times < 2
"""


class AtTheConsumer:
    """A message as a consumer has it, with the names that filters use."""

    def __init__(self, message: StoredMessage) -> None:
        self._message = message
        self.tag, self.body = message.tag, message.body
        self.properties = message.properties
        self.key = message.keys[0] if message.keys else None
        self.queue_id, self.born_ms = message.queue_id, message.born_timestamp
        self.reconsume_times = message.reconsume_times

    @property
    def json(self) -> Any:
        return json.loads(self._message.body)


def random_record(chance: random.Random, offset: int) -> bytes:
    properties = {"UNIQ_KEY": f"{chance.getrandbits(128):032X}"}
    if tag := chance.choice(TAGS):
        properties["TAGS"] = tag
    if chance.random() < 0.4:
        properties["KEYS"] = f"A-{chance.randrange(50)} B-{chance.randrange(9)}"
    if chance.random() < 0.5:
        properties["region"] = chance.choice(["eu", "us", "ü"])
    body = chance.randbytes(chance.randrange(80))
    if chance.random() < 0.4:
        flight = {"late": chance.randrange(300), "minutes": chance.randrange(1500), "to": "Zürich"}
        if chance.random() < 0.1:
            del flight["minutes"]  # the filter raises
        body = json.dumps(flight).encode()
    sys_flag = 0
    if chance.random() < 0.2:
        kind = chance.choice(list(Compression))
        body, sys_flag = compress(kind, body), 1 | kind << 8
    born, store = chance.choice(HOSTS), chance.choice(HOSTS)
    draft = bytearray(
        encode_draft(
            topic=b"flights",
            queue_id=chance.randrange(8),
            body=body,
            properties=encode_properties(properties),
            sys_flag=sys_flag,
            born_timestamp=1_700_000_000_000 + chance.randrange(86_400_000),
            born_host=born,
            store_host_v6=len(store) == 20,
            reconsume_times=chance.randrange(4),
        )
    )
    stamp(draft, 0, queue_offset=offset, position=0, store_timestamp=99, store_host=store)
    return bytes(draft)


@pytest.mark.fault
@pytest.mark.feature("F238", "F242", "F244")
def test_results_are_those_of_a_filter_at_the_consumer(jail, rounds: Callable[[int], int]) -> None:
    names: dict[str, Any] = {}
    exec(SOURCE, names)
    match = names["match"]

    def expected(message: StoredMessage) -> int:
        try:
            return int(match(AtTheConsumer(message), None))
        except (KeyError, ValueError):
            return 2

    chance = random.Random(20_090_101)
    wanted_hashes = {java_hash(tag) for tag in names["WANTED"]}
    seen = [0, 0, 0]
    collided = 0
    with jail.filter(SOURCE) as judge:
        count = rounds(ROUNDS)
        size = BATCH if count == ROUNDS else SMALL_BATCH
        for _ in range(count):
            records = [random_record(chance, offset) for offset in range(size)]
            messages = decode_many(b"".join(records))
            results = judge(records)
            assert list(results) == [expected(message) for message in messages]
            for value in range(3):
                seen[value] += results.count(value)
            collided += sum(
                java_hash(message.tag) in wanted_hashes and verdict == 0
                for message, verdict in zip(messages, results, strict=True)
                if message.tag
            )
    # Each kind of verdict came, and a filter by hashes alone would have let some of them through.
    assert min(*seen, collided) > count // 10
