"""Fault injection for a Raft group of real processes, chosen by a seed.

    await Nemesis(group, load, seed).strike(faults=1)

The first fault for a seed is entry number `seed` of the table, so that consecutive seeds cover all
entries. Further faults, durations and victims are random. Each strike ends with all connections
working, all processes running and sends being acknowledged again.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable

from kourou_rigs.ailing_member import Orders
from kourou_rigs.raft_processes import RaftProcesses
from kourou_rigs.recorded_load import RecordedLoad

FIRST_CHANCE = 1_000
BETWEEN = 40
"""Sends that are acknowledged before each fault and after the last one."""

LAST_S_MAX = 3.0
BETWEEN_ORDERS_S = 0.2
FLAPS = 4
HOUR_MS = 3_600_000
FAULTED = 75
Fault = Callable[[], Awaitable[None]]


class Nemesis:
    """Injects faults; processes are stopped for at most `stop_s_max`, others last at most 3 s."""

    def __init__(
        self, group: RaftProcesses, load: RecordedLoad, seed: int, *, stop_s_max: float = LAST_S_MAX
    ) -> None:
        self._group = group
        self._load = load
        self._seed = seed
        self._chance = random.Random(FIRST_CHANCE + seed)
        self._stop_s_max = stop_s_max
        self.faults: tuple[Fault, ...] = (
            self.kill_the_leader,
            self.stop_the_leader,
            self.isolate_the_leader,
            self.kill_a_follower,
            self.cut_the_leader_off_from_all,
            self.mute_the_leader,
            self.deafen_the_leader,
            self.bridge,
            self.flap,
            self.slow_wires,
            self.hand_over,
            self.kill_all,
            self.slow_disk,
            self.step_clocks,
            self.fill_the_leaders_disk,
            self.stop_a_follower,
            self.kill_while_cut_off,
            self.break_the_leaders_disk,
            self.flip_a_followers_bit,
            self.break_a_followers_disk,
            self.lose_a_followers_disk,
        )

    async def strike(self, faults: int = 1) -> list[str]:
        """Inject `faults` faults, one after the other; returns their names."""
        first = self.faults[self._seed % len(self.faults)]
        chosen = [first, *(self._chance.choice(self.faults) for _ in range(faults - 1))]
        for fault in chosen:
            await self._load.until_acknowledged(BETWEEN)
            await fault()
            self._group.heal()
        await asyncio.gather(*(self._group.start(name) for name in self._group.names))
        await self._load.until_acknowledged(BETWEEN)
        return [fault.__name__ for fault in chosen]

    # -- victims and durations --------------------------------------------------------------------

    async def _leader(self, what: str) -> str:
        """The leader; the fault is recorded as one of a leader."""
        name = await self._group.leader()
        self._load.history.struck(self._load.now_ms(), f"{what} {name}", leader=True)
        return name

    async def _follower(self, what: str) -> str:
        leader = await self._group.leader()
        name = self._chance.choice([each for each in self._group.names if each != leader])
        self._load.history.struck(self._load.now_ms(), f"{what} {name}")
        return name

    async def _last(self, least_s: float = 0.1, most_s: float = LAST_S_MAX) -> None:
        await asyncio.sleep(self._chance.uniform(least_s, most_s))

    # -- processes --------------------------------------------------------------------------------

    async def kill_the_leader(self) -> None:
        """SIGKILL; it is restarted some time later."""
        name = await self._leader("kill")
        await self._group.kill(name)
        await self._last()
        await self._group.start(name)

    async def kill_a_follower(self) -> None:
        """SIGKILL; clients should not notice."""
        name = await self._follower("kill")
        await self._group.kill(name)
        await self._last()
        await self._group.start(name)

    async def kill_all(self) -> None:
        """SIGKILL for every member."""
        await self._leader("kill all, and")
        await asyncio.gather(*(self._group.kill(name) for name in self._group.names))
        await asyncio.gather(*(self._group.start(name) for name in self._group.names))

    async def stop_the_leader(self) -> None:
        """SIGSTOP; it later continues as if nothing had happened."""
        name = await self._leader("stop")
        self._group.stop(name)
        await self._last(most_s=self._stop_s_max)

    async def stop_a_follower(self) -> None:
        """SIGSTOP; clients should not notice."""
        name = await self._follower("stop")
        self._group.stop(name)
        await self._last(most_s=self._stop_s_max)

    # -- wires ------------------------------------------------------------------------------------

    async def isolate_the_leader(self) -> None:
        """It loses its connections to other members; clients still reach it."""
        self._group.isolate(await self._leader("isolate"))
        await self._last(1.0)

    async def cut_the_leader_off_from_all(self) -> None:
        """It loses its connections to members and clients."""
        self._group.isolate(await self._leader("cut off"), clients=True)
        await self._last(1.0)

    async def kill_while_cut_off(self) -> None:
        """It is killed while isolated, with messages that no other member has."""
        name = await self._leader("isolate and kill")
        self._group.isolate(name)
        await self._last(0.3)
        await self._group.kill(name)
        self._group.flow()
        await self._group.start(name)

    async def mute_the_leader(self) -> None:
        """It receives from all members, but none receives from it."""
        self._group.mute(await self._leader("mute"))
        await self._last(1.0)

    async def deafen_the_leader(self) -> None:
        """All members receive from it, but it receives from none."""
        self._group.deafen(await self._leader("deafen"))
        await self._last(1.0)

    async def bridge(self) -> None:
        """Leader and one follower are connected to the other follower, but not to each other."""
        leader = await self._leader("cut from a follower:")
        self._group.cut(leader, next(name for name in self._group.names if name != leader))
        await self._last(1.0)

    async def flap(self) -> None:
        """The leader is isolated and reconnected several times."""
        name = await self._leader("flap")
        for _ in range(FLAPS):
            self._group.isolate(name)
            await asyncio.sleep(self._chance.uniform(0.1, 0.6))
            self._group.flow()
            await asyncio.sleep(self._chance.uniform(0.05, 0.4))

    async def slow_wires(self) -> None:
        """All traffic between members is delayed."""
        self._load.history.struck(self._load.now_ms(), "slow wires")
        self._group.delay(self._chance.choice((20, 100, 300)))
        await self._last(1.0)

    # -- leaders, disks, clocks -------------------------------------------------------------------

    async def hand_over(self) -> None:
        """Transfer leadership."""
        await self._leader("transfer by")
        await self._group.transfer()
        await self._last()

    async def slow_disk(self) -> None:
        """Each flush of the leader is slow."""
        name = await self._leader("slow disk of")
        self._group.order(name, Orders(sync_delay_ms=self._chance.choice((50, 400))))
        await self._last(1.0)

    async def fill_the_leaders_disk(self) -> None:
        """The leader's disk has no free space."""
        name = await self._leader("full disk of")
        self._group.order(name, Orders(full=True))
        await self._last(1.5)

    async def break_the_leaders_disk(self) -> None:
        """A flush of the leader fails; it ends and is restarted with a working disk."""
        await self._break_the_disk_of(await self._leader("failed flush of"))

    async def break_a_followers_disk(self) -> None:
        """A flush of a follower fails; clients should not notice."""
        await self._break_the_disk_of(await self._follower("failed flush of"))

    async def _break_the_disk_of(self, name: str) -> None:
        self._group.order(name, Orders(fail_sync=True))
        code = await self._group.ended(name)
        assert code == FAULTED, f"{name} ended with {code}"
        self._group.order(name, Orders())
        await self._group.start(name)

    async def lose_a_followers_disk(self) -> None:
        """A follower restarts with an empty disk, copies the log, and can then be elected leader.

        If it is never elected, this waits until the test's timeout.
        """
        name = await self._follower("lose the disk of")
        await self._group.kill(name)
        await asyncio.to_thread(shutil.rmtree, self._group.store(name))
        await self._group.start(name)
        await self._group.voting(name)
        while await self._group.leader() != name:  # other elections may intervene
            await self._group.transfer(name)
            await asyncio.sleep(BETWEEN_ORDERS_S)

    async def flip_a_followers_bit(self) -> None:
        """Corrupt a committed message on one member, which then becomes the leader."""
        name = await self._follower("flip a bit of")
        await self._group.kill(name)
        log, start = self._group.log_of(name), self._group.log_start(name)
        at = -1
        while at < 0:  # retention may have deleted the chosen one; the newest is always there
            row = self._chance.choice(self._load.history.acknowledged())
            at = log.find(row.value.encode())
        self._group.flip_bit(name, start + at, self._chance.randrange(8))
        await self._group.start(name)
        await self._load.until_acknowledged(BETWEEN)
        await self._group.transfer(name)

    async def step_clocks(self) -> None:
        """Wall clocks jump by an hour, forwards or backwards for each member."""
        self._load.history.struck(self._load.now_ms(), "step clocks")
        for name in self._group.names:
            step_ms = self._chance.choice((-HOUR_MS, HOUR_MS))
            self._group.order(name, Orders(clock_step_ms=step_ms))
        await self._last()
