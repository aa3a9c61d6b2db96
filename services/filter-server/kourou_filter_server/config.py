"""The settings of a filter server, with RocketMQ's names where RocketMQ has the setting.

State: none; settings are read once.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass

from kourou.client.session.discovery import host_of
from kourou.errors import ConfigError
from kourou.model.limits import PORT_MAX, PULL_MESSAGES_MAX, PULL_SIZE_BYTES_MAX
from kourou.model.ports import FILTER_SERVER_ADMIN_PORT, ZMQ_PORT_SHIFT
from kourou.model.units import MIB
from kourou.service.process_keys import RemotingKeys
from kourou.service.protocol_server import advertised
from kourou.settings.declaration import SAME, setting
from kourou.transport.addresses import bindable, is_loopback, join_address
from kourou_filter_server.context import ServerPolicy
from kourou_filter_server.sandbox.kernel import DESCRIPTORS_MAX
from kourou_filter_server.worker_link import WorkerLimits, cores_of_workers

FIRST_PORT_SHIFT = 4
SERVER_PORTS = 16
REMOTING_PORTS_BELOW = 20_000


WORKERS_MAX = DESCRIPTORS_MAX // 2
"""The zygote has a descriptor for each worker, and briefly for workers that have already ended."""


def _workers_max() -> int:
    return min(2 * (os.cpu_count() or 1), WORKERS_MAX)


@dataclass(frozen=True, kw_only=True)
class FilterServerSettings(RemotingKeys):
    """All keys of `filter-server.conf`. Raises ConfigError if they are invalid."""

    connect_which_broker: str | None = setting(
        None,
        "connectWhichBroker",
        "Its broker: tcp://host:port of its ZeroMQ listener, or host:port, where a port below "
        "20,000 is RocketMQ's and 10,000 are added; empty is 127.0.0.1 and listenPort",
        rocketmq=SAME,
    )
    filter_server_index: int = setting(
        0,
        "filterServerIndex",
        "The number of this filter server among those of its broker, from 0",
        low=0,
        high=SERVER_PORTS - 1,
    )
    listen_port: int = setting(
        10_911,
        "listenPort",
        "RocketMQ's TCP port P of its broker: the filter server listens on P + 4 "
        "+ filterServerIndex for RocketMQ's clients, and 10,000 above for "
        "Kourou's; 0 takes any",
        low=0,
        high=PORT_MAX,
    )
    zmq_port: int | None = setting(
        None,
        "zmqPort",
        "Kourou's clients; empty is P + 10004 + filterServerIndex",
        low=0,
        high=PORT_MAX,
    )
    advertised_listeners: str | None = setting(
        None,
        "advertisedListeners",
        "What routes answer by listener: name=host:port for Kourou's clients, tcp:name=host:port "
        "for RocketMQ's; empty is the address listened on for both",
    )
    register_period_ms: int = setting(
        10_000,
        "registerFilterServerPeriod",
        "How often it registers with its broker, which removes it after 30 s without a heartbeat",
        unit="ms",
        low=100,
        high=25_000,
    )
    unsafe_no_sandbox: bool = setting(
        False,
        "unsafeNoSandbox",
        "Run filters without a sandbox: for development, on loopback only",
    )
    filters_of_all: bool = setting(
        False,
        "filterUploadFromNetwork",
        "Take filters, for uploads and dry runs, also from clients on other machines that have no "
        "CURVE key",
    )
    workers_max: int = setting(
        _workers_max,
        "filterWorkersMax",
        "Most worker processes, one for each group and filter; the worker that "
        "was idle longest is replaced",
        low=1,
        high=WORKERS_MAX,
        default_text="two for each core",
    )
    worker_cores_wanted: str | None = setting(
        None,
        "filterWorkerCores",
        "The processor cores that workers use, as 1,4-7, or all; the other cores "
        "stay free of filter work; cores that this process may not use are "
        "ignored",
        default_text="all but the first, where there are two or more",
    )
    worker_memory_mib: int = setting(
        256,
        "filterWorkerMemory",
        "Address space of one worker; a filter that needs more gets MemoryError",
        unit="MiB",
        low=64,
        high=65_536,
    )
    batch_ms: int = setting(
        50,
        "filterBatchMillis",
        "A worker that needs longer for a batch than this, plus "
        "filterMessageMicros for each of its messages, is killed",
        unit="ms",
        low=1,
        high=60_000,
    )
    message_us: int = setting(
        1_000,
        "filterMessageMicros",
        "Additional time for each message of a batch",
        unit="µs",
        low=1,
        high=10_000_000,
    )
    worker_start_ms: int = setting(
        2_000,
        "filterStartMillis",
        "A worker that needs longer to set up its filter is killed",
        unit="ms",
        low=10,
        high=60_000,
    )
    batch_messages_max: int = setting(
        256,
        "filterBatchMessages",
        "Messages of one batch for a worker; other queues of the group wait for it",
        low=1,
        high=16_384,
    )
    failures_max: int = setting(
        3,
        "filterStrikes",
        "So many failures within filterStrikeWindow quarantine a version: "
        "deaths, timeouts, invalid replies, missing memory, failed set-ups, and "
        "exceptions of match if the group's policy is hold",
        low=1,
        high=1_000,
    )
    failure_window_ms: int = setting(
        60_000,
        "filterStrikeWindow",
        "How long a failure counts",
        unit="ms",
        low=1_000,
        high=3_600_000,
    )
    pulls_max: int = setting(
        10_000,
        "filterPullsMax",
        "Pulls that may wait; further ones are answered POLLING_FULL",
        low=1,
        high=100_000,
    )
    waiting_mib: int = setting(
        256,
        "filterWaitingMemory",
        "Bytes of messages that may wait for a filter; beyond, pulls are answered SYSTEM_BUSY",
        unit="MiB",
        low=8,
        high=65_536,
    )
    ahead_messages: int = setting(
        1_024,
        "filterAheadMessages",
        "Most messages of one pull from the broker, in addition to those that a "
        "consumer requested, so that one pull serves several of its pulls; 1 "
        "pulls no more than requested",
        low=1,
        high=PULL_MESSAGES_MAX,
    )
    ahead_kib: int = setting(
        1_024,
        "filterAheadSize",
        "Target size of one such pull",
        unit="KiB",
        low=1,
        high=PULL_SIZE_BYTES_MAX >> 10,
    )
    ahead_kept_mib: int = setting(
        64,
        "filterAheadMemory",
        "Filtered messages that may wait for the next pulls of their consumers",
        unit="MiB",
        low=0,
        high=65_536,
    )
    trial_ms: int = setting(
        10_000,
        "filterTrialMillis",
        "Time limit of a dry run of a filter",
        unit="ms",
        low=100,
        high=60_000,
    )
    trace_otlp_endpoint: str | None = setting(
        None,
        "traceOtlpEndpoint",
        "Where spans of traced pulls go, as http://host:4318; OTEL_… variables win",
    )

    def __post_init__(self) -> None:
        """Check the combinations of settings. Raises ConfigError."""
        self.check_process()
        self.check_remoting()
        self.broker_address  # noqa: B018 - raises for an invalid address
        self.listeners({"zmq": "", "tcp": ""})
        self.worker_cores  # noqa: B018 - raises for an invalid list
        if self._port(ZMQ_PORT_SHIFT) > PORT_MAX:
            raise ConfigError(
                f"listenPort={self.listen_port} is too high for the ports derived from it"
            )
        if self.unsafe_no_sandbox:
            hosts = [self.bind_address, self.tcp_bind_address or self.bind_address]
            if not all(is_loopback(bindable(host)) for host in hosts):
                raise ConfigError(
                    "unsafeNoSandbox=true is rejected: clients from other machines could run "
                    "any code here",
                    hint="bind it to 127.0.0.1, or run filters in the sandbox",
                )

    # -- addresses --------------------------------------------------------------------------------

    @property
    def broker_address(self) -> str:
        """`host:port` of the broker's ZeroMQ listener."""
        text = self.connect_which_broker
        if text is None:
            if not self.listen_port:
                raise ConfigError(
                    "the address of the broker is unknown: connectWhichBroker is not set"
                )
            return f"127.0.0.1:{self.listen_port + ZMQ_PORT_SHIFT}"
        host, port = host_of(text)
        if not port:
            raise ConfigError(f"connectWhichBroker={text!r} has no port", hint="tcp://host:port")
        if not text.startswith("tcp://") and port < REMOTING_PORTS_BELOW:
            port += ZMQ_PORT_SHIFT
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _port(self, shift: int) -> int:
        if not self.listen_port:
            return 0
        return self.listen_port + shift + FIRST_PORT_SHIFT + self.filter_server_index

    @property
    def zmq_bind_address(self) -> str:
        """`host:port` to bind for Kourou's clients."""
        port = self._port(ZMQ_PORT_SHIFT) if self.zmq_port is None else self.zmq_port
        return join_address(self.bind_address, port)

    @property
    def tcp_listeners(self) -> Mapping[str, str]:
        """Listener name -> `host:port` to bind for RocketMQ's clients; empty if TCP is disabled."""
        return {"internal": self.tcp_address(self._port(0))} if self.tcp_enabled else {}

    def listeners(self, dial: Mapping[str, str]) -> Mapping[str, str]:
        """What is registered with the broker: `carrier:listener` -> consumers' address."""
        return advertised(dial, self.advertised_listeners or "")

    @property
    def dial_host(self) -> str:
        """The host that consumers connect to, unless advertisedListeners names another one."""
        host = bindable(self.bind_address)
        if not ipaddress.ip_address(host).is_unspecified:
            return host
        return "127.0.0.1"  # on all addresses, set advertisedListeners

    @property
    def admin_port(self) -> int:
        """The port to bind for the admin pages."""
        if self.admin_port_wanted is not None:
            return self.admin_port_wanted
        return FILTER_SERVER_ADMIN_PORT + self.filter_server_index if self.listen_port else 0

    # -- settings of the components ---------------------------------------------------------------

    @property
    def policy(self) -> ServerPolicy:
        """The limits and times for the core."""
        return ServerPolicy(
            workers_max=self.workers_max,
            batch_messages_max=self.batch_messages_max,
            pulls_max=self.pulls_max,
            waiting_bytes_max=self.waiting_mib * MIB,
            ahead_messages=self.ahead_messages,
            ahead_bytes=self.ahead_kib << 10,
            ahead_kept_bytes=self.ahead_kept_mib * MIB,
            failures_max=self.failures_max,
            failure_window_ms=self.failure_window_ms,
            register_ms=self.register_period_ms,
            trial_ms_max=self.trial_ms,
            filters_of_all=self.filters_of_all,
        )

    @property
    def worker_cores(self) -> frozenset[int]:
        """The cores for workers, of those available to this process; empty for all.

        Raises ConfigError if none is left.
        """
        return cores_of_workers(self.worker_cores_wanted, os.sched_getaffinity(0))

    @property
    def worker_limits(self) -> WorkerLimits:
        """The limits of each worker."""
        return WorkerLimits(
            memory_bytes=self.worker_memory_mib * MIB,
            start_ms=self.worker_start_ms,
            batch_ms=self.batch_ms,
            message_us=self.message_us,
        )
