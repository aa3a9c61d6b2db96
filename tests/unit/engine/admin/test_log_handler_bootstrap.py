"""Who asks what came before the log is told, piece by piece; not while it is being deleted."""

from __future__ import annotations

import zlib

import pytest

from kourou.engine.admin.history import BeginningFound, BeginningQuestion
from kourou.engine.effects import AskHistory
from kourou.engine.inputs import HistoryAnswered
from kourou.errors import Code
from kourou.model.limits import FETCH_BYTES_MAX
from kourou.protocol.messages.replication import GetLogBeginning, GetLogBeginningResponse
from kourou_rigs.engine import Engine

BODY = bytes(range(256)) * (FETCH_BYTES_MAX // 200)


@pytest.fixture
def engine() -> Engine:
    return Engine()


def asked(engine: Engine, request: GetLogBeginning) -> AskHistory:
    _, received = engine.received(request)
    engine.handle(received)
    (found,) = [one for one in engine.effects if isinstance(one, AskHistory)]
    engine.effects.clear()
    return found


def test_the_state_before_the_first_position_is_asked_of_the_event_store(engine: Engine) -> None:
    group = engine.core.parts.policy.broker_name
    wanted = asked(engine, GetLogBeginning(group=group))
    assert isinstance(wanted.question, BeginningQuestion)
    assert (wanted.question.position, wanted.question.queue_ends, wanted.upto) == (0, {}, 0)
    assert wanted.question.broker_name == group


def test_it_is_reported_in_pieces_of_a_fetch(engine: Engine) -> None:
    group = engine.core.parts.policy.broker_name
    got = b""
    while len(got) < len(BODY):
        wanted = asked(engine, GetLogBeginning(group=group, from_byte=len(got)))
        found = BeginningFound(7_000, BODY)
        engine.handle(HistoryAnswered(wanted.received, found))
        reply = list(engine.replies.values())[-1]
        assert reply.header == GetLogBeginningResponse(
            position=7_000, size=len(BODY), crc=zlib.crc32(BODY)
        )
        assert len(reply.body[0]) <= FETCH_BYTES_MAX
        got += bytes(reply.body[0])
    assert got == BODY


def test_another_brokers_is_refused_and_one_that_changes_is_not_reported(engine: Engine) -> None:
    assert engine.ask(GetLogBeginning(group="other")).code == Code.NO_PERMISSION
    parts = engine.core.parts
    parts.retention.deletion_started()
    group = parts.policy.broker_name
    assert engine.ask(GetLogBeginning(group=group)).code == Code.SYSTEM_BUSY
    parts.retention.deletion_ended()
    assert asked(engine, GetLogBeginning(group=group))
