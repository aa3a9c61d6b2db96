"""What a consumer wants, and how its group consumes (fact sheet §3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MessageModel(StrEnum):
    """Share the messages among a group's members, or give every member all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeType(StrEnum):
    """Pull consumers ask themselves; push consumers let the client library ask."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class ConsumeFromWhere(StrEnum):
    """Where a group without progress begins; afterwards its progress decides."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


TAG = "TAG"
SQL92 = "SQL92"
FILTER = "FILTER"
"""What a subscription by a filter in Python is called; on the wire its type is TAG."""
MATCH_ALL = "*"


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic as one group wants it; `version`: the consumer's clock (ms) at its last change."""

    topic: str
    expression: str = MATCH_ALL
    expression_type: str = TAG
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    version: int = 0
    class_filter_mode: bool = False

    @property
    def kind(self) -> str:
        """By what it chooses: TAG, SQL92 or FILTER."""
        return FILTER if self.class_filter_mode else self.expression_type
