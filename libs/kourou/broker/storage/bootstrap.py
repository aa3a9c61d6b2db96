"""Bootstraps a replica whose log ends before its leader's log begins.

Retention has deleted records on the leader that this replica lacks. The remaining log can be
fetched, but the control state before it is not part of it. Therefore another replica returns that
state as one value (kourou.engine.admin.log_bootstrap). It is written durably before anything of the
old log is deleted, and becomes the replica's event store before the new log gets its first byte.

State: soft; the durable part is the store's intent file (docs/formats/replication.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kourou.broker.network.log_source import LogSource
from kourou.broker.storage.control_recovery import aside
from kourou.clock import Clock
from kourou.engine.admin.log_bootstrap import LogBeginning, decode_beginning
from kourou.engine.control import CONTROL
from kourou.errors import Corrupt, DecodeError, KourouError
from kourou.eventstore.event_store import EventStore
from kourou.eventstore.stream_rows import StreamInfo
from kourou.store.disk import Disk
from kourou.store.recovery.restart import load_beginning, restart_log
from kourou.store.settings import StoreSettings
from kourou.store.startup import unusable
from kourou.store.store import Store
from kourou.transport.curve_keys import ClientCurve

_log = logging.getLogger("kourou.broker")

PAUSE_S = 1.0
"""Pause between two rounds of requests."""


@dataclass(frozen=True, slots=True)
class RestartLog:
    """The required state has arrived: end the role session, call `leave`, open the store again.

    `position` and `epoch` (that of the byte before it) are the new start of the log. The old log
    from `common` on is kept for the operator.
    """

    position: int
    epoch: int
    common: int
    body: bytes

    def leave(self, store: Store) -> None:
        """Write the intent durably; afterwards close the store without settling it."""
        store.restart_at(self.position, self.common, self.body)


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """The request to restart the log at `position` or above.

    `epoch`: the required epoch of the byte before, if known. `common`: everything below it is part
    of the group's history.
    """

    position: int
    common: int
    epoch: int | None = None


class Bootstrap:
    """Requests the state before the leader's log; `answered` gets the first reply that matches.

    `others` are the addresses to try, in this order: the leader's, or those of all other replicas;
    each is a listener for replicas or for clients. `still` says whether the state is still needed:
    a new leader may have what the last one lacked. All calls must be made on the running loop.
    """

    def __init__(
        self,
        group: str,
        clock: Clock,
        others: Callable[[], Sequence[str]],
        answered: Callable[[RestartLog], None],
        *,
        still: Callable[[], bool] = lambda: True,
        pause_s: float = PAUSE_S,
        curve: ClientCurve | None = None,
    ) -> None:
        self._group = group
        self._curve = curve
        self._clock = clock
        self._others = others
        self._answered = answered
        self._still = still
        self._pause_s = pause_s
        self._request: RestartRequest | None = None
        self._task: asyncio.Task[None] | None = None

    def request(self, request: RestartRequest) -> None:
        """Start to request; if requests are in progress, replace what they require."""
        self._request = request
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._until_answered())

    async def stop(self) -> None:
        """Stop: the replica is no longer behind, leads, or ends."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _until_answered(self) -> None:
        complaint = ""
        while self._still():
            for address in self._others():
                try:
                    found = await self._ask(address)
                except KourouError as error:
                    if str(error) != complaint:
                        complaint = str(error)
                        _log.warning(
                            "log-bootstrap-delayed: this log must restart at a later position, but "
                            "%(address)s did not return the state before it: %(error)s",
                            {"address": address, "error": error},
                        )
                else:
                    if self._still():
                        self._answered(found)
                    return
            await asyncio.sleep(self._pause_s)

    async def _ask(self, address: str) -> RestartLog:
        async with LogSource(address, self._group, self._clock, curve=self._curve) as source:
            found, body = await source.beginning()
        request = self._request
        assert request is not None
        if found.position < request.position:
            raise Corrupt(f"its log still starts at {found.position}")
        if found.position == request.position and request.epoch not in (None, found.epoch):
            raise Corrupt(
                f"the byte before {found.position} belongs to epoch {found.epoch} there, "
                f"but to epoch {request.epoch} at the leader"
            )
        _log.info(
            "log-bootstrap-received: %(address)s returned the state before position %(position)d "
            "of the log: %(events)d control events, %(size_bytes)d bytes",
            {
                "address": address,
                "position": found.position,
                "events": found.next_offset,
                "size_bytes": len(body),
            },
        )
        return RestartLog(found.position, found.epoch, request.common, body)


# -- at startup -----------------------------------------------------------------------------------


def pending_beginning(settings: StoreSettings, disk: Disk) -> LogBeginning | None:
    """Return the intent of an interrupted bootstrap; usually None. Changes nothing.

    Raises Corrupt if it cannot be read, and what opening a store raises.
    """
    paths = settings.paths
    try:
        body = load_beginning(disk, paths) if disk.exists(paths.kourou) else None
    except OSError as error:
        raise unusable(disk, paths.root, error) from error
    if body is None:
        return None
    try:
        return decode_beginning(body)
    except DecodeError as error:
        raise Corrupt(f"{paths.beginning}: {error.message}") from error


def clear_for(beginning: LogBeginning, settings: StoreSettings, disk: Disk) -> None:
    """Make the store empty, with that start of the log. Idempotent."""
    start = restart_log(settings, disk, beginning.position, beginning.queue_ends, beginning.epochs)
    assert start == beginning.position, (start, beginning.position)


def record_beginning(beginning: LogBeginning, events: EventStore) -> None:
    """Reset the event store to that state; its former content is set aside. Idempotent.

    Raises MetadataUnavailable: then the log must not be used, because its state is unknown.
    """
    offset = beginning.next_offset
    info = events.info()
    if offset and (info.next_offset, info.lost_before) == (offset, offset):
        return  # done by an earlier start that crashed
    if info != StreamInfo():
        _log.warning(
            "event-store-restarted: the event store starts a new history: %(history)s",
            {"history": aside(events)},
        )
    if offset:
        events.begin(CONTROL.snapshot(beginning.control))
