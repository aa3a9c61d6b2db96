"""Idempotency-Key: a repeated request does not repeat its work.

Two mechanisms work together. This gateway stores its responses for a quarter of an hour, so a
repeated request gets the same response without work. In addition, message IDs are derived from the
key, so a broker detects a duplicate message by itself (deduplication), also after a restart of
this gateway, and if the request was repeated at another gateway. Brokers look back four minutes.

    same key, same request             the first response again, with `replayed`
    same key, other request            422
    first request in progress          the second one waits for it
    first request rejected             nothing was stored: the key is free again
    outcome of the first unknown       the second one is sent, with the same message IDs
    and the second is rejected         the first may be stored: the key stays in use

A gateway that started within the last four minutes does not know the requests of its predecessor.
During this time it requests from the brokers whether the IDs exist with another body; this does not
work for delayed and half messages.

The queue is chosen by the key. If the topic's number of queues changes, the key would select
another queue, perhaps at another broker, which cannot detect the duplicate. So the queue of a
request with an unknown outcome is stored with its key, and the repeated request is sent to the same
queue; if that accepts no messages, it fails. A duplicate remains possible if the number changed and
the request is repeated at another gateway, or after a restart of this one.

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

from kourou.client.admin.messages import MessageNotFound
from kourou.client.producer.selectors import Selector, queue_of_key
from kourou.errors import BadRequest, Rejected, TopicNotFound, Unavailable
from kourou.model.limits import DEADLINE_MS_MAX, GATEWAY_REPEAT_KEYS_MAX
from kourou.model.message import Message
from kourou.model.topic import MessageQueue
from kourou_console.gateway import Gateway
from kourou_console.http.call import RequestContext
from kourou_console.http.responses import Busy, HttpError

HEADER = "Idempotency-Key"
ABOUT = (
    HEADER,
    "A name that you choose for this request, 1 to 255 printable ASCII characters: repeated "
    "requests with the same name have an effect once.",
)
AnswerT = TypeVar("AnswerT")
KEPT_MS = 15 * 60_000
BROKERS_MS = 2 * DEADLINE_MS_MAX
"""How far back brokers detect duplicates."""


@dataclass(slots=True)
class _Asked:
    fingerprint: bytes
    until_ms: int
    waiting: asyncio.Future[Any] | None = None
    answer: Any = None
    is_answered: bool = False
    #: The queue where it may be stored.
    place: MessageQueue | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A keyed request: the IDs of its messages, the caller with its key, and the content's hash."""

    key: tuple[str, str]
    fingerprint: bytes
    seed: bytes

    def ids(self, count: int) -> list[str]:
        """The message IDs, always the same."""
        return [
            hashlib.sha256(self.seed + number.to_bytes(4, "big")).hexdigest()[:32].upper()
            for number in range(count)
        ]


def named(
    gateway: Gateway, call: RequestContext, kind: str, topic: str, content: bytes
) -> Named | None:
    """The keyed request; None if the request has no key. Raises BadRequest."""
    given = call.every(HEADER)
    if not given:
        return None
    key = given[0]
    if len(given) > 1 or not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        raise BadRequest(f"{HEADER} must be one text of 1 to 255 printable ASCII characters")
    about = [kind, topic, *sorted(_message_headers(call))]
    fingerprint = hashlib.sha256("\0".join(about).encode("utf-8", "surrogateescape") + content)
    seed = "\0".join((gateway.settings.producer_group, call.caller.name, topic, key))
    return Named((call.caller.name, key), fingerprint.digest(), seed.encode())


def _message_headers(call: RequestContext) -> list[str]:
    """The headers that are part of the message."""
    return [
        f"{name.lower()}:{value}"
        for name, value in call.headers
        if name.lower().startswith("kourou-") or name.lower() == "content-type"
    ]


class Idempotence:
    """A component of the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._asked: OrderedDict[tuple[str, str], _Asked] = OrderedDict()
        self._began_ms = gateway.clock.monotonic_ms()

    async def once(
        self, name: Named, work: Callable[[], Awaitable[AnswerT]]
    ) -> tuple[AnswerT, bool]:
        """Do the work once. Returns its result, and whether it is that of an earlier request.

        Raises what the work raises, and HttpError (422) if the key was used for another request.
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
            if isinstance(error, Unavailable):  # nothing was stored by this attempt
                asked.place = before
            failure = (
                error if isinstance(error, Exception) else Busy("the gateway is shutting down")
            )
            asked.waiting.set_exception(failure)
            asked.waiting.exception()  # marks it as retrieved, because nothing may wait for it
            raise
        else:
            asked.answer, asked.is_answered = answer, True
            asked.waiting.set_result(answer)
            return answer
        finally:
            asked.waiting = None

    def selector(self, name: Named, order_key: str | None) -> Selector:
        """A selector that always chooses the same queue for a request.

        It does so even if the topic changes.
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
        """Raises HttpError (422) if an earlier gateway sent other bodies under these IDs.

        It compares bodies of stored messages only, not tags, and neither delayed nor half messages.
        """
        if self._gateway.clock.monotonic_ms() - self._began_ms >= BROKERS_MS:
            return
        for number, (one, body) in enumerate(zip(ids, bodies, strict=True)):
            try:
                stored = await self._gateway.admin.messages.by_unique_key(topic, one)
            except (MessageNotFound, TopicNotFound) as error:
                if number:  # a batch is stored completely or not at all
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


def _other() -> HttpError:
    return HttpError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        f"this {HEADER} was used for another request",
        hint="choose a new key for a new request",
    )
