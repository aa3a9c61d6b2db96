"""The rules that explain the status of a message in one consumer group.

The rules apply in this order:

    1  dead letters, retries     the group received it, and the log contains the outcome
    2  a handler that succeeded  the message trace contains the call
    3  broadcasting              each consumer has its own offset, so later rules do not apply
    4  offset past the message   it will not be delivered: skipped by a filter or by an offset
                                 reset, stored before the group started, or else consumed
    5  offset not past it        what prevents delivery, from the group to the handler: consumption
                                 is disabled, no consumer is connected or subscribed,
                                 subscriptions differ, the queue is not assigned, its consumer
                                 does not progress

In rule 4, recorded events (a reset, a skip) precede conclusions (the filter does not match now,
where the group started); "consumed" remains if none of them applies.
"""

from __future__ import annotations

from collections.abc import Iterator

from kourou.client.explain.causes import Cause, Code, Known
from kourou.client.explain.facts import Facts, GroupFacts, Kind, Place, Reset
from kourou.client.explain.filter_verdict import held_by_filter, let_through, unwanted
from kourou.client.explain.member_verdict import clash, of_queue
from kourou.client.explain.words import count, when
from kourou.model.message import Property, delay_of
from kourou.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel

PAST = frozenset(
    {
        Code.CONSUMED,
        Code.FILTER_SKIPPED,
        Code.RESET_PAST,
        Code.SKIPPED_BY_CONSUME_FROM_LAST,
        Code.IN_RETRY,
        Code.RETRY_DUE,
        Code.DEAD_LETTERED,
        Code.DEAD_LETTER_DEALT_WITH,
        Code.REDRIVEN,
    }
)
"""Causes that describe past events, independent of the current state."""


def causes_of_group(facts: Facts, message: Place, group: GroupFacts) -> tuple[Cause, ...]:
    """Return the causes for one group, the main one first; at least one."""
    retried = tuple(_retries(facts, group))
    if retried:
        return retried
    if message.group is not None:
        text = f"Only the copy of {message.group} is left; the state of {group.name} is unknown."
        return (Cause(Code.UNDECIDED, text, {"place": str(message)}),)
    succeeded = [one for one in group.deliveries if one.ok]
    if succeeded:
        last = succeeded[-1]
        text = f"A handler of {group.name} consumed it {when(last.ended_ms or last.at_ms)}"
        text += f", at attempt {last.attempt}." if last.attempt > 1 else "."
        known: Known = {
            "proof": "trace",
            "at_ms": last.ended_ms or last.at_ms,
            "attempt": last.attempt,
        }
        return (Cause(Code.CONSUMED, text, known),)
    if _is_unknown(group):
        text = f"The broker {message.queue.broker_name} does not have the group {group.name}."
        return (Cause(Code.GROUP_UNKNOWN, text, {"group": group.name}),)
    pushed = group.consume_type is ConsumeType.CONSUME_PASSIVELY
    if group.model is MessageModel.BROADCASTING and group.online and pushed:
        return tuple(_broadcast(message, group))
    if group.next_offset is not None and group.next_offset > message.offset:
        return tuple(_beyond(message, group))
    return tuple(_before(facts, message, group)) or (_undecided(message, group),)


def _is_unknown(group: GroupFacts) -> bool:
    return group.config is None and group.online is False and not group.next_offset


def _undecided(message: Place, group: GroupFacts) -> Cause:
    return Cause(
        Code.UNDECIDED,
        f"The state of {message!s} in {group.name} could not be determined.",
        {"next_offset": group.next_offset},
    )


# -- 1: attempts that failed ----------------------------------------------------------------------


