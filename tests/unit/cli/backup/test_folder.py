"""A backup's folder: what it takes from a broker, and where it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.cli.backup.folder import BackupFolder
from kourou.engine.admin.log_bootstrap import LogBeginning, encode_beginning
from kourou.engine.control import ControlState, evolve
from kourou.errors import ConfigError, Corrupt
from kourou.events.control_events import EpochOpened, Recorded
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.messages.replication import FetchLogResponse

SEGMENT = 4_096


def started(path: Path) -> BackupFolder:
    folder = BackupFolder(path)
    begin(folder)
    return folder


def begin(folder: BackupFolder) -> None:
    folder.open(make=True)
    control = ControlState()
    evolve(control, Recorded(0, 0, 10, "t", "", "", EpochOpened(4, 0, "a/0", "SYNC_MASTER")))
    beginning = LogBeginning("c", "b", SEGMENT, SEGMENT, {CONTROL_TOPIC: {0: 1}}, control)
    folder.begin(beginning, encode_beginning(beginning), "b:1")


def answer(position: int, *, previous: int = 4, data: int = 4) -> FetchLogResponse:
    return FetchLogResponse(
        position=position, end=position + 100, previous_epoch=previous, data_epoch=data,
        confirmed=SEGMENT * 2, first_position=0, damage="unreadable",
    )  # fmt: skip


@pytest.mark.parametrize(
    "header",
    [answer(SEGMENT + 8), answer(SEGMENT, data=3), answer(SEGMENT, previous=5)],
    ids=["elsewhere", "an epoch again", "another past"],
)
def test_what_a_broker_cannot_have_is_refused_as_corrupt(
    header: FetchLogResponse, tmp_path: Path
) -> None:
    folder = started(tmp_path / "backup")
    try:
        with pytest.raises(Corrupt):
            folder.add(header, memoryview(bytes(100)))
        assert folder.manifest.end == SEGMENT
        folder.add(answer(SEGMENT, data=5), memoryview(bytes(100)))
        assert folder.manifest.end == SEGMENT + 100
    finally:
        folder.close()


def test_a_folder_with_files_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"is not a backup and has other files: letters\.txt"):
        BackupFolder(tmp_path).open(make=True)
    assert [one.name for one in tmp_path.iterdir()] == ["letters.txt"]


def test_what_a_killed_run_has_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "beginning.json").write_text("{}")
    (tmp_path / "manifest.json.tmp").touch()
    folder = BackupFolder(tmp_path)
    folder.open(make=True)
    assert not folder.known
    folder.close()


@pytest.mark.fault
@pytest.mark.parametrize(
    "name",
    [
        "lock",
        "manifest.json",
        "manifest.json.tmp.creating",
        "beginning.json.tmp.creating",
        f"commitlog/{SEGMENT:020}",
        f"commitlog/{SEGMENT:020}.creating",
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_a_backup_is_written_through_no_link(tmp_path: Path, name: str, exists: bool) -> None:
    """Who may write to the folder could have a backup by root overwrite any file."""
    victim = tmp_path / "victim"
    if exists:
        victim.write_bytes(b"of somebody else")
    link = tmp_path / "backup" / name
    link.parent.mkdir(parents=True)
    folder = BackupFolder(tmp_path / "backup")
    if "commitlog" in name:
        begin(folder)
    link.symlink_to(victim)

    def write() -> None:
        if not folder.known:
            begin(folder)
        folder.add(answer(SEGMENT), memoryview(bytes(100)))

    try:
        with pytest.raises(ConfigError, match="links to files are not followed") as caught:
            write()
    finally:
        folder.close()
    assert str(link) in str(caught.value)
    assert victim.exists() == exists
    assert not exists or victim.read_bytes() == b"of somebody else"
