"""What a server of kourou_rigs.wire_cluster does wrong, as a list of faults by kind of request.

    broker.faults[SendRecords] = [Cut, Answer(Code.SYSTEM_BUSY)]  # the first two sends
    broker.faults[Request] = always(Silence)  # every request from now on
    broker.faults.clear()

State: soft. A list is used up from its front; a request without a fault gets the server's reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from kourou.protocol.request import Request, Response


@dataclass
class Answer:
    """A server's reply to a request."""

    code: int = 0
    header: Response | None = None
    body: bytes = b""
    remark: str = ""


class Silence(Exception):
    """A fault: there is no reply before the deadline."""


class Cut(Exception):
    """A fault: the connection is lost while the request is pending."""


class Frozen(Exception):
    """A fault: there is no reply, and nothing but the client's own clock ends the request."""


Fault = Answer | type[Exception] | Callable[[Any], Answer | None] | None
"""A wrong reply, a lost one (Silence, Cut, Frozen), a function of the request that returns or
raises one of these, or None for no fault.
"""

always = repeat


class Faults:
    """The faults of one server by kind of request; `Request` is every kind."""

    def __init__(self) -> None:
        self._by_kind: dict[type[Request], Iterator[Fault]] = {}

    def __setitem__(self, kind: type[Request], faults: Iterable[Fault]) -> None:
        self._by_kind[kind] = iter(faults)

    def clear(self) -> None:
        """Let the server reply to everything again."""
        self._by_kind.clear()

    def answer(self, request: Request) -> Answer | None:
        """The wrong reply to a request, None for the server's own. Raises a fault."""
        for kind in (type(request), Request):
            fault = next(self._by_kind.get(kind, iter(())), None)
            if isinstance(fault, type):
                raise fault
            wrong = fault(request) if callable(fault) else fault
            if wrong is not None:
                return wrong
        return None