def _retries(facts: Facts, group: GroupFacts) -> Iterator[Cause]:
    """Yield what the newest retry or dead letter of the group shows."""
    copies = [one for one in facts.places if one.group == group.name]
    if not copies:
        return
    newest = max(copies, key=lambda one: (one.stored_ms, one.position))
    letters = [one for one in copies if one.kind is Kind.DEAD_LETTER]
    match newest.kind:
        case Kind.DEAD_LETTER:
            yield _dead_letter(group, newest)
        case Kind.RETRY_WAIT:
            yield _in_retry(facts, group, newest)
        case _:
            yield from _in_retry_topic(facts, group, newest, letters[-1] if letters else None)


def _dead_letter(group: GroupFacts, letter: Place) -> Cause:
    reason = letter.properties.get(Property.DLQ_REASON, "")
    why = f": {reason}" if reason else ", without a reason"
    known: Known = {
        "place": str(letter),
        "attempts": letter.attempts,
        "reason": reason or None,
        "at_ms": letter.stored_ms,
        "redriven": False,
    }
    attempts = count(letter.attempts, "attempt")
    text = (
        f"{group.name} moved it to the dead-letter queue {when(letter.stored_ms)} after "
        f"{attempts}{why}. "
        f"Stored at {letter!s}"
    )
    if group.dealt_with is not None and group.dealt_with > letter.offset:
        return Cause(Code.DEAD_LETTER_DEALT_WITH, f"{text}; handled.", known)
    return Cause(Code.DEAD_LETTERED, f"{text}; not redelivered.", known)


def _in_retry(facts: Facts, group: GroupFacts, waiting: Place) -> Cause:
    level = waiting.properties.get(Property.DELAY, "")
    due_ms = None
    if level.isdecimal() and int(level) and facts.delay_levels_ms:
        due_ms = waiting.stored_ms + delay_of(int(level), facts.delay_levels_ms)
    until = f"until {when(due_ms)}" if due_ms is not None else "for its delay"
    times_max = None if group.config is None else group.config.retry_max_times
    known: Known = {
        "attempts": waiting.attempts,
        "attempts_max": times_max,
        "due_ms": due_ms,
        "place": str(waiting),
    }
    failed = count(waiting.attempts, "attempt")
    if times_max is not None:
        failed = f"{waiting.attempts} of {times_max} attempts"
    text = f"{failed} of {group.name} failed; the retry waits {until}."
    return Cause(Code.IN_RETRY, text, known)


def _in_retry_topic(
    facts: Facts, group: GroupFacts, copy: Place, letter: Place | None
) -> Iterator[Cause]:
    """Yield the status in the retry topic; if a dead letter exists, it was redelivered."""
    attempt = copy.attempts + 1
    known: Known = {"place": str(copy), "attempt": attempt, "next_offset": group.retry_next}
    beyond = group.retry_next is not None and group.retry_next > copy.offset
    again = ""
    if letter is not None:
        known["dead_letter"] = str(letter)
        again = f" It was a dead letter ({letter!s}) and was redelivered {when(copy.stored_ms)}."
    if beyond:
        text = f"{group.name} consumed it from its retry topic, at attempt {attempt}.{again}"
        yield Cause(Code.CONSUMED, text, {**known, "proof": "progress"})
        if letter is not None:
            yield Cause(Code.REDRIVEN, again.strip(), known)
        return
    code = Code.RETRY_DUE if letter is None else Code.REDRIVEN
    text = f"Attempt {attempt} of {group.name} is due; stored at {copy!s}.{again}"
    yield Cause(code, text, known)
    if group.online is False:
        yield _no_member(group)


# -- 3: broadcasting ------------------------------------------------------------------------------


def _broadcast(message: Place, group: GroupFacts) -> Iterator[Cause]:
    if group.config is not None and not group.config.consume_broadcast_enable:
        text = f"{group.name} broadcasts, but its configuration does not allow it."
        yield Cause(Code.BROADCAST_FORBIDDEN, text, {"group": group.name})
        return
    have = [
        one.client_id
        for one in group.members
        if one.queue is not None and one.queue.commit_offset > message.offset
    ]
    text = (
        f"{group.name} broadcasts: {len(have)} of {len(group.members)} connected consumers have "
        "passed it."
    )
    yield Cause(
        Code.BROADCASTING, text, {"members": len(group.members), "beyond": tuple(sorted(have))}
    )
    yield from unwanted(message, group)


