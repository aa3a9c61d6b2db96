"""Samples the metrics of every broker periodically, and keeps the last hour of them.

Each broker has its own timeout, so a hanging broker does not delay the others. The next round
starts at its time, but never before the previous one has ended. A metric of the whole suite has a
value only if every registered broker reported its part. Dead letters are counted every SLOW_ROUNDS
rounds, because this is expensive for a broker.

State: soft: the last sample of each broker, and an hour of samples.

Metrics of the last hour, as columns of numbers.

A round is a row: its time, and an optional number for each series. A series is one column of
doubles. If two rounds are too far apart, an empty row is returned between them, so that a chart
shows the gap.

State: soft; lost with the process. Memory: at most CONSOLE_SAMPLES_MAX doubles, 12 MB; 720 rounds
of 5 s leave room for two thousand series.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from array import array
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from kourou.client.admin.replicas import LogMember, absent, leaders_of
from kourou.errors import KourouError
from kourou.model.limits import CONSOLE_ROUNDS_MAX, CONSOLE_SAMPLES_MAX
from kourou.model.names import DLQ_PREFIX
from kourou.model.topic import MASTER_ID, MessageQueue
from kourou.protocol.bodies.statistics_bodies import BrokerConsumeStats, TopicOffset
from kourou.time_limit import within
from kourou_console.gateway import Gateway
from kourou_console.lists import Missing, asked, why
from kourou_console.metrics.alarms import (
    GAPS,
    ActiveAlarm,
    AlarmBook,
    AlarmInput,
    BrokerState,
    ReplicaState,
    alarms,
)
from kourou_console.metrics.broker_runtime import (
    Rates,
    Runtime,
    joined,
    quantile,
    rates_between,
    runtime_of,
    sends_between,
)

KEEP_MS = 3_600_000
GAP = 1.9
"""The distance between two rounds, in intervals, from which on one counts as missing."""

Key = tuple[str, str]
"""The metric's name, and its owner: "" for the suite, `broker:NAME`, `group:NAME`."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Times, and a list of values of the same length for each requested key; None: unknown."""

    at_ms: list[int]
    values: list[list[float | None]]


class Samples:
    """The samples of the last hour, in rounds of `interval_ms`."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._rounds = max(2, min(CONSOLE_ROUNDS_MAX, KEEP_MS // interval_ms))
        self.series_max = CONSOLE_SAMPLES_MAX // self._rounds
        self._at = array("q", bytes(8 * self._rounds))
        self._columns: dict[Key, array[float]] = {}
        self._last: dict[Key, int] = {}
        self._next = 0
        self._count = 0
        #: The number of series that found no room.
        self.refused = 0

    def note(self, at_ms: int, values: Mapping[Key, float | None]) -> None:
        """Add a round. A series that is missing or None has no value in it."""
        place = self._next
        self._at[place] = at_ms
        for every in self._columns.values():
            every[place] = math.nan
        for key, value in values.items():
            if value is None or (column := self._column(key)) is None:
                continue
            column[place] = value
            self._last[key] = at_ms
        self._next = (place + 1) % self._rounds
        self._count = min(self._count + 1, self._rounds)
        self._forget(self._at[self._oldest()])

    def keys(self) -> list[Key]:
        """All series with a value."""
        return sorted(self._columns)

    def read(self, keys: Sequence[Key], since_ms: int = 0) -> Columns:
        """The rounds from `since_ms` on, oldest first."""
        order = [(self._oldest() + step) % self._rounds for step in range(self._count)]
        order = [place for place in order if self._at[place] >= since_ms]
        rows: list[int | None] = []
        times: list[int] = []
        for place in order:
            at_ms = self._at[place]
            if times and at_ms - times[-1] > GAP * self._interval_ms:
                times.append(times[-1] + self._interval_ms)
                rows.append(None)
            times.append(at_ms)
            rows.append(place)
        return Columns(times, [self._values(self._columns.get(key), rows) for key in keys])

    def latest(self, key: Key, *, since_ms: int = 0) -> float | None:
        """The last round's value; None if that round is older than `since_ms`."""
        if not self._count:
            return None
        place = (self._next - 1) % self._rounds
        column = self._columns.get(key)
        if column is None or self._at[place] < since_ms or math.isnan(column[place]):
            return None
        return column[place]

    def _oldest(self) -> int:
        return (self._next - self._count) % self._rounds

    @staticmethod
    def _values(column: array[float] | None, rows: Iterable[int | None]) -> list[float | None]:
        if column is None:
            return [None for _ in rows]
        found: list[float | None] = []
        for place in rows:
            value = math.nan if place is None else column[place]
            found.append(None if math.isnan(value) else value)
        return found

    def _column(self, key: Key) -> array[float] | None:
        column = self._columns.get(key)
        if column is not None:
            return column
        if len(self._columns) >= self.series_max:
            self.refused += 1
            return None
        column = self._columns[key] = array("d", [math.nan]) * self._rounds
        return column

    def _forget(self, oldest_ms: int) -> None:
        """Remove series without any value left."""
        for key in [key for key, at_ms in self._last.items() if at_ms < oldest_ms]:
            del self._last[key]
            del self._columns[key]


