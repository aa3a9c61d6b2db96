"""Finds names that differ from each other only in upper and lower case.

State: projection; derived from the table that it belongs to, never stored.

Two such names would share files on a case-insensitive file system, and users confuse them. So
commands refuse to create them (decision 0011).
"""

from __future__ import annotations


class FoldedNames:
    """Names by their lower-case form. The cost of an operation does not depend on their number."""

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
