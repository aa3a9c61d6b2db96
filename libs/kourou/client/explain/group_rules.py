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

from kourou.client.explain.causes import CauseCode, StatusCause, Values, count, duration, when
from kourou.client.explain.facts import (
    ConsumerFacts,
    CopyKind,
    FilterFacts,
    GroupFacts,
    MessageFacts,
    QueueAtMember,
    Reset,
    StoredCopy,
)
from kourou.client.introspection.running_info import OrderedWait
from kourou.filtering.subscriptions import selects
from kourou.model.filter import FilterPolicy, FilterState
from kourou.model.message import Property, delay_of
from kourou.model.subscription import (
    SQL92,
    TAG,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    Subscription,
)

STUCK_MS = 60_000
"""A handler that has had the smallest unfinished message for this long is called stuck."""

PAST = frozenset(
    {
        CauseCode.CONSUMED,
        CauseCode.FILTER_SKIPPED,
        CauseCode.RESET_PAST,
        CauseCode.SKIPPED_BY_CONSUME_FROM_LAST,
        CauseCode.IN_RETRY,
        CauseCode.RETRY_DUE,
        CauseCode.DEAD_LETTERED,
        CauseCode.DEAD_LETTER_DEALT_WITH,
        CauseCode.REDRIVEN,
    }
)
"""Causes that describe past events, independent of the current state."""


def causes_of_group(
    facts: MessageFacts, message: StoredCopy, group: GroupFacts
) -> tuple[StatusCause, ...]:
    """Return the causes for one group, the main one first; at least one."""
    retried = tuple(_retries(facts, group))
    if retried:
        return retried
    if message.group is not None:
        text = f"Only the copy of {message.group} is left; the state of {group.name} is unknown."
        return (StatusCause(CauseCode.UNDECIDED, text, {"place": str(message)}),)
    succeeded = [one for one in group.deliveries if one.ok]
    if succeeded:
        last = succeeded[-1]
        text = f"A handler of {group.name} consumed it {when(last.ended_ms or last.at_ms)}"
        text += f", at attempt {last.attempt}." if last.attempt > 1 else "."
        known: Values = {
            "proof": "trace",
            "at_ms": last.ended_ms or last.at_ms,
            "attempt": last.attempt,
        }
        return (StatusCause(CauseCode.CONSUMED, text, known),)
    if _is_unknown(group):
        text = f"The broker {message.queue.broker_name} does not have the group {group.name}."
        return (StatusCause(CauseCode.GROUP_UNKNOWN, text, {"group": group.name}),)
    pushed = group.consume_type is ConsumeType.CONSUME_PASSIVELY
    if group.model is MessageModel.BROADCASTING and group.online and pushed:
        return tuple(_broadcast(message, group))
    if group.next_offset is not None and group.next_offset > message.offset:
        return tuple(_beyond(message, group))
    return tuple(_before(facts, message, group)) or (_undecided(message, group),)


def _is_unknown(group: GroupFacts) -> bool:
    return group.config is None and group.online is False and not group.next_offset


def _undecided(message: StoredCopy, group: GroupFacts) -> StatusCause:
    return StatusCause(
        CauseCode.UNDECIDED,
        f"The state of {message!s} in {group.name} could not be determined.",
        {"next_offset": group.next_offset},
    )


# -- 1: attempts that failed ----------------------------------------------------------------------


def _retries(facts: MessageFacts, group: GroupFacts) -> Iterator[StatusCause]:
    """Yield what the newest retry or dead letter of the group shows."""
    copies = [one for one in facts.places if one.group == group.name]
    if not copies:
        return
    newest = max(copies, key=lambda one: (one.stored_ms, one.position))
    dead_letters = [one for one in copies if one.kind is CopyKind.DEAD_LETTER]
    match newest.kind:
        case CopyKind.DEAD_LETTER:
            yield _dead_letter(group, newest)
        case CopyKind.RETRY_WAIT:
            yield _in_retry(facts, group, newest)
        case _:
            yield from _in_retry_topic(
                facts, group, newest, dead_letters[-1] if dead_letters else None
            )


