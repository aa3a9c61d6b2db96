"""A subscription by tags: what the expression means, and which tag codes match it.

Lives here: parsing `TagA || TagB` (fact sheet §3.3) and the exact test of one tag.
May not live here: SQL92, and reading queues: a queue unit holds a 64-bit tag code, so the broker
compares codes and lets a rare collision through; the consumer tests the tag itself.
"""

from __future__ import annotations

from kourou.errors import Code, Rejected
from kourou.model.limits import SUBSCRIPTION_EXPRESSION_LENGTH_MAX, SUBSCRIPTION_TAGS_MAX
from kourou.model.names import check_topic
from kourou.model.subscription import MATCH_ALL, SQL92, TAG, Subscription
from kourou.protocol.hashing import java_hash

SEPARATOR = "||"


def parse_subscription(
    topic: str,
    expression: str | None,
    expression_type: str | None = TAG,
    *,
    version: int = 0,
) -> Subscription:
    """The subscription that a client asks for; no type or an empty one means tags.

    Raises Rejected: code 1 for SQL92, which this broker does not evaluate (4.9 answers so with
    enablePropertyFilter=false), 23 for what cannot be parsed.
    """
    if expression_type == SQL92:
        raise Rejected("this broker does not filter by SQL92", hint="subscribe by tags")
    if expression_type not in (None, "", TAG):
        raise _unparsable(f"the expression type {expression_type[:32]!r} is unknown")
    return parse_tags(topic, expression, version=version)


def parse_tags(topic: str, expression: str | None, *, version: int = 0) -> Subscription:
    """Tags joined by `||`; nothing or `*` means every message. Raises Rejected (23)."""
    check_topic(topic)
    text = (expression or MATCH_ALL).strip()
    if text in ("", MATCH_ALL):
        return Subscription(topic, version=version)
    if len(text) > SUBSCRIPTION_EXPRESSION_LENGTH_MAX:
        raise _unparsable(
            f"the tag expression is {len(text)} characters long; "
            f"at most {SUBSCRIPTION_EXPRESSION_LENGTH_MAX} are allowed"
        )
    tags = frozenset(tag for part in text.split(SEPARATOR) if (tag := part.strip()))
    if not tags:
        raise _unparsable(f"the tag expression {text!r} names no tag")
    if len(tags) > SUBSCRIPTION_TAGS_MAX:
        raise _unparsable(
            f"the tag expression names {len(tags)} tags; {SUBSCRIPTION_TAGS_MAX} are allowed"
        )
    codes = frozenset(java_hash(tag) for tag in tags)
    return Subscription(topic, text, TAG, tags, codes, version)


def wanted_codes(subscription: Subscription) -> frozenset[int] | None:
    """The tag codes to look for in a queue; None for every message."""
    return subscription.codes or None


def wants(subscription: Subscription, tag: str | None) -> bool:
    """Does the subscription want a message with this tag? The exact test, made by consumers."""
    return not subscription.tags or tag in subscription.tags


def _unparsable(message: str) -> Rejected:
    return Rejected(
        message, hint="join tags with ||, or use *", code=Code.SUBSCRIPTION_PARSE_FAILED
    )
