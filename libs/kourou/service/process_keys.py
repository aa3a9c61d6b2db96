"""The settings that every service has, and those of services for RocketMQ's own clients."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kourou.errors import ConfigError
from kourou.service.os_processes import cores_named
from kourou.settings.declaration import SAME, setting, settings_of
from kourou.telemetry.logs import LogFormat
from kourou.transport.addresses import bindable, is_loopback, join_address
from kourou.transport.curve_keys import AllowedKeys, ClientCurve, PairFile, ServerCurve, ServerKeys
from kourou.transport.tls import ClientAuth, ServerTls, TlsFiles, TlsMode

if TYPE_CHECKING:
    from kourou.service.secret_keys import SecretKeys

REPLICATION_PORT_SHIFT = 10_001
"""From listenPort to the port where replicas connect, unless it is set."""

_OPEN = {
    "bindAddress": ("not encrypted", "; or give it a curveKeyFile"),
    "adminHost": (
        "any host could read the pages",
        "; or tls.server.mode=enforcing with tls.server.need.client.auth=require",
    ),
}
"""Why an address that is open to the network is refused, and what else would allow it."""


@dataclass(frozen=True, kw_only=True)
class ProcessKeys:
    """The settings that every service has: listen address, admin pages, logging, keys, TLS."""

    inert_keys: ClassVar[Collection[str]] = ()
    """RocketMQ's keys that are accepted without effect."""

    bind_address: str = setting(
        "127.0.0.1",
        "bindAddress",
        "The address to listen on; off loopback only with curveKeyFile, or if insecureNetwork",
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

    process_cores: str | None = setting(
        None,
        "processCores",
        "The processor cores that it uses, as 0,4-7; empty is any. On a machine "
        "that also runs filters, use the core that filter workers leave free "
        "(see filterWorkerCores)",
    )

    curve_key_file: Path | None = setting(
        None,
        "curveKeyFile",
        "Its own pair of CURVE keys, NAME.key_secret of `kourou keys make`; read again when it "
        "changes, as are the other files of CURVE; empty is clear text",
        secret_file=True,
    )
    curve_server_key: Path | None = setting(
        None,
        "curveServerKey",
        "The public keys of the servers that it connects to: a file for all of "
        "them, or a folder where each is HOST.key, or contains its addresses",
    )

    tls_mode: TlsMode = setting(
        TlsMode.DISABLED,
        "tls.server.mode",
        "TLS on its ports for RocketMQ's own clients and for HTTP: enforcing accepts nothing else; "
        "permissive also accepts clear text of RocketMQ's clients, and leaves HTTP in clear text",
        rocketmq="permissive",
    )
    tls_cert_path: Path | None = setting(
        None,
        "tls.server.certPath",
        "Its certificate, followed by those of intermediate authorities (PEM); read again when it "
        "changes, as are the other files of TLS",
        rocketmq=SAME,
    )
    tls_key_path: Path | None = setting(
        None,
        "tls.server.keyPath",
        "The private key of that certificate (PEM)",
        rocketmq=SAME,
        secret_file=True,
    )
    tls_key_password_file: Path | None = setting(
        None,
        "tls.server.keyPasswordFile",
        "The file with the password of an encrypted key",
        secret_file=True,
    )
    tls_trust_cert_path: Path | None = setting(
        None,
        "tls.server.trustCertPath",
        "The authorities whose client certificates are accepted (PEM)",
        rocketmq=SAME,
    )
    tls_need_client_auth: ClientAuth = setting(
        ClientAuth.NONE,
        "tls.server.need.client.auth",
        "Whether a client presents a certificate; one that is presented must be valid",
        rocketmq=SAME,
    )
    tls_auth_client: bool = setting(
        False,
        "tls.server.authClient",
        "The same as tls.server.need.client.auth=require, unless that is optional",
        rocketmq=SAME,
    )

    def check_process(self) -> None:
        """Raises ConfigError for an invalid combination of settings.

        Refuses an address that is open to the network without insecureNetwork, processor cores that
        this machine does not have, and keys that would have no effect.
        """
        self._check_tls()
        if self.curve_server_key is not None and self.curve_key_file is None:
            raise ConfigError(
                "curveServerKey is set and curveKeyFile is not",
                hint="servers authenticate their clients; make a pair of keys: kourou keys make "
                "FOLDER",
            )
        if self.process_cores is not None:
            cores_named("processCores", self.process_cores, os.sched_getaffinity(0))
        self._check_bind_address()
        if self.admin_enabled and not self.proves_readers:
            self._check_address("adminHost", self.admin_host)

    def _check_bind_address(self) -> None:
        """Check bindAddress; a service with another kind of protection overrides this."""
        if self.curve_key_file is None:
            self._check_address("bindAddress", self.bind_address)

    @property
    def client_curve(self) -> ClientCurve | None:
        """The CURVE keys for outgoing connections; None means clear text.

        Raises ConfigError if keys cannot be read.
        """
        if self.curve_key_file is None or self.curve_server_key is None:
            return None
        servers = ServerKeys(self.curve_server_key)
        servers.check()
        return ClientCurve(PairFile(self.curve_key_file), servers)

    def _check_tls(self) -> None:
        """Raises ConfigError for TLS without its files, and for files that would have no effect."""
        if self.tls_mode is TlsMode.DISABLED:
            for one in settings_of(ProcessKeys):
                if one.key.startswith("tls.") and getattr(self, one.name) != one.default:
                    raise ConfigError(
                        f"{one.key} is set, but TLS is disabled",
                        hint="tls.server.mode=enforcing, or permissive to accept clear text, too; "
                        "or remove the key",
                    )
            return
        mode = f"tls.server.mode={self.tls_mode}"
        if self.tls_cert_path is None or self.tls_key_path is None:
            raise ConfigError(
                f"{mode} needs tls.server.certPath and tls.server.keyPath",
                hint="Kourou never makes a self-signed certificate, as RocketMQ does by default; "
                "to do without TLS: tls.server.mode=disabled",
            )
        if self.tls_mode is TlsMode.PERMISSIVE and not self.serves_remoting:
            raise ConfigError(
                f"{mode}, but there is no listener for RocketMQ's clients",
                hint="an HTTP port serves TLS or clear text, never both: use enforcing or disabled",
            )
        if (self.tls_client_auth is ClientAuth.NONE) != (self.tls_trust_cert_path is None):
            is_set, other = "tls.server.trustCertPath", "tls.server.need.client.auth"
            if self.tls_trust_cert_path is None:
                key = "need.client.auth" if self.tls_need_client_auth != "none" else "authClient"
                is_set, other = f"tls.server.{key}", is_set
            raise ConfigError(
                f"{is_set} is set and {other} is not",
                hint="client certificates are verified with the authorities in trustCertPath, if "
                "need.client.auth is optional or require",
            )

    @property
    def tls_client_auth(self) -> ClientAuth:
        """Whether clients present certificates, by either of the two settings."""
        if self.tls_auth_client and self.tls_need_client_auth is ClientAuth.NONE:
            return ClientAuth.REQUIRE
        return self.tls_need_client_auth

    @property
    def server_tls(self) -> ServerTls | None:
        """TLS of the listeners for RocketMQ's clients; None means clear text.

        Raises ConfigError if the files cannot be used.
        """
        if self.tls_mode is TlsMode.DISABLED:
            return None
        assert self.tls_cert_path is not None
        assert self.tls_key_path is not None
        files = TlsFiles(
            self.tls_cert_path,
            self.tls_key_path,
            self.tls_key_password_file,
            self.tls_trust_cert_path,
            self.tls_client_auth,
        )
        return ServerTls(files, enforcing=self.tls_mode is TlsMode.ENFORCING)

    @property
    def http_tls(self) -> ServerTls | None:
        """TLS of the HTTP ports; None means clear text. Raises ConfigError as `server_tls`."""
        return self.server_tls if self.tls_mode is TlsMode.ENFORCING else None

    @property
    def serves_remoting(self) -> bool:
        """Whether there is a listener for RocketMQ's clients: no other one can be permissive."""
        return False

    @property
    def proves_readers(self) -> bool:
        """Whether who reads the HTTP pages must have a certificate."""
        enforcing = self.tls_mode is TlsMode.ENFORCING
        return enforcing and self.tls_client_auth is ClientAuth.REQUIRE

    def _check_address(self, key: str, host: str) -> None:
        if not self.insecure_network and not is_loopback(bindable(host)):
            why, instead = _OPEN.get(key, ("not encrypted", ""))
            raise ConfigError(
                f"{key}={host} is refused: it is open to the network and {why}",
                hint=f"use 127.0.0.1, or set insecureNetwork=true{instead}",
            )


@dataclass(frozen=True, kw_only=True)
class RemotingKeys(ProcessKeys):
    """The settings of every service to which RocketMQ's own clients can connect."""

    tcp_enabled: bool = setting(
        True, "tcpEnable", "Serve RocketMQ's own clients, in its TCP frames, on listenPort"
    )
    tcp_bind_address: str | None = setting(
        None,
        "tcpBindAddress",
        "The address to listen on for them; empty is bindAddress",
    )
    idle_seconds: int = setting(
        120,
        "serverChannelMaxIdleTimeSeconds",
        "A TCP connection on which nothing moves for so long is closed",
        unit="s",
        low=1,
        high=86_400,
        rocketmq=SAME,
    )

    curve_clients: str | None = setting(
        None,
        "curveClients",
        "With curveKeyFile, who may connect: a folder or a file of public keys, or any",
    )
    curve_members: str | None = setting(
        None,
        "curveMembers",
        "With curveKeyFile, the keys of brokers and their replicas: who may copy a log or be a "
        "member of its group, and register at a name server; a folder or a file of public keys, "
        "or any; empty is curveClients. A log with users has replicas only if it names their keys",
    )

    def check_remoting(self) -> None:
        """Raises ConfigError for an address that is open to the network without insecureNetwork.

        The RocketMQ protocol is clear text, even if CURVE keys are set, unless TLS is enforced.
        """
        if (self.curve_key_file is None) != (self.curve_clients is None):
            is_set = "curveClients" if self.curve_key_file is None else "curveKeyFile"
            other = "curveKeyFile" if self.curve_key_file is None else "curveClients"
            raise ConfigError(
                f"{is_set} is set and {other} is not",
                hint="a server needs its own pair of keys and the clients that it accepts; any "
                "accepts all",
            )
        if self.curve_members is not None and self.curve_key_file is None:
            raise ConfigError(
                "curveMembers is set, but curveKeyFile is not",
                hint="create a pair of keys: `kourou keys make FOLDER`",
            )
        host = self.tcp_bind_address or self.bind_address
        if (
            self.tcp_enabled
            and self.curve_key_file is not None
            and not self.insecure_network
            and self.tls_mode is not TlsMode.ENFORCING
            and not is_loopback(bindable(host))
        ):
            raise ConfigError(
                f"the RocketMQ listener on {host} would not be encrypted: CURVE protects only "
                f"Kourou's own protocol",
                hint="tls.server.mode=enforcing, or tcpEnable=false, or tcpBindAddress=127.0.0.1, "
                "or set insecureNetwork=true",
            )
        if (
            self.tcp_enabled
            and self.tcp_bind_address is not None
            and self.tls_mode is not TlsMode.ENFORCING
        ):
            self._check_address("tcpBindAddress", self.tcp_bind_address)

    @property
    def registering_keys(self) -> AllowedKeys | None:
        """The keys that may register at a name server; None: no key is needed."""
        return None if self.curve_members is None else AllowedKeys.of_setting(self.curve_members)

    @property
    def server_curve(self) -> ServerCurve | None:
        """The CURVE keys of the listener for Kourou clients; None means clear text."""
        return self.curve_for(self.curve_clients)

    def curve_for(self, clients: str | None) -> ServerCurve | None:
        """Return the CURVE keys of a listener that accepts `clients`; None means clear text."""
        if self.curve_key_file is None or clients is None:
            return None
        return ServerCurve(PairFile(self.curve_key_file), AllowedKeys.of_setting(clients))

    @property
    def serves_remoting(self) -> bool:
        """Whether tcpEnable is set."""
        return self.tcp_enabled

    def tcp_address(self, port: int) -> str:
        """Return the `host:port` to bind for RocketMQ clients."""
        host = bindable(self.tcp_bind_address or self.bind_address)
        return join_address(host, port)


@dataclass(frozen=True, kw_only=True)
class AccessKeys(RemotingKeys):
    """The setting of every service that checks the signatures of RocketMQ's clients."""

    access_key_file: Path | None = setting(
        None,
        "accessKeyFile",
        "The keys that encrypt the secrets of users, of `kourou keys access FILE`; outside the "
        "store, mode 600; a name server needs those of its brokers to check signatures; empty: "
        "users cannot have secrets",
    )

    @cached_property
    def secret_keys(self) -> SecretKeys | None:
        """The keys for secrets of users, read once; None: no user has a secret.

        Raises ConfigError.
        """
        if self.access_key_file is None:
            return None
        from kourou.service.secret_keys import SecretKeys  # only secrets need cryptography

        return SecretKeys.read(self.access_key_file)
