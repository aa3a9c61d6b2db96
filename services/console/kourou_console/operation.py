"""One call of the HTTP API as a value: its path, its input and its output.

The OpenAPI description and the reference page are generated from these values alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from types import NoneType
from typing import Any, TypeVar, get_type_hints

import msgspec
from aiohttp import web

from kourou.access.model import Action
from kourou.model.limits import GATEWAY_JSON_BYTES_MAX
from kourou.operations import Right, right_of
from kourou_console.http.call import RequestContext


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
    #: What a user who signed in needs, for the console asks the brokers before: (action, resource).
    #: () if brokers alone decide all that it shows and changes, by requests of the user's client.
    #: None is the safe default: Get on the cluster to read, Update to change.
    needs: tuple[tuple[Action, str], ...] | None = None

    @property
    def right(self) -> Right:
        """The right that the caller needs: that of the verb with this name."""
        return right_of(self.name)

    @property
    def needed(self) -> tuple[tuple[Action, str], ...]:
        """`needs`, with the default."""
        if self.needs is not None:
            return self.needs
        reads = self.right is Right.READ
        return ((Action.GET if reads else Action.UPDATE, THE_CLUSTER),)


THE_CLUSTER = "Cluster:*"
HandlerT = TypeVar("HandlerT", bound=Callable[..., Awaitable[Any]])


class Chapter:
    """Operations of one chapter of the reference page, in the order of their handlers.

    A handler is declared by the decorator with its method's name. Its docstring is the description
    (`about=` is for one that contains values); parameters, body and answer have the types of its
    signature, which is (gateway, parameters) and, in this order, what it needs of: a body (a Struct
    for JSON, or bytes), a RequestContext, the aiohttp request of a stream. `more` are further
    fields of the Operation.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._operations: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    def get(self, path: str, name: str, **more: Any) -> Callable[[HandlerT], HandlerT]:
        """Declare a request that changes nothing."""
        return self._declare("GET", path, name, more)

    def post(self, path: str, name: str, **more: Any) -> Callable[[HandlerT], HandlerT]:
        """Declare a request that does something."""
        return self._declare("POST", path, name, more)

    def put(self, path: str, name: str, **more: Any) -> Callable[[HandlerT], HandlerT]:
        """Declare a request that creates or replaces."""
        return self._declare("PUT", path, name, more)

    def patch(self, path: str, name: str, **more: Any) -> Callable[[HandlerT], HandlerT]:
        """Declare a request that changes parts."""
        return self._declare("PATCH", path, name, more)

    def delete(self, path: str, name: str, **more: Any) -> Callable[[HandlerT], HandlerT]:
        """Declare a request that removes."""
        return self._declare("DELETE", path, name, more)

    def _declare(
        self, method: str, path: str, name: str, more: dict[str, Any]
    ) -> Callable[[HandlerT], HandlerT]:
        def register(handle: HandlerT) -> HandlerT:
            about = " ".join((handle.__doc__ or "").split())
            given = {"about": about, "chapter": self._title, **_typed(handle), **more}
            self._operations.append(Operation(method, path, name, handle=handle, **given))
            return handle

        return register


def _typed(handle: Callable[..., Any]) -> dict[str, Any]:
    """The fields of an Operation that follow from its handler's signature."""
    types = get_type_hints(handle)
    answer = types.pop("return")
    _gateway, parameters, *others = types.values()
    bodies = [one for one in others if one not in (RequestContext, web.BaseRequest)]
    body = bodies[0] if bodies else None
    kind = BodyKind.NONE if body is None else BodyKind.BYTES if body is bytes else BodyKind.JSON
    return {
        "answer": None if answer in (NoneType, web.StreamResponse) else answer,
        "parameters": parameters,
        "body": None if body is bytes else body,
        "body_kind": kind,
        "stream": web.BaseRequest in others,
        "call": RequestContext in others,
    }
