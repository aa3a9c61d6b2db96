"""Bringing tables up to date."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from kourou.engine.control import CONTROL
from kourou.errors import ConfigError, Corrupt, MetadataUnavailable
from kourou.events.control_events import Recorded, TopicPut
from kourou.eventstore import schema
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.event_store import EventStore
from kourou.eventstore.revisions import Revisions
from kourou.eventstore.schema import (
    REVISIONS,
    check_usable,
    metadata,
)
from kourou.model.topic import TopicConfig
from kourou_namesrv.key_values import KEY_VALUES
from kourou_rigs.postgres import PostgresServer

NUMBERS = [
    each.revision
    for each in ScriptDirectory.from_config(REVISIONS.alembic_config()).walk_revisions()
]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        url = sqlite_url(tmp_path / "events.db")
    else:
        url = request.getfixturevalue("postgres").new_database()
    opened = Database(url)
    yield opened
    opened.close()


def revision(database: Database) -> str | None:
    with database.reading() as connection:
        return REVISIONS.current(connection)


def tables(database: Database) -> set[str]:
    with database.reading() as connection:
        return set(sa.inspect(connection).get_table_names())


NUMBERS.reverse()

WRITTEN = {
    "0001": """
    INSERT INTO streams (name, first_offset, next_offset, position, at_ms,
      snapshot_bytes, bytes_since_snapshot) VALUES
      ('control', 0, 3, 700, 1030, 100, 190), ('key-values', 0, 1, -1, 7, 0, 60);
    INSERT INTO events (stream, "offset", position, at_ms, as_of_ms, type, aggregate,
      actor, reason, trace_id, body) VALUES
      ('control', 0, 0, 1010, 1010, 'TopicPut', 'topic/A', 'admin:alice', 'first', '0af7',
       '{"type":"TopicPut","topic":{"name":"A","read_queue_nums":8,"write_queue_nums":8,' ||
       '"perm":6,"topic_filter_type":"SINGLE_TAG","topic_sys_flag":0,"order":false},"before":null}'),
      ('control', 1, 300, 1030, 1030, 'TopicPut', 'topic/A', 'admin:bob', 'more', '',
       '{"type":"TopicPut","topic":{"name":"A","read_queue_nums":16,"write_queue_nums":16,' ||
       '"perm":6,"topic_filter_type":"SINGLE_TAG","topic_sys_flag":0,"order":false},' ||
       '"before":{"name":"A","read_queue_nums":8,"write_queue_nums":8,' ||
       '"perm":6,"topic_filter_type":"SINGLE_TAG","topic_sys_flag":0,"order":false}}'),
      ('control', 2, 700, 1020, 1030, 'Later', 'later/x', 'admin:bob', '', '',
       '{"type":"Later","unknown":[1.50]}'),
      ('key-values', 0, -1, 7, 7, 'KeyValuePut', 'key-values/N', 'b', '', '',
       '{"type":"KeyValuePut","namespace":"N","key":"k","value":"1","before":null}');
    """,
}
WRITTEN["0002"] = f"""{WRITTEN["0001"]}
    UPDATE events SET undoes = 0 WHERE stream = 'control' AND "offset" = 1;
    """
"""What a store of each revision may hold, as its program wrote it. Never changed once released."""


def write_as_of(database: Database, start: str) -> None:
    """Make the tables of a revision, and rows as they were written then."""
    with database.writing() as connection:
        REVISIONS.upgrade(connection, start, "test")
        for statement in WRITTEN[start].split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)


def drift(database: Database) -> list[object]:
    """What Alembic would have to change to get the tables of the code."""
    with database.reading() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "version_table": schema.VERSION_TABLE,
                "compare_type": True,
                "compare_server_default": True,
            },
        )
        return list(compare_metadata(context, metadata))


def statements(database: Database) -> set[str]:
    """SQLite's tables as they were made: Alembic does not compare `WITHOUT ROWID`."""
    with database.reading() as connection:
        made = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {" ".join(sql.split()) for sql in made.scalars()}


