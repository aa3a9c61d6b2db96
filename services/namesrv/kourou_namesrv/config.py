"""The settings of a name server, under RocketMQ's names where it has them.

Lives here: every key with its default, range and sentence, and what follows from several keys.
May not live here: where values come from and how they are printed (kourou.service.settings).

State: none; settings are read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kourou.errors import ConfigError
from kourou.service.command_line import Arguments
from kourou.service.rocketmq_keys import NAMESRV_KEYS
from kourou.service.setting import SAME, setting
from kourou.service.settings import Loaded, load_settings
from kourou.transport.zmq_socket import split_address

ZMQ_PORT_SHIFT = 10_000
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
LOG_FORMATS = ("auto", "json", "console")


@dataclass(frozen=True, kw_only=True)
class NamesrvSettings:
    """All keys of `namesrv.conf`."""

    listen_port: int = setting(
        9876,
        "listenPort",
        "RocketMQ's TCP port P; 0 takes any",
        low=0,
        high=65_535,
        seed=SAME,
        rocketmq=SAME,
    )
    zmq_port: int | None = setting(
        None, "zmqPort", "Kourou's own brokers and clients; empty is P + 10000", low=0, high=65_535
    )
    bind_address: str = setting(
        "127.0.0.1", "bindAddress", "The address to listen on; off loopback only if insecureNetwork"
    )
    zmq_listeners: str | None = setting(
        None,
        "zmqListeners",
        "Named listeners, name=host:port;name=host:port; empty is internal=bindAddress:zmqPort",
    )
    insecure_network: bool = setting(
        False, "insecureNetwork", "Allow addresses open to the network, in clear text"
    )
    admin_enabled: bool = setting(
        True, "adminEnable", "Serve /healthz /readyz /metrics /config /statistics"
    )
    admin_port: int | None = setting(
        None,
        "adminPort",
        "Their port; 0 takes any; empty is 18080, or any if listenPort is 0",
        low=0,
        high=65_535,
    )
    admin_host: str = setting("127.0.0.1", "adminHost", "Their address")
    log_level: str = setting("INFO", "logLevel", "Lines below it are left out", choices=LOG_LEVELS)
    log_format: str = setting(
        "auto", "logFormat", "auto is console on a terminal, else json", choices=LOG_FORMATS
    )
    kv_config_path: Path = setting(
        lambda: Path.home() / "namesrv" / "kvConfig.json",
        "kvConfigPath",
        "Where key/value settings are kept; their history lies beside it",
        seed="",
        rocketmq=SAME,
        default_text="$HOME/namesrv/kvConfig.json",
    )
    event_store_url: str | None = setting(
        None, "eventStoreUrl", "Database of their history (SQLAlchemy URL); empty is SQLite there"
    )
    order_messages: bool = setting(
        False,
        "orderMessageEnable",
        "Routes carry a topic's order configuration",
        rocketmq=SAME,
    )
    scan_interval_ms: int = setting(
        10_000,
        "scanNotActiveBrokerInterval",
        "How often silent brokers are looked for",
        unit="ms",
        low=10,
        high=600_000,
        rocketmq=SAME,
    )
    broker_expiry_ms: int = setting(
        120_000,
        "brokerExpiryMillis",
        "A broker that has not registered for so long is dropped",
        unit="ms",
        low=100,
        high=3_600_000,
        rocketmq=SAME,
    )

    def __post_init__(self) -> None:
        """Refuse what no single key can tell is wrong."""
        self.listeners()

    def listeners(self) -> Mapping[str, str]:
        """Listener name -> `host:port` to bind."""
        if not self.zmq_listeners:
            port = self.zmq_port
            if port is None:
                port = self.listen_port + ZMQ_PORT_SHIFT if self.listen_port else 0
            if port > 65_535:
                raise ConfigError(f"listenPort={self.listen_port} is too high; give zmqPort")
            v6 = ":" in self.bind_address
            return {"internal": f"{f'[{self.bind_address}]' if v6 else self.bind_address}:{port}"}
        found: dict[str, str] = {}
        for entry in self.zmq_listeners.split(";"):
            name, equals, address = entry.strip().partition("=")
            if not equals or not name.isidentifier() or name in found:
                raise ConfigError(f"zmqListeners: {entry!r} is refused", hint="name=host:port")
            split_address(address)
            found[name] = address
        return found

    @property
    def admin_port_bound(self) -> int:
        """The port to bind for the admin pages."""
        if self.admin_port is not None:
            return self.admin_port
        return 18_080 if self.listen_port else 0


def load_namesrv_settings(
    arguments: Arguments, environment: Mapping[str, str]
) -> Loaded[NamesrvSettings]:
    """Settings from the command line, the environment, the file and the defaults."""
    return load_settings(
        NamesrvSettings,
        arguments=arguments.settings,
        environment=environment,
        file=arguments.file,
        inert=NAMESRV_KEYS,
    )