BROKER_LIMIT_S = 3.0
SLOW_ROUNDS = 6
GROWTH_MS = 600_000
ALL = ""
SUMMED = (
    *("messages_in_per_s", "messages_out_per_s", "bytes_in_per_s", "log_bytes", "held_pulls"),
    *("unflushed_bytes", "dispatch_behind_bytes", "lag_messages"),
)
WORST = ("disk_used_ratio",)
OF_RUNTIME = (
    *("disk_used_ratio", "log_bytes", "held_pulls", "unflushed_bytes"),
    *("dispatch_behind_bytes", "replica_lag_bytes"),
)
T = TypeVar("T")
_log = logging.getLogger("kourou.console")


@dataclass(frozen=True, slots=True)
class _Failed:
    why: str


@dataclass(frozen=True, slots=True)
class BrokerNow:
    """The last sample of a broker. `why`: it did not reply; `lags_why`: it did not report lags."""

    broker: str
    cluster: str | None
    at_ms: int
    runtime: Runtime | None = None
    rates: Rates = field(default_factory=Rates)
    lags: Mapping[str, int] | None = None
    members: Sequence[LogMember] = ()
    why: str | None = None
    lags_why: str | None = None

    @property
    def up(self) -> bool:
        """Whether its leader replied."""
        return self.runtime is not None


