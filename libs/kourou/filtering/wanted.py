"""Whether a subscription selects a given message."""

from __future__ import annotations

from collections.abc import Mapping

from kourou.errors import KourouError
from kourou.filtering.sql import sql_filter
from kourou.filtering.tags import wants
from kourou.model.message import Property
from kourou.model.subscription import SQL92, TAG, Subscription
from kourou.protocol.record.properties import encode_properties


def wanted(subscription: Subscription, properties: Mapping[str, str]) -> bool | None:
    """Decide by tag or properties; None for a Python filter, which must be run to decide."""
    if subscription.class_filter_mode:
        return None
    if subscription.expression_type == TAG:
        return wants(subscription, properties.get(Property.TAGS))
    if subscription.expression_type != SQL92:
        return True
    try:
        found = sql_filter(subscription.expression)
    except KourouError:
        return True  # no subscription has it, so it says nothing about the message
    return found.matches(encode_properties(dict(properties)))
