"""Delays the reply to a request that created a topic until the name servers know the topic.

State: soft. After a restart the broker owes no replies and registers again.

RocketMQ registers before it replies to such a request, and clients rely on it: a client that finds
no route retries only after 10 or 30 s. The broker does not wait for a name server that is
unreachable, and waits at most ANNOUNCE_WAIT_MS for a slow one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kourou.engine.effects import Announce, Effect
from kourou.runtime.core import Peer, Reply, ReplyTo

ANNOUNCE_WAIT_MS = 6_000
"""[RMQ] registerBrokerTimeoutMills"""

_Name = tuple[int, int]


@dataclass(slots=True)
class _Waiting:
    """The reply to one request, once it exists, and the registration that it waits for."""

    number: int
    deadline_ms: int
    reply: Reply | None = None


class TopicRegistration:
    """The numbered registrations of one broker, and the replies that depend on them."""

    def __init__(self) -> None:
        self._number = 0
        self._known = 0
        self._waiting: dict[_Name, _Waiting] = {}

    @property
    def waiting(self) -> int:
        """The number of requests whose new topic is not known to all name servers yet."""
        return len(self._waiting)

    def number(self, now_ms: int, effects: Sequence[Effect], to: ReplyTo | None = None) -> None:
        """Number the registrations in `effects`; the reply to the request `to` waits for them."""
        for effect in effects:
            if type(effect) is Announce:
                self._number += 1
                effect.number = self._number
                if to is not None and not to.oneway:
                    wait = _Waiting(self._number, now_ms + ANNOUNCE_WAIT_MS)
                    self._waiting[_name(to)] = wait

    def gate(self, effects: list[Effect]) -> list[Effect]:
        """Return `effects` without the replies that must wait."""
        if not self._waiting:
            return effects
        passed: list[Effect] = []
        for effect in effects:
            if type(effect) is Reply:
                wait = self._waiting.get(_name(effect.to))
                if wait is not None and wait.number > self._known and not effect.code:
                    wait.reply = effect
                    continue
                if wait is not None:  # known by now, or the request failed
                    del self._waiting[_name(effect.to)]
            passed.append(effect)
        return passed

    def known(self, number: int) -> list[Effect]:
        """Release replies: every reachable name server knows the registrations up to `number`."""
        self._known = max(self._known, number)
        return self._release([n for n, one in self._waiting.items() if one.number <= self._known])

    def expire(self, now_ms: int) -> list[Effect]:
        """Release replies that waited too long; their requests took effect all the same."""
        if not self._waiting:
            return []
        return self._release([n for n, one in self._waiting.items() if one.deadline_ms <= now_ms])

    def drop_peer(self, peer: Peer) -> None:
        """Drop the waiting replies of a closed connection."""
        for name in [name for name in self._waiting if name[0] == peer.id]:
            del self._waiting[name]

    def _release(self, names: Sequence[_Name]) -> list[Effect]:
        """Return the replies that exist; a reply that comes later will not wait."""
        waited = [self._waiting.pop(name) for name in names]
        return [one.reply for one in waited if one.reply is not None]


def _name(to: ReplyTo) -> _Name:
    return to.peer.id, to.correlation