def _dead_letter(group: GroupFacts, dead_letter: StoredCopy) -> StatusCause:
    reason = dead_letter.properties.get(Property.DLQ_REASON, "")
    why = f": {reason}" if reason else ", without a reason"
    known: Values = {
        "place": str(dead_letter),
        "attempts": dead_letter.attempts,
        "reason": reason or None,
        "at_ms": dead_letter.stored_ms,
        "redriven": False,
    }
    attempts = count(dead_letter.attempts, "attempt")
    text = (
        f"{group.name} moved it to the dead-letter queue {when(dead_letter.stored_ms)} after "
        f"{attempts}{why}. "
        f"Stored at {dead_letter!s}"
    )
    if group.dealt_with is not None and group.dealt_with > dead_letter.offset:
        return StatusCause(CauseCode.DEAD_LETTER_DEALT_WITH, f"{text}; handled.", known)
    return StatusCause(CauseCode.DEAD_LETTERED, f"{text}; not redelivered.", known)


def _in_retry(facts: MessageFacts, group: GroupFacts, waiting: StoredCopy) -> StatusCause:
    level = waiting.properties.get(Property.DELAY, "")
    due_ms = None
    if level.isdecimal() and int(level) and facts.delay_levels_ms:
        due_ms = waiting.stored_ms + delay_of(int(level), facts.delay_levels_ms)
    until = f"until {when(due_ms)}" if due_ms is not None else "for its delay"
    times_max = None if group.config is None else group.config.retry_max_times
    known: Values = {
        "attempts": waiting.attempts,
        "attempts_max": times_max,
        "due_ms": due_ms,
        "place": str(waiting),
    }
    failed = count(waiting.attempts, "attempt")
    if times_max is not None:
        failed = f"{waiting.attempts} of {times_max} attempts"
    text = f"{failed} of {group.name} failed; the retry waits {until}."
    return StatusCause(CauseCode.IN_RETRY, text, known)


def _in_retry_topic(
    facts: MessageFacts, group: GroupFacts, copy: StoredCopy, dead_letter: StoredCopy | None
) -> Iterator[StatusCause]:
    """Yield the status in the retry topic; if a dead letter exists, it was redelivered."""
    attempt = copy.attempts + 1
    known: Values = {"place": str(copy), "attempt": attempt, "next_offset": group.retry_next}
    beyond = group.retry_next is not None and group.retry_next > copy.offset
    again = ""
    if dead_letter is not None:
        known["dead_letter"] = str(dead_letter)
        again = (
            f" It was a dead letter ({dead_letter!s}) and was redelivered {when(copy.stored_ms)}."
        )
    if beyond:
        text = f"{group.name} consumed it from its retry topic, at attempt {attempt}.{again}"
        yield StatusCause(CauseCode.CONSUMED, text, {**known, "proof": "progress"})
        if dead_letter is not None:
            yield StatusCause(CauseCode.REDRIVEN, again.strip(), known)
        return
    code = CauseCode.RETRY_DUE if dead_letter is None else CauseCode.REDRIVEN
    text = f"Attempt {attempt} of {group.name} is due; stored at {copy!s}.{again}"
    yield StatusCause(code, text, known)
    if group.online is False:
        yield _no_member(group)


# -- 3: broadcasting ------------------------------------------------------------------------------


def _broadcast(message: StoredCopy, group: GroupFacts) -> Iterator[StatusCause]:
    if group.config is not None and not group.config.consume_broadcast_enable:
        text = f"{group.name} broadcasts, but its configuration does not allow it."
        yield StatusCause(CauseCode.BROADCAST_FORBIDDEN, text, {"group": group.name})
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
    yield StatusCause(
        CauseCode.BROADCASTING, text, {"members": len(group.members), "beyond": tuple(sorted(have))}
    )
    yield from exclusions_of(message, group)


# -- 4: offset past the message -------------------------------------------------------------------


