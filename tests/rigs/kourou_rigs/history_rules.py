"""Rules that every history must satisfy, whatever failed while it was recorded.

    broken = broken_rules(history, log, groups=("audit", "billing"))
    assert not broken, broken

`log` is the final content of the queues by (queue, offset). The rules:

    lost          an acknowledged message is where its producer was told
    one value     a place always has the same value for producers, consumers and the log
    phantom       a read message was sent before it was read, and not rejected
    order         a message acknowledged before another was sent precedes it in its queue
    dense         offsets start at 0 and have no gaps
    repeated      a value is in one place, however often it was sent
    unseen        each group received all acknowledged messages
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeAlias

from kourou_rigs.send_history import History, Outcome, SendRow

Place: TypeAlias = tuple[str, int]
"""Queue and offset."""

Opening: TypeAlias = tuple[int, str, int]
"""An epoch, its leader, and the position of its first record."""

SHOWN_MAX = 5


def broken_rules(history: History, log: Mapping[Place, str], *, groups: Iterable[str]) -> list[str]:
    """One line with a few examples for each broken rule; empty for a correct history."""
    found = {
        "lost": _lost(history, log),
        "one value": _many_values(history, log),
        "phantom": _phantoms(history, log),
        "order": _out_of_order(history.acknowledged()),
        "dense": _gaps(log),
        "repeated": _repeated(log),
        "unseen": _unseen(history, groups),
    }
    told = {rule: list(texts) for rule, texts in found.items()}
    return [_line(rule, texts) for rule, texts in told.items() if texts]


def rival_leaders(openings: Mapping[str, Iterable[Opening]]) -> list[str]:
    """Epochs with two leaders or two start positions; `openings` are keyed by the log's owner.

    Empty if every epoch had at most one leader.
    """
    led: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for epoch, leader, start in chain.from_iterable(openings.values()):
        led[epoch].add((leader, start))
    return [
        f"epoch {epoch} was led by {' and '.join(f'{name} from {at}' for name, at in sorted(who))}"
        for epoch, who in sorted(led.items())
        if len(who) > 1
    ]


def _line(rule: str, texts: list[str]) -> str:
    more = f" … {len(texts)} in all" if len(texts) > SHOWN_MAX else ""
    return f"{rule}: {'; '.join(texts[:SHOWN_MAX])}{more}"


# -- the rules -------------------------------------------------------------------------------------


def _lost(history: History, log: Mapping[Place, str]) -> Iterator[str]:
    for row in history.acknowledged():
        place = row.queue, row.offset
        if log.get(place) != row.value:
            yield f"{row.value} was acknowledged at {_named(place)}, there is {log.get(place)}"


def _many_values(history: History, log: Mapping[Place, str]) -> Iterator[str]:
    told: dict[Place, str] = {}
    for place, value in chain(
        (((row.queue, row.offset), row.value) for row in history.acknowledged()),
        (((row.queue, row.offset), row.value) for row in history.reads),
    ):
        known = told.setdefault(place, value)
        if known != value:
            yield f"{_named(place)} was {known} and {value}"
    for place, value in told.items():
        if log.get(place) != value:
            yield f"{_named(place)} was {value} and is {log.get(place)}"


def _phantoms(history: History, log: Mapping[Place, str]) -> Iterator[str]:
    sent = {row.value: row for row in history.sends}
    for place, value in log.items():
        if value not in sent:
            yield f"{value} at {_named(place)}, which was never sent"
        elif sent[value].outcome is Outcome.FAIL:
            yield f"{value} at {_named(place)}, which was refused"
    for read in history.reads:
        row = sent.get(read.value)
        if row is None:
            yield f"{read.group} read {read.value}, which was never sent"
        elif row.outcome is Outcome.FAIL:
            yield f"{read.group} read {read.value}, which was refused"
        elif read.read_ms < row.invoked_ms:
            yield f"{read.group} read {read.value} before it was sent"


def _out_of_order(rows: Iterable[SendRow]) -> Iterator[str]:
    """In each queue, a message must not follow one that was sent after its acknowledgement."""
    queues: dict[str, list[SendRow]] = defaultdict(list)
    for row in rows:
        queues[row.queue].append(row)
    for queue in queues.values():
        queue.sort(key=lambda row: row.offset)
        latest = queue[0]
        for row in queue:
            if row.returned_ms < latest.invoked_ms:
                yield (
                    f"{latest.value} was sent after {row.value} was acknowledged and stands before"
                    f" it: {row.queue} {latest.offset} and {row.offset}"
                )
            if row.invoked_ms > latest.invoked_ms:
                latest = row


def _gaps(log: Mapping[Place, str]) -> Iterator[str]:
    queues: dict[str, list[int]] = defaultdict(list)
    for queue, offset in log:
        queues[queue].append(offset)
    for queue, offsets in queues.items():
        offsets.sort()
        for wanted, offset in enumerate(offsets):
            if wanted != offset:
                yield f"{queue} has {offset} where {wanted} should be"
                break


def _repeated(log: Mapping[Place, str]) -> Iterator[str]:
    first: dict[str, Place] = {}
    for place, value in sorted(log.items()):
        before = first.setdefault(value, place)
        if before != place:
            yield f"{value} at {_named(before)} and {_named(place)}"


def _unseen(history: History, groups: Iterable[str]) -> Iterator[str]:
    seen: dict[str, set[str]] = defaultdict(set)
    for row in history.reads:
        seen[row.group].add(row.value)
    for group in groups:
        for sent in history.acknowledged():
            if sent.value not in seen[group]:
                yield f"{group} was never handed {sent.value}"


def _named(place: Place) -> str:
    return f"{place[0]}@{place[1]}"
