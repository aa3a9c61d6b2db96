"""The settings that every service has: where it listens, its admin page, its log.

Lives here: those keys; a service's settings class inherits them.
May not live here: ports of a service, which differ.

State: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from kourou.errors import ConfigError
from kourou.service.setting import setting
from kourou.telemetry.logs import LogFormat
from kourou.transport.addresses import bindable, is_loopback


@dataclass(frozen=True, kw_only=True)
class ProcessKeys:
    """What any process of ours may be told."""

    bind_address: str = setting(
        "127.0.0.1", "bindAddress", "The address to listen on; off loopback only if insecureNetwork"
    )
    insecure_network: bool = setting(
        False, "insecureNetwork", "Allow addresses open to the network, in clear text"
    )
    admin_enabled: bool = setting(
        True, "adminEnable", "Serve /healthz /readyz /metrics /config /statistics"
    )
    admin_host: str = setting(
        "127.0.0.1", "adminHost", "Their address; off loopback only if insecureNetwork"
    )
    admin_port_wanted: int | None = setting(
        None,
        "adminPort",
        "Their port; 0 takes any; empty is the usual one, or any if listenPort is 0",
        low=0,
        high=65_535,
    )
    log_level: str = setting(
        "INFO",
        "logLevel",
        "Lines below it are left out",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
    )
    log_format: LogFormat = setting(
        LogFormat.AUTO, "logFormat", "auto is console on a terminal, else json"
    )

    def check_process(self) -> None:
        """Refuse an address that is open to the network unless that was asked for."""
        self._check_address("bindAddress", self.bind_address)
        if self.admin_enabled:
            self._check_address("adminHost", self.admin_host)

    def _check_address(self, key: str, host: str) -> None:
        if not self.insecure_network and not is_loopback(bindable(host)):
            raise ConfigError(
                f"{key}={host} is refused: it is open to the network and not encrypted",
                hint="use 127.0.0.1, or say insecureNetwork=true",
            )
