"""A server for tests: it is one of its own, and nothing of it stays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kourou.errors import MetadataUnavailable, Unavailable
from kourou.eventstore.database import Database
from kourou_rigs import postgres as kit
from kourou_rigs.postgres import MISSING, PostgresServer, find_programs


def answers(database: Database) -> bool:
    try:
        with database.reading() as connection:
            return bool(connection.exec_driver_sql("SELECT 1").scalar())
    except MetadataUnavailable:
        return False


def members(folder: Path) -> list[str]:
    """Processes whose command line names the folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = place.read_bytes().decode(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        if str(folder) in line:
            found.append(line)
    return found


def test_the_newest_programs_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "PROGRAMS", tmp_path)
    assert find_programs() is None
    for version in ("9.6", "15", "17"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / "initdb").touch()
    (tmp_path / "18" / "bin").mkdir(parents=True)
    assert find_programs() == tmp_path / "17" / "bin"


def test_without_programs_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit, "PROGRAMS", tmp_path)
    with pytest.raises(Unavailable, match="apt-get install postgresql"):
        PostgresServer()
    assert "apt-get install postgresql" in MISSING


def test_a_process_of_it_that_ends_meanwhile_is_no_trouble(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend ends with its connection, perhaps between the look at the list and its end."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    listed = kit._children
    monkeypatch.setattr(kit, "_children", lambda process: [ended.pid, *listed(process)])
    with postgres.gone():
        assert not members(postgres.folder)
    assert postgres.execute("SELECT 1") == "1"


def test_nothing_of_it_stays(postgres: PostgresServer) -> None:
    with PostgresServer() as server:
        assert server.folder.stat().st_mode & 0o777 == 0o700
        assert members(server.folder)
        server.execute("CREATE TABLE t (a integer)")
        assert server.execute("SELECT count(*), 'x' FROM t") == "0|x"
        assert postgres.execute("SELECT count(*) FROM pg_tables WHERE tablename = 't'") == "0"
        with pytest.raises(Unavailable, match="syntax error"):
            server.execute("SELEKT")
    assert not server.folder.exists()
    assert members(server.folder) == []


def test_every_database_is_new(postgres: PostgresServer) -> None:
    one, other = postgres.new_database(), postgres.new_database("LOCALE 'C' TEMPLATE template0")
    assert one != other
    assert one.startswith("postgresql://")


def test_frozen_it_answers_nobody_and_then_goes_on(postgres: PostgresServer) -> None:
    database = Database(f"{postgres.new_database()}&connect_timeout=2", answer_ms=1_000)
    assert answers(database)
    with postgres.frozen():
        assert not answers(database)
    assert answers(database)
    database.close()


def test_gone_it_keeps_what_it_had(postgres: PostgresServer) -> None:
    database = Database(postgres.new_database())
    with database.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a integer)")
    with postgres.gone():
        assert not answers(database)
    with database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM t").scalar() == 0
    database.close()
