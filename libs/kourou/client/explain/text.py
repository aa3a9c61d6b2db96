"""Output of an explanation as lines of text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from kourou.client.explain.explanation import (
    ExplainedCause,
    ExplainedCopy,
    ExplainedGroup,
    Explanation,
)
from kourou.client.explain.words import when

WIDTH = 100
_YES = {True: "yes", False: "no", None: "unknown"}


def lines_of(explanation: Explanation) -> Iterator[str]:
    """Return all lines of an explanation."""
    found = explanation.message
    if found is not None:
        place = f"{found.topic}/{found.broker}/{found.queue_id}@{found.offset}"
        yield f"{found.message_id}  {place}"
        if explanation.others:
            count = explanation.others + 1
            yield f"the newest of {count} messages with the key {explanation.asked}"
    yield from _causes(explanation.causes, "")
    for group in explanation.groups:
        yield ""
        yield from _group(group)
    if explanation.truncated:
        yield ""
        yield "More groups exist: select one with --group."
    if explanation.storage is not None or explanation.places:
        yield ""
        yield from _where(explanation)
    if explanation.missing:
        yield ""
        yield "Missing information:"
        for one in explanation.missing:
            yield from _wrapped(f"{one.what}: {one.why}", "  ")


def _group(group: ExplainedGroup) -> Iterator[str]:
    yield f"group {group.group}"
    yield from _causes(group.causes, "  ")
    for each in group.deliveries:
        ended = "not finished" if each.ended_ms is None else f"{each.how}, {when(each.ended_ms)}"
        yield f"    attempt {each.attempt}: given {when(each.at_ms)}, {ended}"


def _causes(causes: list[ExplainedCause], indent: str) -> Iterator[str]:
    for number, cause in enumerate(causes):
        yield from _wrapped(f"{cause.code}: {cause.sentence}", indent)
        if number == 0 and cause.severity != "ok":
            yield from _wrapped(f"-> {cause.advice}", indent + "  ")


def _where(explanation: Explanation) -> Iterator[str]:
    storage = explanation.storage
    if storage is not None:
        flushed, confirmed = _YES[storage.flushed], _YES[storage.confirmed]
        yield f"position {storage.position}: flushed {flushed}, committed {confirmed}"
        for copy in storage.copies:
            yield f"  {_copy(copy)}"
    for place in explanation.places:
        where = f"{place.topic}/{place.broker}/{place.queue_id}@{place.offset}"
        yield f"{place.kind}: {where}, {when(place.stored_ms)}"


def _copy(copy: ExplainedCopy) -> str:
    text = f"{copy.role} {copy.broker_id} at {copy.address}: "
    if copy.written is None:
        return text + f"unknown ({copy.why})"
    return text + f"stored {_YES[copy.written]}, flushed {_YES[copy.flushed]}"


def _wrapped(text: str, indent: str) -> Iterator[str]:
    yield from wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