class Sampler:
    """One instance for the console. `look` runs one round; `start` runs rounds periodically."""

    of_console = True

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.interval_ms = gateway.settings.sample_interval_ms
        self.samples = Samples(self.interval_ms)
        self.brokers: dict[str, BrokerNow] = {}
        #: The end of the last round that reached a name server.
        self.sampled_ms: int | None = None
        self.trouble: str | None = None
        #: Dead letters of each group as last counted; None: not yet.
        self.dead: dict[str, int] | None = None
        self._registered: list[str] = []
        self._started_ms = gateway.clock.now_ms()
        self._book = AlarmBook()
        self._rounds = 0
        self._missed = 0
        self._task: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()

    # -- lifecycle --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start; the first round runs immediately, concurrently with the service's start."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop sampling."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        clock = self._gateway.clock
        while True:
            due_ms = clock.monotonic_ms() + self.interval_ms
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - a failed round is a gap; sampling continues
                _log.exception("sampling-failed: collecting samples failed")
            await asyncio.sleep(max(0, due_ms - clock.monotonic_ms()) / 1_000)

    async def fresh(self) -> None:
        """Run a round if there was none yet."""
        if not self._rounds:
            async with self._looking:
                if not self._rounds:
                    await self._look()

    # -- one round --------------------------------------------------------------------------------

    async def look(self) -> None:
        """Sample every broker once."""
        async with self._looking:
            await self._look()
            self.active_alarms()  # so that an alarm's start is noted without a viewer

    async def _look(self) -> None:
        now_ms = self._gateway.clock.now_ms()
        self._rounds += 1
        try:
            info = await within(self._gateway.admin.cluster.info(), BROKER_LIMIT_S)
        except (KourouError, TimeoutError) as error:
            self.trouble = why(error)
            self._missed += 1
            return
        self.trouble = None
        clusters = {name: cluster for cluster, names in info.clusters.items() for name in names}
        registered = sorted(info.brokers)
        found, missing = await asked(registered, self._broker, limit_s=3 * BROKER_LIMIT_S)
        for one in missing:
            found[one.what] = BrokerNow(one.what, None, now_ms, why=one.why)
        for name, before in self.brokers.items():
            if name not in found and now_ms - before.at_ms < KEEP_MS:
                gone = "it is no longer registered"
                kept = before.at_ms if before.why == gone else now_ms
                found[name] = BrokerNow(name, before.cluster, kept, why=gone)
        now = {name: _in(one, clusters.get(name) or one.cluster) for name, one in found.items()}
        if self._rounds % SLOW_ROUNDS == 1 or registered != self._registered:
            self.dead = await self._dead_letters(registered)
        self._registered = registered
        values = dict(_values(self.brokers, now, registered))
        values.update(_dead_values(self.dead))
        self.brokers = now
        self.samples.note(now_ms, values)
        self.sampled_ms = now_ms

    async def _broker(self, name: str) -> BrokerNow:
        """Sample one broker: metrics of its leader, lags of its groups, and its replicas."""
        admin = self._gateway.admin
        runtime, lags, members = await asyncio.gather(
            _within(lambda: admin.brokers.runtime(name)),
            _within(lambda: admin.offsets.everywhere(name)),
            _within(lambda: admin.replicas.of(name)),
        )
        now_ms = self._gateway.clock.now_ms()
        reported = [] if isinstance(members, _Failed) else members
        if isinstance(runtime, _Failed):
            return BrokerNow(name, None, now_ms, members=reported, why=runtime.why)
        seen = runtime_of(runtime, now_ms)
        before = self.brokers.get(name)
        return BrokerNow(
            name,
            None,
            now_ms,
            seen,
            rates_between(before.runtime if before else None, seen),
            None if isinstance(lags, _Failed) else _lags(lags),
            reported,
            lags_why=lags.why if isinstance(lags, _Failed) else None,
        )

    async def _dead_letters(self, brokers: Sequence[str]) -> dict[str, int] | None:
        """The number of dead letters of each group; None if a broker does not reply."""
        admin = self._gateway.admin

        async def topics(name: str) -> list[str]:
            configs = (await admin.topics.all_configs(broker=name)).get(name, {})
            return [topic for topic in configs if topic.startswith(DLQ_PREFIX)]

        found, missing = await asked(brokers, topics, limit_s=BROKER_LIMIT_S)
        names = sorted({topic for every in found.values() for topic in every})
        counted, unread = await asked(names, admin.topics.stats, limit_s=BROKER_LIMIT_S)
        if missing or unread:
            return None
        return {
            topic.removeprefix(DLQ_PREFIX): _kept(stats.values())
            for topic, stats in counted.items()
        }

    # -- results ----------------------------------------------------------------------------------

    def current_since_ms(self) -> int:
        """Samples older than this are not current."""
        return self._gateway.clock.now_ms() - GAPS * self.interval_ms

    def lags(self) -> dict[str, int]:
        """The lag of each group in messages, at the brokers that reported it."""
        found: dict[str, int] = {}
        for one in self.brokers.values():
            for group, lag in (one.lags or {}).items():
                found[group] = found.get(group, 0) + lag
        return found

    def lag_of(self, group: str) -> int | None:
        """The lag of a group; None if no broker has it, or a registered one did not report lags."""
        there = [self.brokers.get(name) for name in self._registered]
        whole = all(one is not None and one.lags is not None for one in there)
        return self.lags().get(group) if whole else None

    def without_lags(self) -> list[Missing]:
        """Brokers that are up but did not report lags."""
        return [
            Missing(f"lags at {one.broker}", one.lags_why or "no reply")
            for one in self.brokers.values()
            if one.up and one.lags is None
        ]

    def active_alarms(self) -> list[ActiveAlarm]:
        """The active alarms with their start times."""
        now_ms = self._gateway.clock.now_ms()
        seen_ms = self._started_ms if self.sampled_ms is None else self.sampled_ms
        look = AlarmInput(
            [
                BrokerState(
                    one.broker,
                    one.up,
                    one.why,
                    one.runtime.disk_used_ratio if one.runtime else None,
                )
                for one in self.brokers.values()
            ],
            [look for one in self.brokers.values() for look in _replica_states(one)],
            self.lags(),
            self._new_dead_letters(now_ms),
            now_ms - seen_ms,
            self.interval_ms,
            self.trouble,
        )
        return self._book.note(now_ms, alarms(look, self._gateway.settings.thresholds))

    def _new_dead_letters(self, now_ms: int) -> dict[str, int]:
        """New dead letters by group, since the first complete count within GROWTH_MS.

        A count is complete if it included every current broker. A group that is missing in it had
        none, so all its dead letters are new.
        """
        dead = self.dead or {}
        ups: list[Key] = [("up", f"broker:{name}") for name in self._registered]
        counts: list[Key] = [("dead_letters", f"group:{group}") for group in dead]
        read = self.samples.read([("dead_letters", ALL), *ups, *counts], now_ms - GROWTH_MS)
        totals, *columns = read.values
        answered, each = columns[: len(ups)], columns[len(ups) :]
        for row, total in enumerate(totals):
            if total is not None and all(values[row] for values in answered):
                break
        else:
            return {}
        found = {}
        for (group, count), values in zip(dead.items(), each, strict=True):
            first = int(values[row] or 0)
            # A series without any value found no room, so its growth is unknown.
            if count > first and any(value is not None for value in values):
                found[group] = count - first
        return found


async def _within(ask: Callable[[], Coroutine[Any, Any, T]]) -> T | _Failed:
    """The coroutine is created here, so that a cancelled round leaves no unawaited coroutine."""
    try:
        async with asyncio.timeout(BROKER_LIMIT_S):
            return await ask()
    except (KourouError, TimeoutError) as error:
        return _Failed(why(error))


