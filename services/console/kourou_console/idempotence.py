"""A request that is sent again does not do its work again: Idempotency-Key.

Two memories work together. This gateway remembers, for a quarter of an hour, what it answered; so a
repeat costs nothing and gets the same answer. And a message's id is made of its key, so a broker
that has the message recognises it by itself (engine.repeats): also when this gateway was restarted
meanwhile, or when the repeat came to another gateway. Brokers look back four minutes.

    the same key, the same request     the first answer again, with `replayed`
    the same key, another request      422
    the first is not done yet          the second waits for it
    the first was refused              nothing was done: the key is free again
    the first's outcome is unknown     the second is sent, under the same ids
    and the second is refused          the first may be stored: the key stands for it still

A gateway that was started within those four minutes does not know what its predecessor did, so for
so long it asks the brokers whether the ids are there with another body; of what is delayed or half
they cannot tell.

The queue is chosen by the key, and where the number of a topic's queues has changed that would be
another one, perhaps at another broker, which does not know the message. So the queue of a request
whose outcome is unknown is remembered with its key, and the repeat goes there or, if that takes no
messages now, nowhere. What is left: the number changed, and the repeat comes to another gateway, or
after this one was restarted.

State: soft, bounded.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar, cast

from kourou.client.admin_messages import MessageNotFound
from kourou.client.selectors import Selector, queue_of_key
from kourou.errors import BadRequest, Rejected, TopicNotFound, Unavailable
from kourou.model.limits import DEADLINE_MS_MAX, GATEWAY_REPEAT_KEYS_MAX
from kourou.model.message import Message
from kourou.model.queue import MessageQueue
from kourou_console.call import Call
from kourou_console.gateway import Gateway
from kourou_console.problems import Busy, Refused

HEADER = "Idempotency-Key"
ABOUT = (
    HEADER,
    "A name that you choose for this request, 1 to 255 printable ASCII characters: repeated "
    "requests with the same name have an effect once.",
)
AnswerT = TypeVar("AnswerT")
KEPT_MS = 15 * 60_000
BROKERS_MS = 2 * DEADLINE_MS_MAX
"""So far a broker looks back."""


@dataclass(slots=True)
class _Asked:
    fingerprint: bytes
    until_ms: int
    waiting: asyncio.Future[Any] | None = None
    answer: Any = None
    is_answered: bool = False
    #: Where it was sent, if it may be stored there.
    place: MessageQueue | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """What a key makes of one request: ids for its messages, and who asked what."""

    key: tuple[str, str]
    fingerprint: bytes
    seed: bytes

    def ids(self, count: int) -> list[str]:
        """So many message ids, always the same."""
        return [
            hashlib.sha256(self.seed + number.to_bytes(4, "big")).hexdigest()[:32].upper()
            for number in range(count)
        ]


def named(gateway: Gateway, call: Call, kind: str, topic: str, content: bytes) -> Named | None:
    """What the request's key makes of it; None if it has none. Raises BadRequest."""
    given = call.every(HEADER)
    if not given:
        return None
    key = given[0]
    if len(given) > 1 or not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        raise BadRequest(f"{HEADER} must be one text of 1 to 255 printable ASCII characters")
    about = [kind, topic, *sorted(_told(call))]
    fingerprint = hashlib.sha256("\0".join(about).encode("utf-8", "surrogateescape") + content)
    seed = "\0".join((gateway.settings.producer_group, call.caller.name, topic, key))
    return Named((call.caller.name, key), fingerprint.digest(), seed.encode())


def _told(call: Call) -> list[str]:
    """The headers that say something of the message."""
    return [
        f"{name.lower()}:{value}"
        for name, value in call.headers
        if name.lower().startswith("kourou-") or name.lower() == "content-type"
    ]


class Idempotence:
    """A part of the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._asked: OrderedDict[tuple[str, str], _Asked] = OrderedDict()
        self._began_ms = gateway.clock.monotonic_ms()

    async def once(
        self, name: Named, work: Callable[[], Awaitable[AnswerT]]
    ) -> tuple[AnswerT, bool]:
        """Do it once; (its answer, whether it is that of an earlier request).

        Raises what the work raises, and Refused (422) where the key stood for something else.
        """
        now_ms = self._gateway.clock.monotonic_ms()
        self._forget(now_ms)
        known = self._asked.get(name.key)
        if known is not None:
            if known.fingerprint != name.fingerprint:
                raise _other()
            if known.is_answered:
                return cast("AnswerT", known.answer), True
            if known.waiting is not None:
                return cast("AnswerT", await asyncio.shield(known.waiting)), True
        else:
            if len(self._asked) >= GATEWAY_REPEAT_KEYS_MAX:
                raise Busy(
                    f"{GATEWAY_REPEAT_KEYS_MAX} requests with {HEADER} are stored already, the "
                    "maximum"
                )
            known = self._asked[name.key] = _Asked(name.fingerprint, now_ms + KEPT_MS)
        return await self._first(name, known, work), False

    async def _first(
        self, name: Named, asked: _Asked, work: Callable[[], Awaitable[AnswerT]]
    ) -> AnswerT:
        asked.waiting = asyncio.get_running_loop().create_future()
        before = asked.place
        try:
            answer = await work()
        except BaseException as error:
            if isinstance(error, Rejected) and before is None:
                self._asked.pop(name.key, None)
            if isinstance(error, Unavailable):  # this time nothing was stored
                asked.place = before
            told = error if isinstance(error, Exception) else Busy("the gateway is shutting down")
            asked.waiting.set_exception(told)
            asked.waiting.exception()  # nobody need wait for it
            raise
        else:
            asked.answer, asked.is_answered = answer, True
            asked.waiting.set_result(answer)
            return answer
        finally:
            asked.waiting = None

    def selector(self, name: Named, order_key: str | None) -> Selector:
        """Chooses the queue of a request that is being done: always the same, whatever becomes of
        the topic.
        """
        asked = self._asked[name.key]

        def choose(queues: Sequence[MessageQueue], _message: Message, _: Any) -> MessageQueue:
            if asked.place is None:
                key = name.ids(1)[0] if order_key is None else order_key
                asked.place = queue_of_key(queues, key)
            elif asked.place not in queues:
                raise Unavailable(
                    f"an earlier request under this {HEADER} may be stored in {asked.place!s}, "
                    "which accepts no messages now",
                    hint="retry when it does; with a new key the message may be stored twice",
                )
            return asked.place

        return choose

    async def check(self, topic: str, ids: Sequence[str], bodies: Sequence[bytes]) -> None:
        """Raise Refused (422) where a former gateway sent something else under these ids.

        It looks at bodies that lie in the topic: not at tags, nor at what is delayed or half.
        """
        if self._gateway.clock.monotonic_ms() - self._began_ms >= BROKERS_MS:
            return
        for number, (one, body) in enumerate(zip(ids, bodies, strict=True)):
            try:
                stored = await self._gateway.admin.messages.by_unique_key(topic, one)
            except (MessageNotFound, TopicNotFound) as error:
                if number:  # of a batch all or none are there
                    raise _other() from error
                return
            if bytes(stored.body) != body:
                raise _other()

    def _forget(self, now_ms: int) -> None:
        while self._asked:
            key, oldest = next(iter(self._asked.items()))
            if oldest.waiting is not None or (
                oldest.until_ms > now_ms and len(self._asked) < GATEWAY_REPEAT_KEYS_MAX
            ):
                return
            del self._asked[key]


def _other() -> Refused:
    return Refused(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        f"this {HEADER} was used for another request",
        hint="choose a new key for a new request",
    )
