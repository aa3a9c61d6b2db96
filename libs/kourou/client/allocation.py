"""Who consumes which queue: the six allocation strategies of RocketMQ (fact sheet §9.1).

Invariant: for one pair of inputs the shares of all members are disjoint, and but for `CONFIG` and
for machine rooms that are left out on purpose they cover all queues.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kourou.errors import BadRequest, ConfigError
from kourou.model.queue import MessageQueue

VIRTUAL_NODES = 10

_T = TypeVar("_T")


class Allocation(Protocol):
    """A strategy; `name` is what RocketMQ's getName returns and what settings spell."""

    @property
    def name(self) -> str:
        """The strategy's name."""
        ...

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """The share of `client`; empty when it is not among `clients`."""
        ...


def share_of(
    allocation: Allocation, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
) -> list[MessageQueue]:
    """What `allocation` gives `client`; an application's own may raise any exception."""
    try:
        return allocation(queues, clients, client)
    except BaseException as error:
        if isinstance(error, Exception):
            raise  # the consumer keeps its queues, and says why
        # It runs on the client's I/O thread, where `sys.exit()` would end every client's work.
        raise BadRequest(f"the allocation strategy raised {error!r}") from error


def _place(clients: Sequence[str], client: str) -> tuple[int, list[str]]:
    ordered = sorted(set(clients))
    return (ordered.index(client) if client in ordered else -1), ordered


@dataclass(frozen=True, slots=True)
class Averagely:
    """Even, contiguous shares; the first members get one more when it does not divide (F207)."""

    name: str = "AVG"

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """The share of `client`."""
        index, members = _place(clients, client)
        if index < 0:
            return []
        ordered = sorted(queues)
        size, extra = divmod(len(ordered), len(members))
        start = index * size + min(index, extra)
        return ordered[start : start + size + (1 if index < extra else 0)]


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """Queues are dealt one by one in turn (F208)."""

    name: str = "AVG_BY_CIRCLE"

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """The share of `client`."""
        index, members = _place(clients, client)
        return [] if index < 0 else sorted(queues)[index :: len(members)]


@dataclass(frozen=True, slots=True)
class ByConfig:
    """A fixed list, whatever the others do (F209)."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """The configured queues that exist."""
        present = set(queues)
        return [queue for queue in self.queues if queue in present]


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Only queues of the given rooms; a broker is named `room@name` (F210).

    The remainder is dealt from the end of the list, so unlike `Averagely` shares need not be
    contiguous: that is RocketMQ's order and mixed groups depend on it.
    """

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """The share of `client` in the queues of the rooms."""
        index, members = _place(clients, client)
        if index < 0:
            return []
        kept = [queue for queue in sorted(queues) if self._room(queue) in self.rooms]
        size, extra = divmod(len(kept), len(members))
        share = kept[index * size : (index + 1) * size]
        if index < extra:
            share.append(kept[index + size * len(members)])
        return share

    @staticmethod
    def _room(queue: MessageQueue) -> str | None:
        parts = queue.broker_name.split("@")
        return parts[0] if len(parts) == 2 else None


def _room_before_dash(name: str) -> str:
    return name.split("-", 1)[0]


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Queues go to members in the same room; rooms without members are shared by all (F206).

    `broker_room` and `client_room` name the room of a broker name and of a client id; the default
    takes what stands before the first dash.
    """

    inner: Allocation
    broker_room: Callable[[str], str] = _room_before_dash
    client_room: Callable[[str], str] = _room_before_dash

    @property
    def name(self) -> str:
        """`MACHINE_ROOM_NEARBY-` and the inner strategy's name."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """The share of `client`: first of its own room, then of every room without members."""
        index, members = _place(clients, client)
        if index < 0:
            return []
        queues_of = _grouped(sorted(queues), lambda queue: self._named(queue.broker_name))
        members_of = _grouped(members, self.client_room)
        own_room = self.client_room(client)
        share = self.inner(queues_of.pop(own_room, []), members_of[own_room], client)
        for room in sorted(queues_of):
            if room not in members_of:
                share = share + self.inner(queues_of[room], members, client)
        return share

    def _named(self, broker_name: str) -> str:
        room = self.broker_room(broker_name)
        if not room:
            raise ConfigError(f"the machine room of broker {broker_name!r} is empty")
        return room


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """A ring of MD5 points; a member that leaves moves only its own queues (F211)."""

    virtual_nodes: int = VIRTUAL_NODES
    name: str = "CONSISTENT_HASH"

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """The share of `client`."""
        index, members = _place(clients, client)
        if index < 0:
            return []
        ring: dict[int, str] = {}
        for member in members:
            for node in range(self.virtual_nodes):
                ring[_md5_point(f"{member}-{node}")] = member
        points = sorted(ring)
        share = []
        for queue in sorted(queues):
            place = bisect_left(points, _md5_point(_java_text(queue)))
            owner = ring[points[place % len(points)]]
            if owner == client:
                share.append(queue)
        return share


def _md5_point(key: str) -> int:
    """The first four bytes of the MD5, big-endian and unsigned, as RocketMQ places its nodes."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def _java_text(queue: MessageQueue) -> str:
    """`MessageQueue.toString()` of RocketMQ: it is what gets hashed."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def _grouped(items: Collection[_T], key: Callable[[_T], str]) -> dict[str, list[_T]]:
    groups: dict[str, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


BY_NAME: Mapping[str, Allocation] = {
    strategy.name: strategy for strategy in (Averagely(), AveragelyByCircle(), ConsistentHash())
}
"""Strategies that need no arguments, for settings that name one."""


BY_CLASS: Mapping[str, Allocation] = {
    "AllocateMessageQueueAveragely": Averagely(),
    "AllocateMessageQueueAveragelyByCircle": AveragelyByCircle(),
    "AllocateMessageQueueConsistentHash": ConsistentHash(),
}
"""The same by the names of RocketMQ's classes."""


def allocation_named(name: str) -> Allocation:
    """The strategy that settings spell `name`, or RocketMQ's class of it, with or without package.

    ConfigError lists the choice.
    """
    found = BY_NAME.get(name) or BY_CLASS.get(name.rpartition(".")[2])
    if found is None:
        raise ConfigError(
            f"{name!r} is not an allocation strategy",
            hint=f"one of {', '.join(BY_NAME)}; pass any other as an object",
        )
    return found
