"""The subscriptions of a consumer group, by member and merged.

State: soft. Members repeat their subscriptions with every heartbeat.

RocketMQ keeps one table per group, and the last heartbeat wins. So members that disagree overwrite
each other every 30 s, and their pulls fail in turn. Here a member's pull uses that member's own
subscriptions; the merged table serves the others (decision 0013).

Invariants:
- the merged table has a topic exactly while some member subscribes to it
- its entry has the highest version among the members' entries
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from kourou.errors import Code, NoPermission, Rejected
from kourou.model.names import RETRY_PREFIX, retry_topic
from kourou.model.subscription import TAG, MessageModel, Subscription

MemberKey = tuple[str, int]
"""Client ID, peer ID. A client that reconnects is two members until its old connection closes."""

Signature = tuple[str, frozenset[tuple[str, str, frozenset[str] | str]]]


class SubscriptionPolicy(StrEnum):
    """What happens to a member whose subscriptions differ from the others'."""

    WARN = "warn"
    REFUSE = "refuse"


def signature(model: MessageModel, subscriptions: Iterable[Subscription]) -> Signature:
    """Return what members of one group must agree on; tag order and versions do not matter.

    The name of a Python filter is a text, which never equals a set of tags. The retry topic is left
    out: the client library adds it by itself, and not in every version.
    """
    return model, frozenset(
        (
            each.topic,
            each.expression_type,
            each.tags
            if each.expression_type == TAG and not each.class_filter_mode
            else each.expression,
        )
        for each in subscriptions
        if not each.topic.startswith(RETRY_PREFIX)
    )


class GroupSubscriptions:
    """The subscriptions of one group, by member and merged (`joined`)."""

    __slots__ = ("_agreeing", "_by_member", "_by_peer", "_signatures", "joined")

    def __init__(self) -> None:
        self._by_member: dict[MemberKey, dict[str, Subscription]] = {}
        self._by_peer: dict[int, dict[MemberKey, None]] = {}
        self._signatures: dict[MemberKey, Signature] = {}
        self._agreeing: dict[Signature, dict[MemberKey, None]] = {}
        self.joined: dict[str, Subscription] = {}

    def of(self, member: MemberKey) -> Mapping[str, Subscription]:
        """Return this member's subscriptions: topic -> subscription."""
        return self._by_member.get(member, {})

    def over(self, peer_id: int) -> Mapping[str, Subscription]:
        """Return the subscriptions on this connection; of several clients, the latest to join."""
        members = self._by_peer.get(peer_id)
        return self._by_member[next(reversed(members))] if members else {}

    def signature(self, member: MemberKey) -> Signature | None:
        """Return this member's last signature, or None for a new member."""
        return self._signatures.get(member)

    def differing(self, member: MemberKey, wanted: Signature) -> MemberKey | None:
        """Return another client of the group whose signature differs from `wanted`, or None.

        Other connections of the same client do not count, because they are its earlier ones. While
        all members agree, the cost does not depend on their number.
        """
        for declared, members in self._agreeing.items():
            if declared != wanted:
                for other in members:
                    if other[0] != member[0]:
                        return other
        return None

    def put(
        self, member: MemberKey, declared: Signature, subscriptions: Iterable[Subscription]
    ) -> bool:
        """Set this member's subscriptions; return True if its set of topics has changed."""
        wanted = {each.topic: each for each in subscriptions}
        before = self._by_member.get(member, {})
        self._by_member[member] = wanted
        self._by_peer.setdefault(member[1], {})[member] = None
        self._set_signature(member, declared)
        for topic, each in wanted.items():
            self._improve(topic, before.get(topic), each)
        for topic in before.keys() - wanted.keys():
            self._rejoin(topic)
        return before.keys() != wanted.keys()

    def remove(self, member: MemberKey) -> None:
        """Remove this member."""
        self._set_signature(member, None)
        over = self._by_peer.get(member[1], {})
        over.pop(member, None)
        if not over:
            self._by_peer.pop(member[1], None)
        for topic in self._by_member.pop(member, {}):
            self._rejoin(topic)

    def _set_signature(self, member: MemberKey, declared: Signature | None) -> None:
        before = self._signatures.pop(member, None)
        if before is not None:
            agreeing = self._agreeing[before]
            del agreeing[member]
            if not agreeing:
                del self._agreeing[before]
        if declared is not None:
            self._signatures[member] = declared
            self._agreeing.setdefault(declared, {})[member] = None

    def _improve(self, topic: str, old: Subscription | None, new: Subscription) -> None:
        joined = self.joined.get(topic)
        if joined is None or new.version >= joined.version:
            self.joined[topic] = new
        elif joined is old:
            # The member of the merged entry now has an older version: another may be newer.
            self._rejoin(topic)

    def _rejoin(self, topic: str) -> None:
        found = [table[topic] for table in self._by_member.values() if topic in table]
        if found:
            self.joined[topic] = max(found, key=_version)
        else:
            self.joined.pop(topic, None)


def _version(subscription: Subscription) -> int:
    return subscription.version


def check_pull(
    group: str,
    topic: str,
    known: Subscription | None,
    *,
    wanted_version: int,
    model: MessageModel,
    broadcast_enabled: bool,
) -> Subscription:
    """Return the subscription for a pull without one of its own, as RocketMQ does.

    `known` is the topic's subscription from heartbeats. Raises NoPermission (16) for a group that
    may not broadcast, Rejected with 24 for a topic without a subscription, and with 25 if the
    consumer's subscription is newer than its last heartbeat. The group's own retry topic is exempt
    from 25: its subscription is always `*`, and RocketMQ's client may send the newer one 30 s late
    (decision 0013).
    """
    if model == MessageModel.BROADCASTING and not broadcast_enabled:
        raise NoPermission(f"group {group} may not use broadcasting")
    if known is None:
        raise Rejected(
            f"group {group} has not subscribed to {topic}",
            hint="send a heartbeat with the subscription first",
            code=Code.SUBSCRIPTION_NOT_EXIST,
        )
    if known.version < wanted_version and topic != retry_topic(group):
        raise Rejected(
            f"this broker has an older subscription of group {group} to {topic} than the consumer",
            hint="send a heartbeat with the newer subscription first",
            code=Code.SUBSCRIPTION_NOT_LATEST,
        )
    return known
