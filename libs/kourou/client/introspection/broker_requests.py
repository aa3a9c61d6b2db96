"""Requests that brokers send to a client, and their handlers.

A handler runs as its own task on the I/O thread. It may wait, up to the timeout that the broker
gave (the broker drops later replies), and does not delay other handlers. A request that was sent
one-way gets no reply, but its handler is called.

State: soft (the running tasks). Used on the I/O thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kourou.client.session.io_thread import background
from kourou.errors import BadRequest, Code, DecodeError, KourouError
from kourou.protocol.request import Request, Response
from kourou.protocol.wire.frames import Frame, Kind, decode_request, encode_reply

_log = logging.getLogger("kourou.client")

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a broker, which waits `timeout_ms` for the reply (0: not stated)."""

    address: str
    request: Request
    body: Sequence[Buffer] = ()
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply to the broker."""

    code: int = Code.SUCCESS
    remark: str = ""
    header: Response | None = None
    body: Sequence[Buffer] = ()


Answerer = Callable[[Asked], Awaitable[Answer | None]]
"""Returning None sends an empty success reply. A KourouError is sent as its code and text."""


class Answering:
    """The request handlers of one client. `send(address, parts)` sends the reply to that broker."""

    def __init__(self, send: Callable[[str, Sequence[Buffer]], bool]) -> None:
        self._send = send
        self._answerers: dict[type[Request], Answerer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def on(self, request: type[Request], answerer: Answerer) -> None:
        """Register `answerer` for such requests; it replaces an earlier one."""
        self._answerers[request] = answerer

    def off(self, request: type[Request]) -> None:
        """Remove the handler of such requests."""
        self._answerers.pop(request, None)

    def heard(self, address: str, frame: Frame) -> None:
        """Handle a frame from a broker that is not a reply."""
        try:
            request = decode_request(frame)
        except (BadRequest, DecodeError) as error:
            _log.warning("broker %s sent a request that cannot be decoded: %s", address, error)
            self._answer(address, frame, Answer(error.wire_code, str(error)))
            return
        answerer = self._answerers.get(type(request))
        if answerer is None:
            text = f"clients do not support request code {frame.code}"
            self._answer(address, frame, Answer(Code.REQUEST_CODE_NOT_SUPPORTED, text))
            return
        asked = Asked(address, request, frame.body, frame.deadline_ms)
        task = background(
            self._work(answerer, asked, frame), f"answering request {frame.code} of {address}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Cancel running handlers; their replies are not sent."""
        self._answerers.clear()
        for task in self._tasks:
            task.cancel()

    async def _work(self, answerer: Answerer, asked: Asked, frame: Frame) -> None:
        try:
            answer = await answerer(asked) or Answer()
        except DecodeError as error:
            _log.warning(
                "broker %s sent a request that cannot be decoded: %s", asked.address, error
            )
            answer = Answer(error.wire_code, str(error))
        except KourouError as error:
            _log.warning("request %d of broker %s failed: %s", frame.code, asked.address, error)
            answer = Answer(error.wire_code, str(error))
        except Exception as error:
            # A bug here or in an application's listener: reply, so that the broker does not wait in
            # vain.
            text = f"{type(error).__name__}: {error}"
            self._answer(asked.address, frame, Answer(Code.SYSTEM_ERROR, text))
            raise
        self._answer(asked.address, frame, answer)

    def _answer(self, address: str, frame: Frame, answer: Answer) -> None:
        if frame.kind is not Kind.REQUEST:
            return
        head = encode_reply(frame.correlation, answer.code, answer.remark, answer.header)
        try:
            self._send(address, [head, *answer.body])
        except KourouError as error:
            _log.warning("reply to broker %s failed: %s", address, error)
