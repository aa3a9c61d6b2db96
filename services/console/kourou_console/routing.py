"""Finds the operation for a method and a path.

A literal segment takes precedence over one in braces, so /v1/messages/recent would be found before
/v1/messages/{id}.

State: none after construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """A routable operation."""

    @property
    def method(self) -> str:
        """GET, POST and so on."""
        ...

    @property
    def path(self) -> str:
        """The path with names in braces."""
        ...


PlacedT = TypeVar("PlacedT", bound=Placed)


@dataclass(slots=True)
class _Node(Generic[PlacedT]):
    literal: dict[str, _Node[PlacedT]] = field(default_factory=dict)
    named: _Node[PlacedT] | None = None
    methods: dict[str, PlacedT] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found(Generic[PlacedT]):
    """The operations of a path by method, and the values of its names in order."""

    methods: dict[str, PlacedT]
    values: tuple[str, ...]

    @property
    def allow(self) -> str:
        """The header Allow."""
        names = set(self.methods)
        return ", ".join(sorted(names | {"HEAD"} if "GET" in names else names))


class Routes(Generic[PlacedT]):
    """All operations by their routes; two with the same route are a bug."""

    def __init__(self, every: Iterable[PlacedT]) -> None:
        self._root: _Node[PlacedT] = _Node()
        for one in every:
            node = self._root
            for segment in segments(one.path):
                if segment.startswith("{"):
                    node.named = node.named or _Node()
                    node = node.named
                else:
                    node = node.literal.setdefault(segment, _Node())
            assert one.method not in node.methods, f"{one.method} {one.path} is there twice"
            node.methods[one.method] = one

    def find(self, parts: Sequence[str]) -> Found[PlacedT] | None:
        """The match for a path's decoded segments; None if there is none."""
        return _find(self._root, parts, ())


def segments(path: str) -> list[str]:
    """`/v1/topics` becomes v1 and topics; one trailing slash is ignored."""
    return path.strip("/").split("/") if path.strip("/") else []


def _find(
    node: _Node[PlacedT], parts: Sequence[str], values: tuple[str, ...]
) -> Found[PlacedT] | None:
    if not parts:
        return Found(node.methods, values) if node.methods else None
    literal = node.literal.get(parts[0])
    if literal is not None and (found := _find(literal, parts[1:], values)) is not None:
        return found
    if node.named is None or not parts[0]:
        return None
    return _find(node.named, parts[1:], (*values, parts[0]))
