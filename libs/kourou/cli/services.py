"""Runs a service by name in this process."""

from __future__ import annotations

from collections.abc import Sequence

from kourou.service.process_setup import relax_gc

SERVICES = ("namesrv", "broker", "ha-replica", "filter-server", "spark-etl", "console")


PRINTS = {"-h", "--help", "-m", "-p"}
"""Options with which a service prints something and exits."""


def run_service(name: str, arguments: Sequence[str], called_as: str = "kourou") -> int:
    """Run a service until it is stopped; returns its exit code. Its help shows `called_as`."""
    relax_gc()
    if name == "namesrv":
        from kourou_namesrv.app import run as run_namesrv

        return run_namesrv(arguments, called_as)
    if name == "ha-replica":
        from kourou_ha_replica.app import run as run_ha_replica

        return run_ha_replica(arguments, called_as)
    if name == "filter-server":
        from kourou_filter_server.app import run as run_filter_server

        return run_filter_server(arguments, called_as)
    if name == "spark-etl":
        from kourou_spark_etl.commands import run_command
        from kourou_spark_etl.machine import check_machine

        if arguments[:1] == ["run"] and not PRINTS & set(arguments):
            check_machine()  # here, too, because the launcher can still install packages
        return run_command(arguments, called_as)
    if name == "console":
        from kourou_console.app import run as run_console

        return run_console(arguments, called_as)
    from kourou_broker.app import run as run_broker

    return run_broker(arguments, called_as)
