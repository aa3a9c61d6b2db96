"""Files with users: which are read, when, and what happens with bad ones."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from kourou.access.plain_acl import ImportedAcl
from kourou.broker import acl_import
from kourou.broker.acl_import import REPEAT_MS, AclImport, read_acl_file, read_acl_files
from kourou.errors import BadRequest

CLUSTER = "DefaultCluster"


class StandingClock:
    """A clock that stands until a test moves it."""

    ms = 1_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


def accounts(*names: str) -> str:
    one = "  - accessKey: {0}\n    secretKey: secret-of-{0}\n    defaultTopicPerm: PUB\n"
    return "accounts:\n" + "".join(one.format(name) for name in names)


def names(found: ImportedAcl) -> list[str]:
    return [one.name for one in found.users]


def raised(error: BaseException) -> None:
    raise error


def importing(path: Path) -> tuple[AclImport, list[list[str]], StandingClock]:
    """An import of a path, the names of each import, and its clock."""
    clock, imported = StandingClock(), list[list[str]]()
    made = AclImport(path, CLUSTER, clock, lambda found: imported.append(names(found)), raised)
    return made, imported, clock


async def settled(watch: AclImport) -> None:
    """Two looks: what both find alike is imported."""
    for _ in range(2):
        await watch.look()


# -- reading --------------------------------------------------------------------------------------


def test_all_files_of_a_folder_are_read_and_the_first_counts(tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    (tmp_path / "..data").mkdir()
    (tmp_path / "plain_acl.yml").write_text(accounts("bill-01", "till-01"))
    (tmp_path / "acl" / "first.yaml").write_text(accounts("till-01", "news-01"))
    (tmp_path / "acl" / "users.json").write_text(
        '{"users": [{"username": "root", "password": "a-secret", "userType": "Super"}]}'
    )
    (tmp_path / "..data" / "plain_acl.yml").write_text(accounts("hidden-1"))
    (tmp_path / "notes.txt").write_text("not a file with users")
    found = read_acl_files(tmp_path, CLUSTER)
    assert names(found) == ["till-01", "news-01", "root", "bill-01"]
    assert [one.user for one in found.policies] == ["till-01", "news-01", "bill-01"]
    second = tmp_path / "plain_acl.yml"
    assert found.notes == [f"user till-01 of {second} is in another file already, which counts"]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("acl/a.yml", "accounts: [", "a.yml is not valid YAML, line 1"),
        (
            "acl/a.yml",
            "accounts: [{accessKey: a-long-name, admins: 1}]",
            "a.yml: account .*keys",
        ),
        (
            "acl/a.yml",
            "accounts: [{accessKey: RocketMQ, secretKey: 12345678}]",
            "RocketMQ ships .RocketMQ.: their secrets are public",
        ),
        ("acl/a.txt", "accounts: []", "has no file with users"),
    ],
)
def test_a_folder_with_a_bad_file_is_refused(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    (tmp_path / "acl").mkdir()
    (tmp_path / name).write_text(text)
    with pytest.raises(BadRequest, match=why) as error:
        read_acl_files(tmp_path / "acl", CLUSTER)
    assert "12345678" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="nothing cannot be read: No such file"):
        read_acl_files(tmp_path / "nothing", CLUSTER)


def test_a_comment_like_a_header_of_mqadmin_is_a_comment(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    for comment in ("#Subject to review", "#Subject", "#UserName and secret"):
        file.write_text(comment + "\n" + accounts("till-01"))
        assert names(read_acl_files(file, CLUSTER)) == ["till-01"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("accounts: [{accessKey: 0x" + "f" * 4_000 + "}]", "cannot be converted: ValueError"),
        (
            '{"accounts": [{"accessKey": "till-01", "secretKey": "a-secret",'
            ' "topicPerms": ["\\ud83d\\ude00=PUB"]}]}',
            "line 1, has half a character as an escape",
        ),
        (
            'accounts:\n- accessKey: till-01\n  secretKey: "a-secret\\udc00"',
            "line 3, has half a character",
        ),
        ('"\\ud83d": x', "line 1, has half a character"),
    ],
)
def test_a_value_that_no_event_can_have_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "plain_acl.json"
    file.write_text(text)
    with pytest.raises(BadRequest, match=why) as error:
        read_acl_file(file)
    str(error.value).encode()
    assert "a-secret" not in str(error.value)


def test_whatever_fails_in_a_file_is_a_refusal_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: Path, _text: str) -> None:
        raise KeyError("a-secret")

    file = tmp_path / "plain_acl.yml"
    file.write_text(accounts("till-01"))
    monkeypatch.setattr(acl_import, "_yaml", fail)
    with pytest.raises(BadRequest, match="cannot be converted: KeyError") as error:
        read_acl_files(file, CLUSTER)
    assert "a-secret" not in str(error.value)
    assert error.value.__cause__ is None or "a-secret" not in str(error.value.__cause__)


def test_a_user_without_a_password_does_not_get_one_of_a_later_file(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("users: [{username: till-01}]")
    (tmp_path / "b.yml").write_text(accounts("till-01", "bill-01"))
    found = read_acl_files(tmp_path, CLUSTER)
    assert names(found) == ["till-01", "bill-01"]
    assert found.secrets == {"bill-01": "secret-of-bill-01"}


def test_an_entry_about_another_cluster_is_left_out(tmp_path: Path) -> None:
    entries = "[{resource: 'Cluster:Other', actions: [All]}]"
    (tmp_path / "a.yml").write_text(
        "users: [{username: till, password: a-secret}]\n"
        f"acls: [{{subject: 'User:till', policies: [{{entries: {entries}}}]}}]\n"
    )
    assert not read_acl_files(tmp_path, CLUSTER).policies
    assert [str(one.resource) for one in read_acl_files(tmp_path, "Other").policies] == [
        "Cluster:*"
    ]


def test_linked_folders_are_read_and_links_without_an_end_are_refused(tmp_path: Path) -> None:
    shared, folder = tmp_path / "shared", tmp_path / "acl"
    shared.mkdir()
    folder.mkdir()
    (shared / "a.yml").write_text(accounts("till-01"))
    (folder / "linked").symlink_to(shared)
    (folder / "b.yml").symlink_to(shared / "a.yml")
    assert names(read_acl_files(folder, CLUSTER)) == ["till-01"]
    (folder / "b.yml").unlink()
    assert names(read_acl_files(folder, CLUSTER)) == ["till-01"]
    for number in range(3):
        (folder / f"again-{number}").symlink_to(folder)
    with pytest.raises(BadRequest, match="or folders in more than 8 levels"):
        read_acl_files(folder, CLUSTER)


def test_many_files_are_refused(tmp_path: Path) -> None:
    for number in range(1_001):
        (tmp_path / f"{number}.txt").touch()
    (tmp_path / "a.yml").write_text(accounts("till-01"))
    with pytest.raises(BadRequest, match="more than 1000 files"):
        read_acl_files(tmp_path, CLUSTER)


@pytest.mark.parametrize("name", ["b.yml", "linked"])
def test_users_behind_a_link_that_leads_nowhere_are_not_gone(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.yml").write_text(accounts("till-01"))
    (tmp_path / name).symlink_to(tmp_path / "not-mounted")
    with pytest.raises(BadRequest, match="cannot be read: No such file"):
        read_acl_files(tmp_path, CLUSTER)


def test_users_in_a_folder_that_cannot_be_listed_are_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acl").mkdir()
    (tmp_path / "a.yml").write_text(accounts("till-01"))
    listed = os.scandir

    def scandir(path: str | Path) -> object:
        if Path(path).name == "acl":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(BadRequest, match=r"/acl cannot be read: Permission denied"):
        read_acl_files(tmp_path, CLUSTER)


def test_files_that_change_while_they_are_read_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "a.yml", tmp_path / "b.yml"
    first.write_text(accounts("till-01"))
    second.write_text(accounts("bill-01"))
    read = acl_import.read_acl_file

    def meanwhile(file: Path, **how: str) -> ImportedAcl:
        found = read(file, **how)
        first.write_text(accounts("till-01", "news-01"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(acl_import, "read_acl_file", meanwhile)
        with pytest.raises(BadRequest, match=r"changed while it was read.*rename"):
            read_acl_files(tmp_path, CLUSTER)
    assert names(read_acl_files(tmp_path, CLUSTER)) == ["till-01", "news-01", "bill-01"]


# -- when -----------------------------------------------------------------------------------------


async def test_a_change_is_imported_when_the_file_is_settled(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(accounts("till-01"))
    watch, imported, _ = importing(file)
    await watch.look()
    assert imported == []
    await watch.look()
    assert imported == [["till-01"]]
    await watch.look()
    assert imported == [["till-01"]]
    file.write_text(accounts("till-01", "bill-01")[:40])  # somebody is writing
    await watch.look()
    file.write_text(accounts("till-01", "bill-01"))
    await watch.look()
    assert imported == [["till-01"]]
    await watch.look()
    assert imported[1:] == [["till-01", "bill-01"]]


async def test_a_new_file_of_a_folder_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(accounts("till-01"))
    watch, imported, _ = importing(tmp_path)
    await settled(watch)
    (tmp_path / "b.yml").write_text(accounts("bill-01"))
    await settled(watch)
    (tmp_path / "a.yml").unlink()
    await settled(watch)
    assert imported == [["till-01"], ["till-01", "bill-01"], ["bill-01"]]


async def test_what_was_read_is_imported_again_from_time_to_time(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(accounts("till-01"))
    watch, imported, clock = importing(tmp_path)
    for _ in range(3):
        await watch.look()
    clock.ms += REPEAT_MS
    await watch.look()
    await watch.look()
    assert imported == [["till-01"]] * 2


async def test_a_bad_file_changes_nothing_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(accounts("till-01"))
    watch, imported, clock = importing(file)
    await settled(watch)
    with caplog.at_level(logging.WARNING, "kourou.broker"):
        file.write_text("accounts: [")
        for _ in range(5):
            await watch.look()
    assert caplog.messages == [
        f"acl-files-unusable: aclImportDir: {file} is not valid YAML, line 1; no user was changed"
    ]
    file.unlink()
    await settled(watch)
    assert "cannot be read" in caplog.messages[-1]
    clock.ms += REPEAT_MS
    await watch.look()
    assert imported == [["till-01"]] * 2
    file.write_text(accounts("bill-01"))
    await settled(watch)
    assert imported[-1] == ["bill-01"]


async def test_a_read_that_the_system_refused_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.yml").write_text(accounts("till-01"))
    watch, imported, clock = importing(tmp_path)
    tries: list[Path] = []

    def fail(file: Path, **_how: str) -> ImportedAcl:
        tries.append(file)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "kourou.broker"):
        patch.setattr(acl_import, "read_acl_file", fail)
        for _ in range(5):
            await watch.look()
        assert len(tries) == 1
        clock.ms += REPEAT_MS
        await watch.look()
        assert len(tries) == 2
    assert len(caplog.messages) == 1
    await watch.look()
    assert imported == []
    clock.ms += REPEAT_MS
    await watch.look()
    assert imported == [["till-01"]]


async def test_a_hostile_file_does_not_end_the_watch(tmp_path: Path) -> None:
    file = tmp_path / "a.yml"
    watch, imported, _ = importing(file)
    for text in ("#Subject to review", "accounts: [{accessKey: 0x" + "f" * 4_000 + "}]"):
        file.write_text(text)
        await settled(watch)
    assert imported == []
    file.write_text(accounts("till-01"))
    await settled(watch)
    assert imported == [["till-01"]]


async def test_a_bug_ends_the_process(tmp_path: Path) -> None:
    def fail(_found: ImportedAcl) -> None:
        raise ZeroDivisionError

    failures: list[BaseException] = []
    (tmp_path / "a.yml").write_text(accounts("till-01"))
    watch = AclImport(tmp_path, CLUSTER, StandingClock(), fail, failures.append)
    watch.start()
    assert watch._task is not None
    await watch._task
    assert [type(one) for one in failures] == [ZeroDivisionError]
    await watch.stop()
