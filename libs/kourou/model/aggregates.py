"""Names of aggregates, which have a history: kind/name, like topic/orders or setting/traceOn."""

from __future__ import annotations

from collections.abc import Collection

from kourou.errors import BadRequest
from kourou.model.limits import AGGREGATE_LENGTH_MAX, HISTORY_TYPES_MAX

KINDS_WITH_STATE = ("topic", "group", "setting", "progress", "filter")
"""Kinds that have a state; others, to which a newer version may add, have only a history."""


def check_aggregate(text: str) -> str:
    """Return `kind/name`, or an empty text for all aggregates. Raises BadRequest."""
    if not text:
        return text
    kind, slash, name = text.partition("/")
    if kind and slash and name and len(text) <= AGGREGATE_LENGTH_MAX and text.isprintable():
        return text
    raise BadRequest(
        f"{text[:AGGREGATE_LENGTH_MAX]!r} does not name anything with a history",
        hint="kind/name, like topic/orders, group/till, setting/traceOn or filter/till/late",
    )


def check_stateful(aggregate: str) -> str:
    """Return an aggregate that has a state, or an empty text for all. Raises BadRequest."""
    check_aggregate(aggregate)
    kind = aggregate.partition("/")[0]
    if kind and kind not in KINDS_WITH_STATE:
        raise BadRequest(
            f"{aggregate} has no state that can be read",
            hint=f"use one of {', '.join(f'{each}/…' for each in KINDS_WITH_STATE)}",
        )
    return aggregate


def check_types(names: Collection[str]) -> frozenset[str]:
    """Return event types, known to this version or not. Raises BadRequest."""
    if len(names) > HISTORY_TYPES_MAX:
        raise BadRequest(
            f"{len(names)} event types are given; at most {HISTORY_TYPES_MAX} are allowed"
        )
    for name in names:
        if not name.isidentifier() or len(name) > AGGREGATE_LENGTH_MAX:
            raise BadRequest(
                f"{name[:AGGREGATE_LENGTH_MAX]!r} is not an event type", hint="for example TopicPut"
            )
    return frozenset(names)
