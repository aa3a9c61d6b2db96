"""The settings of a name server, with RocketMQ's names where RocketMQ has the setting.

State: none; settings are read once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from kourou.errors import ConfigError
from kourou.model.ports import NAMESRV_ADMIN_PORT, ZMQ_PORT_SHIFT
from kourou.service.process_keys import AccessKeys
from kourou.service.rocketmq_keys import NAMESRV_KEYS
from kourou.settings.declaration import SAME, setting
from kourou.transport.addresses import named_addresses


@dataclass(frozen=True, kw_only=True)
class NamesrvSettings(AccessKeys):
    """All keys of `namesrv.conf`."""

    inert_keys: ClassVar[Collection[str]] = NAMESRV_KEYS

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
    zmq_listeners: str | None = setting(
        None,
        "zmqListeners",
        "Named listeners, name=host:port;name=host:port; empty is internal=bindAddress:zmqPort",
    )
    tcp_named_listeners: str | None = setting(
        None,
        "tcpListeners",
        "The same for RocketMQ's brokers and clients; empty is internal=bindAddress:listenPort",
    )
    kv_config_path: Path = setting(
        lambda: Path.home() / "namesrv" / "kvConfig.json",
        "kvConfigPath",
        "Where key/value settings are kept; their history is in the same folder",
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
        """Check the combinations of settings. Raises ConfigError."""
        self.check_process()
        self.check_remoting()
        self.listeners()
        self.tcp_listeners  # noqa: B018 - raises for an invalid address

    def listeners(self) -> Mapping[str, str]:
        """The ZeroMQ listeners: name -> `host:port` to bind."""
        if not self.zmq_listeners:
            port = self.zmq_port
            if port is None:
                port = self.listen_port + ZMQ_PORT_SHIFT if self.listen_port else 0
            if port > 65_535:
                raise ConfigError(f"listenPort={self.listen_port} is too high; give zmqPort")
            v6 = ":" in self.bind_address
            return {"internal": f"{f'[{self.bind_address}]' if v6 else self.bind_address}:{port}"}
        return named_addresses("zmqListeners", self.zmq_listeners)

    @property
    def tcp_listeners(self) -> Mapping[str, str]:
        """The listeners for RocketMQ frames: name -> `host:port`; empty if TCP is disabled."""
        if not self.tcp_enabled:
            return {}
        if not self.tcp_named_listeners:
            return {"internal": self.tcp_address(self.listen_port)}
        return named_addresses("tcpListeners", self.tcp_named_listeners)

    @property
    def admin_port(self) -> int:
        """The port to bind for the admin pages."""
        if self.admin_port_wanted is not None:
            return self.admin_port_wanted
        return NAMESRV_ADMIN_PORT if self.listen_port else 0
