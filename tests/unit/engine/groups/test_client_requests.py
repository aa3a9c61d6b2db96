"""Every question to a client has exactly one end, and only the client that was asked gives it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kourou.engine.effects import Effect
from kourou.engine.groups.client_requests import TOKENS, ClientRequests
from kourou.errors import MessageIllegal, Throttled, TimedOut, UnknownOutcome
from kourou.protocol.bodies.heartbeat_body import ConsumerData, HeartbeatBody, encode_heartbeat
from kourou.protocol.messages.groups import (
    GetConsumerRunningInfo,
    HeartBeat,
    InvokeBrokerToGetConsumerStatus,
)
from kourou.runtime import AskClient, ClientAnswered, LogWarning, Peer

REQUEST = GetConsumerRunningInfo(consumer_group="g", client_id="c")


class Asker:
    """Notes what it is replies."""

    def __init__(self) -> None:
        self.asking = ClientRequests()
        self.replies: list[tuple[int, ClientAnswered]] = []

    def ask(self, peer: Peer, *, now_ms: int = 0, timeout_ms: int = 1_000) -> AskClient:
        (effect,) = self.asking.ask(
            now_ms, peer, REQUEST, (b"body",), timeout_ms=timeout_ms, answered=self._hear
        )
        assert isinstance(effect, AskClient)
        return effect

    def _hear(self, now_ms: int, item: ClientAnswered) -> Sequence[Effect]:
        self.replies.append((now_ms, item))
        return [LogWarning("heard")]


def peer(number: int) -> Peer:
    return Peer(number, "local", ("127.0.0.1", 40_000 + number))


def test_who_was_asked_answers_and_only_once() -> None:
    asker = Asker()
    asked = asker.ask(peer(1))
    assert asker.asking.answered(5, ClientAnswered(asked.token, peer(2))) == []
    assert asker.replies == []
    assert len(asker.asking) == 1
    answer = ClientAnswered(asked.token, peer(1), body=(b"{}",))
    assert asker.asking.answered(6, answer) == [LogWarning("heard")]
    assert asker.asking.answered(7, answer) == []
    assert asker.asking.expire(10_000) == asker.asking.drop_peer(11_000, peer(1)) == []
    assert asker.replies == [(6, answer)]


def test_waiting_ends_at_the_deadline_and_not_before() -> None:
    asker = Asker()
    late, early = asker.ask(peer(1), timeout_ms=500), asker.ask(peer(2), timeout_ms=100)
    assert asker.asking.expire(99) == []
    asker.asking.expire(100)
    assert [item.token for _, item in asker.replies] == [early.token]
    asker.asking.expire(500)
    assert [item.token for _, item in asker.replies] == [early.token, late.token]
    assert all(isinstance(item.error, TimedOut) for _, item in asker.replies)


def test_a_lost_connection_ends_its_questions_only() -> None:
    asker = Asker()
    first, other, second = asker.ask(peer(1)), asker.ask(peer(2)), asker.ask(peer(1))
    asker.asking.drop_peer(7, peer(1))
    assert [item.token for _, item in asker.replies] == [first.token, second.token]
    assert all(type(item.error) is UnknownOutcome for _, item in asker.replies)
    asker.asking.answered(8, ClientAnswered(other.token, peer(2)))
    assert asker.replies[-1][1].error is None


def test_tokens_fit_into_31_bits_and_are_not_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker()
    first = asker.ask(peer(1))
    asker.asking._last_token = TOKENS - 1  # white box: nobody asks two billion times in a test
    tokens = [asker.ask(peer(1)).token for _ in range(2)]
    assert tokens == [TOKENS, first.token + 1]


def test_too_many_questions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.engine.groups.client_requests.CLIENT_QUESTIONS_MAX", 2)
    asker = Asker()
    asked = [asker.ask(peer(1)), asker.ask(peer(1))]
    with pytest.raises(Throttled, match="in progress already"):
        asker.ask(peer(1))
    asker.asking.answered(1, ClientAnswered(asked[0].token, peer(1)))
    asker.ask(peer(1))


def test_what_an_answer_cannot_do_is_a_warning() -> None:
    def fail(_now_ms: int, _item: ClientAnswered) -> Sequence[Effect]:
        raise MessageIllegal("too large")

    asking = ClientRequests()
    (asked,) = asking.ask(0, peer(1), REQUEST, timeout_ms=10, answered=fail)
    assert isinstance(asked, AskClient)
    (said,) = asking.answered(1, ClientAnswered(asked.token, peer(1)))
    assert isinstance(said, LogWarning)
    assert "too large" in str(said)
    assert len(asking) == 0


def test_a_member_that_cannot_be_asked_is_named(engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.engine.groups.client_requests.CLIENT_QUESTIONS_MAX", 1)
    for number in (1, 2):
        beat = encode_heartbeat(HeartbeatBody(f"c{number}", consumers=(ConsumerData("g"),)))
        engine.ask(HeartBeat(), beat, peer=number)
    name = engine.send(InvokeBrokerToGetConsumerStatus(topic="orders", group="g"), peer=9)
    (question,) = [effect for effect in engine.effects if isinstance(effect, AskClient)]
    engine.handle(ClientAnswered(question.token, question.peer, body=(b"{}",)))
    assert "requests to clients are in progress" in engine.replies[name].remark
