"""Commits a batch over all brokers that have messages of it; runs on the driver.

    look      request the query's state from every broker; it names the coordinator
    prepare   first the coordinator, then every other broker: brokers with messages confirm that
              these are complete, the others only learn the coordinator
    decide    at the coordinator: the commit. An earlier decision remains valid
    resolve   every broker stores the messages of the winning attempts and discards the others; the
              coordinator is last, so that it knows the winners until every broker is done

Each step may be repeated by this or another process after any failure.

A coordinator is never replaced because it does not reply: it may have decided. Brokers that are
added later learn it from the next batch.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kourou.client.session.client_session import Session
from kourou.client.session.connections import body_of, header_of
from kourou.errors import BadRequest, Code, KourouError, Rejected, Unavailable, UnknownOutcome
from kourou.model.transaction import NONE
from kourou.protocol.bodies.broker_bodies import decode_decision, encode_attempts, encode_decision
from kourou.protocol.bodies.route_bodies import decode_cluster_info
from kourou.protocol.messages.namesrv import GetBrokerClusterInfo
from kourou.protocol.messages.sends import (
    AbortBatch,
    BatchStateResponse,
    BatchStepResponse,
    DecideBatch,
    GetBatchState,
    PrepareBatch,
    ResolveBatch,
)
from kourou.protocol.request import Request
from kourou.transport.zmq_client import WireReply

ASK_MS = 30_000
"""The timeout of one request: a step of resolving stores a thousand messages."""

PAUSE_MS = 100
LONGEST_PAUSE_MS = 2_000

T = TypeVar("T")
_log = logging.getLogger("kourou.spark")


@dataclass(frozen=True, slots=True)
class WrittenAttempt:
    """The number of messages that an attempt at a partition left at each broker."""

    partition: int
    attempt: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Known:
    """The brokers' state of a query. `brokers`: name -> address of all brokers with a leader."""

    brokers: Mapping[str, str]
    coordinator: str = ""
    decided: int = NONE
    resolved: int = NONE
    winners: Mapping[int, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    def is_decided(self, batch: int) -> bool:
        """Whether this batch, or a later one, is committed."""
        return max(self.decided, self.resolved) >= batch


class BatchCommits:
    """Commits batches of one query; its methods run on the client's thread."""

    def __init__(self, session: Session, query: str, *, timeout_ms: int, coordinator: str) -> None:
        self._session = session
        self._query = query
        self._deadline_ms = session.clock.monotonic_ms() + timeout_ms
        self._wanted = coordinator

    # -- steps --------------------------------------------------------------------------------

    async def look(self) -> Known:
        """The state of the query. Raises Unavailable if it cannot be determined for certain."""
        return await self._until_answered(self._look)

    async def commit(
        self, batch: int, written: Sequence[WrittenAttempt], *, relied: bool, last: bool
    ) -> None:
        """Commit a batch, or finish the commit that another process started.

        `relied`: a task did not write its rows, because the batch was decided. `last`: the query
        has no other batch. Raises KourouError unless the batch is known to be committed.
        """
        known = await self.look()
        if known.decided > known.resolved:
            await self._resolve(known, known.decided, known.winners, known.counts, last=last)
        if known.is_decided(batch):
            return
        if relied:
            raise UnknownOutcome(
                f"batch {batch} of query {self._query} was committed, but its coordinator "
                f"{known.coordinator} lost that decision",
                hint="the log of the coordinator was truncated; SYNC_FLUSH keeps it after a "
                "power loss",
            )
        counts: dict[str, int] = {}
        for one in written:
            for name, count in one.counts.items():
                counts[name] = counts.get(name, 0) + count
        if not counts:
            return
        coordinator = known.coordinator or self._choice(known.brokers)
        await self._prepare(known, batch, coordinator, written)
        decision = encode_decision(
            {one.partition: one.attempt for one in written if one.counts}, counts
        )
        request = DecideBatch(query=self._query, batch=batch)
        reply = await self._ask_broker(coordinator, request, decision)
        answer = decode_decision(body_of(reply))
        header = header_of(reply, BatchStateResponse)
        if header.decided == batch > header.resolved:
            if not answer.winners:
                raise Rejected(
                    f"batch {batch} of query {self._query} was rolled back in the meantime"
                )
            decided = Known(known.brokers, coordinator)
            await self._resolve(decided, batch, answer.winners, answer.counts, last=last)

    async def abort(self, batch: int, attempts: Sequence[str], *, for_good: bool) -> bool:
        """Discard the messages of these attempts (or prefixes). True if the batch is committed.

        `for_good`: the batch will never be written again, so it may be decided as empty. Brokers
        that do not reply discard the messages later.
        """
        known = await self.look()
        if known.is_decided(batch):
            if known.decided > known.resolved:
                await self._resolve(
                    known, known.decided, known.winners, known.counts, last=for_good
                )
            return True
        if for_good and known.coordinator:
            request = DecideBatch(query=self._query, batch=batch)
            reply = await self._ask_broker(known.coordinator, request, encode_decision({}, {}))
            answer = decode_decision(body_of(reply))
            await self._resolve(known, batch, answer.winners, answer.counts, last=True)
            return bool(answer.winners)
        for name, address in known.brokers.items():
            for attempt in attempts:
                try:
                    await self._steps(address, AbortBatch(query=self._query, attempts=attempt))
                except KourouError as error:
                    _log.info(
                        "batch-abort-postponed: broker %(broker)s discards the messages of a "
                        "failed attempt later: %(error)s",
                        {"broker": name, "error": error},
                    )
        return False

    async def _prepare(
        self, known: Known, batch: int, coordinator: str, written: Sequence[WrittenAttempt]
    ) -> None:
        order = [coordinator, *(name for name in sorted(known.brokers) if name != coordinator)]
        needed = {name for one in written for name, count in one.counts.items() if count}
        for name in [*order, *sorted(needed - set(order))]:
            here = {
                one.partition: (one.attempt, one.counts[name])
                for one in written
                if one.counts.get(name)
            }
            request = PrepareBatch(query=self._query, batch=batch, coordinator=coordinator)
            body = encode_attempts(here)
            if here or name == coordinator:
                await self._ask_broker(name, request, body)
            else:
                await self._try_broker(name, known.brokers[name], request, body)

    async def _resolve(
        self,
        known: Known,
        batch: int,
        winners: Mapping[int, str],
        counts: Mapping[str, int],
        *,
        last: bool,
    ) -> None:
        body = encode_decision(winners, counts)
        request = ResolveBatch(query=self._query, batch=batch, last=last)
        coordinator = known.coordinator
        # A broker without messages of the batch may have left the cluster since the decision.
        needed = {name for name, count in counts.items() if count}
        for name in sorted({*known.brokers, *needed} - {coordinator}):
            if name in needed:
                await self._resolve_at(name, request, body)
                continue
            try:
                await self._steps(known.brokers[name], request, body)
            except KourouError as error:
                _log.info(
                    "broker-skipped: broker %(broker)s, which has no messages of batch %(batch)d, "
                    "was skipped: %(error)s",
                    {"broker": name, "batch": batch, "error": error},
                )
        await self._resolve_at(coordinator, request, body)

    async def _resolve_at(self, name: str, request: ResolveBatch, body: bytes) -> None:
        async def steps() -> None:
            await self._steps(await self._address(name), request, body)

        await self._until_answered(steps)

    async def _steps(self, address: str, request: Request, body: bytes = b"") -> None:
        """Repeat the request until the broker has nothing left to do."""
        while True:
            reply = await self._ask(address, request, body)
            if not header_of(reply, BatchStepResponse).left:
                return

    # -- selection of brokers ---------------------------------------------------------------------

    async def _brokers(self) -> dict[str, str]:
        reply = await self._session.name_servers.ask(GetBrokerClusterInfo())
        found = {
            name: address
            for name, broker in sorted(decode_cluster_info(body_of(reply)).brokers.items())
            if (address := broker.master_addr()) is not None
        }
        if not found:
            raise Unavailable("no broker with a leader is registered")
        return found

    async def _address(self, name: str) -> str:
        address = (await self._brokers()).get(name)
        if address is None:
            raise Unavailable(f"broker {name}, which has messages of the batch, is offline")
        return address

    def _choice(self, brokers: Mapping[str, str]) -> str:
        """The coordinator of a new query, by a hash that spreads queries over brokers."""
        if self._wanted:
            if self._wanted not in brokers:
                raise BadRequest(
                    f"the option 'coordinator' is {self._wanted!r}, which is not one of the "
                    f"brokers {', '.join(brokers)}"
                )
            return self._wanted
        return max(brokers, key=lambda name: zlib.crc32(f"{self._query} {name}".encode()))

    async def _look(self) -> Known:
        brokers = await self._brokers()
        request = GetBatchState(query=self._query)
        replies = await asyncio.gather(
            *(self._ask(address, request) for address in brokers.values()), return_exceptions=True
        )
        by_broker: dict[str, WireReply] = {}
        failure: BaseException | None = None
        for name, reply in zip(brokers, replies, strict=True):
            if isinstance(reply, BaseException):
                failure = reply
            else:
                by_broker[name] = reply
        named = {
            header.coordinator
            for reply in by_broker.values()
            if (header := header_of(reply, BatchStateResponse)).coordinator
        }
        if not named and failure is not None:
            raise failure  # that broker may know the coordinator
        for name in named - set(by_broker):
            raise Unavailable(
                f"broker {name}, the coordinator of query {self._query}, does not respond"
            )
        if not named:
            return Known(brokers)

        def last_of(name: str) -> tuple[int, str]:
            header = header_of(by_broker[name], BatchStateResponse)
            return max(header.decided, header.resolved), name

        coordinator = max(named, key=last_of)
        header = header_of(by_broker[coordinator], BatchStateResponse)
        decision = decode_decision(body_of(by_broker[coordinator]))
        return Known(
            brokers,
            coordinator,
            header.decided,
            header.resolved,
            decision.winners,
            decision.counts,
        )

    # -- requests ---------------------------------------------------------------------------------

    async def _ask_broker(self, name: str, request: Request, body: bytes) -> WireReply:
        async def ask() -> WireReply:
            return await self._ask(await self._address(name), request, body)

        return await self._until_answered(ask)

    async def _try_broker(self, name: str, address: str, request: Request, body: bytes) -> None:
        try:
            await self._ask(address, request, body)
        except (Unavailable, UnknownOutcome) as error:
            _log.info(
                "query-notice-failed: broker %(broker)s could not be notified about query "
                "%(query)s: %(error)s",
                {"broker": name, "query": self._query, "error": error},
            )

    async def _ask(self, address: str, request: Request, body: bytes = b"") -> WireReply:
        left_ms = max(1, self._deadline_ms - self._session.clock.monotonic_ms())
        return await self._session.connections.ask(
            address, request, body=body, timeout_ms=min(left_ms, ASK_MS)
        )

    async def _until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat an idempotent request until it gets a reply or the time limit is reached."""
        pause_ms = PAUSE_MS
        while True:
            try:
                return await ask()
            except KourouError as error:
                later = isinstance(error, (Unavailable, UnknownOutcome))
                later = later or error.wire_code == Code.FLUSH_DISK_TIMEOUT
                if not later or self._session.clock.monotonic_ms() + pause_ms > self._deadline_ms:
                    raise
                _log.info(
                    "batch-commit-repeated: the commit of query %(query)s is retried after: "
                    "%(error)s",
                    {"query": self._query, "error": error},
                )
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
