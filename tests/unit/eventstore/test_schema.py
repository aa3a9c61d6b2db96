"""Bringing tables up to date."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from kourou.errors import MetadataUnavailable
from kourou.eventstore import schema
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.schema import bring_up_to_date, current_revision, upgrade
from kourou.eventstore.tables import metadata

POSTGRES_URL = os.environ.get("KOUROU_TEST_POSTGRES_URL", "")
REVISIONS = [
    each.revision for each in ScriptDirectory.from_config(schema.alembic_config()).walk_revisions()
]


@pytest.fixture(params=["sqlite", *(["postgresql"] if POSTGRES_URL else [])])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    is_sqlite = request.param == "sqlite"
    opened = Database(sqlite_url(tmp_path / "events.db") if is_sqlite else POSTGRES_URL)
    with opened.writing() as connection:
        metadata.drop_all(connection)
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {schema.VERSION_TABLE}")
    yield opened
    opened.close()


def revision(database: Database) -> str | None:
    with database.reading() as connection:
        return current_revision(connection)


def tables(database: Database) -> set[str]:
    with database.reading() as connection:
        return set(sa.inspect(connection).get_table_names())


@pytest.mark.parametrize("start", [None, *REVISIONS])
def test_every_older_store_is_upgraded_to_exactly_the_tables_of_the_code(
    database: Database, start: str | None
):
    if start is not None:
        with database.writing() as connection:
            upgrade(connection, start, "test")
    bring_up_to_date(database)
    assert revision(database) == schema.HEAD
    with database.reading() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": schema.VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []


def test_the_code_names_the_newest_revision():
    script = ScriptDirectory.from_config(schema.alembic_config())
    assert script.get_heads() == [schema.HEAD]
    assert REVISIONS[-1] == "0001"


def test_a_store_of_a_newer_version_is_refused_and_left_alone(database: Database):
    bring_up_to_date(database)
    with database.writing() as connection:
        connection.exec_driver_sql(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    before = tables(database)
    with pytest.raises(MetadataUnavailable, match="revision 9999") as refused:
        bring_up_to_date(database)
    assert "newer version" in refused.value.hint
    assert revision(database) == "9999"
    assert tables(database) == before


def test_an_upgrade_that_fails_halfway_changes_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bring_up_to_date(database)
    broken = tmp_path / "100% migrations"
    shutil.copytree(schema.MIGRATIONS, broken, ignore=shutil.ignore_patterns("__pycache__"))
    (broken / "versions" / "r0002_broken.py").write_text(
        "import sqlalchemy as sa\n"
        "from alembic import op\n"
        "revision = '0002'\n"
        f"down_revision = {schema.HEAD!r}\n"
        "def upgrade():\n"
        "    op.create_table('half', sa.Column('a', sa.Integer))\n"
        "    op.drop_table('streams')\n"
        "    op.execute('nonsense')\n"
    )
    monkeypatch.setattr(schema, "MIGRATIONS", broken)
    monkeypatch.setattr(schema, "HEAD", "0002")
    before = tables(database)
    with pytest.raises(MetadataUnavailable, match="nonsense"):
        bring_up_to_date(database)
    assert tables(database) == before
    assert revision(database) == "0001"


def test_two_that_open_a_new_store_at_once_do_not_collide(tmp_path: Path):
    databases = [Database(sqlite_url(tmp_path / "events.db")) for _ in range(4)]
    barrier, failures = threading.Barrier(len(databases)), []

    def open_one(database: Database) -> None:
        barrier.wait()
        try:
            bring_up_to_date(database)
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


def test_a_store_that_is_up_to_date_opens_without_alembic(tmp_path: Path):
    url = sqlite_url(tmp_path / "events.db")
    program = (
        "import sys\n"
        "from kourou.eventstore.event_store import EventStore\n"
        f"EventStore.open({url!r}).close()\n"
        "sys.exit(3 if 'alembic' in sys.modules else 0)\n"
    )
    outcomes = [subprocess.run([sys.executable, "-c", program]).returncode for _ in range(2)]
    assert outcomes == [3, 0]
