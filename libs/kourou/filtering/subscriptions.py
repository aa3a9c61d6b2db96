"""From what a client sends to a subscription, and from a subscription to the messages it selects.

A heartbeat is accepted whatever its filters are, as in RocketMQ: one application with a wrong
filter must not disconnect the others in its process. Its pulls from that topic are refused, with
position and expectation, and so is a pull that contains its filter; RocketMQ would let that one
match everything.
"""

from __future__ import annotations

from collections.abc import Mapping

from kourou.errors import Code, KourouError, Rejected
from kourou.filtering.sql import SqlFilter, check_length, sql_filter
from kourou.filtering.tags import parse_tags, selects_tag
from kourou.model.limits import FILTER_TYPE_LENGTH_MAX
from kourou.model.message import Property
from kourou.model.names import check_topic
from kourou.model.subscription import SQL92, TAG, Subscription
from kourou.protocol.record.properties import encode_properties


def heartbeat_subscription(
    topic: str,
    expression: str | None,
    expression_type: str | None,
    *,
    version: int = 0,
    class_filter: bool = False,
) -> Subscription:
    """The subscription in a heartbeat; without a type, or with an empty one, it is by tags.

    With `class_filter` the expression is the name of a Python filter. Raises Rejected (23) for tags
    that cannot be parsed and for texts that are too long.
    """
    if class_filter:
        check_topic(topic)
        name = expression or ""
        check_length(name)
        return Subscription(topic, name, TAG, version=version, class_filter_mode=True)
    if expression_type in (None, "", TAG):
        return parse_tags(topic, expression, version=version)
    check_topic(topic)
    assert expression_type is not None
    if len(expression_type) > FILTER_TYPE_LENGTH_MAX:
        raise _unknown(expression_type)
    text = expression or ""
    check_length(text)
    return Subscription(topic, text, expression_type, version=version)


def parse_subscription(
    topic: str, expression: str | None, expression_type: str | None = TAG
) -> Subscription:
    """As `heartbeat_subscription`, for one that must be valid at once. Raises Rejected (23)."""
    subscription = heartbeat_subscription(topic, expression, expression_type)
    if subscription.expression_type != TAG:
        filter_of(subscription)
    return subscription


def check_allowed(expression_type: str, *, property_filter: bool) -> None:
    """Refuse property filters if the broker disables them, with code 1, as RocketMQ 4.9 does."""
    if expression_type != TAG and not property_filter:
        raise Rejected(
            f"The broker does not support consumer to filter message by {expression_type[:32]}",
            hint="enablePropertyFilter=false here; subscribe by tags",
        )


def filter_of(subscription: Subscription) -> SqlFilter:
    """The filter of a subscription that is not by tags. Raises Rejected (23)."""
    if subscription.expression_type != SQL92:
        raise _unknown(subscription.expression_type)
    return sql_filter(subscription.expression)


def _unknown(expression_type: str) -> Rejected:
    return Rejected(
        f"the expression type {expression_type[:32]!r} is unknown",
        hint=f"there are {TAG} and {SQL92}",
        code=Code.SUBSCRIPTION_PARSE_FAILED,
    )


def selects(subscription: Subscription, properties: Mapping[str, str]) -> bool | None:
    """Decide by tag or properties; None for a Python filter, which must be run to decide."""
    if subscription.class_filter_mode:
        return None
    if subscription.expression_type == TAG:
        return selects_tag(subscription, properties.get(Property.TAGS))
    if subscription.expression_type != SQL92:
        return True
    try:
        found = sql_filter(subscription.expression)
    except KourouError:
        return True  # no subscription has it, so it says nothing about the message
    return found.matches(encode_properties(dict(properties)))
