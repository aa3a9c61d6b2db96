"""Whether a subscription wants one message of which everything is known."""

from __future__ import annotations

from collections.abc import Mapping

from kourou.errors import KourouError
from kourou.filtering.sql import sql_filter
from kourou.filtering.tags import wants
from kourou.model.message import Property
from kourou.model.subscription import SQL92, TAG, Subscription
from kourou.protocol.properties import encode_properties


def wanted(subscription: Subscription, properties: Mapping[str, str]) -> bool | None:
    """By the tag or the properties; None: a filter in Python decides, which only it can tell."""
    if subscription.class_filter_mode:
        return None
    if subscription.expression_type == TAG:
        return wants(subscription, properties.get(Property.TAGS))
    if subscription.expression_type != SQL92:
        return True
    try:
        found = sql_filter(subscription.expression)
    except KourouError:
        return True  # nobody can subscribe such an expression: it says nothing of the message
    return found.matches(encode_properties(dict(properties)))
