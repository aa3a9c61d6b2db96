"""Filter servers come, go, and are notified."""

from __future__ import annotations

import hashlib

import pytest

from kourou.engine.admin.topic_handler import ANNOUNCE_WAIT_MS
from kourou.engine.effects import Announce
from kourou.errors import Code
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.filter_server import (
    ChangeFilter,
    NotifyFiltersChanged,
    PutFilter,
    RecordFilterSkip,
    RegisterFilterServer,
    UnregisterFilterServer,
)
from kourou.runtime.core import Disconnected, LogWarning
from kourou_rigs.engine import Engine, header_of

SOURCE = b"def match(message, context):\n    return True\n"


def register(engine: Engine, number: int = 7, *, plain: bool = False):
    listeners = None if plain else {"local:internal": f"f{number}:1"}
    request = RegisterFilterServer(filter_server_addr=f"f{number}:1", listeners=listeners)
    return engine.ask(request, peer=number)


def put(engine: Engine, source: bytes = SOURCE, peer: int = 1) -> tuple[int, int]:
    digest = hashlib.sha256(source).hexdigest()
    return engine.send(PutFilter(consumer_group="g", name="f", sha256=digest), source, peer=peer)


def registered(engine: Engine) -> int:
    count = sum(isinstance(effect, Announce) for effect in engine.effects)
    engine.effects.clear()
    return count


def notified(engine: Engine) -> list[tuple[int, int]]:
    """Which filter servers were notified of which filters since the last question."""
    notices, engine.notices[:] = list(engine.notices), []
    return [
        (each.peer.id, each.request.filters_version)
        for each in notices
        if isinstance(each.request, NotifyFiltersChanged)
    ]


@pytest.mark.feature("F239")
def test_who_registers_learns_whose_it_is_and_name_servers_learn_of_it(engine: Engine) -> None:
    registered(engine)
    header = header_of(register(engine))
    assert (header.broker_name, header.broker_id, header.filters_version) == ("broker-a", 0, 0)
    assert registered(engine) == 1
    put(engine)
    registered(engine)
    assert header_of(register(engine)).filters_version == 2
    assert registered(engine) == 0, "nothing new"


def test_a_new_one_is_answered_when_name_servers_know_it() -> None:
    engine = Engine(name_servers=False)
    name = engine.send(RegisterFilterServer(filter_server_addr="f:1", listeners={}), peer=7)
    assert name not in engine.replies
    engine.advance(ANNOUNCE_WAIT_MS)
    assert engine.replies[name].code == Code.SUCCESS


def test_who_leaves_or_falls_silent_or_is_cut_off_is_gone(engine: Engine) -> None:
    servers = engine.core.parts.filter_servers
    register(engine)
    registered(engine)
    assert engine.ask(UnregisterFilterServer(filter_server_addr="f7:1"), peer=7).code == 0
    assert (len(servers), registered(engine)) == (0, 1)
    assert engine.ask(UnregisterFilterServer(filter_server_addr="f7:1"), peer=7).code == 0
    assert registered(engine) == 0

    register(engine)
    registered(engine)
    engine.handle(Disconnected(engine.peer(7)))
    assert len(servers) == 0
    lost = [effect.text for effect in engine.effects if isinstance(effect, LogWarning)]
    assert lost == ["filter server f7:1 is offline: its connection closed"]
    assert registered(engine) == 1

    register(engine)
    engine.advance(29_999)
    registered(engine)
    assert len(servers) == 1
    engine.advance(1)
    assert (len(servers), registered(engine)) == (0, 1)


def test_its_silence_is_a_setting(engine: Engine) -> None:
    engine.core.parts.apply("filterServerExpiry", 1_000)
    register(engine)
    engine.advance(1_000)
    assert len(engine.core.parts.filter_servers) == 0


@pytest.mark.feature("F240")
def test_filter_servers_are_notified_of_a_change_once_it_is_confirmed() -> None:
    engine = Engine(sync_flush=True)
    register(engine, 7)
    register(engine, 8)
    register(engine, 9, plain=True)
    put(engine)
    assert notified(engine) == [], "the disk does not have it yet"
    engine.flush()
    assert notified(engine) == [(7, 2), (8, 2)], "once, and not one of RocketMQ's"
    engine.flush()
    engine.advance(1_000)
    assert notified(engine) == []
    put(engine)
    engine.flush()
    assert notified(engine) == [], "nothing has changed"


def test_every_change_but_a_skip_is_reported(engine: Engine) -> None:
    topic = UpdateAndCreateTopic(
        topic="T", default_topic="", read_queue_nums=1, write_queue_nums=1, perm=6
    )
    engine.ask(topic)
    register(engine)
    put(engine)
    assert notified(engine) == [(7, 2)]
    for version, change in enumerate(
        (
            {"action": "policy", "policy": "skip"},
            {"action": "quarantine", "version": 1, "reason": "it died"},
            {"action": "enable"},
        ),
        start=3,
    ):
        assert engine.ask(ChangeFilter(consumer_group="g", name="f", **change)).code == 0
        assert notified(engine) == [(7, version)]
    skip = RecordFilterSkip(
        consumer_group="g", name="f", version=1, topic="T", queue_id=0, offsets=[1], reason="x"
    )
    assert engine.ask(skip).code == 0
    assert notified(engine) == []
    assert engine.ask(ChangeFilter(consumer_group="g", name="f", action="delete")).code == 0
    assert notified(engine) == [(7, 6)]


def test_who_has_too_many_beside_it_says_so(engine: Engine) -> None:
    for number in range(64):
        assert register(engine, 100 + number).code == Code.SUCCESS
    assert register(engine, 200).code == Code.SYSTEM_BUSY
