"""`kourou backup` of a broker that serves, and `kourou restore`: what comes back is what was there.

The broker runs in this process, over a real store and real sockets; the commands run in threads of
their own, as they do for an operator.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.broker.network.log_source import LogSource
from kourou.broker.part_settings import store_settings_of
from kourou.cli.backup.folder import BackupFolder
from kourou.cli.backup.restore import UNFINISHED
from kourou.cli.main import main
from kourou.engine.control import encode_state
from kourou.errors import UnknownOutcome
from kourou.model.message import Message
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.pulls import UpdateConsumerOffset
from kourou.store.disk import as_store_error
from kourou.store.real_disk import RealDisk
from kourou.store.store import Store
from kourou.sync import Client
from kourou_rigs.served_here import ServedHere, served_here
from kourou_rigs.store import delete_before, readable
from kourou_spark_etl.source.store_reader import StoreFiles

SEGMENT = 64 * 1024
TIMEOUT_MS = 20_000


def settings_of(root: Path) -> BrokerSettings:
    return BrokerSettings(
        store_root=root, listen_port=0, admin_enabled=False, broker_name="broker-a",
        segment_size_bytes=SEGMENT, replication_enabled=False,
    )  # fmt: skip


class Running(ServedHere):
    """One plain broker, which nobody may follow, and a client of it."""

    @property
    def control(self) -> Any:
        return self.view.control

    async def send(self, number: int, size: int = 1_000) -> None:
        await self.store_one("orders", number, size)

    async def backup(self, to: Path, *more: str) -> tuple[int, str]:
        """(exit code, all that was said)."""
        listener = f"tcp://{self.address('zmq')}"
        return await command("backup", "-b", "broker-a", "--address", listener, "--to", str(to),
                             *more)  # fmt: skip


async def command(*arguments: str) -> tuple[int, str]:
    said = StringIO()

    def run() -> int:
        with redirect_stdout(said), redirect_stderr(said):
            return main(arguments)

    return await asyncio.to_thread(run), said.getvalue()


def running(root: Path) -> AbstractAsyncContextManager[Running]:
    return served_here(BrokerService(settings_of(root)), Running)


def expire(root: Path, position: int) -> None:
    """Retention, while nobody serves."""
    with closing(Store.open(store_settings_of(settings_of(root)), RealDisk())) as store:
        delete_before(store, position)


@pytest.fixture
async def used(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker whose log begins at its second segment, and which has decided things before."""
    root = tmp_path / "store"
    async with running(root) as broker:
        await broker.ask(
            UpdateAndCreateTopic(topic="idle", read_queue_nums=2, write_queue_nums=2, perm=6)
        )
        await broker.ask(
            UpdateConsumerOffset(consumer_group="g", topic="idle", queue_id=1, commit_offset=0)
        )
        for number in range(230):
            await broker.send(number)
    expire(root, SEGMENT)
    async with running(root) as broker:
        yield broker


async def test_a_backup_under_load_is_restored_record_by_record(
    used: Running, tmp_path: Path
) -> None:
    to, restored = tmp_path / "backup", tmp_path / "restored"
    ends: list[int] = []
    loading = True

    async def load() -> None:
        number = 1_000
        while loading:
            await used.send(number)
            number += 1

    sender = asyncio.create_task(load())
    try:
        for _ in range(3):  # the first one copies all, the others what came meanwhile
            code, said = await used.backup(to, "--json")
            assert code == 0, said
            ends.append(json.loads(said)["end"])
    finally:
        loading = False
        await sender
    assert SEGMENT < ends[0] < ends[1] < ends[2] <= used.store.end
    code, said = await command("restore", "--from", str(to), "--to", str(restored))
    assert (code, f"from {SEGMENT} to {ends[2]}" in said) == (0, True), said
    live = used.store
    with closing(Store.open(store_settings_of(settings_of(restored)), RealDisk())) as store:
        assert store.log_range() == (SEGMENT, ends[2])
        assert store.dispatched == ends[2]
        theirs = readable(live, "orders", 4)
        mine = readable(store, "orders", 4)
        assert len(mine) > 100
        assert mine == theirs[: len(mine)]
        assert store.queue_range("idle", 0) == live.queue_range("idle", 0)
    files = StoreFiles(restored)  # as the Spark source reads it
    assert files.confirmed == ends[2]
    spans = [files.span(MessageQueue("orders", "broker-a", queue_id)) for queue_id in range(4)]
    assert sum(span.high - span.low for span in spans) == len(mine)
    async with running(restored) as heir:
        assert heir.control.topics.get("idle") == used.control.topics.get("idle")
        assert heir.control.progress.table["g"] == {"idle": {1: 0}}
        await heir.send(1)


