"""The connected clients, the groups that they produce and consume in, and the effects of changes.

State: soft. After a restart the next heartbeat of each client, at most 30 s later, restores it.

A membership is one client in one group over one connection. A client that reconnects has two until
the old connection is closed; the list of IDs has it once.

Invariants:
- memberships are in the order of their last heartbeat, oldest first
- a group is known exactly while it has a member
- no table grows without a limit (model.limits)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from kourou.access.model import Door
from kourou.engine.groups.subscriptions import (
    GroupSubscriptions,
    MemberKey,
    SubscriptionPolicy,
    signature,
)
from kourou.errors import BadRequest, Throttled
from kourou.model import names
from kourou.model.limits import (
    CLIENT_GROUPS_MAX,
    CLIENTS_MAX,
    CONNECTION_GROUPS_MAX,
    GROUP_SUBSCRIPTIONS_MAX,
    MEMBERSHIPS_MAX,
)
from kourou.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from kourou.runtime import LogWarning, Peer


@dataclass(frozen=True, slots=True)
class ConsumerPart:
    """What a heartbeat says about one consumer group, as in RocketMQ."""

    group: str
    subscriptions: tuple[Subscription, ...] = ()
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A client's heartbeat. `language` and `version` are those of the request's header.

    `user` is who sent it, "" where that is not decided, `source` the address that its rights depend
    on, and `door` how it came in, as in Received.
    """

    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerPart, ...] = ()
    language: str = "PYTHON"
    version: int = 0
    user: str = ""
    source: str | None = ""
    door: Door | None = None


@dataclass(slots=True)
class GroupClient:
    """One client in one group over one connection; times are monotonic ms.

    `user`, `source` and `door` are those of its latest heartbeat.
    """

    client_id: str
    peer: Peer
    language: str
    version: int
    first_ms: int
    seen_ms: int
    shares_id: bool = False
    user: str = ""
    source: str | None = ""
    door: Door | None = None

    @property
    def address(self) -> str:
        """The address that it connected from, as RocketMQ prints it."""
        return f"{self.peer.address[0]}:{self.peer.address[1]}"


class ConsumerGroup:
    """A consumer group with at least one member."""

    __slots__ = (
        "consume_from_where",
        "consume_type",
        "members",
        "message_model",
        "name",
        "said",
    )

    def __init__(self, part: ConsumerPart) -> None:
        self.name = part.group
        self.members: dict[MemberKey, GroupClient] = {}
        self.said = GroupSubscriptions()
        self.follow(part)

    def follow(self, part: ConsumerPart) -> None:
        """Adopt the consumption settings of the latest heartbeat."""
        self.consume_type = part.consume_type
        self.message_model = part.message_model
        self.consume_from_where = part.consume_from_where

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """The group's subscriptions, merged over its members: topic -> subscription."""
        return self.said.joined

    def subscription(self, topic: str, peer: Peer) -> Subscription | None:
        """Return the subscription for a pull: that of its connection, or else the group's."""
        return self.said.over(peer.id).get(topic) or self.said.joined.get(topic)


@dataclass(slots=True)
class MembershipChange:
    """The result of a call.

    `notify`: consumer group -> connections of its members, which must rebalance (code 40, if the
    group's configuration enables notifications). `clashes`: warnings for the operator.
    `differing`: sentences for the client, as long as other consumers of its groups have other
    subscriptions. `refused`: sentences for a client whose groups were not registered. `expired`:
    connections to close.
    """

    notify: dict[str, tuple[Peer, ...]] = field(default_factory=dict)
    clashes: list[LogWarning] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    expired: list[Peer] = field(default_factory=list)


_K = TypeVar("_K")
_V = TypeVar("_V")
_W = TypeVar("_W")
_Kind = Literal["consumer", "producer"]
_Key = tuple[_Kind, str, MemberKey]


