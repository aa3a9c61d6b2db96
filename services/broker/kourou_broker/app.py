"""The broker process: a `BrokerService` in the role of a leader."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.service.entry import run_from_arguments


def run(argv: Sequence[str], called_as: str = "kourou") -> int:
    """Run a broker until it receives a stop signal. Returns the exit code (0, 2, 70 or 75)."""
    logging.getLogger("alembic").setLevel(logging.WARNING)  # its info messages are noise here
    return run_from_arguments(
        "broker",
        "A Kourou message broker.",
        argv,
        BrokerSettings,
        BrokerService,
        called_as=called_as,
    )
