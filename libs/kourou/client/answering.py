"""What brokers ask of a client, and who in the client answers.

An answerer runs as a task of its own on the I/O thread: it may wait, it may take as long as the
broker gave it (what comes later the broker drops), and it holds up nobody else. A request that was
sent as a notice gets no answer; its answerer is called all the same.

State: soft (the tasks under way). Used on the I/O thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kourou.client.background import background
from kourou.errors import BadRequest, Code, DecodeError, KourouError
from kourou.protocol.frames import Frame, Kind, decode_request, encode_reply
from kourou.protocol.request import Request, Response

_log = logging.getLogger("kourou.client")

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Asked:
    """A broker, what it asks, and how many ms it waits for the answer (0: it does not say)."""

    address: str
    request: Request
    body: Sequence[Buffer] = ()
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the broker is told."""

    code: int = Code.SUCCESS
    remark: str = ""
    header: Response | None = None
    body: Sequence[Buffer] = ()


Answerer = Callable[[Asked], Awaitable[Answer | None]]
"""None says success and nothing else. A KourouError is told with its code and text."""


class Answering:
    """The answerers of one client. `send(address, parts)` answers over that broker's connection."""

    def __init__(self, send: Callable[[str, Sequence[Buffer]], bool]) -> None:
        self._send = send
        self._answerers: dict[type[Request], Answerer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def on(self, request: type[Request], answerer: Answerer) -> None:
        """Let `answerer` answer such requests from now on; it takes the place of a former one."""
        self._answerers[request] = answerer

    def off(self, request: type[Request]) -> None:
        """Answer such requests no more."""
        self._answerers.pop(request, None)

    def heard(self, address: str, frame: Frame) -> None:
        """A broker says something that is no answer."""
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
        """Answers under way are not given."""
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
            # A bug here or in an application's listener: the broker must not wait for it in vain.
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
