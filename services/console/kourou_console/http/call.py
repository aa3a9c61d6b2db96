"""A call's context: the caller, the headers, and responses that are not JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kourou.operations import Right


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: the name of its token; without tokens every caller is "anybody".

    `user`: the user of the brokers who signed in; "" without a sign-in. Its rights are decided by
    the brokers, so `right` is every right.
    """

    name: str
    right: Right
    user: str = ""


ANYBODY = Caller("anybody", Right.ADMIN)
"""Without tokens, every client that can reach the listener may do everything."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The argument of operations with `call=True`, in addition to parameters and body.

    `headers` has all headers in the order received; names keep their case, look-ups ignore it.
    """

    caller: Caller = ANYBODY
    headers: Sequence[tuple[str, str]] = ()
    _values: dict[str, list[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the values by name, because an operation reads several headers."""
        values: dict[str, list[str]] = {}
        for name, value in self.headers:
            values.setdefault(name.lower(), []).append(value)
        object.__setattr__(self, "_values", values)

    def header(self, name: str) -> str | None:
        """The first value of this header; None if it is missing."""
        values = self._values.get(name.lower())
        return None if values is None else values[0]

    def every(self, name: str) -> list[str]:
        """All values of this header."""
        return list(self._values.get(name.lower(), ()))

    def has_prefix(self, prefix: str) -> bool:
        """Whether a header's name starts with this lower-case prefix."""
        return any(name.startswith(prefix) for name in self._values)

    def beginning(self, prefix: str) -> dict[str, str]:
        """The headers with this prefix, by the rest of their names; of several values the last."""
        wanted = prefix.lower()
        return {
            key[len(prefix) :]: value
            for key, value in self.headers
            if key.lower().startswith(wanted)
        }

    @property
    def content_type(self) -> str:
        """The body's media type in lower case, without parameters; "" if there is none."""
        return (self.header("Content-Type") or "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class Content:
    """A response that is not JSON; with `filename`, a browser saves it as a file."""

    body: bytes
    content_type: str = "application/octet-stream"
    filename: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """A response with a status or headers other than the operation's."""

    value: Any
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
