"""Tables of several kinds, brought up to date by one hand."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kourou.eventstore import schema
from kourou.eventstore.database import Database, sqlite_url
from kourou.eventstore.revisions import Revisions
from kourou.eventstore.schema import metadata


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
        schema.bring_up_to_date(database)
        with database.reading() as connection:
            found = schema.current_revision(connection)
        database.close()
        return found

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(bring, range(8))) == {schema.HEAD}
