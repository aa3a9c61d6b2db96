"""Who calls, what came with the call beside parameters and body, and answers that are no JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Right(IntEnum):
    """What a caller may do; each includes those before it."""

    READ = 1  # look at everything, bodies included
    WRITE = 2  # produce and consume
    ADMIN = 3  # change topics, groups, offsets, settings, filters


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever asks: the name of its token; without tokens everybody is "anybody"."""

    name: str
    right: Right


ANYBODY = Caller("anybody", Right.ADMIN)
"""Where no tokens are configured, whoever reaches the listener may do everything."""


@dataclass(frozen=True, slots=True)
class Call:
    """What an operation with `call=True` gets beside parameters and body.

    `headers` are all of them in the order they came; names keep their case, look-ups ignore it.
    """

    caller: Caller = ANYBODY
    headers: Sequence[tuple[str, str]] = ()
    _values: dict[str, list[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Sort the values by name: an operation asks for several."""
        values: dict[str, list[str]] = {}
        for name, value in self.headers:
            values.setdefault(name.lower(), []).append(value)
        object.__setattr__(self, "_values", values)

    def header(self, name: str) -> str | None:
        """The first value of this header; None if it is not there."""
        values = self._values.get(name.lower())
        return None if values is None else values[0]

    def every(self, name: str) -> list[str]:
        """All values of this header."""
        return list(self._values.get(name.lower(), ()))

    def has_prefix(self, prefix: str) -> bool:
        """Is there a header whose name begins with these small letters?"""
        return any(name.startswith(prefix) for name in self._values)

    def beginning(self, prefix: str) -> dict[str, str]:
        """The headers that begin so, by the rest of their names; of several values the last."""
        wanted = prefix.lower()
        return {
            key[len(prefix) :]: value
            for key, value in self.headers
            if key.lower().startswith(wanted)
        }

    @property
    def content_type(self) -> str:
        """The body's media type in small letters, without its parameters; "" if none is named."""
        return (self.header("Content-Type") or "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class Content:
    """An answer that is no JSON; `filename` makes a browser save it."""

    body: bytes
    content_type: str = "application/octet-stream"
    filename: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer with another status than the operation's, or with headers."""

    value: Any
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
