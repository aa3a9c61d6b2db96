"""The effects that the cores of all services share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from kourou.errors import Code
from kourou.protocol.request import Request
from kourou.runtime.inputs import Buffer, ReplyTo
from kourou.runtime.peer import Peer


@dataclass(slots=True)
class Reply:
    """Reply to one request."""

    to: ReplyTo
    code: int = Code.SUCCESS
    remark: str = ""
    header: msgspec.Struct | None = None
    body: Sequence[Buffer] = field(default=())


@dataclass(slots=True)
class Notify:
    """Send a client a notification; no reply is expected."""

    peer: Peer
    request: Request
    body: Sequence[Buffer] = field(default=())


@dataclass(slots=True)
class AskClient:
    """Send a client a request and return its reply as ClientAnswered with this token.

    engine.asking creates it and handles the timeout; a transport only transmits it.
    """

    token: int
    peer: Peer
    request: Request
    body: Sequence[Buffer]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class LogWarning:
    """Write a warning to the log, for the operator."""

    text: str
