"""One call of the public HTTP API, as a value: where it is, what it takes, what it answers.

The OpenAPI description and the reference page are made of these values, so what is not said here
is not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from kourou.model.limits import GATEWAY_JSON_BYTES_MAX
from kourou_console.call import Right
from kourou_console.gateway import Gateway


class BodyKind(Enum):
    """What a request brings beside its parameters."""

    NONE = "none"
    JSON = "json"
    """One value of the operation's `body` type."""
    BYTES = "bytes"
    """Any bytes: `bytes` are handed over as they came."""


class NoParameters(msgspec.Struct, frozen=True):
    """Nothing in the path, nothing in the query."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`method path`, and `handle(gateway, parameters)`; with a body it comes as one more argument.

    `parameters` is a frozen msgspec Struct: fields that stand in the path as `{name}`, all others
    in the query; a field with a default may be left out; a list is repeated (`?tag=a&tag=b`). A
    Struct that is a body says `forbid_unknown_fields=True`, and so do those inside it.

    With `call` the handler takes a kourou_console.call.Call as one more argument: caller and
    headers. With `stream` it takes the aiohttp request as the last one and returns a
    StreamResponse that it has prepared itself. Else it returns a value of the type `answer`, or a
    Content or Answered (kourou_console.call). Errors are raised as kourou.errors classes; they
    become problem details.
    """

    method: str
    path: str
    #: Unique, in snake case: the operationId.
    name: str
    #: One sentence, and what else is to be known behind it.
    about: str
    #: The chapter of the reference page it stands in.
    chapter: str
    handle: Callable[..., Awaitable[Any]]
    #: A type that msgspec encodes; Content where any bytes are answered; None for nothing (204).
    answer: Any
    parameters: type[msgspec.Struct] = NoParameters
    body: Any = None
    body_kind: BodyKind = BodyKind.NONE
    status: int = 200
    #: Headers that it reads, by name; what each is for.
    headers: tuple[tuple[str, str], ...] = ()
    #: It changes something: needs a token with the right to write where tokens are configured.
    changes: bool = False
    #: It answers with server-sent events and takes the request itself.
    stream: bool = False
    #: It is administration: changing needs the right ADMIN, not only WRITE.
    administers: bool = False
    #: The handler takes a Call.
    call: bool = False
    #: With BYTES: what a body of the type application/json is read as by the handler itself; for
    #: the description only.
    json_body: Any = None
    #: Larger bodies are refused (413), compressed ones by their size when decompressed.
    body_bytes_max: int = GATEWAY_JSON_BYTES_MAX
    #: The handler is cancelled when its caller hangs up: for what waits and has done nothing yet.
    leaves_with_caller: bool = False
    #: The media type of the answer where it is Content or a stream.
    media_type: str = ""

    @property
    def right(self) -> Right:
        """What its caller must be allowed to do."""
        if not self.changes:
            return Right.READ
        return Right.ADMIN if self.administers else Right.WRITE


Handler = Callable[[Gateway, Any], Awaitable[Any]]
