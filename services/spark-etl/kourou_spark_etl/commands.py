"""`kourou spark-etl run|list|status|stop`: runs the service and shows its state.

run -c FILE --jobs FILE …    run the service, with the arguments of every service
list --jobs FILE             check a job file and list its queries
status [--admin URL]         the state of a running service's queries; https:// with --ca FILE
stop [--wait S]              stop it gracefully: current batches are finished
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kourou.errors import ConfigError, TimedOut, Unavailable
from kourou.model.ports import SPARK_ETL_ADMIN_PORT
from kourou.service.command_line import CommandLineParser
from kourou.service.os_processes import find_running
from kourou.transport.tls import ClientTlsFiles
from kourou_spark_etl.job_file import AVAILABLE_NOW, QuerySpec, load_job_file

SERVICE = "spark-etl"
WAIT_S = 45.0
"""A service drains for at most 20 s and stops within another 10 s."""

ANSWER_S = 5.0
HELP = f"""usage: {{called_as}} {SERVICE} run|list|status|stop ...

Kourou's Spark pipeline: topics as tables.

  run     run the queries of a job file (run --help, run -m: every setting)
  list    check a job file and list its queries
  status  show the state of a running service's queries
  stop    stop local Spark services gracefully
"""

RUN_HELP = f"""usage: {{called_as}} {SERVICE} run --jobs FILE [--master URL] [-n ADDR] ...

  --jobs FILE         the job file, as deploy/spark-etl.toml
  --master URL        local[N], or spark://host:7077 of a standalone cluster

Options of every service:

"""


def run(arguments: Sequence[str], called_as: str = "kourou") -> int:
    """Run the command named by the first argument. Returns the exit code; raises KourouError."""
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("--help", ())
    match verb:
        case "run":
            from kourou_spark_etl import app

            if not {"-h", "--help"}.isdisjoint(rest):
                _print(RUN_HELP.format(called_as=called_as))
            return app.run(with_jobs(rest), called_as)
        case "list":
            return _list(_parsed("list", rest, called_as))
        case "status":
            return _status(_parsed("status", rest, called_as))
        case "stop":
            return _stop(_parsed("stop", rest, called_as))
        case "-h" | "--help":
            _print(HELP.format(called_as=called_as))
            return 0
    raise ConfigError(
        f"{verb!r} is not a command of spark-etl", hint="use run, list, status or stop"
    )


def with_jobs(arguments: Sequence[str]) -> list[str]:
    """Replace `--jobs FILE` and `--master URL` by `--set` arguments, which all services accept."""
    shortcuts = {"--jobs": "jobFile", "--master": "sparkMaster"}
    found: list[str] = []
    given = iter(arguments)
    for word in given:
        name, equals, value = word.partition("=")
        if name not in shortcuts:
            found.append(word)
            continue
        if not equals:
            value = next(given, "")
        if not value:
            raise ConfigError(f"{name} requires a value")
        found += ["--set", f"{shortcuts[name]}={value}"]
    return found


def _parsed(verb: str, arguments: Sequence[str], called_as: str) -> argparse.Namespace:
    parser = CommandLineParser(prog=f"{called_as} {SERVICE} {verb}", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="machine-readable")
    if verb == "list":
        parser.add_argument("--jobs", metavar="FILE", type=Path, required=True, help="the job file")
    if verb == "status":
        url = f"http://127.0.0.1:{SPARK_ETL_ADMIN_PORT}"
        parser.add_argument("--admin", metavar="URL", default=url, help=f"its page; else {url}")
        for name, what in (
            ("--ca", "authorities that sign its certificate, for https:// (PEM)"),
            ("--cert", "a certificate to present, if it requires one (PEM)"),
            ("--key", "the private key of that certificate"),
        ):
            parser.add_argument(name, metavar="FILE", type=Path, help=what)
    if verb == "stop":
        parser.add_argument("--wait", metavar="S", type=float, default=WAIT_S, help="at most")
        parser.add_argument("--pid", type=int, action="append", help="only this process")
    return parser.parse_args(list(arguments))


# -- list -----------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    for spec in load_job_file(arguments.jobs):
        if arguments.json:
            _print(json.dumps(_as_json(spec)) + "\n")
            continue
        off = "" if spec.enabled else " (off)"
        when = AVAILABLE_NOW if spec.trigger_ms is None else f"every {spec.trigger_ms / 1000:g} s"
        _print(f"{spec.name:20} {spec.job:14} {when:16} {_reads(spec)}{off}\n")
    return 0


def _reads(spec: QuerySpec) -> str:
    for option in ("subscribe", "subscribePattern", "assign"):
        if option in spec.source:
            return spec.source[option]
    return "-"


def _as_json(spec: QuerySpec) -> dict[str, Any]:
    return {
        "query": spec.name,
        "job": spec.job,
        "enabled": spec.enabled,
        "trigger_ms": spec.trigger_ms,
        "source": dict(spec.source),
        "options": dict(spec.options),
        "tables": list(spec.kind.tables),
    }


# -- status ---------------------------------------------------------------------------------------


def _status(arguments: argparse.Namespace) -> int:
    files = ClientTlsFiles(arguments.ca, arguments.cert, arguments.key)
    statistics = _ask(arguments.admin, files)
    if arguments.json:
        _print(json.dumps(statistics) + "\n")
        return 0
    for query in statistics.get("queries", ()):
        last = query.get("last", {})
        _print(
            f"{query['query']:20} {query['job']:14} {query['phase']:9} "
            f"batch {last.get('batch_id', '-'):>6} rows {query['rows']:>12,} "
            f"failures {query['failures']}"
            + (f"  {query['error']}" if query["error"] else "")
            + "\n"
        )
    return 0


def _ask(admin: str, files: ClientTlsFiles) -> dict[str, Any]:
    connection = _connection(admin, files)
    try:
        connection.request("GET", "/statistics")
        answer = connection.getresponse()
        found = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"no Spark service responds at {admin}: {error}") from error
    finally:
        connection.close()
    if not isinstance(found, dict) or "queries" not in found:
        raise Unavailable(f"{admin} is another service, not a Spark service")
    return found


def _connection(admin: str, files: ClientTlsFiles) -> http.client.HTTPConnection:
    url = urlsplit(admin)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(
            f"{admin!r} is not an http or https URL",
            hint=f"http://127.0.0.1:{SPARK_ETL_ADMIN_PORT}",
        )
    if url.scheme == "https":
        return http.client.HTTPSConnection(
            url.hostname, url.port or 443, timeout=ANSWER_S, context=files.context()
        )
    if files != ClientTlsFiles():
        raise ConfigError(
            "--ca, --cert and --key are for https:// pages", hint="--admin https://HOST:PORT"
        )
    return http.client.HTTPConnection(url.hostname, url.port or 80, timeout=ANSWER_S)


# -- stop -----------------------------------------------------------------------------------------


def _stop(arguments: argparse.Namespace) -> int:
    with ExitStack() as held:
        every = [held.enter_context(one) for one in find_running(SERVICE)]
        chosen = [one for one in every if not arguments.pid or one.pid in arguments.pid]
        if not chosen:
            raise Unavailable("no Spark service of yours is running on this machine")
        for one in chosen:
            one.ask_to_end()
        for one in chosen:
            if not one.wait_for_end(arguments.wait):
                raise TimedOut(f"the Spark service (pid {one.pid}) is still running")
            if arguments.json:
                _print(json.dumps({"service": SERVICE, "pid": one.pid, "ended": True}) + "\n")
            else:
                _print(f"{SERVICE} (pid {one.pid}) has ended\n")
    return 0


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