@pytest.mark.parametrize("start", NUMBERS)
def test_every_older_store_is_upgraded_to_exactly_the_tables_of_the_code(
    database: Database, start: str
):
    write_as_of(database, start)
    REVISIONS.bring_up_to_date(database)
    assert revision(database) == schema.HEAD
    assert drift(database) == []
    if database.is_sqlite:
        made = Database("sqlite://")
        REVISIONS.bring_up_to_date(made)
        assert statements(database) == statements(made)
        made.close()


@pytest.mark.parametrize("start", NUMBERS)
def test_what_an_older_program_wrote_is_read_and_added_to(database: Database, start: str):
    """One revision after another, as somebody does who never leaves one out."""
    write_as_of(database, start)
    for later in NUMBERS[NUMBERS.index(start) :]:
        with database.writing() as connection:
            REVISIONS.upgrade(connection, later, "test")
        assert revision(database) == later
    store = EventStore(database)
    assert (store.info().next_offset, store.info().position, store.info().at_ms) == (3, 700, 1030)
    first, second, third = store.events()
    assert (first.actor, first.reason, first.trace_id) == ("admin:alice", "first", "0af7")
    assert (first.undoes, second.undoes) == (None, None if start == "0001" else 0)
    assert second.event == TopicPut(TopicConfig("A", 16, 16), TopicConfig("A", 8, 8))
    assert (third.at_ms, third.event.type) == (1020, "Later")
    assert store.load(CONTROL)[0].topics.table["A"] == TopicConfig("A", 16, 16)
    assert store.load(CONTROL, as_of_ms=1029)[0].topics.table["A"] == TopicConfig("A", 8, 8)
    assert store.history("topic/A").entries == (second, first)
    assert store.load(KEY_VALUES)[0].table == {"N": {"k": "1"}}
    store.snapshot(CONTROL.snapshot(store.load(CONTROL)[0]))
    added = Recorded(3, 900, 1040, "admin:eve", "", "", TopicPut(TopicConfig("B")), undoes=2)
    assert store.append([second, third, added]) == 1
    assert store.events(after=2) == [added]
    assert set(store.load(CONTROL)[0].topics.table) == {"A", "B"}


def test_every_revision_can_be_tried():
    assert list(WRITTEN) == NUMBERS


def test_a_table_that_differs_is_noticed(database: Database):
    REVISIONS.bring_up_to_date(database)
    with database.writing() as connection:
        connection.exec_driver_sql("DROP INDEX events_by_time")
        connection.exec_driver_sql("ALTER TABLE streams ADD COLUMN more INTEGER")
    assert {each[0] for each in drift(database)} == {"add_index", "remove_column"}  # type: ignore[index]  # Alembic's tuples


def test_the_code_names_the_newest_revision():
    script = ScriptDirectory.from_config(REVISIONS.alembic_config())
    assert script.get_heads() == [schema.HEAD]
    assert (NUMBERS[0], NUMBERS[-1]) == ("0001", schema.HEAD)