def _in(one: BrokerNow, cluster: str | None) -> BrokerNow:
    return one if one.cluster == cluster else replace(one, cluster=cluster)


def _lags(stats: BrokerConsumeStats) -> dict[str, int]:
    """The lag of each group at one broker, without its dead-letter topic."""
    return {
        group: sum(
            max(0, one.broker_offset - one.consumer_offset)
            for topic in topics
            for one in topic.offsets.values()
            if not queue_is_dead(topic.offsets)
        )
        for group, topics in stats.groups.items()
    }


def queue_is_dead(offsets: Mapping[MessageQueue, object]) -> bool:
    """The offset of a dead-letter topic is an operator's mark, so the difference is no lag."""
    return any(queue.topic.startswith(DLQ_PREFIX) for queue in offsets)


def _kept(queues: Iterable[TopicOffset]) -> int:
    return sum(max(0, one.max_offset - one.min_offset) for one in queues)


def _replica_states(one: BrokerNow) -> Iterable[ReplicaState]:
    """The replicas of a log as their leader reports them, and those that do not reply."""
    leader = leaders_of(one.members).get(one.broker)
    followers = {f.broker_id: f for f in leader.followers} if leader is not None else {}
    for member in one.members:
        reported = member.view
        name = str(member.registered_id)
        if reported is None:
            leads = member.registered_id == MASTER_ID
            yield ReplicaState(one.broker, name, leads, why=str(member.error))
            continue
        seen = followers.get(reported.broker_id)
        yield ReplicaState(
            one.broker,
            reported.member or name,
            reported.leads,
            None,
            reported.lag_bytes if seen is None else seen.lag_bytes,
            None if seen is None or reported.member else seen.in_sync,
            leader is not None and leader.broker_role == "SYNC_MASTER",
        )
    for _, gone in absent(one.members):
        yield ReplicaState(one.broker, gone.member, leads=False, missing=True)


def _values(
    before: Mapping[str, BrokerNow], now: Mapping[str, BrokerNow], registered: Sequence[str]
) -> Iterable[tuple[Key, float | None]]:
    """The values of a round: of each broker, and totals if every registered broker reported."""
    for name, one in now.items():
        of = f"broker:{name}"
        yield ("up", of), float(one.up)
        for metric, value in broker_values(one).items():
            yield (metric, of), value
    there = [now[name] for name in registered]
    yield ("up", ALL), float(sum(one.up for one in now.values()))
    for metric in SUMMED:
        yield (metric, ALL), _all([broker_values(one).get(metric) for one in there], sum)
    for metric in WORST:
        yield (metric, ALL), _all([broker_values(one).get(metric) for one in there], max)
    counts = [
        found
        for one in there
        if one.runtime is not None
        and (found := sends_between(_runtime(before.get(one.broker)), one.runtime)) is not None
    ]
    together = joined(counts) if len(counts) == len(there) else None
    yield ("send_p50_ms", ALL), quantile(together, 0.5)
    yield ("send_p99_ms", ALL), quantile(together, 0.99)
    pulls = [one.rates.pull_p99_ms for one in there if one.rates.pull_p99_ms is not None]
    yield ("pull_p99_ms", ALL), max(pulls, default=None)
    lags = [broker_values(one).get("replica_lag_bytes") for one in there]
    yield ("replica_lag_bytes", ALL), max((lag for lag in lags if lag is not None), default=None)
    if all(one.lags is not None for one in there):
        sums: dict[str, int] = {}
        for one in there:
            for group, lag in (one.lags or {}).items():
                sums[group] = sums.get(group, 0) + lag
        for group, lag in sums.items():
            yield ("lag_messages", f"group:{group}"), float(lag)


def _runtime(one: BrokerNow | None) -> Runtime | None:
    return None if one is None else one.runtime


def _dead_values(dead: Mapping[str, int] | None) -> Iterable[tuple[Key, float | None]]:
    if dead is None:
        return
    yield ("dead_letters", ALL), float(sum(dead.values()))
    for group, count in dead.items():
        yield ("dead_letters", f"group:{group}"), float(count)


def _all(values: Sequence[float | None], together: Callable[[list[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return together(known) if known and len(known) == len(values) else None


def broker_values(one: BrokerNow) -> dict[str, float | None]:
    """A broker's values by the names of series."""
    if one.runtime is None:
        return {}
    return {
        **asdict(one.rates),
        **{name: getattr(one.runtime, name) for name in OF_RUNTIME},
        "lag_messages": None if one.lags is None else float(sum(one.lags.values())),
    }
