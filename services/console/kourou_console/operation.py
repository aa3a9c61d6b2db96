"""One call of the HTTP API as a value: its path, its input and its output.

The OpenAPI description and the reference page are generated from these values alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from kourou.model.limits import GATEWAY_JSON_BYTES_MAX
from kourou.operations.catalogue import Right, right_of
from kourou_console.gateway import Gateway


class BodyKind(Enum):
    """The kind of request body."""

    NONE = "none"
    JSON = "json"
    """One value of the operation's `body` type."""
    BYTES = "bytes"
    """Any bytes, passed on unchanged."""


class NoParameters(msgspec.Struct, frozen=True):
    """No parameters in the path or in the query."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`method path`, and `handle(gateway, parameters)`; a body is an additional argument.

    `parameters` is a frozen msgspec Struct. Fields that occur in the path as `{name}` are path
    parameters, all others query parameters; a field with a default is optional; a list is repeated
    (`?tag=a&tag=b`). A Struct for a body, and all Structs in it, set `forbid_unknown_fields=True`.

    With `call` the handler takes a RequestContext as an additional argument: caller and headers.
    With `stream` it takes the aiohttp request as the last argument and returns a StreamResponse
    that it has prepared itself. Otherwise it returns a value of the type `answer`, or a Content or
    Answered (all of kourou_console.http.call). Errors are raised as kourou.errors classes; they
    become problem details.
    """

    method: str
    path: str
    #: The operationId: unique, in snake case.
    name: str
    #: A one-sentence summary, then further sentences.
    about: str
    #: Its chapter in the reference page.
    chapter: str
    handle: Callable[..., Awaitable[Any]]
    #: A type that msgspec encodes; Content for any bytes; None for no content (204).
    answer: Any
    parameters: type[msgspec.Struct] = NoParameters
    body: Any = None
    body_kind: BodyKind = BodyKind.NONE
    status: int = 200
    #: The headers that it reads: name, purpose.
    headers: tuple[tuple[str, str], ...] = ()
    #: It responds with server-sent events and takes the request itself.
    stream: bool = False
    #: The handler takes a RequestContext.
    call: bool = False
    #: With BYTES: the type as which the handler reads an application/json body; only for the
    #: description.
    json_body: Any = None
    #: Larger bodies are rejected (413), compressed ones by their decompressed size.
    body_bytes_max: int = GATEWAY_JSON_BYTES_MAX
    #: The handler is cancelled when its caller disconnects: for waiting without side effects.
    leaves_with_caller: bool = False
    #: The media type of a response that is Content or a stream.
    media_type: str = ""

    @property
    def right(self) -> Right:
        """The right that the caller needs: that of the verb with this name."""
        return right_of(self.name)


Handler = Callable[[Gateway, Any], Awaitable[Any]]
