"""Queue bounds, and the offsets of consumer groups.

State: soft (`QueueFacts`, `RemoteOffsets`); `LocalOffsets` is the projection of a file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from kourou.client.session.connections import Connections, header_of
from kourou.client.session.route_table import RouteTable
from kourou.errors import Code, Corrupt, Unavailable, UnknownOutcome
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import (
    GetEarliestMsgStoreTime,
    GetEarliestMsgStoreTimeResponse,
    GetMaxOffset,
    GetMaxOffsetResponse,
    GetMinOffset,
    GetMinOffsetResponse,
    QueryConsumerOffset,
    QueryConsumerOffsetResponse,
    SearchOffsetByTimestamp,
    SearchOffsetByTimestampResponse,
    UpdateConsumerOffset,
)
from kourou.protocol.request import Request
from kourou.protocol.wire.lenient_json import dumps, loads, object_key
from kourou.transport.zmq_client import WireReply

_NONE_STORED = frozenset({int(Code.QUERY_NOT_FOUND)})


class OffsetStore(Protocol):
    """A store of a group's offsets; an application may supply its own."""

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the next offset to read; None if nothing is stored for this queue."""
        ...

    async def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store these offsets, even if they are lower than before."""
        ...


class QueueFacts:
    """Requests about a queue to its broker. Used on the I/O thread."""

    def __init__(self, connections: Connections, routes: RouteTable, timeout_ms: int) -> None:
        self._connections = connections
        self._routes = routes
        self._timeout_ms = timeout_ms

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will get."""
        request = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)
        return header_of(await self.ask(queue, request), GetMaxOffsetResponse).offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the minimum offset that is stored."""
        request = GetMinOffset(topic=queue.topic, queue_id=queue.queue_id)
        return header_of(await self.ask(queue, request), GetMinOffsetResponse).offset

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time."""
        request = SearchOffsetByTimestamp(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        return header_of(await self.ask(queue, request), SearchOffsetByTimestampResponse).offset

    async def earliest_store_time(self, queue: MessageQueue) -> int:
        """Return when the first stored message was stored, in ms; -1 for an empty queue."""
        request = GetEarliestMsgStoreTime(topic=queue.topic, queue_id=queue.queue_id)
        return header_of(await self.ask(queue, request), GetEarliestMsgStoreTimeResponse).timestamp

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's committed offset; None if the broker has none."""
        request = QueryConsumerOffset(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id
        )
        reply = await self.ask(queue, request, also=_NONE_STORED)
        if reply.code == Code.QUERY_NOT_FOUND:
            return None
        return header_of(reply, QueryConsumerOffsetResponse).offset

    async def commit(
        self, group: str, queue: MessageQueue, offset: int, *, hurried: bool = False
    ) -> None:
        """Commit a group's offset at the broker; `hurried` as in `Connections.ask`."""
        request = UpdateConsumerOffset(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        await self.ask(queue, request, hurried=hurried)

    async def ask(
        self,
        queue: MessageQueue,
        request: Request,
        *,
        also: frozenset[int] = frozenset(),
        hurried: bool = False,
    ) -> WireReply:
        """Send a request to the queue's leader, or to another replica if there is none."""
        known = await self._routes.find(queue.topic)
        address = known.member_address(queue.broker_name, 0)
        if address is None:
            raise Unavailable(f"broker {queue.broker_name} of {queue!s} is not registered")
        try:
            return await self._connections.ask(
                address, request, timeout_ms=self._timeout_ms, also=also, hurried=hurried
            )
        except (Unavailable, UnknownOutcome):
            if not hurried:
                self._routes.stale(queue.topic)  # there may be a new leader
            raise


class RemoteOffsets:
    """A group's offsets at the brokers. `hurried` is set before the last save, when closing."""

    def __init__(self, group: str, facts: QueueFacts) -> None:
        self._group = group
        self._facts = facts
        self.hurried = False

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the next offset to read."""
        return await self._facts.committed(self._group, queue)

    async def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the offsets; a failure of one broker does not prevent commits at the others."""
        commits = (
            self._facts.commit(self._group, queue, offset, hurried=self.hurried)
            for queue, offset in offsets.items()
        )
        outcomes = await asyncio.gather(*commits, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome


class LocalOffsets:
    """Offsets in a local file, in the format of RocketMQ's Java clients.

    A save writes a new file and renames it; the previous file is kept as `.bak`, and is read if the
    file is missing or corrupt.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] | None = None

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the next offset to read. Raises Corrupt if neither file nor backup is readable."""
        if self._offsets is None:
            self._offsets = await asyncio.to_thread(_read, self._path)
        return self._offsets.get(queue)

    async def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Write all offsets to a new file, which then replaces the old one."""
        if self._offsets is None:
            self._offsets = await asyncio.to_thread(_read, self._path)
        self._offsets.update(offsets)
        table = {
            object_key(
                brokerName=queue.broker_name, queueId=queue.queue_id, topic=queue.topic
            ): offset
            for queue, offset in sorted(self._offsets.items())
        }
        await asyncio.to_thread(_write, self._path, dumps({"offsetTable": table}))


def local_offsets_path(root: str, client_id: str, group: str) -> Path:
    """Return the path that RocketMQ's clients use; an empty `root` is `~/.rocketmq_offsets`."""
    base = Path(root).expanduser() if root else Path.home() / ".rocketmq_offsets"
    return base / client_id / group / "offsets.json"


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _read(path: Path) -> dict[MessageQueue, int]:
    found: Corrupt | None = None
    for candidate in (path, _backup(path)):
        try:
            return _parse(candidate.read_bytes())
        except FileNotFoundError:
            continue
        except Corrupt as error:
            found = error
    if found is not None:
        raise Corrupt(
            f"offsets file {path} is unreadable: {found}",
            hint="move the file away to start as a group without offsets",
        ) from found
    return {}


def _parse(data: bytes) -> dict[MessageQueue, int]:
    table = loads(data)
    rows = table.get("offsetTable") if isinstance(table, dict) else None
    if not isinstance(rows, dict):
        raise Corrupt("offsetTable is missing")
    offsets: dict[MessageQueue, int] = {}
    for key, offset in rows.items():
        members = dict(key) if isinstance(key, tuple) else {}
        topic, broker_name = members.get("topic"), members.get("brokerName")
        queue_id = members.get("queueId")
        if not (
            isinstance(topic, str)
            and isinstance(broker_name, str)
            and isinstance(queue_id, int)
            and isinstance(offset, int)
        ):
            raise Corrupt(f"{key!r}: {offset!r} is not a queue with its offset")
        offsets[MessageQueue(topic, broker_name, queue_id)] = offset
    return offsets


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        path.replace(_backup(path))
    fresh.replace(path)