class GroupMembership:
    """The table of all memberships. Times are monotonic ms."""

    __slots__ = (
        "_by_client",
        "_by_peer",
        "_consumers",
        "_order",
        "_producers",
        "expiry_ms",
        "policy",
    )

    def __init__(
        self,
        *,
        expiry_ms: int = 120_000,
        policy: SubscriptionPolicy = SubscriptionPolicy.WARN,
    ) -> None:
        assert expiry_ms > 0, expiry_ms
        self.expiry_ms = expiry_ms
        self.policy = policy
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[MemberKey, GroupClient]] = {}
        # Dicts and not sets, so that iteration is the same in every run. `_by_client` keeps its
        # keys, like `_order`, from the longest silent to the one heard last.
        self._order: dict[_Key, GroupClient] = {}
        self._by_peer: dict[int, dict[_Key, None]] = {}
        self._by_client: dict[str, dict[_Key, None]] = {}

    # -- registration -------------------------------------------------------------------------

    def heartbeat(self, now_ms: int, peer: Peer, beat: Heartbeat) -> MembershipChange:
        """Register or refresh everything that the heartbeat names.

        Groups that it does not name stay until they expire. Raises BadRequest or Throttled; then
        nothing has changed.
        """
        self.check(peer, beat)
        change = MembershipChange()
        member = (beat.client_id, peer.id)
        for group in beat.producer_groups:
            table = self._producers.setdefault(group, {})
            self._register(now_ms, peer, beat, table, ("producer", group, member))
        for part in beat.consumers:
            self._consume(now_ms, peer, beat, part, change)
        return change

    def _consume(
        self, now_ms: int, peer: Peer, beat: Heartbeat, part: ConsumerPart, change: MembershipChange
    ) -> None:
        member = (beat.client_id, peer.id)
        said = signature(part.message_model, part.subscriptions)
        group = self._consumers.get(part.group)
        other = None if group is None else group.said.differing(member, said)
        if other is not None:
            clash = LogWarning(
                "group-subscriptions-differ: consumer group %(group)s: clients %(client)s and "
                "%(other)s differ in topics, filters or message model; some messages may reach no "
                "consumer (use a separate group for each subscription)",
                {"group": part.group, "client": beat.client_id, "other": other[0]},
            )
            if self.policy is SubscriptionPolicy.REFUSE:
                change.refused.append(clash.sentence)
                return
            change.differing.append(clash.sentence)
            if group is not None and group.said.signature(member) != said:
                change.clashes.append(clash)  # once, not with every heartbeat
        if group is None:
            group = self._consumers[part.group] = ConsumerGroup(part)
        group.follow(part)
        key: _Key = ("consumer", part.group, member)
        new = self._register(now_ms, peer, beat, group.members, key)
        if not new:
            self._note_shared_id(group, member, change)
        if group.said.put(member, said, part.subscriptions) or new:
            change.notify[part.group] = _peers(group)

    def _register(
        self,
        now_ms: int,
        peer: Peer,
        beat: Heartbeat,
        table: dict[MemberKey, GroupClient],
        key: _Key,
    ) -> bool:
        member = table.get(key[2])
        new = member is None
        if member is None:
            member = GroupClient(beat.client_id, peer, beat.language, beat.version, now_ms, now_ms)
            table[key[2]] = member
            self._by_peer.setdefault(peer.id, {})[key] = None
        else:
            del self._order[key]
            del self._by_client[beat.client_id][key]
            member.language, member.version = beat.language, beat.version
            member.seen_ms = now_ms
        member.user, member.source, member.door = beat.user, beat.source, beat.door
        self._order[key] = member
        self._by_client.setdefault(beat.client_id, {})[key] = None
        return new

    def _note_shared_id(
        self, group: ConsumerGroup, member: MemberKey, change: MembershipChange
    ) -> None:
        """Report, once, that two processes with one client ID take the same queues."""
        mine = group.members[member]
        if mine.shares_id:
            return
        for kind, name, key in self._by_client[member[0]]:
            if kind != "consumer" or name != group.name or key == member:
                continue
            other = group.members[key]
            if other.seen_ms > mine.first_ms:
                mine.shares_id = other.shares_id = True
                change.clashes.append(
                    LogWarning(
                        "client-id-shared: client ID %(client)s is used twice in consumer group "
                        "%(group)s, by %(address)s and %(other)s; give each client its own "
                        "instance name",
                        {
                            "client": member[0],
                            "group": group.name,
                            "address": mine.address,
                            "other": other.address,
                        },
                    )
                )

    def check(self, peer: Peer, beat: Heartbeat) -> None:
        """Raise BadRequest or Throttled if `heartbeat` would."""
        names.check_client_id(beat.client_id)
        if len(beat.producer_groups) + len(beat.consumers) > CLIENT_GROUPS_MAX:
            raise BadRequest(f"a client may join at most {CLIENT_GROUPS_MAX} groups")
        for group in beat.producer_groups:
            names.check_group(group)
        for part in beat.consumers:
            names.check_group(part.group)
            if len(part.subscriptions) > GROUP_SUBSCRIPTIONS_MAX:
                raise BadRequest(
                    f"client {beat.client_id} subscribes to {len(part.subscriptions)} topics "
                    f"in group {part.group}; at most {GROUP_SUBSCRIPTIONS_MAX} are allowed"
                )
            for subscription in part.subscriptions:
                names.check_topic(subscription.topic)
        if peer.id not in self._by_peer and len(self._by_peer) >= CLIENTS_MAX:
            raise Throttled(f"this broker has {CLIENTS_MAX} clients already, the maximum")
        joining = len(_keys(peer, beat) - self._order.keys())
        if len(self._by_peer.get(peer.id, ())) + joining > CONNECTION_GROUPS_MAX:
            raise Throttled(
                f"the clients of this connection are in {CONNECTION_GROUPS_MAX} groups, the maximum"
            )
        if len(self._order) + joining > MEMBERSHIPS_MAX:
            raise Throttled(f"this broker has {MEMBERSHIPS_MAX} members of groups, the maximum")

    # -- removal ------------------------------------------------------------------------------

    def unregister(
        self,
        peer: Peer,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
    ) -> MembershipChange:
        """Remove a client from a group at its request (35); unknown ones are not an error."""
        member = (client_id, peer.id)
        keys: list[_Key] = []
        if producer_group:
            keys.append(("producer", producer_group, member))
        if consumer_group:
            keys.append(("consumer", consumer_group, member))
        return self._remove(key for key in keys if key in self._order)

    def disconnect(self, peer: Peer) -> MembershipChange:
        """Remove every membership of a closed connection."""
        return self._remove(list(self._by_peer.get(peer.id, ())))

    def expire(self, now_ms: int) -> MembershipChange:
        """Remove those silent for `expiry_ms`; the cost depends only on what expires."""
        silent: list[_Key] = []
        peers: dict[int, Peer] = {}
        for key, member in self._order.items():
            if now_ms - member.seen_ms < self.expiry_ms:
                break
            silent.append(key)
            peers[member.peer.id] = member.peer
        change = self._remove(silent)
        change.expired = [peer for peer in peers.values() if peer.id not in self._by_peer]
        return change

    def _remove(self, keys: Iterable[_Key]) -> MembershipChange:
        touched: dict[str, None] = {}
        for key in keys:
            kind, name, member = key
            del self._order[key]
            _drop(self._by_peer, member[1], key)
            _drop(self._by_client, member[0], key)
            if kind == "producer":
                _drop(self._producers, name, member)
                continue
            group = self._consumers[name]
            del group.members[member]
            group.said.remove(member)
            touched[name] = None
            if not group.members:
                del self._consumers[name]
        left = [self._consumers[name] for name in touched if name in self._consumers]
        return MembershipChange(notify={group.name: _peers(group) for group in left})

    # -- queries ------------------------------------------------------------------------------

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """Return the group with its members and subscriptions, or None if it has no member."""
        return self._consumers.get(group)

    def consumer_groups(self) -> list[str]:
        """Return the consumer groups with members, sorted."""
        return sorted(self._consumers)

    def consumer_ids(self, group: str) -> list[str]:
        """Return the client IDs of a consumer group, each once, sorted, for rebalancing."""
        known = self._consumers.get(group)
        return [] if known is None else sorted({client_id for client_id, _ in known.members})

    def producer_groups(self) -> list[str]:
        """Return the producer groups with members, sorted."""
        return sorted(self._producers)

    def producers(self, group: str) -> list[GroupClient]:
        """Return the members of a producer group, the latest heartbeat last."""
        return sorted(self._producers.get(group, {}).values(), key=_seen)

    def consumers(self, group: str) -> list[GroupClient]:
        """Return the members of a consumer group, the latest heartbeat last."""
        known = self._consumers.get(group)
        return [] if known is None else sorted(known.members.values(), key=_seen)

    def consumer_peer(self, group: str, client_id: str) -> Peer | None:
        """Return the connection on which this consumer of a group was last heard, or None."""
        for kind, name, member in reversed(self._by_client.get(client_id, {})):
            if kind == "consumer" and name == group:
                return self._order[kind, name, member].peer
        return None

    def producer_peer(self, client_id: str) -> Peer | None:
        """Return the connection on which this producer was last heard, in any group, or None."""
        for key in reversed(self._by_client.get(client_id, {})):
            if key[0] == "producer":
                return self._order[key].peer
        return None

    def is_of_other_user(self, client_id: str, peer: Peer, user: str) -> bool:
        """Return whether another user was connected with this client ID first, and still is.

        What was said over this very connection as another user does not count: its credentials have
        changed.
        """
        known = [
            member
            for member in map(self._order.__getitem__, self._by_client.get(client_id, ()))
            if member.user and (member.user == user or member.peer.id != peer.id)
        ]
        return bool(known) and min(known, key=_first).user != user

    def statistics(self) -> dict[str, int]:
        """Return the numbers of connections, memberships and groups."""
        return {
            "connections": len(self._by_peer),
            "memberships": len(self._order),
            "consumer_groups": len(self._consumers),
            "producer_groups": len(self._producers),
        }

    def __iter__(self) -> Iterator[GroupClient]:
        """Iterate over all memberships, the longest silent first."""
        return iter(self._order.values())


def _keys(peer: Peer, beat: Heartbeat) -> set[_Key]:
    member = (beat.client_id, peer.id)
    keys: set[_Key] = {("producer", group, member) for group in beat.producer_groups}
    keys.update(("consumer", part.group, member) for part in beat.consumers)
    return keys


def _peers(group: ConsumerGroup) -> tuple[Peer, ...]:
    return tuple({member.peer.id: member.peer for member in group.members.values()}.values())


def _seen(member: GroupClient) -> int:
    return member.seen_ms


def _first(member: GroupClient) -> int:
    return member.first_ms


def _drop(table: dict[_K, dict[_V, _W]], outer: _K, inner: _V) -> None:
    """Remove an entry, and its table when that is empty."""
    entries = table[outer]
    del entries[inner]
    if not entries:
        del table[outer]
