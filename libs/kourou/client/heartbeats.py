"""What brokers know of a client: its groups and subscriptions, told again and again.

Lives here: the list of this client's groups, and telling it to every broker of every known route,
every 30 s and at once when something changed. May not live here: what a change means to a consumer.

A broker forgets a client whose connection ends, so a lost connection is a reason to tell at once.

State: soft. The truth about groups is what the client's producers and consumers are.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kourou.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel, Subscription

INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
SOON_MS = 20
"""Reasons that come together are told together."""

_log = logging.getLogger("kourou.client")


@dataclass(frozen=True, slots=True)
class Membership:
    """One consumer group this client is a member of."""

    group: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: tuple[Subscription, ...]
