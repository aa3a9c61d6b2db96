"""The settings of replication, and of a Raft node under the names that RocketMQ's DLedger uses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kourou.broker.network_keys import NetworkKeys
from kourou.engine.policy import BrokerRole
from kourou.errors import ConfigError
from kourou.model.limits import MEMBER_NAME_LENGTH_MAX, MEMBERS_MAX, PORT_MAX
from kourou.service.process_keys import REPLICATION_PORT_SHIFT
from kourou.settings.declaration import SAME, setting
from kourou.transport.addresses import split_address

_MEMBER = re.compile(rf"[A-Za-z0-9._]{{1,{MEMBER_NAME_LENGTH_MAX}}}")
_PEERS_HINT = "use n0-host:port;n1-host:port;n2-host:port, the same at every replica"
WRITTEN, FLUSHED = "written", "flushed"
HEARTBEATS_PER_TIMEOUT = 3
"""One lost and one late heartbeat do not start an election."""

LEASE_PERCENT = 95
"""Of raftElectionTimeout; the rest allows for clocks that run at different speeds."""

HEARTBEAT_MS_MIN = 15
"""The time resolution of the Raft core (`RaftSettings.round_ms`)."""


@dataclass(frozen=True, kw_only=True)
class ReplicationKeys:
    """The settings of replication."""

    replication_enabled: bool = setting(
        True,
        "replicationEnable",
        "Listen for followers; false for a broker that shall have none",
    )
    replication_port: int | None = setting(
        None,
        "replicationPort",
        "Where members of the log meet; empty is P + 10001, 0 takes any",
        low=0,
        high=65_535,
    )
    fallbehind_max_bytes: int = setting(
        256 * 1024 * 1024,
        "haSlaveFallbehindMax",
        "SYNC_MASTER waits for no follower that lacks more",
        unit="bytes",
        low=1,
        high=2**31 - 1,
        rocketmq=SAME,
    )
    slave_timeout_ms: int = setting(
        3_000,
        "slaveTimeout",
        "SYNC_MASTER: so long a sender waits for copies, and so long a follower may be slow",
        unit="ms",
        low=1,
        high=600_000,
        rocketmq=SAME,
    )
    ack_on: str | None = setting(
        None,
        "haAckOn",
        "SYNC_MASTER: a copy counts when it is written (as in RocketMQ) or flushed; empty is "
        "flushed with SYNC_FLUSH, else written",
        choices=(WRITTEN, FLUSHED),
    )


@dataclass(frozen=True, kw_only=True)
class RaftKeys(ReplicationKeys, NetworkKeys):
    """The settings of a Raft node, under the names that RocketMQ's DLedger uses."""

    raft_enabled: bool = setting(
        False,
        "enableDLegerCommitLog",
        "Be a member of a group that elects its leader (Raft); served by `kourou ha-replica`",
        rocketmq=SAME,
    )
    raft_group_name: str | None = setting(
        None,
        "dLegerGroup",
        "The name of that group; empty is brokerName",
        rocketmq=SAME,
        pattern="[A-Za-z0-9._-]{1,127}",
    )
    raft_peers_text: str | None = setting(
        None,
        "dLegerPeers",
        "All replicas, and where replicas connect to each other: "
        "n0-host:port;n1-host:port;n2-host:port",
        rocketmq=SAME,
    )
    raft_self: str | None = setting(
        None,
        "dLegerSelfId",
        "Which of dLegerPeers this replica is",
        rocketmq=SAME,
        pattern=_MEMBER.pattern,
    )
    preferred_leader_id: str | None = setting(
        None,
        "preferredLeaderId",
        "The replica to which the leader transfers leadership, once it has the whole log",
        rocketmq=SAME,
        pattern=_MEMBER.pattern,
    )
    raft_heartbeat_ms: int = setting(
        150,
        "raftHeartbeatInterval",
        "How often a leader sends heartbeats at least",
        unit="ms",
        low=HEARTBEAT_MS_MIN,
        high=10_000,
    )
    raft_election_ms: int = setting(
        750,
        "raftElectionTimeout",
        "A replica that received no heartbeat for this long, up to twice as "
        "long, starts an election",
        unit="ms",
        low=100,
        high=60_000,
    )
    raft_lease_ms: int = setting(
        675,
        "raftLease",
        "How long a leader acknowledges after the last confirmation by a "
        "majority; below raftElectionTimeout",
        unit="ms",
        low=50,
        high=60_000,
    )

    raft_new_group: bool = setting(
        False,
        "raftNewGroup",
        "Vote although this store is new or was lost, and not all replicas "
        "report a new group; only to restart a group after most replicas lost "
        "their disks",
    )

    # -- derived values ---------------------------------------------------------------------------

    @property
    def raft_group(self) -> str:
        """The group's name, the same on all replicas."""
        return self.raft_group_name or self.broker_name

    @property
    def raft_peers(self) -> Mapping[str, str]:
        """Replica name -> `host:port`, including this one, in name order; empty without a group.

        Raises ConfigError if the list is invalid.
        """
        if not self.raft_enabled:
            return {}
        found: dict[str, str] = {}
        for entry in (part.strip() for part in (self.raft_peers_text or "").split(";")):
            if not entry:
                continue
            member, _, address = entry.partition("-")
            if not _MEMBER.fullmatch(member) or not address:
                raise _refused(
                    f"dLegerPeers has {entry!r}, which is not of the form name-host:port"
                )
            if member in found:
                raise _refused(f"dLegerPeers has {member} twice")
            try:
                split_address(address)
            except ConfigError as error:
                raise _refused(f"dLegerPeers, {member}: {error.message}") from error
            if address in found.values():
                raise _refused(f"dLegerPeers has two replicas at {address}")
            found[member] = address
        return dict(sorted(found.items()))

    @property
    def raft_broker_id(self) -> int:
        """The brokerId of this replica as a follower: its number in the ordered list, from 1."""
        return list(self.raft_peers).index(self.raft_self or "") + 1

    @property
    def raft_port(self) -> int | None:
        """The port of this replica's entry in dLegerPeers; None without a group."""
        if not self.raft_enabled:
            return None
        return split_address(self.raft_peers[self.raft_self or ""])[1]

    # -- checks -----------------------------------------------------------------------------------

    def check_raft(self) -> None:
        """Raises ConfigError for a group that could not work, before anything is opened."""
        if not self.raft_enabled:
            return
        peers = self.raft_peers
        if not peers or len(peers) > MEMBERS_MAX:
            raise _refused(f"dLegerPeers has {len(peers)} replicas; 1 to {MEMBERS_MAX} are allowed")
        member = self.raft_self
        if member is None or member not in peers:
            raise ConfigError(
                f"dLegerSelfId={member or ''!r} is not in dLegerPeers",
                hint=f"use one of {', '.join(peers)}",
            )
        if self.preferred_leader_id is not None and self.preferred_leader_id not in peers:
            raise ConfigError(
                f"preferredLeaderId={self.preferred_leader_id!r} is not in dLegerPeers",
                hint=f"use one of {', '.join(peers)}, or leave it empty",
            )
        if not self.replication_enabled:
            raise ConfigError(
                "replicationEnable=false closes the listener that replicas connect to",
                hint="remove replicationEnable=false, or set enableDLegerCommitLog=false",
            )
        self._check_address_of_its_own(peers[member])
        self._check_times()

    def _check_address_of_its_own(self, entry: str) -> None:
        """Check that this replica listens on the address that others connect to."""
        host, port = split_address(entry)
        if self.replication_port is not None and self.replication_port != port:
            raise ConfigError(
                f"dLegerPeers has {self.raft_self} at port {port}, but "
                f"replicationPort={self.replication_port}",
                hint="both set the port that replicas connect to: leave replicationPort empty",
            )
        if _differs(host, self.bind_address):
            raise ConfigError(
                f"dLegerPeers has {self.raft_self} at {host}, but bindAddress={self.bind_address}",
                hint="other replicas could not connect: listen on that address, or on 0.0.0.0",
            )
        clients = split_address(self.zmq_bind_address)[1]
        if clients == port:
            raise ConfigError(
                f"dLegerPeers has {self.raft_self} at port {port}, which clients connect "
                f"to (listenPort={self.listen_port}, zmqPort)",
                hint=_other_port(self.listen_port),
            )

    def _check_times(self) -> None:
        """Check the Raft timeouts.

        One lost heartbeat must not start an election, and a lease must end before another replica
        may lead.
        """
        heartbeat, election = self.raft_heartbeat_ms, self.raft_election_ms
        if heartbeat * HEARTBEATS_PER_TIMEOUT > election:
            raise ConfigError(
                f"raftHeartbeatInterval={heartbeat} is too long for raftElectionTimeout={election}",
                hint=f"use at most {election // HEARTBEATS_PER_TIMEOUT}, so that one lost "
                "heartbeat starts no election",
            )
        lease, most = self.raft_lease_ms, election * LEASE_PERCENT // 100
        if not heartbeat < lease <= most:
            raise ConfigError(
                f"raftLease={lease} does not fit raftHeartbeatInterval={heartbeat} and "
                f"raftElectionTimeout={election}",
                hint=f"use a value above {heartbeat} and at most {most}, so that two leaders "
                "never acknowledge at once",
            )

    def check_role(self) -> None:
        """Raises ConfigError for a Raft replica, because this service runs single leaders."""
        if self.raft_enabled:
            raise ConfigError(
                "enableDLegerCommitLog=true makes this broker a replica of a Raft group, "
                "but this service runs single leaders",
                hint="start it with `kourou ha-replica` and the same file",
            )
        super().check_role()

    def settle_raft(self) -> None:
        """In a group, derive brokerId and brokerRole: the replica starts as a follower.

        RocketMQ's files for DLedger contain no brokerRole and no correct brokerId.
        """
        if self.raft_enabled and self.raft_self in self.raft_peers:
            object.__setattr__(self, "broker_id", self.raft_broker_id)
            object.__setattr__(self, "broker_role", BrokerRole.SLAVE)


def _differs(wanted: str, bound: str) -> bool:
    """Are both IP addresses, and different ones?"""
    try:
        one, other = ipaddress.ip_address(wanted), ipaddress.ip_address(bound)
    except ValueError:
        return False  # names: only a connection shows that
    return not other.is_unspecified and one != other


def _other_port(listen_port: int) -> str:
    usual = listen_port + REPLICATION_PORT_SHIFT
    if listen_port and usual <= PORT_MAX:
        return f"RocketMQ uses P+10000 for it; use {usual} (P+10001) in dLegerPeers"
    return "use another port in dLegerPeers, or another zmqPort"


def _refused(why: str) -> ConfigError:
    return ConfigError(why, hint=_PEERS_HINT)
