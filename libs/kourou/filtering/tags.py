"""Subscriptions by tags: the meaning of the expression, and which tag codes match it.

A broker accepts everything that RocketMQ accepts, where `paid &&` is one tag of exactly that name.
Kourou's client is stricter (`check_expression`, `check_tag`), because such an expression is a
mistake and never matches.
"""

from __future__ import annotations

import re

from kourou.errors import BadRequest, Code, Rejected
from kourou.model.limits import SUBSCRIPTION_EXPRESSION_LENGTH_MAX, SUBSCRIPTION_TAGS_MAX
from kourou.model.names import check_topic
from kourou.model.subscription import MATCH_ALL, TAG, Subscription
from kourou.protocol.record.hashes import java_hash

SEPARATOR = "||"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NO_OPERATORS = ("&&", "|")
"""Texts that look like operators in an expression but are not; `||` was removed before."""


def check_expression(expression: str | None) -> None:
    """Raise BadRequest for an expression whose meaning would differ from the intended one.

    Everything else that RocketMQ accepts is valid: an empty expression selects every message, and a
    tag may contain spaces.
    """
    if expression is None:
        return
    if not isinstance(expression, str):
        raise BadRequest(
            f"the tag expression is {expression!r}; it must be text", hint="join tags with ||"
        )
    tags = [part.strip() for part in expression.split(SEPARATOR)]
    if MATCH_ALL in tags and any(tag not in ("", MATCH_ALL) for tag in tags):
        raise _misread(expression, "combines * with other tags", "use only * for every message")
    for tag in tags:
        found = next((each for each in _NO_OPERATORS if each in tag), None)
        if found is not None:
            raise _misread(
                expression,
                f"contains {found}, which is not an operator",
                "join tags with ||; for a tag with that name use * and check message.tag",
            )
        if _CONTROL.search(tag):
            raise _misread(expression, "contains a control character in a tag", "join tags with ||")


def check_tag(tag: str) -> None:
    """Raise BadRequest for a tag that no subscription can name."""
    if not isinstance(tag, str):
        raise BadRequest(f"the tag is {tag!r}; it must be text, or None")
    if SEPARATOR in tag:
        raise BadRequest(
            f"the tag {tag[:80]!r} contains ||, which joins tags in a subscription",
            hint="a message has one tag; use properties for more",
        )
    if _CONTROL.search(tag):
        raise BadRequest(f"the tag {tag[:80]!r} contains a control character")
    if tag != tag.strip():
        raise BadRequest(
            f"the tag {tag[:80]!r} starts or ends with a blank, which subscriptions remove"
        )


def parse_tags(topic: str, expression: str | None, *, version: int = 0) -> Subscription:
    """Tags joined by `||`; nothing or `*` means every message. Raises Rejected (23)."""
    check_topic(topic)
    text = (expression or MATCH_ALL).strip()
    if text in ("", MATCH_ALL):
        return Subscription(topic, version=version)
    if len(text) > SUBSCRIPTION_EXPRESSION_LENGTH_MAX:
        raise _unparsable(
            f"the tag expression has {len(text)} characters; at most "
            f"{SUBSCRIPTION_EXPRESSION_LENGTH_MAX} are allowed"
        )
    tags = frozenset(tag for part in text.split(SEPARATOR) if (tag := part.strip()))
    if not tags:
        raise _unparsable(f"the tag expression {text!r} has no tag")
    if len(tags) > SUBSCRIPTION_TAGS_MAX:
        raise _unparsable(
            f"the tag expression has {len(tags)} tags; at most {SUBSCRIPTION_TAGS_MAX} are allowed"
        )
    codes = frozenset(java_hash(tag) for tag in tags)
    return Subscription(topic, text, TAG, tags, codes, version)


def wanted_codes(subscription: Subscription) -> frozenset[int] | None:
    """The tag codes that a queue is searched for; None for every message."""
    return subscription.codes or None


def selects_tag(subscription: Subscription, tag: str | None) -> bool:
    """True if the subscription selects this tag; the exact test, which consumers perform."""
    return not subscription.tags or tag in subscription.tags


def _misread(expression: str, what: str, hint: str) -> BadRequest:
    return BadRequest(f"the tag expression {expression[:80]!r} {what}", hint=hint)


def _unparsable(message: str) -> Rejected:
    return Rejected(
        message, hint="join tags with ||, or use *", code=Code.SUBSCRIPTION_PARSE_FAILED
    )
