"""Configurations by name, as topics and consumer groups have them.

State: projection; each owner evolves its table in place.

Invariant: `version.counter` grows by one with every event that changes the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kourou.errors import Rejected
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion, TopicConfig

ConfigT = TypeVar("ConfigT", TopicConfig, GroupConfig)


class FoldedNames:
    """Names by their lower-case form. The cost of an operation does not depend on their number.

    State: projection; derived from the table that it belongs to, never stored.

    Two such names would share files on a case-insensitive file system, and users confuse them. So
    commands refuse to create them (decision 0011).
    """

    __slots__ = ("_by_form",)

    def __init__(self) -> None:
        self._by_form: dict[str, tuple[str, ...]] = {}

    def add(self, name: str) -> None:
        """Add `name`, which must not be present."""
        form = name.lower()
        self._by_form[form] = (*self._by_form.get(form, ()), name)

    def remove(self, name: str) -> None:
        """Remove `name`, which must be present."""
        form = name.lower()
        left = tuple(other for other in self._by_form[form] if other != name)
        if left:
            self._by_form[form] = left
        else:
            del self._by_form[form]

    def clash(self, name: str) -> str | None:
        """Return the oldest other name that differs from `name` only in case, or None."""
        for other in self._by_form.get(name.lower(), ()):
            if other != name:
                return other
        return None

    def copy(self) -> FoldedNames:
        """Return an independent copy."""
        other = FoldedNames()
        other._by_form = dict(self._by_form)
        return other


@dataclass(slots=True)
class ConfigTable(Generic[ConfigT]):
    """The table; `folded` is derived from it.

    `creators` has the users who created what is in it; what no known user created is not there.
    """

    table: dict[str, ConfigT] = field(default_factory=dict)
    version: DataVersion = field(default_factory=DataVersion)
    folded: FoldedNames = field(default_factory=FoldedNames, compare=False, repr=False)
    creators: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> ConfigT | None:
        """Return the configuration with this name, or None."""
        return self.table.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self.table

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[ConfigT]:
        return iter(self.table.values())

    def created_by(self, user: str) -> int:
        """Return how many a user created. O(length)."""
        return sum(one == user for one in self.creators.values())

    def put(self, config: ConfigT, creator: str = "") -> None:
        """Add a configuration, or replace the one with its name; `creator` is the user."""
        if config.name not in self.table:
            self.folded.add(config.name)
            if creator:
                self.creators[config.name] = creator
        self.table[config.name] = config

    def remove(self, name: str) -> None:
        """Remove a configuration, if it is present."""
        if self.table.pop(name, None) is not None:
            self.folded.remove(name)
        self.creators.pop(name, None)

    def changed(self, at_ms: int) -> None:
        """Count an event that changed the table."""
        self.version = DataVersion(at_ms, self.version.counter + 1)

    def check_new(self, kind: str, name: str, count_max: int) -> None:
        """Raise Rejected if no configuration with this name may be added."""
        if len(self) >= count_max:
            raise Rejected(
                f"{kind} {name} is not created: this broker has {count_max} {kind}s, the maximum",
                hint=f"delete {kind}s that are not used",
            )
        other = self.folded.clash(name)
        if other is not None:
            raise Rejected(
                f"{kind} {name} differs from the existing {kind} {other} only in upper and lower "
                "case",
                hint="choose another name",
            )
