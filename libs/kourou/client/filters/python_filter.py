"""Python filters of applications, which run in filter servers next to the broker.

    @Filter
    def late(message, context):
        return message.json["arrival_delay_minutes"] > 120

    with mq.subscribe("flights", late) as flights: ...

The two modules that read sources are imported when a filter is created, because most clients create
none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any, Self

from kourou.errors import BadRequest
from kourou.model.filter import check_filter_name
from kourou.model.limits import FILTER_NOTE_LENGTH_MAX, FILTER_SOURCE_BYTES_MAX

Matching = Callable[[Any, Any], bool]
"""`match(message, context)`."""


@dataclass(frozen=True, init=False)
class Filter:
    """A Python filter, usable as an expression instead of tags or an `Sql`.

    `Filter(function)`, `Filter(cls)` and, as decorators, `@Filter` and `@Filter.define(...)` use
    the source of their argument: a function `match(message, context) -> bool` under any name, or a
    class with a method `match`. `Filter(text, name=...)` and `Filter.from_file(path)` take the
    source itself. `Filter.named(name)` uploads nothing and refers to the filter that the group has
    stored under that name. `note` is stored with the uploaded version. Raises BadRequest for a
    filter that cannot be uploaded or would be refused.
    """

    name: str
    source: str | None = field(repr=False)
    note: str = ""
    _function: Matching | None = field(default=None, repr=False, compare=False)

    def __init__(
        self, what: str | Matching | type, *, name: str | None = None, note: str = ""
    ) -> None:
        function: Matching | None = None
        if isinstance(what, str):
            if name is None:
                raise BadRequest(
                    "a filter given as text needs a name",
                    hint="use Filter(text, name=...); for a stored filter "
                    'Filter.named(...); as a decorator @Filter.define("late")',
                )
            source = what
        elif isinstance(what, FunctionType | type):
            from kourou.client.filters import sources as filter_sources

            if isinstance(what, type):
                source = filter_sources.source_of_class(what)
            else:
                source, function = filter_sources.source_of_function(what), what
            name = _chosen_name(name, what.__name__)
        else:
            raise BadRequest(
                f"{what!r:.80} is not a filter",
                hint="pass a function, a class, or the source as text",
            )
        self._fill(name, source, note, function)

    def _fill(
        self, name: str, source: str | None, note: str, function: Matching | None = None
    ) -> None:
        if not (isinstance(name, str) and isinstance(note, str)):
            raise BadRequest(
                f"name and note of a filter must be strings, not {name!r:.80}, {note!r:.80}"
            )
        check_filter_name(name)
        if len(note) > FILTER_NOTE_LENGTH_MAX:
            raise BadRequest(
                f"the note of filter {name} has {len(note)} characters; at "
                f"most {FILTER_NOTE_LENGTH_MAX} are allowed"
            )
        if source is not None:
            from kourou.filtering.python_rules import check_source

            check_source(source, name)
        for key, value in (
            ("name", name),
            ("source", source),
            ("note", note),
            ("_function", function),
        ):
            object.__setattr__(self, key, value)

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the filter that the consumer group has stored under this name."""
        made = cls.__new__(cls)
        made._fill(name, None, "")
        return made

    @classmethod
    def from_file(cls, path: str | Path, *, name: str | None = None, note: str = "") -> Self:
        """Return the filter whose source is a UTF-8 file; the default name is the file's stem."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                content = file.read(FILTER_SOURCE_BYTES_MAX + 1)
            # Content that is too long may end within a character.
            too_long = len(content) > FILTER_SOURCE_BYTES_MAX
            source = content.decode(errors="replace" if too_long else "strict")
        except (OSError, ValueError) as error:
            raise BadRequest(f"filter file {path} cannot be read: {error}") from error
        return cls(source, name=path.stem if name is None else name, note=note)

    @classmethod
    def define(
        cls, name: str | None = None, *, note: str = ""
    ) -> Callable[[Matching | type], Filter]:
        """Return a decorator: `@Filter.define("late", note="more than two hours late")`."""
        if name is not None and not isinstance(name, str):  # used without parentheses
            raise BadRequest(
                f"Filter.define takes the name of the filter, not {name!r:.80}",
                hint='use @Filter.define("late"), or just @Filter',
            )

        def make(what: Matching | type) -> Filter:
            return cls(what, name=name, note=note)

        return make

    def __call__(self, message: Any, context: Any = None) -> bool:
        """Call the function locally, as in tests.

        Raises BadRequest if made from a text or a class.
        """
        if self._function is None:
            raise BadRequest(
                f"filter {self.name} was not made from a function, so it cannot be called"
            )
        return self._function(message, context)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the source in UTF-8, in hexadecimal; empty without a source."""
        return "" if self.source is None else hashlib.sha256(self.source.encode()).hexdigest()

    def __str__(self) -> str:
        return self.name


def _chosen_name(name: str | None, own: str) -> str:
    if name is not None:
        return name
    if own == "match":
        raise BadRequest(
            "a filter made from a function named match needs a name",
            hint='use @Filter.define("late") or Filter(match, name="late")',
        )
    return own