def _beyond(message: StoredCopy, group: GroupFacts) -> Iterator[StatusCause]:
    """Yield why the group's offset is past the message."""
    assert group.next_offset is not None, "already passed"
    moved = crossing(group.resets, message.offset)
    if moved is not None and moved.after is not None and moved.after > message.offset:
        reason = f", {moved.reason!r}" if moved.reason else ""
        yield StatusCause(
            CauseCode.RESET_PAST,
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
    exclusions = tuple(exclusions_of(message, group))
    if exclusions:
        conflict = subscription_conflict(message, group)
        yield from exclusions if conflict is None else (*exclusions, conflict)
        return
    if _started_after(message, group):
        since = "" if group.created_ms is None else f" was created {when(group.created_ms)} and"
        yield StatusCause(
            CauseCode.SKIPPED_BY_CONSUME_FROM_LAST,
            f"{group.name}{since} starts at the end of its queues, after this message.",
            {"created_ms": group.created_ms, "next_offset": group.next_offset},
        )
        return
    yield StatusCause(
        CauseCode.CONSUMED,
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


def _started_after(message: StoredCopy, group: GroupFacts) -> bool:
    if group.start_from is not ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
        return False
    if group.created_ms is not None and group.created_ms > message.stored_ms:
        return True
    return group.had_progress is False


# -- 5: offset not past the message ---------------------------------------------------------------


def _before(facts: MessageFacts, message: StoredCopy, group: GroupFacts) -> Iterator[StatusCause]:
    """Yield what prevents delivery, the outermost obstacle first."""
    if group.config is not None and not group.config.consume_enable:
        text = f"Consumption is disabled for {group.name} (consumeEnable)."
        yield StatusCause(CauseCode.CONSUMPTION_DISABLED, text, {"group": group.name})
    if group.online is False:
        yield _no_member(group)
        return
    if group.online is None:
        return
    if group.consume_type is ConsumeType.CONSUME_ACTIVELY:
        text = f"{group.name} is a pull consumer and has committed up to {group.next_offset}."
        yield StatusCause(CauseCode.PULL_CONSUMER, text, {"next_offset": group.next_offset})
        return
    conflict = subscription_conflict(message, group)
    conflicts = () if conflict is None else (conflict,)
    if all(one.queue is None for one in group.members):
        yield from conflicts  # usually the reason why no consumer has the queue
        conflicts = ()
    if group.subscription is None:
        if conflict is None:
            yield StatusCause(
                CauseCode.NOT_SUBSCRIBED,
                f"No consumer of {group.name} subscribes to {message.queue.topic}.",
                {"topic": message.queue.topic},
            )
        return
    yield from held_by_filter(message, group)
    yield from tuple(exclusions_of(message, group)) or of_queue(facts, message, group)
    yield from conflicts


def _no_member(group: GroupFacts) -> StatusCause:
    where = "" if group.next_offset is None else f" It will resume at offset {group.next_offset}."
    text = f"Group {group.name} has no connected consumers.{where}"
    return StatusCause(CauseCode.NO_MEMBER, text, {"next_offset": group.next_offset})


# -- subscriptions and filters ---------------------------------------------------------------------
#
# Tags and SQL92 are evaluated here, by the same code as in brokers and clients. A Python filter
# runs in a filter server only, so its result is one of the facts, or missing.


def subscription_at(message: StoredCopy, group: GroupFacts) -> Subscription | None:
    """Return the subscription of the consumer that has the message's queue, else of the group."""
    for member in group.members:
        if member.queue is not None and member.subscription is not None:
            return member.subscription
    return group.subscription


def exclusions_of(message: StoredCopy, group: GroupFacts) -> Iterator[StatusCause]:
    """Yield the rule that excludes the message, if there is one."""
    subscription = subscription_at(message, group)
    if subscription is None:
        return
    if subscription.class_filter_mode:
        if group.filter is not None:
            yield from _by_filter(group, group.filter)
        return
    if selects(subscription, message.properties) is not False:
        return
    if subscription.expression_type == TAG:
        tag = message.properties.get(Property.TAGS)
        tag_text = "no tag" if tag is None else f"the tag {tag!r}"
        yield StatusCause(
            CauseCode.FILTERED_BY_TAG,
            f"Skipped: the message has {tag_text}; the subscription of {group.name} is "
            f"{subscription.expression!r}.",
            {"tag": tag, "expression": subscription.expression},
        )
    elif subscription.expression_type == SQL92:
        yield StatusCause(
            CauseCode.FILTERED_BY_SQL,
            f"Skipped: the message does not match the SQL filter of {group.name} "
            f"({subscription.expression}).",
            {"expression": subscription.expression},
        )


def _by_filter(group: GroupFacts, known: FilterFacts) -> Iterator[StatusCause]:
    if known.skip is not None:
        yield StatusCause(
            CauseCode.FILTER_SKIPPED,
            f"Version {known.skip.version} of the filter {known.name} failed on it and skipped it "
            f"{when(known.skip.at_ms)}: {known.skip.reason}",
            {
                "filter": known.name,
                "version": known.skip.version,
                "at_ms": known.skip.at_ms,
                "reason": known.skip.reason,
            },
        )
        return
    filter_result, state = known.filter_result, known.state
    if filter_result is None or filter_result.passed is not False or state is None:
        return
    if filter_result.version in state.quarantined and state.policy is FilterPolicy.PASS:
        return
    version = state.version(filter_result.version)
    since = None if version is None else version.enabled_ms
    ran = "" if since is None else f", enabled {when(since)},"
    yield StatusCause(
        CauseCode.FILTERED_BY_FILTER,
        f"Version {filter_result.version} of the filter {known.name} of {group.name}{ran} rejected "
        "it.",
        {"filter": known.name, "version": filter_result.version, "since_ms": since},
    )


def held_by_filter(message: StoredCopy, group: GroupFacts) -> Iterator[StatusCause]:
    """Yield why the group's filter cannot be evaluated, so that the group waits."""
    subscription, known = subscription_at(message, group), group.filter
    if subscription is None or not subscription.class_filter_mode or known is None:
        return
    base: Values = {"filter": known.name}
    if known.state is None:
        text = f"{group.name} uses the filter {known.name}, which the broker does not have."
        yield StatusCause(CauseCode.FILTER_MISSING, text, base)
        return
    yield from _held_by_state(group, known.name, known.state)
    said = next((one.filter_waits for one in group.members if one.filter_waits), "")
    running = known.state.active is not None and known.state.active not in known.state.quarantined
    if running and (said or known.servers == 0):
        why = said or "the broker has no filter server"
        yield StatusCause(
            CauseCode.FILTER_HOLDS,
            f"The filter {known.name} is not available: {why}",
            {**base, "version": known.state.active, "reason": why, "servers": known.servers},
        )


def _held_by_state(group: GroupFacts, name: str, state: FilterState) -> Iterator[StatusCause]:
    base: Values = {"filter": name, "policy": state.policy.value}
    active = state.active
    if active is None:
        text = f"No version of the filter {name} of {group.name} is enabled."
        yield StatusCause(CauseCode.FILTER_DISABLED, text, base)
    elif active in state.quarantined and state.policy is FilterPolicy.HOLD:
        why = state.quarantined[active]
        text = f"Version {active} of the filter {name} is quarantined and the policy is hold: "
        values: Values = {**base, "version": active, "reason": why}
        yield StatusCause(CauseCode.FILTER_QUARANTINED, text + why, values)


def let_through(group: GroupFacts) -> Iterator[StatusCause]:
    """Yield a cause if the filter is quarantined and the group receives all messages."""
    known = group.filter
    if known is None or known.state is None or known.state.active is None:
        return
    state, active = known.state, known.state.active
    assert active is not None, "one runs"
    if active in state.quarantined and state.policy is FilterPolicy.PASS:
        text = f"Version {active} of the filter {known.name} is quarantined and does not run."
        facts: Values = {
            "filter": known.name,
            "version": active,
            "reason": state.quarantined[active],
        }
        yield StatusCause(CauseCode.PASSED_UNFILTERED, text, facts)


# -- consumers -------------------------------------------------------------------------------------


def subscription_conflict(message: StoredCopy, group: GroupFacts) -> StatusCause | None:
    """Return a cause if the consumers that replied have different subscriptions to the topic."""
    known = [one for one in group.members if not one.silent]
    texts: dict[str, list[str]] = {}
    for one in known:
        texts.setdefault(subscription_text(one.subscription), []).append(one.client_id)
    if len(texts) < 2:
        return None
    said = tuple(f"{', '.join(sorted(ids))}: {text}" for text, ids in sorted(texts.items()))
    return StatusCause(
        CauseCode.SUBSCRIPTIONS_CLASH,
        f"Consumers of {group.name} have different subscriptions for {message.queue.topic}: "
        f"{'; '.join(said)}.",
        {"subscriptions": said},
    )


def subscription_text(subscription: Subscription | None) -> str:
    """Return a subscription as text; equal subscriptions have equal texts."""
    if subscription is None:
        return "not subscribed"
    if subscription.class_filter_mode:
        return f"filter {subscription.expression}"
    if subscription.tags:
        return " || ".join(sorted(subscription.tags))
    return subscription.expression


def of_queue(facts: MessageFacts, message: StoredCopy, group: GroupFacts) -> Iterator[StatusCause]:
    """Yield the consumer that has the queue, and its progress."""
    holder = next((one for one in group.members if one.queue is not None), None)
    if holder is None or holder.queue is None:
        yield from _unassigned(message, group)
        return
    owner = group.lock_owner
    if holder.ordered and owner is not None and owner != holder.client_id:
        yield _locked(message, group, owner)
    queue, waits = holder.queue, holder.waits
    if waits is not None:
        yield _ordered_wait(group, message, holder.client_id, waits)
    yield from _pace(facts, message, group, holder, queue)


def _unassigned(message: StoredCopy, group: GroupFacts) -> Iterator[StatusCause]:
    owner = group.lock_owner
    if owner is not None:
        yield _locked(message, group, owner)
    for one in group.members:
        if one.silent:
            yield StatusCause(
                CauseCode.MEMBER_SILENT,
                f"{one.client_id} of {group.name} is connected but does not respond: {one.silent}",
                {"member": one.client_id, "why": one.silent},
            )
    if owner is None and group.members and not any(one.silent for one in group.members):
        yield StatusCause(
            CauseCode.QUEUE_UNASSIGNED,
            f"{group.name} has {count(len(group.members), 'consumer')}, none of which owns "
            f"{message.queue!s}.",
            {"members": len(group.members)},
        )


def _locked(message: StoredCopy, group: GroupFacts, owner: str) -> StatusCause:
    there = owner in {one.client_id for one in group.members}
    how = "is connected" if there else "is no longer connected"
    return StatusCause(
        CauseCode.QUEUE_LOCKED,
        f"{group.name} consumes {message.queue!s} in order; its lock is held by {owner}, which "
        f"{how}.",
        {"owner": owner, "connected": there},
    )


def _ordered_wait(
    group: GroupFacts, message: StoredCopy, member: str, waits: OrderedWait
) -> StatusCause:
    before = f"{message.queue!s}@{waits.offset} before it"
    which = "it" if waits.offset == message.offset else before
    return StatusCause(
        CauseCode.ORDERED_RETRY,
        f"{member} of {group.name} failed {count(waits.attempts, 'time')} at {which}; the queue "
        f"is blocked until {when(waits.until_ms)}.",
        {
            "member": member,
            "offset": waits.offset,
            "attempts": waits.attempts,
            "until_ms": waits.until_ms,
        },
    )


def _pace(
    facts: MessageFacts,
    message: StoredCopy,
    group: GroupFacts,
    holder: ConsumerFacts,
    queue: QueueAtMember,
) -> Iterator[StatusCause]:
    limit = _exceeded(holder, queue)
    here = queue.first is not None and queue.last is not None
    is_cached = here and queue.first <= message.offset <= queue.last  # type: ignore[operator]  # here: both are numbers
    stalled_ms = 0 if queue.since_ms is None else facts.as_of_ms - queue.since_ms
    known: Values = {
        "member": holder.client_id,
        "next_offset": group.next_offset,
        "smallest_unfinished": queue.first if here else queue.commit_offset,
        "cached": queue.cached,
        "ahead": max(0, message.offset - max(queue.commit_offset, group.next_offset or 0)),
    }
    if here and stalled_ms >= STUCK_MS and holder.waits is None:
        yield StatusCause(
            CauseCode.MEMBER_STUCK,
            f"{holder.client_id} has {count(queue.cached, 'message')} of {message.queue!s}; the "
            f"oldest unfinished, {queue.first}, has been processed for {duration(stalled_ms)}.",
            {**known, "stands_ms": stalled_ms},
        )
    if limit and not is_cached:
        yield StatusCause(
            CauseCode.FLOW_CONTROLLED,
            f"{holder.client_id} paused pulling {message.queue!s}: {limit}.",
            {**known, "limit": limit},
        )
    if is_cached and message.offset >= queue.commit_offset:
        text = f"{holder.client_id} of {group.name} received it; "
        if message.offset == queue.first:
            text += "it is being processed."
        else:
            text += f"the offset advances when {queue.first}, the oldest unfinished, is finished."
        yield StatusCause(CauseCode.IN_PROGRESS, text, known)
        return
    yield StatusCause(
        CauseCode.WAITING_BEHIND,
        f"{group.name} has committed up to {group.next_offset} of {message.queue!s}, and "
        f"{holder.client_id} is at {known['smallest_unfinished']}: {known['ahead']} before it.",
        known,
    )


def _exceeded(holder: ConsumerFacts, queue: QueueAtMember) -> str:
    """Return which of its limits a consumer has reached; empty while it pulls."""
    if holder.count_max is not None and queue.cached > holder.count_max:
        return f"{queue.cached} messages cached, limit {holder.count_max}"
    if holder.size_mib_max is not None and queue.cached_mib > holder.size_mib_max:
        return f"{queue.cached_mib} MiB cached, limit {holder.size_mib_max}"
    if queue.first is None or queue.last is None or holder.ordered:
        return ""
    span = queue.last - queue.first
    if holder.span_max is not None and span > holder.span_max:
        return f"cached messages span {span} offsets, limit {holder.span_max}"
    return ""
