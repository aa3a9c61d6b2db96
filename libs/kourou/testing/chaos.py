"""`kourou_chaos`: lets a test inject failures that happen in production.

    kourou_chaos.drop_answers("send")      the message is stored, but its producer gets no reply
    kourou_chaos.kill()                    the broker ends; restart() starts it again
    kourou_chaos.fill_disk()               sends are rejected until repair_disk()

Network faults are injected on the broker's side and affect all clients alike. Without a broker
name, faults apply to all brokers; `kill` and `restart` require a name if there are several.

State: none; brokers, connections and disks have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kourou.errors import BadRequest
from kourou.testing.cluster_broker import ClusterBroker
from kourou.testing.cluster_thread import ClusterClock, ClusterThread
from kourou.testing.disk import MemoryDisk
from kourou.testing.faulty_server import Fault, FaultKind, What, codes_of

DISK_CHECK_S = 1.1
"""A broker checks its disk once a second."""

WAIT_S = 20.0


class FaultyCluster(Protocol):
    """The part of the cluster that faults need."""

    @property
    def everyone(self) -> Sequence[ClusterBroker]:
        """All brokers and their followers, whether they run or not."""
        ...

    async def start_broker(self, broker: ClusterBroker) -> None:
        """Start a broker that is down."""
        ...

    async def until(self, satisfied: Callable[[], bool], within_s: float) -> bool:
        """Wait until `satisfied` returns True; returns False after `within_s` seconds."""
        ...


class Chaos:
    """Injects faults into one cluster."""

    def __init__(self, thread: ClusterThread, cluster: FaultyCluster, clock: ClusterClock) -> None:
        self._thread = thread
        self._cluster = cluster
        self._clock = clock

    # -- the network ------------------------------------------------------------------------------

    def drop_requests(
        self,
        what: What = None,
        *,
        times: int | None = 1,
        cut: bool = False,
        broker: str | None = None,
    ) -> Fault:
        """Drop the next `times` requests to the broker (None: all until `heal`).

        `what` is "send", "pull", "commit", "heartbeat", a request type, or None for any request.
        The client gets a timeout, or with `cut` a lost connection at once. The returned fault
        counts the dropped requests in `met`.
        """
        return self._order(Fault(_lost(cut=cut), codes_of(what), False, times), broker)

    def drop_answers(
        self,
        what: What = None,
        *,
        times: int | None = 1,
        cut: bool = False,
        broker: str | None = None,
    ) -> Fault:
        """Let the broker handle requests, but drop its replies; otherwise like `drop_requests`."""
        return self._order(Fault(_lost(cut=cut), codes_of(what), True, times), broker)

    def delay_requests(
        self,
        what: What = None,
        *,
        seconds: float,
        times: int | None = None,
        broker: str | None = None,
    ) -> Fault:
        """Delay requests to the broker by `seconds` of the cluster's clock, until `heal`."""
        return self._order(Fault(FaultKind.LATE, codes_of(what), False, times, seconds), broker)

    def delay_answers(
        self,
        what: What = None,
        *,
        seconds: float,
        times: int | None = None,
        broker: str | None = None,
    ) -> Fault:
        """Delay replies of the broker by `seconds` of the cluster's clock, until `heal`."""
        return self._order(Fault(FaultKind.LATE, codes_of(what), True, times, seconds), broker)

    def cut_connections(self, broker: str | None = None) -> int:
        """Close all connections now and return their number; clients reconnect automatically."""

        async def cut() -> int:
            running = [one for one in self._named(broker) if one.is_up]
            return sum(one.service.server.cut_connections() for one in running)

        return self._thread.run(cut())

    def _order(self, fault: Fault, broker: str | None) -> Fault:
        async def order() -> None:
            for one in self._named(broker):
                one.faults.append(fault)

        self._thread.run(order())
        return fault

    # -- processes --------------------------------------------------------------------------------

    def kill(self, broker: str | None = None) -> None:
        """End a broker as SIGKILL does: its files are unchanged, its clients lose their
        connections.
        """
        self._thread.run(self._only(broker).kill())

    def restart(self, broker: str | None = None) -> None:
        """Start a broker that is down, with its store and port; returns when it serves clients."""
        self._thread.run(self._cluster.start_broker(self._only(broker)))

    def power_loss(self, broker: str | None = None) -> None:
        """Kill a broker and lose what its disk had not synced; requires storage="memory"."""
        one = self._only(broker)

        async def lose() -> None:
            disk = _memory(one)
            await one.kill()
            one.disk = disk.lose_power()

        self._thread.run(lose())

    def wait_for_end(self, broker: str | None = None, *, within_s: float = WAIT_S) -> None:
        """Wait until a broker ends by itself, as it does when its disk fails."""
        one = self._only(broker)
        if not self._thread.run(self._cluster.until(lambda: not one.is_up, within_s)):
            raise AssertionError(f"{one.name} still serves after {within_s:g} s")

    # -- disks ------------------------------------------------------------------------------------

    def fill_disk(self, broker: str | None = None) -> None:
        """Leave no free space on the disk; returns when the broker rejects messages for that
        reason.
        """

        def fill(disk: MemoryDisk) -> None:
            disk.full = True

        self._disks(broker, fill)
        self._until_seen(self._named(broker), refusing=True)

    def break_disk(self, broker: str | None = None) -> None:
        """Let all syncs of the disk fail from now on: the broker ends at its next flush.

        The next send causes a flush, immediately with SYNC_FLUSH, else within half a second.
        """

        def break_it(disk: MemoryDisk) -> None:
            disk.broken = True

        self._disks(broker, break_it)

    def repair_disk(self, broker: str | None = None) -> None:
        """Undo `fill_disk` and `break_disk`. A broker that has ended also needs `restart`."""
        self._disks(broker, MemoryDisk.repair)
        self._until_seen(self._named(broker), refusing=False)

    def _until_seen(self, brokers: Sequence[ClusterBroker], *, refusing: bool) -> None:
        """Wait until every running broker has checked its disk, which happens in a thread."""

        def seen() -> bool:
            running = [one.service.view.pressure for one in brokers if one.is_up]
            return all(pressure.refusing is refusing for pressure in running)

        self._clock.advance(DISK_CHECK_S)
        if not self._thread.run(self._cluster.until(seen, WAIT_S)):
            names = ", ".join(one.name for one in brokers)
            raise AssertionError(f"{names}: the disk's state was not noticed in {WAIT_S:g} s")

    def _disks(self, broker: str | None, work: Callable[[MemoryDisk], None]) -> None:
        for one in self._named(broker):
            work(_memory(one))

    # -- all of it --------------------------------------------------------------------------------

    def repair(self) -> None:
        """End all faults: repair connections and disks, and start brokers that are down."""
        ailing = [one for one in self._cluster.everyone if one.disk and one.disk.ailing]
        for one in ailing:
            _memory(one).repair()

        async def restart() -> None:
            for one in self._cluster.everyone:
                one.faults.clear()
                if not one.is_up:
                    await self._cluster.start_broker(one)

        self._thread.run(restart())
        if ailing:
            self._until_seen(ailing, refusing=False)

    def _named(self, broker: str | None) -> list[ClusterBroker]:
        found = [one for one in self._cluster.everyone if broker in (None, one.name)]
        if not found:
            names = ", ".join(one.name for one in self._cluster.everyone)
            raise BadRequest(f"there is no broker {broker!r}", hint=f"known: {names}")
        return found

    def _only(self, broker: str | None) -> ClusterBroker:
        found = self._named(broker)
        if len(found) > 1:
            raise BadRequest("there are several brokers", hint=f"name one: {found[0].name!r}")
        return found[0]


def _lost(*, cut: bool) -> FaultKind:
    return FaultKind.CUT if cut else FaultKind.LOST


def _memory(broker: ClusterBroker) -> MemoryDisk:
    if broker.disk is None:
        raise BadRequest(
            f"{broker.name} stores on the machine's own disk, which no test breaks",
            hint='use storage="memory"',
        )
    return broker.disk
