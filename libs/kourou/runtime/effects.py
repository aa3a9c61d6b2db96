"""What any core asks of the world: the effects that all services share."""

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
    """Answer one request."""

    to: ReplyTo
    code: int = Code.SUCCESS
    remark: str = ""
    header: msgspec.Struct | None = None
    body: Sequence[Buffer] = field(default=())


@dataclass(slots=True)
class Notify:
    """Tell a client something it did not ask for; no answer is expected."""

    peer: Peer
    request: Request
    body: Sequence[Buffer] = field(default=())


@dataclass(slots=True)
class AskClient:
    """Ask a client something and bring its answer back as ClientAnswered with this token.

    Made by engine.asking, which also knows when waiting ends: a carrier only transmits.
    """

    token: int
    peer: Peer
    request: Request
    body: Sequence[Buffer]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class LogWarning:
    """Tell the operator, in the log."""

    text: str
