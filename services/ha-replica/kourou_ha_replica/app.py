"""The replica process: a `BrokerService` in the role of a follower, which may be promoted."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kourou.broker.broker_service import BrokerService
from kourou.broker.raft.raft_service import RaftService
from kourou.service.entry import run_from_arguments
from kourou_ha_replica.config import ReplicaSettings


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
