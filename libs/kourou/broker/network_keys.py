"""The settings of a broker's identity, addresses and name servers."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from kourou.broker.network.registration import REMOTING, list_url
from kourou.client.session.discovery import zmq_endpoint
from kourou.engine.policy import BrokerRole, IdentitySettings
from kourou.errors import ConfigError
from kourou.model.ports import BROKER_ADMIN_PORT, BROKER_PORT, BROKER_PORT_STEP, ZMQ_PORT_SHIFT
from kourou.service.process_keys import AccessKeys
from kourou.service.protocol_server import advertised
from kourou.service.remoting_protocol import VIP
from kourou.settings.declaration import SAME, setting
from kourou.transport.addresses import join_address, split_address
from kourou.transport.curve_keys import ServerCurve

VIP_PORT_SHIFT = -2

_DOMAIN = r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,127}")


@dataclass(frozen=True, kw_only=True)
class NetworkKeys(IdentitySettings, AccessKeys):
    """The settings of a broker's identity, addresses and name servers."""

    namesrv_addr: str | None = setting(
        None,
        "namesrvAddr",
        "Name servers, host:port;host:port; port 9876 means ZeroMQ on 19876; "
        "remoting://host:9876 is a name server of RocketMQ's own",
        seed=SAME,
        rocketmq=SAME,
        environment="NAMESRV_ADDR",
    )
    fetch_namesrv_addr: bool = setting(
        False,
        "fetchNamesrvAddrByAddressServer",
        "If namesrvAddr is empty: ask rmqAddressServerDomain for the name servers, every 2 minutes",
        seed=SAME,
        rocketmq=SAME,
    )
    address_server: str | None = setting(
        None,
        "rmqAddressServerDomain",
        "That HTTP server, host or host:port; the port is 8080 unless it says so",
        rocketmq="jmenv.tbsite.net",
        pattern=_DOMAIN,
    )
    address_server_group: str = setting(
        "nsaddr",
        "rmqAddressServerSubGroup",
        "The name of the list there: GET /rocketmq/nsaddr",
        rocketmq=SAME,
        pattern="[A-Za-z0-9._-]{1,255}",
    )
    register_period_ms: int = setting(
        30_000,
        "registerNameServerPeriod",
        "How often it registers with every name server",
        unit="ms",
        low=10_000,
        high=60_000,
        rocketmq=SAME,
    )
    register_timeout_ms: int = setting(
        6_000,
        "registerBrokerTimeoutMills",
        "How long a registration may take",
        unit="ms",
        low=100,
        high=60_000,
        rocketmq=SAME,
    )
    listen_port: int = setting(
        BROKER_PORT,
        "listenPort",
        "RocketMQ's TCP port P; the others derive from it; 0 takes any",
        low=0,
        high=65_535,
        seed=SAME,
        rocketmq=SAME,
    )
    zmq_port: int | None = setting(
        None,
        "zmqPort",
        "Kourou's clients; empty is P + 10000",
        low=0,
        high=65_535,
    )
    broker_ip1: str | None = setting(
        None,
        "brokerIP1",
        "The IP address that clients connect to; empty is the address listened on",
        seed="the local address",
        rocketmq="the local address",
    )
    advertised_listeners: str | None = setting(
        None,
        "advertisedListeners",
        "What name servers answer by listener: name=host:port for Kourou's clients, "
        "tcp:name=host:port for RocketMQ's; empty is brokerIP1 and the port for both",
    )
    trace_otlp_endpoint: str | None = setting(
        None,
        "traceOtlpEndpoint",
        "Address of the trace collector, as http://host:4318; OTEL_… variables take precedence",
    )
    ha_master_address: str | None = setting(
        None,
        "haMasterAddress",
        "For a follower: its leader's replication address, host:port; 10000 is added to a port "
        "below 20000, which is RocketMQ's; empty: from the name servers",
        seed=SAME,
        rocketmq=SAME,
    )

    initial_admin_file: Path | None = setting(
        None,
        "initialAdminFile",
        "NAME:SECRET or NAME:curve:KEY of the first administrator; read at a start, while there "
        "is none",
        secret_file=True,
    )
    initial_users_file: Path | None = setting(
        None,
        "initialUsersFile",
        "A TOML file of users, who are created at a start if they do not exist",
    )
    acl_import_dir: Path | None = setting(
        None,
        "aclImportDir",
        "A plain_acl.yml, or a folder of such files, whose users are imported at the start and "
        "within a second of each change",
        secret_file=True,
    )
    acl_enable: bool = setting(
        False,
        "aclEnable",
        "Do not start without users. With users requests are always decided; `kourou user mode` "
        "changes that",
        rocketmq=SAME,
    )
    authentication_enabled: bool = setting(
        False,
        "authenticationEnabled",
        "The same as aclEnable: Kourou does not tell them apart",
        rocketmq=SAME,
    )
    authorization_enabled: bool = setting(
        False, "authorizationEnabled", "The same as aclEnable", rocketmq=SAME
    )

    def check_users(self, users: Collection[str]) -> None:
        """Raises ConfigError if requests must be decided and there are no users.

        A broker that leads calls it when the users of all its files are recorded.
        """
        if users:
            return
        for key, path in (
            ("initialUsersFile", self.initial_users_file),
            ("aclImportDir", self.acl_import_dir),
        ):
            if path is not None:
                raise ConfigError(
                    f"{key}={path} made no user, so everybody could do everything",
                    hint=f"put users into it, with an administrator, or remove {key}",
                )
        for key, wanted in (
            ("aclEnable", self.acl_enable),
            ("authenticationEnabled", self.authentication_enabled),
            ("authorizationEnabled", self.authorization_enabled),
        ):
            if wanted:
                raise ConfigError(
                    f"{key}=true, but this broker has no users, so everybody could do everything",
                    hint="name a file with NAME:SECRET of the first administrator by "
                    "initialAdminFile, and keys for secrets by accessKeyFile",
                )

    def check_network(self) -> None:
        """Raises ConfigError for settings that are invalid in combination."""
        for key, name in (
            ("brokerName", self.broker_name),
            ("brokerClusterName", self.cluster_name),
        ):
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{key}={name!r} is invalid", hint="use 1 to 127 letters, digits, . _ -"
                )
        self.check_role()
        self.leader_endpoint  # noqa: B018 - raises if it is not an address
        if self.broker_ip1 is not None and not _is_ip(self.broker_ip1):
            raise ConfigError(
                f"brokerIP1={self.broker_ip1!r} is not an IP address",
                hint="host names belong in advertisedListeners",
            )
        stands_in_records = self.broker_ip1 or self.bind_address
        if _is_ip(stands_in_records) and not _fits_records(stands_in_records):
            raise ConfigError(
                f"{stands_in_records} cannot be the address of this broker: records store "
                "IPv4 addresses only",
                hint="set brokerIP1 to an IPv4 address; if clients connect to another "
                "address, set advertisedListeners",
            )
        self.check_remoting()
        self._check_curve()
        self.listeners({"zmq": "", "tcp": ""})
        self.zmq_bind_address  # noqa: B018 - raises if a port does not fit
        endpoints = self.name_server_endpoints
        if not self.tcp_enabled and any(each.startswith(REMOTING) for each in endpoints):
            raise ConfigError(
                "tcpEnable=false, but a RocketMQ name server is set, which only RocketMQ "
                "clients use",
                hint="remove tcpEnable=false, or that name server",
            )
        if self.fetch_namesrv_addr and not self.name_server_addresses and not self.address_server:
            raise ConfigError(
                "fetchNamesrvAddrByAddressServer=true, but no address server is set",
                hint="set rmqAddressServerDomain; RocketMQ's default, jmenv.tbsite.net, is a "
                "foreign host unless /etc/hosts says otherwise",
            )

    def _check_curve(self) -> None:
        if self.curve_key_file is None:
            return
        dialled = [one for one in self.name_server_endpoints if not one.startswith(REMOTING)]
        if self.curve_server_key is None and (dialled or self.is_replica):
            raise ConfigError(
                "curveKeyFile is set, but curveServerKey is not",
                hint="set it to the file or folder with the public keys of the servers that "
                "this broker connects to",
            )

    @property
    def members_curve(self) -> ServerCurve | None:
        """The CURVE keys of the listener for replicas; None means clear text."""
        return self.curve_for(self.curve_members or self.curve_clients)

    def check_role(self) -> None:
        """Raises ConfigError for a role that another service runs."""
        if self.is_replica or self.broker_id != 0:
            raise ConfigError(
                f"brokerRole={self.broker_role} with brokerId={self.broker_id} is a "
                "follower, but this service runs leaders",
                hint="set brokerRole=ASYNC_MASTER or SYNC_MASTER, and brokerId=0; to run a "
                "follower: `kourou ha-replica`",
            )

    @property
    def is_replica(self) -> bool:
        """Is this broker a follower, unless it was promoted?"""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def leader_endpoint(self) -> str:
        """The leader's `host:port` for followers; "" means that name servers are queried."""
        if self.ha_master_address is None:
            return ""
        host, port = split_address(self.ha_master_address)
        if port < 2 * ZMQ_PORT_SHIFT:
            port += ZMQ_PORT_SHIFT
        return join_address(host, port)

    @property
    def name_server_list_url(self) -> str:
        """The URL of the address server's list; "" if it is not used."""
        if not self.fetch_namesrv_addr or self.name_server_addresses or not self.address_server:
            return ""
        return list_url(self.address_server, self.address_server_group)

    @property
    def name_server_addresses(self) -> tuple[str, ...]:
        """The name servers as configured, one by one."""
        return tuple(part.strip() for part in (self.namesrv_addr or "").split(";") if part.strip())

    @property
    def name_server_endpoints(self) -> tuple[str, ...]:
        """The endpoint of each name server. Raises ConfigError for an invalid address.

        `host:port` of its ZeroMQ listener, or `remoting://host:port` as it was configured.
        """
        return tuple(
            _remoting_endpoint(address)
            if address.startswith(REMOTING)
            else zmq_endpoint(address).removeprefix("tcp://")
            for address in self.name_server_addresses
        )

    @property
    def zmq_bind_address(self) -> str:
        """`host:port` to bind for Kourou clients; port 0 uses a free port."""
        port = self.zmq_port
        if port is None:
            port = self.listen_port + ZMQ_PORT_SHIFT if self.listen_port else 0
        if port > 65_535:
            raise ConfigError(
                f"listenPort={self.listen_port} is too high: set zmqPort, which is 10000 "
                "above it otherwise"
            )
        return self.zmq_address(port)

    def zmq_address(self, port: int) -> str:
        """Return `host:port` to bind for Kourou clients, on that port."""
        return join_address(self.bind_address, port)

    @property
    def broker_ip(self) -> str:
        """The IP address that clients connect to and that stored records contain."""
        if self.broker_ip1 is not None:
            return self.broker_ip1
        if _is_ip(self.bind_address) and not ipaddress.ip_address(self.bind_address).is_unspecified:
            return self.bind_address
        return _local_address()

    def store_port(self, zmq_port: int, tcp_port: int | None) -> int:
        """Return the port P in stored records and message ids, to which RocketMQ's tools connect.

        With `listenPort=0` it is the TCP port that was bound; without TCP nothing connects to it.
        """
        return (
            self.listen_port
            or tcp_port
            or (zmq_port - ZMQ_PORT_SHIFT if zmq_port > ZMQ_PORT_SHIFT else zmq_port)
        )

    @property
    def tcp_listeners(self) -> Mapping[str, str]:
        """Listener name -> `host:port` to bind for RocketMQ clients; empty if TCP is disabled."""
        if not self.tcp_enabled:
            return {}
        found = {"internal": self.tcp_address(self.listen_port)}
        if self.listen_port > -VIP_PORT_SHIFT:
            found[VIP] = self.tcp_address(self.listen_port + VIP_PORT_SHIFT)
        return found

    def listeners(self, dial: Mapping[str, str]) -> Mapping[str, str]:
        """Return what is registered with the name server: `transport:listener` -> address.

        `dial` has the address of each enabled transport.
        """
        return advertised(dial, self.advertised_listeners or "")

    @property
    def admin_port(self) -> int | None:
        """The port of the admin pages; None if they are disabled."""
        if not self.admin_enabled:
            return None
        if self.admin_port_wanted is not None:
            return self.admin_port_wanted
        place, odd = divmod(self.listen_port - BROKER_PORT, BROKER_PORT_STEP)
        return BROKER_ADMIN_PORT + place if not odd and 0 <= place < 100 else 0


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _fits_records(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return address.version == 4 or address.is_unspecified  # unspecified: see broker_ip


def _remoting_endpoint(address: str) -> str:
    split_address(address.removeprefix(REMOTING))
    return address


def _local_address() -> str:
    """Return the local address of the route to other networks; sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:  # no route: the machine has no network
            return "127.0.0.1"
        return str(probe.getsockname()[0])