# -- 4: offset past the message -------------------------------------------------------------------


def _beyond(message: Place, group: GroupFacts) -> Iterator[Cause]:
    """Yield why the group's offset is past the message."""
    assert group.next_offset is not None, "already passed"
    moved = crossing(group.resets, message.offset)
    if moved is not None and moved.after is not None and moved.after > message.offset:
        reason = f", {moved.reason!r}" if moved.reason else ""
        yield Cause(
            Code.RESET_PAST,
            f"{moved.actor} moved {group.name} from {moved.before} to {moved.after} "
            f"{when(moved.at_ms)}{reason}: the message was skipped.",
            {
                "actor": moved.actor,
                "reason": moved.reason or None,
                "at_ms": moved.at_ms,
                "before": moved.before,
                "after": moved.after,
                "event": moved.event,
            },
        )
        return
    said_no = tuple(unwanted(message, group))
    if said_no:
        differing = clash(message, group)
        yield from said_no if differing is None else (*said_no, differing)
        return
    if _began_behind(message, group):
        since = "" if group.created_ms is None else f" was created {when(group.created_ms)} and"
        yield Cause(
            Code.SKIPPED_BY_CONSUME_FROM_LAST,
            f"{group.name}{since} starts at the end of its queues, after this message.",
            {"created_ms": group.created_ms, "next_offset": group.next_offset},
        )
        return
    yield Cause(
        Code.CONSUMED,
        f"{group.name} has committed up to {group.next_offset}, past this message.",
        {"proof": "progress", "next_offset": group.next_offset},
    )
    yield from let_through(group)


def crossing(resets: tuple[Reset, ...], offset: int) -> Reset | None:
    """Return the newest reset that moved the group's offset across this one, in any direction."""
    for one in sorted(resets, key=lambda each: each.event, reverse=True):
        before, after = one.before or 0, one.after or 0
        if min(before, after) <= offset < max(before, after):
            return one
    return None


def _began_behind(message: Place, group: GroupFacts) -> bool:
    if group.begins is not ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
        return False
    if group.created_ms is not None and group.created_ms > message.stored_ms:
        return True
    return group.had_progress is False


# -- 5: offset not past the message ---------------------------------------------------------------


def _before(facts: Facts, message: Place, group: GroupFacts) -> Iterator[Cause]:
    """Yield what prevents delivery, the outermost obstacle first."""
    if group.config is not None and not group.config.consume_enable:
        text = f"Consumption is disabled for {group.name} (consumeEnable)."
        yield Cause(Code.CONSUMPTION_DISABLED, text, {"group": group.name})
    if group.online is False:
        yield _no_member(group)
        return
    if group.online is None:
        return
    if group.consume_type is ConsumeType.CONSUME_ACTIVELY:
        text = f"{group.name} is a pull consumer and has committed up to {group.next_offset}."
        yield Cause(Code.PULL_CONSUMER, text, {"next_offset": group.next_offset})
        return
    differing = clash(message, group)
    beside = () if differing is None else (differing,)
    if all(one.queue is None for one in group.members):
        yield from beside  # usually the reason why no consumer has the queue
        beside = ()
    if group.subscription is None:
        if differing is None:
            yield Cause(
                Code.NOT_SUBSCRIBED,
                f"No consumer of {group.name} subscribes to {message.queue.topic}.",
                {"topic": message.queue.topic},
            )
        return
    yield from held_by_filter(message, group)
    yield from tuple(unwanted(message, group)) or of_queue(facts, message, group)
    yield from beside


def _no_member(group: GroupFacts) -> Cause:
    where = "" if group.next_offset is None else f" It will resume at offset {group.next_offset}."
    text = f"Group {group.name} has no connected consumers.{where}"
    return Cause(Code.NO_MEMBER, text, {"next_offset": group.next_offset})
