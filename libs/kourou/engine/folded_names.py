"""Which names differ from each other only in upper and lower case?

State: projection; derived from the table it stands beside, never stored.

Two such names would share files on a case-insensitive file system, and readers of a screen mix them
up, so commands refuse to make them (decision 0011).
"""

from __future__ import annotations


class FoldedNames:
    """Names by their lower-case form; every operation costs the same however many there are."""

    __slots__ = ("_by_form",)

    def __init__(self) -> None:
        self._by_form: dict[str, tuple[str, ...]] = {}

    def add(self, name: str) -> None:
        """`name`, which was not among them, now is."""
        form = name.lower()
        self._by_form[form] = (*self._by_form.get(form, ()), name)

    def remove(self, name: str) -> None:
        """`name`, which was among them, no longer is."""
        form = name.lower()
        left = tuple(other for other in self._by_form[form] if other != name)
        if left:
            self._by_form[form] = left
        else:
            del self._by_form[form]

    def clash(self, name: str) -> str | None:
        """The oldest other name that differs from `name` only in case, or None."""
        for other in self._by_form.get(name.lower(), ()):
            if other != name:
                return other
        return None

    def copy(self) -> FoldedNames:
        """An independent copy."""
        other = FoldedNames()
        other._by_form = dict(self._by_form)
        return other
