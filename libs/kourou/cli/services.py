"""The services, run by name in this process.

Lives here: which name runs what. May not live here: a service's arguments; each has its own.
"""

from __future__ import annotations

from collections.abc import Sequence

SERVICES = ("namesrv", "broker")


def run_service(name: str, arguments: Sequence[str]) -> int:
    """Run a service until it is told to stop; its exit code."""
    if name == "namesrv":
        from kourou_namesrv.app import run as run_namesrv

        return run_namesrv(arguments)
    from kourou_broker.app import run as run_broker

    return run_broker(arguments)