async def test_what_is_restored_is_what_the_broker_knew(used: Running, tmp_path: Path) -> None:
    to, restored = tmp_path / "backup", tmp_path / "restored"
    known = encode_state(used.control)
    assert (await used.backup(to))[0] == 0
    assert (await command("restore", "--from", str(to), "--to", str(restored)))[0] == 0
    made = [restored, *(restored / "commitlog").iterdir()]
    assert {one.stat().st_mode & 0o077 for one in made} == {0}, "they are for their owner only"
    async with running(restored) as heir:
        assert encode_state(heir.control) == known
    code, said = await command("restore", "--from", str(to), "--to", str(restored))
    assert (code, "already exists" in said) == (2, True), said


async def test_another_log_is_not_mixed_into_a_backup(used: Running, tmp_path: Path) -> None:
    to = tmp_path / "backup"
    assert (await used.backup(to))[0] == 0
    before = (to / "manifest.json").read_bytes()
    async with running(tmp_path / "other") as other:
        code, said = await other.backup(to)
        assert (code, "diverged from this backup" in said, "has committed only" in said) == (
            1, True, True,
        ), said  # fmt: skip
        for number in range(200):
            await other.send(number)
        code, said = await other.backup(to)
        assert (code, "diverged from this backup" in said) == (1, True), said
    assert (to / "manifest.json").read_bytes() == before


async def test_a_gap_is_refused(tmp_path: Path) -> None:
    root, to = tmp_path / "store", tmp_path / "backup"
    async with running(root) as broker:
        await broker.send(1)
        assert (await broker.backup(to))[0] == 0
        for number in range(200):
            await broker.send(number)
    expire(root, 2 * SEGMENT)
    async with running(root) as broker:
        code, said = await broker.backup(to)
        assert (code, f"has deleted its log up to {2 * SEGMENT}" in said) == (1, True), said


async def test_what_is_damaged_at_the_broker_is_copied_as_what_it_is(tmp_path: Path) -> None:
    root, to, restored = tmp_path / "store", tmp_path / "backup", tmp_path / "restored"
    async with running(root) as broker:
        for number in range(100):
            await broker.send(number)
        hurt = broker.store.offset_position("orders", 0, 5)
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(hurt + 200)
        file.write(b"?")
    async with running(root) as broker:
        code, said = await broker.backup(to)
        assert (code, "1 damaged regions" in said) == (0, True), said
    assert (await command("restore", "--from", str(to), "--to", str(restored)))[0] == 0
    with closing(Store.open(store_settings_of(settings_of(restored)), RealDisk())) as store:
        assert [region.start for region in store.damaged_regions] == [hurt]
        assert store.queue_range("orders", 0) == (0, 25)


def no_space(*_: object) -> None:
    raise as_store_error(OSError(errno.ENOSPC, "No space left on device"), "writing a segment")


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


async def gone(*_: object) -> Any:
    raise UnknownOutcome("10.0.0.1:20911: the connection was lost")


@pytest.mark.parametrize(
    ("owner", "name", "fails", "code", "why"),
    [
        (BackupFolder, "add", interrupt, 130, ""),
        (BackupFolder, "_write", no_space, 1, "no space left on the disk"),
        (LogSource, "fetch", gone, 1, "the connection was lost"),
    ],
    ids=["Ctrl-C", "full disk", "broker gone"],
)
async def test_an_interrupted_run_goes_on_where_it_was(
    used: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    fails: Callable[..., Any],
    code: int,
    why: str,
) -> None:
    to, add = tmp_path / "backup", BackupFolder.add
    taken: list[int] = []

    with monkeypatch.context() as patch:

        def one_only(folder: BackupFolder, header: Any, data: memoryview) -> None:
            add(folder, header, data)
            folder.save()
            patch.setattr(owner, name, fails)

        patch.setattr(BackupFolder, "add", one_only)
        found, said = await used.backup(to)
        assert (found, why in said) == (code, True), said
    manifest = json.loads((to / "manifest.json").read_bytes())
    assert (manifest["end"] > SEGMENT, manifest["whole"]) == (True, False)

    def noted(folder: BackupFolder, header: Any, data: memoryview) -> None:
        taken.append(header.position)
        add(folder, header, data)

    monkeypatch.setattr(BackupFolder, "add", noted)
    found, said = await used.backup(to)
    assert found == 0, said
    assert taken[0] == manifest["end"]
    assert json.loads((to / "manifest.json").read_bytes())["whole"]


