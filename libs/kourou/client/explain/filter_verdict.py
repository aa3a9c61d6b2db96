"""Evaluation of a group's subscription for a message: its tag, its properties, its filter.

Tags and SQL92 are evaluated here, by the same code as in brokers and clients. A Python filter runs
in a filter server only, so its result is one of the facts, or missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from kourou.client.explain.causes import Cause, Code, Known
from kourou.client.explain.facts import FilterFacts, GroupFacts, Place
from kourou.client.explain.words import when
from kourou.filtering.subscriptions import selects
from kourou.model.filter import FilterPolicy, FilterState
from kourou.model.message import Property
from kourou.model.subscription import SQL92, TAG, Subscription


def subscription_at(message: Place, group: GroupFacts) -> Subscription | None:
    """Return the subscription of the consumer that has the message's queue, else of the group."""
    for member in group.members:
        if member.queue is not None and member.subscription is not None:
            return member.subscription
    return group.subscription


def unwanted(message: Place, group: GroupFacts) -> Iterator[Cause]:
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
        told = "no tag" if tag is None else f"the tag {tag!r}"
        yield Cause(
            Code.FILTERED_BY_TAG,
            f"Skipped: the message has {told}; the subscription of {group.name} is "
            f"{subscription.expression!r}.",
            {"tag": tag, "expression": subscription.expression},
        )
    elif subscription.expression_type == SQL92:
        yield Cause(
            Code.FILTERED_BY_SQL,
            f"Skipped: the message does not match the SQL filter of {group.name} "
            f"({subscription.expression}).",
            {"expression": subscription.expression},
        )


def _by_filter(group: GroupFacts, known: FilterFacts) -> Iterator[Cause]:
    if known.skip is not None:
        yield Cause(
            Code.FILTER_SKIPPED,
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
    judged, state = known.judged, known.state
    if judged is None or judged.passed is not False or state is None:
        return
    if judged.version in state.quarantined and state.policy is FilterPolicy.PASS:
        return
    version = state.version(judged.version)
    since = None if version is None else version.enabled_ms
    ran = "" if since is None else f", enabled {when(since)},"
    yield Cause(
        Code.FILTERED_BY_FILTER,
        f"Version {judged.version} of the filter {known.name} of {group.name}{ran} rejected it.",
        {"filter": known.name, "version": judged.version, "since_ms": since},
    )


def held_by_filter(message: Place, group: GroupFacts) -> Iterator[Cause]:
    """Yield why the group's filter cannot be evaluated, so that the group waits."""
    subscription, known = subscription_at(message, group), group.filter
    if subscription is None or not subscription.class_filter_mode or known is None:
        return
    base: Known = {"filter": known.name}
    if known.state is None:
        text = f"{group.name} uses the filter {known.name}, which the broker does not have."
        yield Cause(Code.FILTER_MISSING, text, base)
        return
    yield from _held_by_state(group, known.name, known.state)
    said = next((one.filter_waits for one in group.members if one.filter_waits), "")
    running = known.state.active is not None and known.state.active not in known.state.quarantined
    if running and (said or known.servers == 0):
        why = said or "the broker has no filter server"
        yield Cause(
            Code.FILTER_HOLDS,
            f"The filter {known.name} is not available: {why}",
            {**base, "version": known.state.active, "reason": why, "servers": known.servers},
        )


def _held_by_state(group: GroupFacts, name: str, state: FilterState) -> Iterator[Cause]:
    base: Known = {"filter": name, "policy": state.policy.value}
    active = state.active
    if active is None:
        text = f"No version of the filter {name} of {group.name} is enabled."
        yield Cause(Code.FILTER_DISABLED, text, base)
    elif active in state.quarantined and state.policy is FilterPolicy.HOLD:
        why = state.quarantined[active]
        text = f"Version {active} of the filter {name} is quarantined and the policy is hold: "
        told: Known = {**base, "version": active, "reason": why}
        yield Cause(Code.FILTER_QUARANTINED, text + why, told)


def let_through(group: GroupFacts) -> Iterator[Cause]:
    """Yield a cause if the filter is quarantined and the group receives all messages."""
    known = group.filter
    if known is None or known.state is None or known.state.active is None:
        return
    state, active = known.state, known.state.active
    assert active is not None, "one runs"
    if active in state.quarantined and state.policy is FilterPolicy.PASS:
        text = f"Version {active} of the filter {known.name} is quarantined and does not run."
        facts: Known = {
            "filter": known.name,
            "version": active,
            "reason": state.quarantined[active],
        }
        yield Cause(Code.PASSED_UNFILTERED, text, facts)
