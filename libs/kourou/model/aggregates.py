"""How things that have a history are named: kind/name, like topic/orders or setting/traceOn.

Lives here: the form of such names and of types of events. May not live here: which events there are
(kourou.engine.events).
"""

from __future__ import annotations

from collections.abc import Collection

from kourou.errors import BadRequest
from kourou.model.limits import AGGREGATE_LENGTH_MAX, HISTORY_TYPES_MAX

KINDS_WITH_STATE = ("topic", "group", "setting", "progress", "filter")
"""Kinds that have a state; others, which a newer version may add to, have a history only."""


def check_aggregate(text: str) -> str:
    """`kind/name`, or nothing for everything. Raises BadRequest."""
    if not text:
        return text
    kind, slash, name = text.partition("/")
    if kind and slash and name and len(text) <= AGGREGATE_LENGTH_MAX and text.isprintable():
        return text
    raise BadRequest(
        f"{text[:AGGREGATE_LENGTH_MAX]!r} names nothing that has a history",
        hint="kind/name, like topic/orders, group/till, setting/traceOn or filter/till/late",
    )


def check_stateful(aggregate: str) -> str:
    """An aggregate that has a state, or nothing for everything. Raises BadRequest."""
    check_aggregate(aggregate)
    kind = aggregate.partition("/")[0]
    if kind and kind not in KINDS_WITH_STATE:
        raise BadRequest(
            f"{aggregate} has no state, at most a history",
            hint=f"what has one is {', '.join(f'{each}/…' for each in KINDS_WITH_STATE)}",
        )
    return aggregate


def check_types(names: Collection[str]) -> frozenset[str]:
    """Types of events, known to this version or not. Raises BadRequest."""
    if len(names) > HISTORY_TYPES_MAX:
        raise BadRequest(f"{len(names)} types are named; at most {HISTORY_TYPES_MAX} may be")
    for name in names:
        if not name.isidentifier() or len(name) > AGGREGATE_LENGTH_MAX:
            raise BadRequest(
                f"{name[:AGGREGATE_LENGTH_MAX]!r} is no type of event", hint="one is TopicPut"
            )
    return frozenset(names)