def test_a_store_of_a_newer_version_is_refused_and_left_alone(database: Database):
    REVISIONS.bring_up_to_date(database)
    with database.writing() as connection:
        connection.exec_driver_sql(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    before = tables(database)
    with pytest.raises(
        ConfigError, match=rf"newer version.*revision 9999.*up to {schema.HEAD}"
    ) as refused:
        REVISIONS.bring_up_to_date(database)
    assert "newer version" in refused.value.hint
    assert revision(database) == "9999"
    assert tables(database) == before


def test_an_upgrade_that_fails_halfway_changes_nothing(database: Database, tmp_path: Path):
    REVISIONS.bring_up_to_date(database)
    broken = tmp_path / "100% migrations"
    shutil.copytree(schema.MIGRATIONS, broken, ignore=shutil.ignore_patterns("__pycache__"))
    (broken / "versions" / "r9000_broken.py").write_text(
        "import sqlalchemy as sa\n"
        "from alembic import op\n"
        "revision = '9000'\n"
        f"down_revision = {schema.HEAD!r}\n"
        "def upgrade():\n"
        "    op.create_table('half', sa.Column('a', sa.Integer))\n"
        "    op.drop_table('streams')\n"
        "    op.execute('nonsense')\n"
    )
    later = replace(REVISIONS, head="9000", folder=broken)
    before = tables(database)
    with pytest.raises(MetadataUnavailable, match="nonsense"):
        later.bring_up_to_date(database)
    assert tables(database) == before
    assert revision(database) == NUMBERS[-1]


def test_two_that_open_a_new_store_at_once_do_not_collide(database: Database):
    url = database.engine.url.render_as_string(hide_password=False)
    databases = [Database(url) for _ in range(4)]
    barrier, failures = threading.Barrier(len(databases)), []

    def open_one(database: Database) -> None:
        barrier.wait()
        try:
            REVISIONS.bring_up_to_date(database)
        except MetadataUnavailable as error:
            failures.append(error)

    threads = [threading.Thread(target=open_one, args=(each,)) for each in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {revision(each) for each in databases} == {schema.HEAD}
    for each in databases:
        each.close()


def test_a_new_store_has_what_all_migrations_make(database: Database):
    """Tables, indexes and the version table, down to the types and keys that a database reports."""

    def found() -> list[object]:
        with database.reading() as connection:
            inspector = sa.inspect(connection)
            return [
                (
                    name,
                    repr(inspector.get_columns(name)),
                    inspector.get_pk_constraint(name),
                    [(one["name"], one["column_names"]) for one in inspector.get_indexes(name)],
                )
                for name in sorted(inspector.get_table_names())
            ]

    REVISIONS.bring_up_to_date(database)
    created, made_of = found(), statements(database) if database.is_sqlite else set()
    assert drift(database) == []
    with database.writing() as connection:
        for name in (*reversed(metadata.sorted_tables), sa.table(schema.VERSION_TABLE)):
            connection.exec_driver_sql(f"DROP TABLE {name}")
        REVISIONS.upgrade(connection, "head", "test")
    assert revision(database) == schema.HEAD
    assert found() == created
    if database.is_sqlite:
        assert statements(database) == made_of


def test_a_store_that_is_new_or_up_to_date_opens_without_alembic(tmp_path: Path):
    url = sqlite_url(tmp_path / "events.db")
    program = (
        "import sys\n"
        "from kourou.eventstore.event_store import EventStore\n"
        f"EventStore.open({url!r}).close()\n"
        "sys.exit(3 if 'alembic' in sys.modules else 0)\n"
    )
    outcomes = [subprocess.run([sys.executable, "-c", program]).returncode for _ in range(2)]
    assert outcomes == [0, 0]


# -- tables of several kinds, brought up to date by one hand ---------------------------------------


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "100% (mine)"
    shutil.copytree(schema.MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    mine = Revisions("thing", schema.HEAD, metadata, schema.VERSION_TABLE, folder, 1)
    database = Database(sqlite_url(tmp_path / "things.db"))
    mine.bring_up_to_date(database)
    with database.reading() as connection:
        assert mine.current(connection) == schema.HEAD
        other = Revisions("other", "1", metadata, "other_version", folder, 2)
        assert other.current(connection) is None
    database.close()


def test_databases_of_one_process_are_brought_up_to_date_at_once(tmp_path: Path) -> None:
    """As by the brokers of a cluster in one process, each on a thread of its own."""
    together = threading.Barrier(8)

    def bring(number: int) -> str | None:
        database = Database(sqlite_url(tmp_path / f"{number}.db"))
        together.wait(60)
        REVISIONS.bring_up_to_date(database)
        with database.reading() as connection:
            found = REVISIONS.current(connection)
        database.close()
        return found

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(bring, range(8))) == {schema.HEAD}


# -- looking at a database without changing it -----------------------------------------------------


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
