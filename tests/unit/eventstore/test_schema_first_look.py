"""Looking at a database without changing it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.errors import ConfigError, Corrupt
from kourou.eventstore import schema
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.event_store import EventStore
from kourou.eventstore.schema import check_usable
from kourou_rigs.postgres import PostgresServer


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        path.name: (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.iterdir()
    } | {".": (0, folder.stat().st_mtime_ns, b"")}


def set_revision(path: Path, revision: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {schema.VERSION_TABLE} SET version_num = ?", (revision,))
    connection.close()


def crash_with_revision(path: Path, revision: str) -> None:
    """The same, by a process that dies: the change stands in the log beside the file only."""
    program = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        f"connection.execute('UPDATE {schema.VERSION_TABLE} SET version_num = ?', sys.argv[2:])\n"
        "connection.commit()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path), revision], check=False)
    assert path.with_name(path.name + "-wal").stat().st_size > 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "a folder?with#signs%20" / "events.db"
    made.parent.mkdir()
    EventStore.at(made).close()
    return made


@pytest.mark.parametrize("change", [set_revision, crash_with_revision])
def test_a_newer_one_is_refused_untouched(path: Path, change) -> None:
    change(path, "9999")
    before = snapshot(path.parent)
    with pytest.raises(
        ConfigError,
        match=rf"events\.db was written by a newer .*revision 9999.*up to {schema.HEAD}",
    ):
        check_usable(sqlite_url(path))
    assert snapshot(path.parent) == before


@pytest.mark.parametrize("change", [set_revision, crash_with_revision])
def test_a_known_one_is_not_refused_and_not_touched(path: Path, change) -> None:
    change(path, schema.HEAD)
    before = snapshot(path.parent)
    check_usable(sqlite_url(path))
    assert snapshot(path.parent) == before


@pytest.mark.parametrize("kept", [0, 100, 4_096])
def test_garbage_is_refused_untouched(path: Path, kept: int) -> None:
    """All of it, all behind the header, all behind the first page."""
    whole = path.read_bytes()
    path.write_bytes(whole[:kept] + b"\xa5" * (len(whole) - kept))
    before = snapshot(path.parent)
    with pytest.raises(Corrupt, match=r"events\.db is damaged"):
        check_usable(sqlite_url(path))
    assert snapshot(path.parent) == before


def test_a_log_whose_shared_memory_is_gone_is_left_to_the_opening(path: Path) -> None:
    crash_with_revision(path, "9999")
    path.with_name("events.db-shm").unlink()
    before = snapshot(path.parent)
    check_usable(sqlite_url(path))
    assert snapshot(path.parent) == before
    with pytest.raises(ConfigError, match="9999"):
        EventStore.at(path)


def test_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    check_usable(sqlite_url(tmp_path / "events.db"))
    check_usable(sqlite_url(tmp_path / "no" / "events.db"))
    check_usable(sqlite_url(tmp_path))
    check_usable("sqlite://")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "events.db").touch()
    check_usable(sqlite_url(tmp_path / "events.db"))


def test_a_server_is_asked_and_refuses_a_newer_one(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    check_usable(url)
    EventStore.open(url).close()
    check_usable(url)
    database = Database(url)
    with database.writing() as connection:
        connection.exec_driver_sql(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    database.close()
    with pytest.raises(ConfigError, match="9999"):
        check_usable(url)


def test_a_server_that_cannot_be_reached_is_left_to_the_opening() -> None:
    check_usable("postgresql://127.0.0.1:1/nothing")


def test_a_url_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ConfigError, match="mysql"):
        check_usable("mysql://host/events")
