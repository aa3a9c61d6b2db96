"""Runs a service by name in this process, and stops services that run on this machine.

If several processes of a service run, which may belong to different clusters, none is stopped
unless they are chosen.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import ExitStack

from kourou.clock import Clock, SystemClock
from kourou.errors import BadRequest, TimedOut, Unavailable
from kourou.service.os_processes import RunningProcess, find_running
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
        from kourou_spark_etl.commands import run as run_spark_etl
        from kourou_spark_etl.machine import check_machine

        if arguments[:1] == ["run"] and not PRINTS & set(arguments):
            check_machine()  # here, too, because the launcher can still install packages
        return run_spark_etl(arguments, called_as)
    if name == "console":
        from kourou_console.app import run as run_console

        return run_console(arguments, called_as)
    from kourou_broker.app import run as run_broker

    return run_broker(arguments, called_as)


# -- kourou shutdown ------------------------------------------------------------------------------

STOPPABLE = ("broker", "ha-replica", "namesrv", "filter-server", "console")
PIPELINE = "spark-etl"
"""Not covered: it has a lock in its folder and its own command that identifies the owner."""

WAIT_S = 45
"""A service drains for at most 20 s and stops within 10 s more."""


def run_shutdown(
    service: str,
    *,
    pids: Collection[int] = (),
    every: bool = False,
    wait_s: float = WAIT_S,
    as_json: bool = False,
    clock: Clock | None = None,
) -> int:
    """Stop the service and wait for it; with `pids` these processes, with `every` all.

    Raises BadRequest for an unknown service or PID, and if several run and none is chosen;
    Unavailable if none runs; TimedOut if a process has not ended in time (it continues to shut
    down).
    """
    if service not in STOPPABLE:
        raise BadRequest(
            f"{service!r} is not a service that this command stops; choose one of "
            f"{', '.join(STOPPABLE)}",
            hint="stop the Spark pipeline with `kourou spark-etl stop`"
            if service == PIPELINE
            else "",
        )
    time = SystemClock() if clock is None else clock
    with ExitStack() as stack:
        found = [stack.enter_context(one) for one in find_running(service)]
        chosen = _chosen(service, found, pids, every=every)
        for one in chosen:
            one.ask_to_end()
            if not as_json:
                print(f"{service} (pid {one.pid}) is stopping", flush=True)
        deadline_ms = time.monotonic_ms() + int(wait_s * 1_000)
        left = []
        for one in chosen:
            ended = one.wait_for_end((deadline_ms - time.monotonic_ms()) / 1_000)
            if not ended:
                left.append(one.pid)
            if as_json:
                print(json.dumps({"service": service, "pid": one.pid, "ended": ended}), flush=True)
            elif ended:
                print(f"{service} (pid {one.pid}) has ended", flush=True)
    if left:
        raise TimedOut(
            f"{service} (pid {', '.join(map(str, left))}) did not end within {wait_s:g} s",
            hint="see its log for the reason; a second SIGTERM stops it immediately",
        )
    return 0


def _chosen(
    service: str, found: list[RunningProcess], pids: Collection[int], *, every: bool
) -> list[RunningProcess]:
    if pids and every:
        raise BadRequest("--pid and --all cannot be combined")
    others = sorted(set(pids) - {one.pid for one in found})
    if others:
        raise BadRequest(
            f"pid {', '.join(map(str, others))} is not a {service} process of yours on this "
            "machine; nothing was stopped",
        )
    if not found:
        raise Unavailable(f"no {service} process of yours runs on this machine")
    if len(found) > 1 and not pids and not every:
        listed = "".join(f"\n  pid {one.pid} {one.describe()}" for one in found)
        raise BadRequest(
            f"{len(found)} {service} processes of yours run on this machine; nothing was stopped. "
            f"Choose with --pid PID (repeatable), or stop them all with --all:{listed}"
        )
    return [one for one in found if not pids or one.pid in pids]
