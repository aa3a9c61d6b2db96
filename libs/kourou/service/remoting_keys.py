"""The settings of every service that RocketMQ's own clients can dial.

Lives here: whether and where it listens for RocketMQ's TCP frames, and for how long a connection
may be idle.
May not live here: which port that is, which differs by service.

State: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from kourou.service.process_keys import ProcessKeys
from kourou.service.setting import SAME, setting
from kourou.transport.addresses import bindable


@dataclass(frozen=True, kw_only=True)
class RemotingKeys(ProcessKeys):
    """What a service is told about RocketMQ's protocol."""

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

    def check_remoting(self) -> None:
        """Refuse an address that is open to the network unless that was asked for."""
        if self.tcp_enabled and self.tcp_bind_address is not None:
            self._check_address("tcpBindAddress", self.tcp_bind_address)

    def tcp_address(self, port: int) -> str:
        """`host:port` to bind for RocketMQ's clients."""
        host = bindable(self.tcp_bind_address or self.bind_address)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
