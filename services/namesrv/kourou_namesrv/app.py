"""The name server as a process: its parts, connected.

Lives here: wiring, and the order in which parts come and go.
May not live here: decisions (kourou_namesrv.core), sockets (kourou.transport).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from kourou.clock import Clock, SystemClock
from kourou.engine.effects import Reply
from kourou.engine.inputs import Disconnected, Received, ReplyTo, Tick
from kourou.engine.peer import Peer
from kourou.engine.settings_registry import SettingsRegistry
from kourou.errors import Code, KourouError
from kourou.protocol.frames import Kind, decode_request, encode_reply
from kourou.service.admin_http import AdminHttp, AdminPages
from kourou.service.command_line import parse_arguments
from kourou.service.lifecycle import complain, leave, run_service
from kourou.service.loop import SingleWriterLoop
from kourou.service.settings import render, setting_specs
from kourou.telemetry.logs import LogFormat, configure_logs
from kourou.telemetry.metrics import Family, expose
from kourou.transport.zmq_server import Inbound, ZmqServer

from kourou_namesrv.config import NamesrvSettings, load_namesrv_settings
from kourou_namesrv.core import (
    Effect,
    Input,
    KeyValuesFailed,
    KeyValuesRecorded,
    NamesrvCore,
    Policy,
    RecordKeyValues,
)
from kourou_namesrv.kv_store import KeyValueStore

_log = logging.getLogger("kourou.namesrv")

TICK_MS = 1_000


class NamesrvService:
    """Implements kourou.service.lifecycle.Service."""

    name = "namesrv"

    def __init__(self, settings: NamesrvSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock: Clock = clock or SystemClock()
        self._kv = KeyValueStore(settings.kv_config_path, settings.event_store_url, self._clock)
        self._writer = ThreadPoolExecutor(1, "kourou-kv")  # the order of writes is that of effects
        self._servers: dict[str, ZmqServer] = {}
        self._by_peer: dict[int, ZmqServer] = {}
        self._admin: AdminHttp | None = None
        self._ready = False

    async def recover(self, fail: Callable[[BaseException], None]) -> None:
        """Load the key/value settings; routes come from the brokers."""
        settings = self._settings
        self._core = NamesrvCore(
            Policy(settings.order_messages, settings.scan_interval_ms, settings.broker_expiry_ms),
            self._kv.load(),
            SettingsRegistry(setting_specs(settings)),
            render(settings, explained=False),
        )
        self._loop = SingleWriterLoop[Input, Effect](
            self._core,
            {Reply: self._reply, RecordKeyValues: self._record},
            self._clock,
            on_failure=fail,
            refuse=self._refuse,
        )

    async def serve(self) -> Mapping[str, str]:
        """Bind and answer."""
        listening = {}
        for listener, address in self._settings.listeners().items():
            server = ZmqServer(
                address,
                lambda frames, name=listener: self._arrived(name, frames),  # type: ignore[misc]
                self._disconnected,
                listener=listener,
                insecure_network=self._settings.insecure_network,
                clock=self._clock,
            )
            server.start()
            self._servers[listener] = server
            name = "zmq" if not listening else f"zmq:{listener}"
            listening[name] = f"tcp://{server.address}"
        if self._settings.admin_enabled:
            host, port = self._settings.admin_host, self._settings.admin_port_bound
            self._admin = AdminHttp(host, port, self._pages())
            await self._admin.start()
            listening["admin"] = f"http://{self._admin.address}"
        self._loop.start(lambda: Tick(self._clock.now_ms()), TICK_MS)
        self._ready = True
        return listening

    async def drain(self) -> None:
        """Take nothing new; writes under way are finished."""
        self._ready = False
        for server in self._servers.values():
            server.pause()
        await asyncio.get_running_loop().run_in_executor(self._writer, _nothing)

    async def stop(self) -> None:
        """Close everything."""
        if self._admin is not None:
            await self._admin.stop()
        if hasattr(self, "_loop"):
            self._loop.stop()
        self._writer.shutdown()
        for server in self._servers.values():
            server.close()
        self._kv.close()

    # -- frames -----------------------------------------------------------------------------------

    def _arrived(self, listener: str, frames: list[Inbound]) -> None:
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        received: list[Input] = []
        for inbound in frames:
            frame = inbound.frame
            if frame.kind is Kind.REPLY:
                continue  # nothing was asked of anybody
            self._by_peer[inbound.peer.id] = self._servers[listener]
            to = ReplyTo(inbound.peer, frame.correlation, frame.kind is not Kind.REQUEST)
            try:
                request = decode_request(frame)
            except KourouError as error:
                self._reply(Reply(to, error.wire_code, str(error)))
                continue
            deadline_ms = now_ms + frame.deadline_ms if frame.deadline_ms else 0
            received.append(Received(to, request, frame.body, wall_ms, deadline_ms, frame.trace))
        self._loop.offer_all(received)

    def _disconnected(self, peer: Peer) -> None:
        self._by_peer.pop(peer.id, None)
        self._loop.post(Disconnected(peer))

    def _reply(self, reply: Reply) -> None:
        server = self._by_peer.get(reply.to.peer.id)
        if server is None or reply.to.oneway:
            return
        head = encode_reply(reply.to.correlation, reply.code, reply.remark, reply.header)
        server.send(reply.to.peer, (head, *reply.body))

    def _refuse(self, item: Input) -> None:
        if isinstance(item, Received):
            self._reply(Reply(item.to, Code.SYSTEM_BUSY, "too many requests wait here"))

    # -- key/value settings -----------------------------------------------------------------------

    def _record(self, effect: RecordKeyValues) -> None:
        self._writer.submit(self._record_in_thread, effect)

    def _record_in_thread(self, effect: RecordKeyValues) -> None:
        try:
            recorded = self._kv.record(effect.events, effect.expected_offset, effect.cause)
        except KourouError as error:
            self._loop.post_threadsafe(KeyValuesFailed(error, effect.request))
            return
        self._loop.post_threadsafe(KeyValuesRecorded(recorded, effect.request))
        try:
            self._kv.write(effect.table)
        except KourouError as error:  # a projection: it is written anew with the next change
            _log.error("kvConfig.json is behind: %s", error)

    # -- pages ------------------------------------------------------------------------------------

    def _pages(self) -> AdminPages:
        return AdminPages(
            healthy=lambda: "" if self._loop.running else "stopped",
            ready=lambda: "" if self._ready else "not serving",
            metrics=self._metrics,
            config=lambda: render(self._settings, explained=False),
            statistics=self._statistics,
        )

    def _statistics(self) -> Mapping[str, Any]:
        return {
            "brokers": [asdict(identity) for identity in self._core.routes.members()],
            "topics": len(self._core.routes.topics()),
            "loop": self._loop.statistics(),
            "zmq": {name: asdict(one.statistics()) for name, one in self._servers.items()},
        }

    def _metrics(self) -> bytes:
        base = {"node_type": "nameserver"}
        routes, peers = self._core.routes, sum(s.statistics().peers for s in self._servers.values())
        brokers = [({**base, "cluster": name}, n) for name, n in routes.counts().items()]
        expired = [(base, self._core.expired)]
        return expose(
            [
                Family.gauge("kourou_namesrv_brokers", samples=brokers),
                Family.gauge("kourou_namesrv_topics", samples=[(base, len(routes.topics()))]),
                Family.counter("kourou_namesrv_expired_brokers_total", samples=expired),
                Family.gauge("kourou_peers", samples=[({**base, "carrier": "zmq"}, peers)]),
            ]
        )


def _nothing() -> None:
    """Runs when everything submitted before it has."""


def run(argv: Sequence[str]) -> int:
    """Run a name server until it is told to stop; the exit code (0, 2, 70 or 75)."""
    try:
        arguments = parse_arguments("kourou namesrv", "A Kourou name server.", argv)
        loaded = load_namesrv_settings(arguments, os.environ)
    except KourouError as error:
        complain("kourou namesrv", error)
        return 2
    settings = loaded.settings
    if arguments.print_settings:
        sys.stdout.write(render(settings, explained=arguments.print_explained))
        return 0
    configure_logs(
        service="namesrv", level=settings.log_level, log_format=LogFormat(settings.log_format)
    )
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    return run_service(lambda: NamesrvService(settings), ready_file=arguments.ready_file)


def main(argv: Sequence[str]) -> None:
    """`python -m kourou_namesrv`."""
    leave(run(argv))
