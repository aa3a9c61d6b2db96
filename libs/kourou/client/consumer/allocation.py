"""Queue allocation among the consumers of a group: RocketMQ's six strategies.

Invariant: for the same queues and clients the shares of all consumers are disjoint. They cover all
queues, except with `CONFIG` and with `MACHINE_ROOM`, which leaves out other rooms on purpose.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kourou.errors import BadRequest, ConfigError
from kourou.model.topic import MessageQueue

VIRTUAL_NODES = 10

_T = TypeVar("_T")


class Allocation(Protocol):
    """An allocation strategy; `name` is the value of RocketMQ's getName and of settings."""

    @property
    def name(self) -> str:
        """The strategy's name."""
        ...

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """Return the share of `client`; empty if it is not among `clients`."""
        ...


def share_of(
    allocation: Allocation, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
) -> list[MessageQueue]:
    """Return the share of `client`; an application's own strategy may raise any exception."""
    try:
        return allocation(queues, clients, client)
    except BaseException as error:
        if isinstance(error, Exception):
            raise  # the consumer keeps its queues and logs the error
        # It runs on the client's I/O thread, where `sys.exit()` would end every client's work.
        raise BadRequest(f"the allocation strategy raised {error!r}") from error


def _place(clients: Sequence[str], client: str) -> tuple[int, list[str]]:
    ordered = sorted(set(clients))
    return (ordered.index(client) if client in ordered else -1), ordered


@dataclass(frozen=True, slots=True)
class Averagely:
    """Even, contiguous shares; the first consumers get one more if the division has a remainder."""

    name: str = "AVG"

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """Return the share of `client`."""
        index, members = _place(clients, client)
        if index < 0:
            return []
        ordered = sorted(queues)
        size, extra = divmod(len(ordered), len(members))
        start = index * size + min(index, extra)
        return ordered[start : start + size + (1 if index < extra else 0)]


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """Deals out the queues one by one to the consumers in turn."""

    name: str = "AVG_BY_CIRCLE"

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """Return the share of `client`."""
        index, members = _place(clients, client)
        return [] if index < 0 else sorted(queues)[index :: len(members)]


@dataclass(frozen=True, slots=True)
class ByConfig:
    """A fixed list of queues, independent of other consumers."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """Return the configured queues that exist."""
        present = set(queues)
        return [queue for queue in self.queues if queue in present]


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Allocates only queues of the given rooms; a broker is named `room@name`.

    The remainder is dealt out from the end of the list, so unlike in `Averagely` shares may be not
    contiguous. This is RocketMQ's order, and groups with RocketMQ's consumers depend on it.
    """

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """Return the share of `client` in the queues of the rooms."""
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
    """Allocates queues to consumers in the same room; rooms without consumers are shared by all.

    `broker_room` and `client_room` map a broker name and a client ID to its room; the default is
    the part before the first dash.
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
        """Return the share of `client`: in its own room, and in every room without consumers."""
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
    """A hash ring of MD5 points; if a consumer leaves, only its own queues move."""

    virtual_nodes: int = VIRTUAL_NODES
    name: str = "CONSISTENT_HASH"

    def __call__(
        self, queues: Sequence[MessageQueue], clients: Sequence[str], client: str
    ) -> list[MessageQueue]:
        """Return the share of `client`."""
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
    """Return the first four bytes of the MD5, big-endian and unsigned, as RocketMQ does."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def _java_text(queue: MessageQueue) -> str:
    """Return what RocketMQ's `MessageQueue.toString()` returns: this text is hashed."""
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
"""Strategies that need no arguments, by name; settings may name one."""


BY_CLASS: Mapping[str, Allocation] = {
    "AllocateMessageQueueAveragely": Averagely(),
    "AllocateMessageQueueAveragelyByCircle": AveragelyByCircle(),
    "AllocateMessageQueueConsistentHash": ConsistentHash(),
}
"""The same strategies by the names of RocketMQ's classes."""


def allocation_named(name: str) -> Allocation:
    """Return the strategy with this name, or of RocketMQ's class, with or without its package.

    Raises ConfigError, with the possible names, if there is none.
    """
    found = BY_NAME.get(name) or BY_CLASS.get(name.rpartition(".")[2])
    if found is None:
        raise ConfigError(
            f"{name!r} is not an allocation strategy",
            hint=f"one of {', '.join(BY_NAME)}; pass any other as an object",
        )
    return found
