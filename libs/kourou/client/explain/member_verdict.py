"""The rules about the consumers of a group and the message's queue."""

from __future__ import annotations

from collections.abc import Iterator

from kourou.client.explain.causes import Cause, Code, Known
from kourou.client.explain.facts import Facts, GroupFacts, Member, Place, QueueAtMember
from kourou.client.explain.words import count, duration, when
from kourou.client.introspection.running_info import OrderedWait
from kourou.model.subscription import Subscription

STUCK_MS = 60_000
"""A handler that has had the smallest unfinished message for this long is called stuck."""


def clash(message: Place, group: GroupFacts) -> Cause | None:
    """Return a cause if the consumers that replied have different subscriptions to the topic."""
    known = [one for one in group.members if not one.silent]
    wishes: dict[str, list[str]] = {}
    for one in known:
        wishes.setdefault(wish(one.subscription), []).append(one.client_id)
    if len(wishes) < 2:
        return None
    said = tuple(f"{', '.join(sorted(ids))}: {text}" for text, ids in sorted(wishes.items()))
    return Cause(
        Code.SUBSCRIPTIONS_CLASH,
        f"Consumers of {group.name} have different subscriptions for {message.queue.topic}: "
        f"{'; '.join(said)}.",
        {"subscriptions": said},
    )


def wish(subscription: Subscription | None) -> str:
    """Return a subscription as text; equal subscriptions have equal texts."""
    if subscription is None:
        return "not subscribed"
    if subscription.class_filter_mode:
        return f"filter {subscription.expression}"
    if subscription.tags:
        return " || ".join(sorted(subscription.tags))
    return subscription.expression


def of_queue(facts: Facts, message: Place, group: GroupFacts) -> Iterator[Cause]:
    """Yield the consumer that has the queue, and its progress."""
    holder = next((one for one in group.members if one.queue is not None), None)
    if holder is None or holder.queue is None:
        yield from _unheld(message, group)
        return
    owner = group.lock_owner
    if holder.ordered and owner is not None and owner != holder.client_id:
        yield _locked(message, group, owner)
    queue, waits = holder.queue, holder.waits
    if waits is not None:
        yield _ordered_wait(group, message, holder.client_id, waits)
    yield from _pace(facts, message, group, holder, queue)


def _unheld(message: Place, group: GroupFacts) -> Iterator[Cause]:
    owner = group.lock_owner
    if owner is not None:
        yield _locked(message, group, owner)
    for one in group.members:
        if one.silent:
            yield Cause(
                Code.MEMBER_SILENT,
                f"{one.client_id} of {group.name} is connected but does not respond: {one.silent}",
                {"member": one.client_id, "why": one.silent},
            )
    if owner is None and group.members and not any(one.silent for one in group.members):
        yield Cause(
            Code.QUEUE_UNASSIGNED,
            f"{group.name} has {count(len(group.members), 'consumer')}, none of which owns "
            f"{message.queue!s}.",
            {"members": len(group.members)},
        )


def _locked(message: Place, group: GroupFacts, owner: str) -> Cause:
    there = owner in {one.client_id for one in group.members}
    how = "is connected" if there else "is no longer connected"
    return Cause(
        Code.QUEUE_LOCKED,
        f"{group.name} consumes {message.queue!s} in order; its lock is held by {owner}, which "
        f"{how}.",
        {"owner": owner, "connected": there},
    )


def _ordered_wait(group: GroupFacts, message: Place, member: str, waits: OrderedWait) -> Cause:
    before = f"{message.queue!s}@{waits.offset} before it"
    which = "it" if waits.offset == message.offset else before
    return Cause(
        Code.ORDERED_RETRY,
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
    facts: Facts, message: Place, group: GroupFacts, holder: Member, queue: QueueAtMember
) -> Iterator[Cause]:
    limit = _exceeded(holder, queue)
    here = queue.first is not None and queue.last is not None
    in_hands = here and queue.first <= message.offset <= queue.last  # type: ignore[operator]  # here: both are numbers
    stands_ms = 0 if queue.since_ms is None else facts.as_of_ms - queue.since_ms
    known: Known = {
        "member": holder.client_id,
        "next_offset": group.next_offset,
        "smallest_unfinished": queue.first if here else queue.commit_offset,
        "cached": queue.cached,
        "ahead": max(0, message.offset - max(queue.commit_offset, group.next_offset or 0)),
    }
    if here and stands_ms >= STUCK_MS and holder.waits is None:
        yield Cause(
            Code.MEMBER_STUCK,
            f"{holder.client_id} has {count(queue.cached, 'message')} of {message.queue!s}; the "
            f"oldest unfinished, {queue.first}, has been processed for {duration(stands_ms)}.",
            {**known, "stands_ms": stands_ms},
        )
    if limit and not in_hands:
        yield Cause(
            Code.FLOW_CONTROLLED,
            f"{holder.client_id} paused pulling {message.queue!s}: {limit}.",
            {**known, "limit": limit},
        )
    if in_hands and message.offset >= queue.commit_offset:
        text = f"{holder.client_id} of {group.name} received it; "
        if message.offset == queue.first:
            text += "it is being processed."
        else:
            text += f"the offset advances when {queue.first}, the oldest unfinished, is finished."
        yield Cause(Code.IN_HANDS, text, known)
        return
    yield Cause(
        Code.WAITING_BEHIND,
        f"{group.name} has committed up to {group.next_offset} of {message.queue!s}, and "
        f"{holder.client_id} is at {known['smallest_unfinished']}: {known['ahead']} before it.",
        known,
    )


def _exceeded(holder: Member, queue: QueueAtMember) -> str:
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
