"""Who makes a topic is answered when the name servers know it, or the client would not find it.

State: soft. A broker that restarts owes no answers, and registers anew.

RocketMQ registers before it answers a request that made a topic, and clients count on it: one that
finds no route looks again after 10 or 30 s. A name server that cannot be reached is waited for by
nobody, one that is slow for ANNOUNCE_WAIT_MS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kourou.engine.effects import Announce, Effect
from kourou.runtime.effects import Reply
from kourou.runtime.inputs import ReplyTo
from kourou.runtime.peer import Peer

ANNOUNCE_WAIT_MS = 6_000
"""[RMQ] registerBrokerTimeoutMills"""

_Name = tuple[int, int]


@dataclass(slots=True)
class _Waiting:
    """The answer to one request, once there is one, and the announcement that must be known."""

    number: int
    deadline_ms: int
    reply: Reply | None = None


class Announcing:
    """The announcements of one broker, numbered, and the answers that depend on them."""

    def __init__(self) -> None:
        self._number = 0
        self._known = 0
        self._waiting: dict[_Name, _Waiting] = {}

    @property
    def waiting(self) -> int:
        """How many requests have made a topic that is not known everywhere yet."""
        return len(self._waiting)

    def number(self, now_ms: int, effects: Sequence[Effect], to: ReplyTo | None = None) -> None:
        """Number what is announced; the answer to the request `to` that caused it will wait."""
        for effect in effects:
            if type(effect) is Announce:
                self._number += 1
                effect.number = self._number
                if to is not None and not to.oneway:
                    wait = _Waiting(self._number, now_ms + ANNOUNCE_WAIT_MS)
                    self._waiting[_name(to)] = wait

    def gate(self, effects: list[Effect]) -> list[Effect]:
        """`effects` without the answers that must wait."""
        if not self._waiting:
            return effects
        passed: list[Effect] = []
        for effect in effects:
            if type(effect) is Reply:
                wait = self._waiting.get(_name(effect.to))
                if wait is not None and wait.number > self._known and not effect.code:
                    wait.reply = effect
                    continue
                if wait is not None:  # known meanwhile, or nothing came of it
                    del self._waiting[_name(effect.to)]
            passed.append(effect)
        return passed

    def known(self, number: int) -> list[Effect]:
        """Every name server that can be reached knows what was announced up to `number`."""
        self._known = max(self._known, number)
        return self._release([n for n, one in self._waiting.items() if one.number <= self._known])

    def expire(self, now_ms: int) -> list[Effect]:
        """Answer those who waited too long; what they asked for is done all the same."""
        if not self._waiting:
            return []
        return self._release([n for n, one in self._waiting.items() if one.deadline_ms <= now_ms])

    def drop_peer(self, peer: Peer) -> None:
        """The connection is gone; nobody waits any more."""
        for name in [name for name in self._waiting if name[0] == peer.id]:
            del self._waiting[name]

    def _release(self, names: Sequence[_Name]) -> list[Effect]:
        """Give the answers out. One that is not there yet will not have to wait."""
        waited = [self._waiting.pop(name) for name in names]
        return [one.reply for one in waited if one.reply is not None]


def _name(to: ReplyTo) -> _Name:
    return to.peer.id, to.correlation
