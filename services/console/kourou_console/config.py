"""The settings of the console.

State: none; settings are read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kourou.errors import ConfigError
from kourou.model.names import check_group
from kourou.settings.declaration import setting
from kourou.transport.addresses import bindable, is_loopback, split_address
from kourou_console.settings import GatewaySettings
from kourou_console.watch_keys import WatchKeys

PORT = 8_080
ADMIN_PORT = 18_380


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings(WatchKeys):
    """All keys of `console.conf`."""

    bind_address: str = setting(
        "127.0.0.1",
        "bindAddress",
        "The address to listen on; off loopback only with tokenFile, or if insecureNetwork",
        aliases=("consoleHost",),
    )
    name_servers: str | None = setting(
        None,
        "namesrvAddr",
        "Name servers, host:port;host:port",
        environment="NAMESRV_ADDR",
    )
    port: int = setting(
        PORT,
        "consolePort",
        "The port of the API and the web pages; 0 takes any",
        low=0,
        high=65_535,
        aliases=("listenPort",),
    )
    token_file: Path | None = setting(
        None,
        "tokenFile",
        "Bearer tokens with their rights, in TOML; without this file no token is required, on "
        "loopback only. Reloaded when it changes, and at SIGHUP",
    )
    names: str = setting(
        "",
        "consoleNames",
        "Additional names of this server for browsers, name;name; required only without tokens",
    )
    producer_group: str = setting(
        "KOUROU_CONSOLE", "producerGroup", "The producer group of all messages sent by HTTP"
    )
    send_timeout_ms: int = setting(
        10_000,
        "sendMsgTimeout",
        "Time for a send with all its attempts",
        unit="ms",
        low=100,
        high=60_000,
    )
    request_timeout_ms: int = setting(
        3_000,
        "mqClientApiTimeout",
        "Deadline of a request to a name server or a broker",
        unit="ms",
        low=100,
        high=60_000,
    )
    spark_etl_address: str | None = setting(
        None, "sparkEtlAddress", "host:port of spark-etl's admin pages; empty: no Spark"
    )
    admin_addresses_text: str = setting(
        "",
        "adminAddresses",
        "Admin pages of brokers and other services, name=host:port;name=host:port",
    )
    trace_otlp_endpoint: str | None = setting(
        None,
        "traceOtlpEndpoint",
        "Where spans of requests go, as http://host:4318; OTEL_… variables win",
    )
    trace_sample_percent: int = setting(
        100,
        "traceSamplePercent",
        "Share of the requests without a trace of their own for which a trace is started",
        unit="%",
        low=0,
        high=100,
    )

    def __post_init__(self) -> None:
        """Check the combinations of settings. Raises ConfigError."""
        self.check_process()
        check_group(self.producer_group)
        self.admin_addresses  # noqa: B018 - raises for an invalid address
        if self.spark_etl_address:
            _checked("sparkEtlAddress", self.spark_etl_address)

    def _check_bind_address(self) -> None:
        if self.token_file is not None or self.insecure_network:
            return
        if not is_loopback(bindable(self.bind_address)):
            raise ConfigError(
                f"bindAddress={self.bind_address} is refused: the console would be open to the "
                "network without authentication",
                hint="use 127.0.0.1, set a tokenFile, or set insecureNetwork=true",
            )

    @property
    def admin_port(self) -> int:
        """The port to bind for the admin pages."""
        if self.admin_port_wanted is not None:
            return self.admin_port_wanted
        return ADMIN_PORT if self.port else 0

    @property
    def wanted_name_servers(self) -> str:
        """The name servers of the cluster. Raises ConfigError if none is set."""
        if not self.name_servers:
            raise ConfigError("namesrvAddr is not set", hint="-n host:port, or NAMESRV_ADDR")
        return self.name_servers

    @property
    def host_names(self) -> tuple[str, ...]:
        """consoleNames as a list."""
        return tuple(name.strip() for name in self.names.split(";") if name.strip())

    @property
    def admin_addresses(self) -> Mapping[str, str]:
        """adminAddresses by name. Raises ConfigError for an invalid address."""
        found: dict[str, str] = {}
        for entry in filter(None, map(str.strip, self.admin_addresses_text.split(";"))):
            name, equals, address = entry.partition("=")
            if not equals or not name.strip() or name.strip() in found:
                raise ConfigError(f"adminAddresses: {entry!r} is refused", hint="name=host:port")
            found[name.strip()] = _checked("adminAddresses", address.strip())
        return found

    @property
    def gateway(self) -> GatewaySettings:
        """The settings that operations can read."""
        return GatewaySettings(
            namesrv_addr=self.name_servers or "",
            producer_group=self.producer_group,
            spark_etl_address=self.spark_etl_address or "",
            admin_addresses=self.admin_addresses,
            sample_interval_ms=self.sample_interval_ms,
            thresholds=self.thresholds,
            tokens=self.token_file is not None,
        )


def _checked(key: str, address: str) -> str:
    try:
        split_address(address)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error.message}", hint=error.hint) from None
    return address
