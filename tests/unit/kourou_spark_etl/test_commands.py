"""What one types of the Spark service, without a service."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StructType

from kourou.errors import BadRequest, ConfigError, Unavailable
from kourou.service.os_processes import RunningProcess
from kourou.transport.tls import ServerTls, TlsFiles
from kourou_rigs.certificates import Authority
from kourou_spark_etl import commands
from kourou_spark_etl.commands import run
from kourou_spark_etl.data_source import KourouDataSource
from kourou_spark_etl.progress import BatchProgress
from kourou_spark_etl.runner import QueryCounters, QueryState
from kourou_spark_etl.source.arrow_rows import SCHEMA_DDL
from kourou_spark_etl.source.readers import BatchReader, StreamReader

EXAMPLE = Path(__file__).parents[3] / "deploy" / "spark-etl.toml"


def test_list_checks_a_job_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--jobs", str(EXAMPLE)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["lake", "lake", "every", "10", "s", "[^%].*"]
    assert run(["list", "--jobs", str(EXAMPLE), "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["options"]["file_mib"] == 128


def test_help_and_what_is_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "run|list|status|stop" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="is not a command of spark-etl"):
        run(["start"])
    with pytest.raises(ConfigError, match="--jobs"):
        run(["list"])
    with pytest.raises(ConfigError, match="requires a value"):
        run(["run", "--jobs"])


def test_help_of_run_names_its_own_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["run", "--help"])
    told = capsys.readouterr().out
    assert "--jobs FILE" in told
    assert "--master URL" in told


def test_status_of_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Unavailable, match="no Spark service responds"):
        run(["status", "--admin", f"http://127.0.0.1:{port}"])
    with pytest.raises(ConfigError, match="is not an http or https URL"):
        run(["status", "--admin", "file:///x"])


def test_stop_where_none_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "find_running", lambda service: [])
    with pytest.raises(Unavailable, match="no Spark service of yours"):
        run(["stop"])


class Pages(BaseHTTPRequestHandler):
    """A service's page, or another service's."""

    told: ClassVar[object] = None

    def do_GET(self) -> None:
        assert self.path == "/statistics"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.told).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
        """Not to the terminal."""


@contextmanager
def served(server: HTTPServer) -> Iterator[int]:
    """Its port, while it serves."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_status_of_a_service(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = QueryState("lake", "lake")
    lake.starting()
    lake.running()
    letters = QueryState("letters", "dead_letters")
    letters.starting()
    letters.failed("no such topic", 0)
    figures = QueryCounters([lake, letters])
    figures.batch(BatchProgress("lake", "id", 7, 1_234, 0, 5))
    with served(HTTPServer(("127.0.0.1", 0), Pages)) as port:
        status = ["status", "--admin", f"http://127.0.0.1:{port}"]
        monkeypatch.setattr(Pages, "told", {"queries": figures.statistics()})
        assert run(status) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert run([*status, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == Pages.told
        monkeypatch.setattr(Pages, "told", {"brokers": 1})
        with pytest.raises(Unavailable, match="another service, not a Spark service"):
            run(status)
        with pytest.raises(ConfigError, match="are for https:// pages"):
            run([*status, "--ca", "ca.pem"])
    assert " ".join(first.split()) == "lake lake running batch 7 rows 1,234 failures 0"
    assert " ".join(second.split()[2:]) == "failed batch - rows 0 failures 1 no such topic"


def test_status_over_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, other = (Authority(tmp_path / name, name) for name in ("own", "other"))
    monkeypatch.setattr(Pages, "told", {"queries": []})
    server = HTTPServer(("127.0.0.1", 0), Pages)
    files = TlsFiles(*authority.pair("etl"))
    context = ServerTls(files, enforcing=True).context
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with served(server) as port:
        status = ["status", "--json", "--admin", f"https://127.0.0.1:{port}"]
        assert run([*status, "--ca", str(authority.path)]) == 0
        assert json.loads(capsys.readouterr().out) == Pages.told
        with pytest.raises(Unavailable, match="certificate verify failed"):
            run([*status, "--ca", str(other.path)])


def test_stop_ends_the_services_that_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(ending) as chosen, subprocess.Popen(ending) as other:
        try:

            def found(service: str) -> list[RunningProcess]:
                assert service == "spark-etl"
                return [RunningProcess(one.pid, os.pidfd_open(one.pid)) for one in (chosen, other)]

            monkeypatch.setattr(commands, "find_running", found)
            assert run(["stop", "--pid", str(chosen.pid)]) == 0
            assert chosen.wait() == -signal.SIGTERM
            assert capsys.readouterr().out == f"spark-etl (pid {chosen.pid}) has ended\n"
            assert other.poll() is None
        finally:
            chosen.kill()
            other.kill()


def test_run_with_a_wrong_job_file_is_refused_before_java(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text("[queries.q]\njob = 'lakes'\n")
    assert run(["run", "--jobs", str(jobs), "--set", f"etlPath={tmp_path}"]) == 2
    assert "queries.q.job" in capsys.readouterr().err


# -- what Spark meets first: the format, its options, its readers ----------------------------------


SCHEMA = StructType().add("offset", LongType())


def source(**options: str) -> KourouDataSource:
    return KourouDataSource(
        CaseInsensitiveDict({"nameServer": "127.0.0.1:9876", "subscribe": "orders", **options})
    )


def test_a_read_is_checked_before_anybody_is_asked() -> None:
    assert source().schema() == SCHEMA_DDL
    assert isinstance(source().reader(SCHEMA), BatchReader)
    assert isinstance(source(maxOffsetsPerTrigger="5").streamReader(SCHEMA), StreamReader)
    with pytest.raises(BadRequest, match="'bogus' is unknown"):
        source(bogus="1").schema()
    with pytest.raises(BadRequest, match="'maxOffsetsPerTrigger'"):
        source(maxOffsetsPerTrigger="5").reader(SCHEMA)
    with pytest.raises(BadRequest, match="'endingOffsets'"):
        source(endingOffsets="latest").streamReader(SCHEMA)
