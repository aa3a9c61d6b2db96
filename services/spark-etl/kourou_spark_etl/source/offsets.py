"""The progress of a query in every queue: an immutable value, its JSON text, and its arithmetic.

    {"orders": {"broker-a": {"0": 57, "1": 60}, "broker-b": {"0": 12}}}

The text has a fixed order: topics and brokers by name, queues by number. Spark compares texts, so a
changed order would look like new data.

State: none. The checkpoint is Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from kourou.errors import BadRequest
from kourou.model.limits import OFFSET_MAX
from kourou.model.names import check_topic
from kourou.model.topic import MessageQueue

Tree = dict[str, dict[str, dict[str, int]]]


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """The range of a queue: offsets from `low` up to, not including, `high`."""

    low: int
    high: int


class QueueOffsets(Mapping[MessageQueue, int]):
    """The next offset of each queue, in the order of the queues."""

    __slots__ = ("_of",)

    def __init__(self, of: Mapping[MessageQueue, int]) -> None:
        self._of = {queue: of[queue] for queue in sorted(of)}

    def __getitem__(self, queue: MessageQueue) -> int:
        return self._of[queue]

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def __repr__(self) -> str:
        return f"Offsets({self.text()})"

    # -- conversion for Spark ---------------------------------------------------------------------

    def tree(self) -> Tree:
        """Nested dicts, in order, which Spark's runner writes as JSON."""
        tree: Tree = {}
        for queue, offset in self._of.items():
            brokers = tree.setdefault(queue.topic, {})
            brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
        return tree

    def text(self) -> str:
        """The JSON text."""
        return msgspec.json.encode(self.tree()).decode()

    @classmethod
    def of_tree(cls, tree: object, *, what: str = "the offsets", lowest: int = 0) -> Self:
        """The inverse of `tree`. Raises BadRequest, which names `what`, for an invalid value.

        Offsets below `lowest` are invalid, too.
        """
        found: dict[MessageQueue, int] = {}
        for queue, offset in _leaves(tree, what):
            if not isinstance(offset, int) or isinstance(offset, bool):
                raise _bad(what, f"the offset of {queue!s} is {offset!r}, not a number")
            if not lowest <= offset <= OFFSET_MAX:
                raise _bad(
                    what, f"the offset of {queue!s} is {offset}; it must be at least {lowest}"
                )
            found[queue] = offset
        return cls(found)

    @classmethod
    def of_text(cls, text: str, *, what: str = "the offsets", lowest: int = 0) -> Self:
        """The inverse of `text`."""
        return cls.of_tree(json_of(text, what), what=what, lowest=lowest)


def json_of(text: str, what: str) -> Any:
    """Parse a JSON text. Raises BadRequest, with the name `what`, if it is invalid."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise _bad(what, str(error)) from None


def _leaves(tree: object, what: str) -> Iterator[tuple[MessageQueue, object]]:
    for topic, brokers in _members(tree, what, "a topic"):
        try:
            check_topic(topic)
        except BadRequest as error:
            raise _bad(what, error.message) from None
        for broker, queues in _members(brokers, what, f"a broker of {topic}"):
            for number, value in _members(queues, what, f"a queue of {topic}/{broker}"):
                if not (number.isascii() and number.isdecimal() and len(number) <= 10):
                    raise _bad(what, f"{topic}/{broker} has an invalid queue {number!r}")
                yield MessageQueue(topic, broker, int(number)), value


def _members(value: object, what: str, member: str) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict):
        raise _bad(what, f"{member} is expected instead of {value!r:.60}")
    yield from value.items()


def _bad(what: str, why: str) -> BadRequest:
    return BadRequest(
        f"{what} cannot be parsed: {why}", hint='write {"topic": {"broker": {"0": 57}}}'
    )


# -- size of a batch ------------------------------------------------------------------------------


def shared_out(backlog: Mapping[MessageQueue, int], limit: int) -> dict[MessageQueue, int]:
    """How many messages each queue contributes to a batch of at most `limit`.

    In proportion to their backlogs. What rounding leaves goes to the largest remainders, and among
    equal ones to the first queues. The sum is the smaller of `limit` and the total backlog.
    """
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    shares = {queue: count * limit // total for queue, count in backlog.items()}
    left = limit - sum(shares.values())
    by_rest = sorted(backlog, key=lambda queue: (-(backlog[queue] * limit % total), queue))
    for queue in by_rest[:left]:
        shares[queue] += 1
    return shares


def next_end(
    start: QueueOffsets,
    spans: Mapping[MessageQueue, OffsetSpan],
    limit: int | None,
    lost: Callable[[MessageQueue, int, OffsetSpan], None],
) -> QueueOffsets:
    """The end of the next batch that starts at `start`.

    A new queue starts at its first message. A queue that is missing, because its broker is offline
    or its topic has fewer queues, stays at its offset. `lost(queue, begin, span)` is called for a
    queue that does not have the next offset; if it returns, the batch continues with what exists.
    """
    ends = dict(start)
    begins: dict[MessageQueue, int] = {}
    backlog: dict[MessageQueue, int] = {}
    for queue, span in spans.items():
        begin = start.get(queue, span.low)
        if not span.low <= begin <= span.high:
            lost(queue, begin, span)
            begin = min(max(begin, span.low), span.high)
        begins[queue] = begin
        backlog[queue] = span.high - begin
    shares = backlog if limit is None else shared_out(backlog, limit)
    for queue, begin in begins.items():
        ends[queue] = begin + shares[queue]
    return QueueOffsets(ends)
