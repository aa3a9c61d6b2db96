"""Subscription expressions: tags, an SQL92 filter over properties, or a Python filter."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from kourou.client.filters.python_filter import Filter
from kourou.client.session.client_session import Session
from kourou.errors import BadRequest, Code, KourouError, Rejected
from kourou.filtering.sql import check_meant
from kourou.filtering.tags import check_expression, parse_tags
from kourou.model.subscription import SQL92, TAG, Subscription
from kourou.protocol.bodies.heartbeat_body import SubscriptionCheck, encode_subscription_check
from kourou.protocol.messages.groups import CheckClientConfig

_NO_WORD = (Code.TOPIC_NOT_EXIST, Code.REQUEST_CODE_NOT_SUPPORTED)
"""The topic may be created later, or the broker is too old for this request."""

_log = logging.getLogger("kourou.client")


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 filter over message properties: `Sql("amount > 10 AND region = 'north'")`.

    Brokers evaluate it, so they do not send messages that do not match. Raises BadRequest, with the
    position and the expected token, for an invalid expression, and for a valid one whose meaning is
    probably not intended.
    """

    expression: str

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise BadRequest(f"the filter expression is {self.expression!r}; it must be a string")
        try:
            check_meant(self.expression)
        except Rejected as error:
            raise BadRequest(error.message, hint=error.hint) from None


Wanted: TypeAlias = str | Sql | Filter
"""Tags joined by `||`, or `*`; or an SQL92 filter; or a Python filter."""


def check_wanted(wanted: Wanted | None) -> None:
    """Raise BadRequest for tags that would be interpreted in an unintended way."""
    if not isinstance(wanted, Sql | Filter):
        check_expression(wanted)


def subscription_of(topic: str, wanted: Wanted, *, version: int) -> Subscription:
    """Return the subscription that is sent to brokers."""
    if isinstance(wanted, Sql):
        return Subscription(topic, wanted.expression, SQL92, version=version)
    if isinstance(wanted, Filter):
        return Subscription(topic, wanted.name, version=version, class_filter_mode=True)
    return parse_tags(topic, wanted, version=version)


def says(subscription: Subscription, wanted: Wanted) -> bool:
    """Return whether the subscription equals `wanted`; a Python filter is compared by its name."""
    if isinstance(wanted, Filter):
        return subscription.class_filter_mode and subscription.expression == wanted.name
    if isinstance(wanted, Sql):
        return (subscription.expression_type, subscription.expression) == (SQL92, wanted.expression)
    return (
        subscription.expression_type == TAG
        and subscription.expression == wanted
        and not subscription.class_filter_mode
    )


async def ask_brokers(session: Session, group: str, subscriptions: Iterable[Subscription]) -> None:
    """Ask a broker of each topic to validate the filter (request code 46), as RocketMQ does.

    Raises the broker's error if it refuses one. If no broker replies, the pulls will show the
    error.
    """
    for each in subscriptions:
        if each.expression_type == TAG:
            continue
        body = encode_subscription_check(SubscriptionCheck(session.client_id, group, each))
        try:
            known = await session.routes.find(each.topic)
            for address in known.addresses()[:1]:
                await session.connections.ask(
                    address,
                    CheckClientConfig(),
                    body=body,
                    timeout_ms=session.settings.request_timeout_ms,
                )
        except KourouError as error:
            if isinstance(error, Rejected) and error.wire_code not in _NO_WORD:
                raise
            _log.info(
                "filter-unchecked: could not check the filter at any broker of %(topic)s: "
                "%(error)s",
                {"topic": each.topic, "error": error},
            )
