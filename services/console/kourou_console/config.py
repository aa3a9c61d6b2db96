"""The settings of the console.

State: none; settings are read once.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kourou.errors import ConfigError
from kourou.model.names import check_group
from kourou.model.ports import CONSOLE_ADMIN_PORT
from kourou.service.process_keys import ProcessKeys
from kourou.settings.declaration import setting
from kourou.transport.addresses import IpNetwork, bindable, is_loopback, split_address
from kourou.transport.tls import ClientTlsFiles
from kourou_console.metrics.alarms import AlarmThresholds

PORT = 8_080
HTTPS = "https://"
_PERCENT = 100


@dataclass(frozen=True, kw_only=True)
class WatchKeys(ProcessKeys):
    """The settings for sampling and alarms."""

    sample_interval_ms: int = setting(
        5_000,
        "sampleInterval",
        "How often all brokers are queried for metrics; one hour of them is kept in memory",
        unit="ms",
        low=1_000,
        high=60_000,
    )
    alarm_disk_percent: int = setting(
        75,
        "alarmDiskPercent",
        "An alarm where a broker's disk is fuller",
        unit="%",
        low=1,
        high=100,
    )
    alarm_lag_messages: int = setting(
        100_000,
        "alarmLagMessages",
        "Alarm if a group has a larger backlog of messages",
        low=0,
    )
    alarm_dead_letters: int = setting(
        0,
        "alarmDeadLetters",
        "Alarm if a group gets more dead letters within ten minutes",
        low=0,
    )
    alarm_replica_lag_bytes: int = setting(
        64 << 20,
        "alarmReplicaLagBytes",
        "Alarm if a replica lags more bytes behind its leader",
        unit="bytes",
        low=0,
    )

    @property
    def thresholds(self) -> AlarmThresholds:
        """The thresholds for the rules."""
        return AlarmThresholds(
            self.alarm_disk_percent / _PERCENT,
            self.alarm_lag_messages,
            self.alarm_dead_letters,
            self.alarm_replica_lag_bytes,
        )


class SignInMode(StrEnum):
    """Who may call the API."""

    TOKENS = "tokens"
    """The owners of tokens; without tokenFile everybody on this machine."""
    USERS = "users"
    """The users of the brokers, and the owners of tokens."""


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings(WatchKeys):
    """All keys of `console.conf`."""

    bind_address: str = setting(
        "127.0.0.1",
        "bindAddress",
        "The address to listen on; off loopback only with tokenFile or signIn=users, or if "
        "insecureNetwork",
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
        secret_file=True,
    )
    sign_in: SignInMode = setting(
        SignInMode.TOKENS,
        "signIn",
        "Who may call: tokens, those in tokenFile; users, also the users of the brokers, with "
        "their rights. Needs curveKeyFile, and a user with the role console who has that key",
    )
    names: str = setting(
        "",
        "consoleNames",
        "Additional names of this server for browsers, name;name; required only without tokens",
    )
    trusted_proxies_text: str = setting(
        "",
        "trustedProxies",
        "Networks of reverse proxies, as 127.0.0.1;10.0.0.0/8: a request from one comes from where "
        "its header X-Forwarded-For says, for limits of wrong secrets",
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
    spark_etl_address: str = setting(
        "",
        "sparkEtlAddress",
        "host:port of spark-etl's admin pages, https://host:port over TLS; empty: no Spark",
    )
    tls_client_trust_path: Path | None = setting(
        None,
        "tls.client.trustCertPath",
        "For https:// addresses: the authorities that sign certificates of these pages (PEM); "
        "empty: those of the system",
    )
    tls_client_cert_path: Path | None = setting(
        None,
        "tls.client.certPath",
        "For https:// addresses that require one: the certificate to present (PEM)",
    )
    tls_client_key_path: Path | None = setting(
        None, "tls.client.keyPath", "The private key of that certificate (PEM)", secret_file=True
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
        if self.sign_in is SignInMode.USERS and self.curve_key_file is None:
            raise ConfigError(
                "signIn=users needs curveKeyFile: by its key brokers know the console",
                hint="kourou keys make FOLDER, then "
                "kourou user create NAME --role console --curve-key FILE --no-secret",
            )
        self.trusted_proxies  # noqa: B018 - raises for an invalid network
        if self.spark_etl_address:
            _checked("sparkEtlAddress", self.spark_etl_address)
        files = self.client_tls
        if self.spark_etl_address.startswith(HTTPS):
            files.context()
        elif files != ClientTlsFiles():
            raise ConfigError(
                "a key tls.client.… is set, but sparkEtlAddress does not begin with https://",
                hint="sparkEtlAddress=https://host:port, or remove the key",
            )

    def _check_bind_address(self) -> None:
        if self.token_file is not None or self.insecure_network:
            return
        if self.sign_in is SignInMode.USERS:
            return
        if not is_loopback(bindable(self.bind_address)):
            raise ConfigError(
                f"bindAddress={self.bind_address} is refused: the console would be open to the "
                "network without authentication",
                hint="use 127.0.0.1, set a tokenFile or signIn=users, or set insecureNetwork=true",
            )

    @property
    def admin_port(self) -> int:
        """The port to bind for the admin pages."""
        if self.admin_port_wanted is not None:
            return self.admin_port_wanted
        return CONSOLE_ADMIN_PORT if self.port else 0

    @property
    def wanted_name_servers(self) -> str:
        """The name servers of the cluster. Raises ConfigError if none is set."""
        if not self.name_servers:
            raise ConfigError("namesrvAddr is not set", hint="-n host:port, or NAMESRV_ADDR")
        return self.name_servers

    @property
    def client_tls(self) -> ClientTlsFiles:
        """What the console trusts and presents at https:// addresses."""
        return ClientTlsFiles(
            self.tls_client_trust_path, self.tls_client_cert_path, self.tls_client_key_path
        )

    @property
    def host_names(self) -> tuple[str, ...]:
        """consoleNames as a list."""
        return tuple(name.strip() for name in self.names.split(";") if name.strip())

    @property
    def trusted_proxies(self) -> tuple[IpNetwork, ...]:
        """trustedProxies as networks. Raises ConfigError for one that is not valid."""
        found: list[IpNetwork] = []
        for entry in filter(None, map(str.strip, self.trusted_proxies_text.split(";"))):
            try:
                found.append(ipaddress.ip_network(entry))
            except ValueError as error:
                raise ConfigError(
                    f"trustedProxies: {error}", hint="an address or a network, as 10.0.0.0/8"
                ) from None
        return tuple(found)


def _checked(key: str, address: str) -> str:
    try:
        split_address(address.removeprefix(HTTPS))
    except ConfigError as error:
        raise ConfigError(f"{key}: {error.message}", hint=error.hint) from None
    return address