async def test_a_restore_that_is_interrupted_leaves_nothing_by_that_name(
    used: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, restored = tmp_path / "backup", tmp_path / "restored"
    assert (await used.backup(to))[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(Store, "open", interrupt)
        code, _ = await command("restore", "--from", str(to), "--to", str(restored))
        assert (code, restored.exists()) == (130, False)
    code, said = await command("restore", "--from", str(to), "--to", str(restored))
    assert (code, restored.exists()) == (0, True), said
    assert not restored.with_name("restored.restoring").exists()


async def test_the_folder_in_which_one_stands_is_restored_to(
    used: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, empty = tmp_path / "backup", tmp_path / "empty"
    assert (await used.backup(to))[0] == 0
    empty.mkdir()
    monkeypatch.chdir(empty)
    code, said = await command("restore", "--from", str(to), "--to", ".")
    assert (code, (empty / "commitlog").is_dir()) == (0, True), said
    code, said = await command("restore", "--from", str(to), "--to", "/")
    assert (code, "/ is not a separate folder" in said) == (2, True), said


async def test_what_is_no_backup_is_told_so(tmp_path: Path) -> None:
    code, said = await command("restore", "--from", str(tmp_path), "--to", str(tmp_path / "x"))
    assert (code, "manifest.json is missing" in said) == (2, True), said
    (tmp_path / "file").touch()
    code, said = await command("backup", "-b", "a", "--address", "127.0.0.1:1", "--to",
                               str(tmp_path / "file"))  # fmt: skip
    assert (code, "is not a folder" in said) == (2, True), said
    (tmp_path / "manifest.json").write_text("{}")
    code, said = await command("restore", "--from", str(tmp_path), "--to", str(tmp_path / "x"))
    assert (code, "cannot be read" in said) == (1, True), said


async def test_a_changed_segment_is_not_restored(used: Running, tmp_path: Path) -> None:
    to, restored = tmp_path / "backup", tmp_path / "restored"
    assert (await used.backup(to))[0] == 0
    path = to / "commitlog" / f"{SEGMENT:020}"
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    code, said = await command("restore", "--from", str(to), "--to", str(restored))
    assert (code, "its checksum differs" in said) == (1, True), said
    assert not restored.exists()


@pytest.mark.fault
async def test_no_link_in_a_backup_is_followed(used: Running, tmp_path: Path) -> None:
    """Who may write to a backup could have a restore by root read any file into a store."""
    to, restored, outside = (tmp_path / name for name in ("backup", "restored", "outside"))
    assert (await used.backup(to))[0] == 0
    outside.mkdir()
    log = sorted((to / "commitlog").iterdir())
    assert len(log) > 1
    restore = ("restore", "--from", str(to), "--to", str(restored))
    for path in (to / "manifest.json", to / "beginning.json", log[0], log[-1]):
        path.rename(outside / path.name)
        path.symlink_to(outside / path.name)
        code, said = await command(*restore)
        refused = f"{path} is a symbolic link, and links to files are not followed" in said
        assert (code, refused, restored.exists()) == (2, True, False), said
        path.unlink()
        (outside / path.name).rename(path)
    code, said = await command(*restore)
    assert (code, restored.is_dir()) == (0, True), said


@pytest.mark.fault
async def test_a_restore_follows_no_link_where_it_writes(used: Running, tmp_path: Path) -> None:
    to, restored, outside = (tmp_path / name for name in ("backup", "restored", "outside"))
    growing = tmp_path / f"restored{UNFINISHED}"
    assert (await used.backup(to))[0] == 0
    outside.mkdir()
    (outside / "mine").touch()
    for link, leads_to, mine in (
        (growing, outside, True),
        (growing, outside / "nothing", True),
        (restored, outside, True),
        (restored, outside, False),  # as empty as a target may be
    ):
        if not mine:
            (outside / "mine").unlink()
        link.symlink_to(leads_to)
        code, said = await command("restore", "--from", str(to), "--to", str(restored))
        assert code != 0, said
        assert [one.name for one in outside.iterdir()] == (["mine"] if mine else [])
        assert link.is_symlink()
        link.unlink()
    code, said = await command("restore", "--from", str(to), "--to", str(restored))
    assert (code, restored.is_dir()) == (0, True), said


async def test_a_changed_record_of_the_last_segment_is_not_restored(
    used: Running, tmp_path: Path
) -> None:
    """It has no checksum of its own yet; its records have."""
    to, restored = tmp_path / "backup", tmp_path / "restored"
    assert (await used.backup(to))[0] == 0
    path = max((to / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    code, said = await command("restore", "--from", str(to), "--to", str(restored))
    assert (code, "the backup is damaged from position" in said) == (1, True), said
    assert not restored.exists()


def test_the_broker_is_found_by_name_servers(
    kourou_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    cluster = kourou_cluster(1, storage="disk", settings={"mappedFileSizeCommitLog": 65_536})
    with Client(cluster.address, group="g") as client:
        client.send_many([Message("orders", f"{n}".encode()) for n in range(10)])
    to = tmp_path / "backup"

    def run(*arguments: str) -> tuple[int, str]:
        said = StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            return main(("backup", "-n", cluster.address, *arguments)), said.getvalue()

    code, said = run("-b", "broker-a", "--to", str(to))
    assert (code, "DefaultCluster/broker-a from 0 to" in said) == (0, True), said
    code, said = run("-b", "broker-z", "--to", str(tmp_path / "none"))
    assert (code, "broker 'broker-z' not found" in said) == (2, True), said
    code, said = run("-b", "broker-a", "--member", "7", "--to", str(to))
    assert (code, "no replica 7 of broker-a is registered" in said) == (2, True), said
