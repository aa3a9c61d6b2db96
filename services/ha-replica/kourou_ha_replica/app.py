"""The replica process: a `BrokerService` in the role of a follower, which may be promoted.

The settings of a replica or of a Raft node are a broker's with another role.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.broker.raft.raft_service import RaftService
from kourou.engine.policy import BrokerRole
from kourou.errors import ConfigError
from kourou.replication.epochs import STARTS
from kourou.service.entry import run_from_arguments
from kourou.settings.declaration import SAME, setting


@dataclass(frozen=True, kw_only=True)
class ReplicaSettings(BrokerSettings):
    """All keys of `broker.conf`, with the defaults of a follower."""

    broker_id: int = setting(
        1,
        "brokerId",
        "The number of this follower; in a Raft group its position in dLegerPeers",
        low=0,
        high=STARTS - 1,
        seed=SAME,
        rocketmq=SAME,
    )
    broker_role: BrokerRole = setting(
        BrokerRole.SLAVE,
        "brokerRole",
        "SLAVE: a follower of the broker of the same brokerName",
        seed=SAME,
        rocketmq=SAME,
    )

    def check_role(self) -> None:
        """Raises ConfigError unless this is a follower that can find its leader."""
        if self.raft_enabled:
            return  # the other nodes name the leader
        if self.raft_peers_text or self.raft_self:
            raise ConfigError(
                "dLegerPeers and dLegerSelfId are set for a Raft group, but "
                "enableDLegerCommitLog is false",
                hint="set enableDLegerCommitLog=true, or remove dLegerPeers and dLegerSelfId",
            )
        if not self.is_replica or not self.broker_id:
            raise ConfigError(
                f"brokerRole={self.broker_role} with brokerId={self.broker_id} is a "
                "leader, but this service runs followers",
                hint="to run a leader: `kourou broker`; a follower has brokerRole=SLAVE and a "
                "brokerId above 0",
            )
        finds = self.name_server_endpoints or self.name_server_list_url
        if not finds and not self.leader_endpoint:
            raise ConfigError(
                "the address of the leader is unknown",
                hint="set namesrvAddr (-n), or haMasterAddress",
            )


class ReplicaService(BrokerService):
    """Implements kourou.service.lifecycle.Service."""

    name = "ha-replica"


def service_of(settings: ReplicaSettings) -> BrokerService:
    """The service for a follower of one leader, or for a node of a Raft group."""
    return RaftService(settings) if settings.raft_enabled else ReplicaService(settings)


def run(argv: Sequence[str], called_as: str = "kourou") -> int:
    """Run a replica until it receives a stop signal. Returns the exit code (0, 2, 70 or 75)."""
    logging.getLogger("alembic").setLevel(logging.WARNING)  # its info messages are noise here
    return run_from_arguments(
        "ha-replica",
        "A Kourou broker replica: consumers read from it when the leader is offline or busy.",
        argv,
        ReplicaSettings,
        service_of,
        called_as=called_as,
    )
