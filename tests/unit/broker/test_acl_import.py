"""Files with users: which are read, when, and what happens with bad ones."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kourou.access.plain_acl import ImportedAcl
from kourou.broker.acl_import import REPEAT_MS, AclImport, read_acl_files
from kourou.errors import BadRequest


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
    made = AclImport(path, clock, lambda found: imported.append(names(found)), raised)
    return made, imported, clock


# -- reading --------------------------------------------------------------------------------------


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(accounts("till-01"))
    found = read_acl_files(file)
    assert names(found) == ["till-01"]
    assert found.secrets == {"till-01": "secret-of-till-01"}


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
    found = read_acl_files(tmp_path)
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
        read_acl_files(tmp_path / "acl")
    assert "12345678" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="nothing cannot be read: No such file"):
        read_acl_files(tmp_path / "nothing")


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
    for _ in range(2):
        await watch.look()
    (tmp_path / "b.yml").write_text(accounts("bill-01"))
    for _ in range(2):
        await watch.look()
    (tmp_path / "a.yml").unlink()
    for _ in range(2):
        await watch.look()
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
    for _ in range(2):
        await watch.look()
    with caplog.at_level(logging.WARNING, "kourou.broker"):
        file.write_text("accounts: [")
        for _ in range(5):
            await watch.look()
    assert caplog.messages == [
        f"aclImportDir: {file} is not valid YAML, line 1; no user was changed"
    ]
    file.unlink()
    for _ in range(2):
        await watch.look()
    assert "cannot be read" in caplog.messages[-1]
    clock.ms += REPEAT_MS
    await watch.look()
    assert imported == [["till-01"]] * 2
    file.write_text(accounts("bill-01"))
    for _ in range(2):
        await watch.look()
    assert imported[-1] == ["bill-01"]


async def test_a_bug_ends_the_process(tmp_path: Path) -> None:
    def fail(_found: ImportedAcl) -> None:
        raise ZeroDivisionError

    failures: list[BaseException] = []
    (tmp_path / "a.yml").write_text(accounts("till-01"))
    watch = AclImport(tmp_path, StandingClock(), fail, failures.append)
    watch.start()
    assert watch._task is not None
    await watch._task
    assert [type(one) for one in failures] == [ZeroDivisionError]
    await watch.stop()
