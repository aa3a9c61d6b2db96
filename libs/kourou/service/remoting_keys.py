"""The settings of every service to which RocketMQ's own clients can connect."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.errors import ConfigError
from kourou.service.process_keys import ProcessKeys
from kourou.settings.declaration import SAME, setting
from kourou.transport.addresses import bindable, is_loopback, join_address
from kourou.transport.curve import ServerCurve
from kourou.transport.curve_keys import AllowedKeys, read_pair


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

    def check_remoting(self) -> None:
        """Raises ConfigError for an address that is open to the network without insecureNetwork.

        The RocketMQ protocol is clear text, even if CURVE keys are set.
        """
        if (self.curve_key_file is None) != (self.curve_clients is None):
            is_set = "curveClients" if self.curve_key_file is None else "curveKeyFile"
            other = "curveKeyFile" if self.curve_key_file is None else "curveClients"
            raise ConfigError(
                f"{is_set} is set and {other} is not",
                hint="a server needs its own pair of keys and the clients that it accepts; any "
                "accepts all",
            )
        host = self.tcp_bind_address or self.bind_address
        if (
            self.tcp_enabled
            and self.curve_key_file is not None
            and not self.insecure_network
            and not is_loopback(bindable(host))
        ):
            raise ConfigError(
                f"the RocketMQ listener on {host} would not be encrypted: CURVE protects only "
                f"Kourou's own protocol",
                hint="tcpEnable=false, or tcpBindAddress=127.0.0.1, or set insecureNetwork=true",
            )
        if self.tcp_enabled and self.tcp_bind_address is not None:
            self._check_address("tcpBindAddress", self.tcp_bind_address)

    @property
    def server_curve(self) -> ServerCurve | None:
        """The CURVE keys of the listener for Kourou clients; None means clear text."""
        return self.curve_for(self.curve_clients)

    def curve_for(self, clients: str | None) -> ServerCurve | None:
        """Return the CURVE keys of a listener that accepts `clients`; None means clear text."""
        if self.curve_key_file is None or clients is None:
            return None
        return ServerCurve(read_pair(self.curve_key_file), AllowedKeys.of_setting(clients))

    def tcp_address(self, port: int) -> str:
        """Return the `host:port` to bind for RocketMQ clients."""
        host = bindable(self.tcp_bind_address or self.bind_address)
        return join_address(host, port)
