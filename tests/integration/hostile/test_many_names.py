"""Very many names: what a client asks about is not kept, and what it may create is bounded.

The broker runs in this process, so the interpreter's count of live memory blocks shows what is
kept of a name: a table with an entry for each grows by several blocks a name.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.errors import Code
from kourou.model.limits import CONNECTION_GROUPS_MAX
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.wire.remoting import RemotingCommand, encode_command
from kourou_rigs.attacked import LAST, ROOT, TILL, Attacked, broker_in, broker_with_users, signed
from kourou_rigs.waiting import until

SEND, PULL, COMMITTED, COMMIT, HEARTBEAT, UNREGISTER, CONSUMERS, SEND_BACK, STATE, DELETE_TOPIC = (
    *(310, 11, 14, 15, 34, 35, 38, 36, 307, 215),
)
NAMES_OF_A_ROUND = 10_000
NAMES_OF_A_BURST = 500
KEPT_OF_A_NAME = 0.05
"""Memory blocks; caches of a fixed size fill during the first round."""

REMEMBERED = 100
TABLES = (
    "kourou.access.authorizer.ACCESS_DECISIONS_MAX",
    "kourou.authorization.request_gate.ACCESS_DECISIONS_MAX",
    "kourou.authorization.request_gate.ACCESS_REFUSALS_MAX",
    "kourou.service.audit_log.ACCESS_REFUSALS_MAX",
)
"""Limits of what is remembered of refusals: lower here, so that the first round reaches them."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep no log lines: the test's own recorder of them would grow."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def requests_about(name: str) -> list[tuple[int, dict[str, str], bytes]]:
    """Requests with a name wherever one has room for a topic, a group or a client."""
    beat = json.dumps({"clientID": name, "producerDataSet": [{"groupName": name}]}).encode()
    letters = {"a": name, "b": name, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1"}
    place = {"queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0"}
    return [
        (SEND, letters, b"x"),
        (PULL, {"consumerGroup": name, "topic": "orders", **place}, b""),
        (PULL, {"consumerGroup": "g", "topic": name, **place}, b""),
        (COMMITTED, {"consumerGroup": name, "topic": "orders", "queueId": "0"}, b""),
        (COMMIT, {"consumerGroup": name, "topic": "orders", "queueId": "0", "commitOffset": "0"},
         b""),
        (HEARTBEAT, {}, beat),
        (UNREGISTER, {"clientID": name, "producerGroup": name}, b""),
        (CONSUMERS, {"consumerGroup": name}, b""),
        (SEND_BACK, {"group": name, "offset": "0", "delayLevel": "0", "originTopic": name}, b""),
        (STATE, {"consumerGroup": name, "clientId": name}, b""),
    ]  # fmt: skip


def frame(code: int, fields: dict[str, str], body: bytes = b"", opaque: int = 1) -> bytes:
    return encode_command(RemotingCommand(code, opaque=opaque, ext_fields=fields, body=body))


def plain(name: str) -> bytes:
    """Two of the requests; which ones follows from the name."""
    chosen = requests_about(name)
    at = 2 * (int(name.rpartition("-")[2]) % (len(chosen) // 2))
    return b"".join(frame(*one) for one in chosen[at : at + 2])


def with_credentials(name: str) -> bytes:
    """The same by a user without the right, by one who does not exist, and by no user."""
    number = int(name.rpartition("-")[2])
    code, fields, body = requests_about(name)[number % 10]
    if number % 3 == 0:
        fields = signed(TILL, fields, body)
    elif number % 3 == 1:
        fields = {**fields, "AccessKey": name, "Signature": "x"}
    return frame(code, fields, body)


async def settled(broker: Attacked) -> int:
    """The number of live memory blocks when all connections of attackers are gone."""
    await until(lambda: broker.statistics()["peers"] == 1 and not list(broker.view.membership))
    gc.collect()
    return sys.getallocatedblocks()


async def ask_about(broker: Attacked, names: Iterator[str], of: Callable[[str], bytes]) -> int:
    """Send the requests of a round; returns how many were answered."""
    last = frame(31, {"topic": "orders", "queueId": "0"}, opaque=LAST)
    answered = 0
    for _ in range(NAMES_OF_A_ROUND // NAMES_OF_A_BURST):
        burst = b"".join(of(next(names)) for _ in range(NAMES_OF_A_BURST))
        replies = await broker.answers(burst, last)
        assert any(one.opaque == LAST for one in replies)
        answered += len(replies) - 1
    return answered


async def grows_by(broker: Attacked, rounds: int, of: Callable[[str], bytes]) -> float:
    """The memory blocks that are kept of a name, on average."""
    names = (f"{'n' * (number % 90)}-{number}" for number in range(1 << 40))
    assert await ask_about(broker, names, of) >= NAMES_OF_A_ROUND
    before = await settled(broker)
    for _ in range(rounds):
        assert await ask_about(broker, names, of) >= NAMES_OF_A_ROUND
    return (await settled(broker) - before) / (rounds * NAMES_OF_A_ROUND)


@pytest.mark.fault
@pytest.mark.timeout(1_800)
async def test_names_that_are_asked_about_are_not_kept(
    tmp_path: Path, rounds: Callable[[int], int]
) -> None:
    closed = {"auto_create": False, "auto_create_group": False}
    async with broker_in(tmp_path, **closed) as broker:
        topic = UpdateAndCreateTopic(topic="orders", read_queue_nums=1, write_queue_nums=1, perm=6)
        assert (await broker.request(topic)).code == Code.SUCCESS
        assert await grows_by(broker, rounds(100), plain) < KEPT_OF_A_NAME
        assert "orders" in broker.view.control.topics
        assert not list(broker.view.membership)


@pytest.mark.fault
@pytest.mark.timeout(1_800)
async def test_names_that_are_refused_are_not_kept(
    tmp_path: Path, rounds: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in TABLES:
        monkeypatch.setattr(limit, REMEMBERED)
    async with broker_with_users(tmp_path) as broker:
        assert (await broker.send(user=TILL)).code == Code.SUCCESS
        assert await grows_by(broker, rounds(30), with_credentials) < KEPT_OF_A_NAME
        gate = broker.core.parts.access_gate
        assert gate.refused > NAMES_OF_A_ROUND
        assert sum(one.count for one in gate.refusals()) == gate.refused
        assert len(gate.refusals()) == REMEMBERED + 1
        await broker.serves(ROOT)


@pytest.mark.fault
async def test_beyond_the_limit_no_topic_and_no_group_is_created(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    await attacked.serves()
    control = attacked.view.control
    topics, groups = len(control.topics) + 20, len(control.groups) + 20
    monkeypatch.setattr("kourou.engine.admin.topic_table.TOPICS_MAX", topics)
    replies = [await attacked.send(topic=f"topic-{number}") for number in range(50)]
    assert [one.code == Code.SUCCESS for one in replies] == [True] * 20 + [False] * 30
    assert f"this broker has {topics} topics, the maximum" in (replies[-1].remark or "")
    assert len(control.topics) == topics
    monkeypatch.setattr("kourou.engine.groups.group_table.GROUPS_MAX", groups)
    fields = {"topic": "topic-0", "queueId": 0, "commitOffset": 0}
    replies = [
        await attacked.say(COMMIT, consumerGroup=f"group-{number}", **fields)
        for number in range(50)
    ]
    assert [one.code == Code.SUCCESS for one in replies] == [True] * 20 + [False] * 30
    assert f"this broker has {groups} groups, the maximum" in (replies[-1].remark or "")
    assert len(control.groups) == groups
    await attacked.serves()
    monkeypatch.setattr("kourou.engine.admin.topic_table.TOPICS_MAX", len(control.topics))
    assert (await attacked.say(DELETE_TOPIC, topic="topic-1")).code == Code.SUCCESS
    assert (await attacked.send(topic="topic-new")).code == Code.SUCCESS


@pytest.mark.fault
async def test_a_connection_has_so_many_clients_and_takes_them_along(attacked: Attacked) -> None:
    count = CONNECTION_GROUPS_MAX + 100
    beats = []
    for number in range(1, count + 1):
        beat = {"clientID": f"c{number}", "producerDataSet": [{"groupName": "p"}]}
        opaque = LAST if number == count else number
        beats.append(frame(HEARTBEAT, {}, json.dumps(beat).encode(), opaque))
    replies = await attacked.answers(*beats)
    assert len(replies) == len(beats)
    taken = [one.code == Code.SUCCESS for one in replies]
    assert taken == [True] * CONNECTION_GROUPS_MAX + [False] * 100
    assert "the maximum" in (replies[-1].remark or "")
    await until(lambda: not list(attacked.view.membership))
    await attacked.serves()
