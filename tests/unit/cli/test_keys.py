"""`kourou keys`: what it makes and says, and that it takes nothing away."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.access.model import check_secret
from kourou.cli.main import main
from kourou.service.secret_keys import SecretKeys
from kourou.transport.curve_keys import read_pair, read_public


def test_it_makes_a_pair_named_after_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "broker"
    assert main(("keys", "make", f"{folder}=broker,*:20911")) == 0
    printed = capsys.readouterr().out
    pair = read_pair(folder / "broker.key_secret")
    assert printed == f"made {folder}/broker.key_secret\n"
    [public] = read_public(folder / "broker.key")
    assert (public.key, public.addresses) == (pair.public, ("broker", "*:20911"))
    assert main(("keys", "make", str(folder), "--name", "other")) == 0
    assert (folder / "other.key_secret").stat().st_mode & 0o777 == 0o600
    assert pair.secret not in printed


def test_it_overwrites_nothing_and_keep_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, public = tmp_path / "own", tmp_path / "public"
    assert main(("keys", "make", str(folder))) == 0
    before = (folder / "own.key_secret").read_bytes()
    assert main(("keys", "make", str(folder))) != 0
    assert "exists already and is not overwritten" in capsys.readouterr().err
    (folder / "own.key").unlink()
    assert main(("keys", "make", "--keep", f"{folder}=own", "--public", str(public))) == 0
    assert capsys.readouterr().out == f"kept {folder}/own.key_secret\n"
    assert (folder / "own.key_secret").read_bytes() == before
    assert read_public(public / "own.key") == read_public(folder / "own.key")


def test_it_also_makes_the_key_of_secrets_and_a_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, secret = tmp_path / "access" / "access.keys", tmp_path / "access" / "admin.secret"
    command = ["keys", "make", str(tmp_path / "own"), "--access-keys", str(keys)]
    command += ["--secret", str(secret)]
    shared = tmp_path / "pages" / "pages.secret"
    command += ["--secret", str(shared), "--readable", "pages"]
    assert main([*command, "--keep"]) == 0
    assert shared.stat().st_mode & 0o777 == 0o444
    assert shared.read_text() != secret.read_text()
    SecretKeys.read(keys)  # refuses one that others may read
    assert secret.stat().st_mode & 0o777 == 0o600
    assert check_secret(secret.read_text().strip())
    assert secret.read_text().strip() not in capsys.readouterr().out
    before = keys.read_bytes(), secret.read_bytes()
    assert main([*command, "--keep"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        *(f"kept {path}" for path in (keys, secret, shared))
    ]
    (tmp_path / "own" / "own.key_secret").unlink()
    assert main(command) == 2
    assert f"{keys} cannot be written" in capsys.readouterr().err
    assert (keys.read_bytes(), secret.read_bytes()) == before


def test_public_keys_go_where_they_are_wanted(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    command = [
        *("keys", "make", "--public", f"{tmp_path}/all", "--public", f"{tmp_path}/some=a,c"),
        *("--readable", "b", *(str(tmp_path / name) for name in names)),
    ]
    assert main(command) == 0
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"a.key", "b.key", "c.key"}
    assert {path.name for path in (tmp_path / "some").iterdir()} == {"a.key", "c.key"}
    modes = [(tmp_path / n / f"{n}.key_secret").stat().st_mode & 0o777 for n in names]
    assert modes == [0o600, 0o444, 0o600]


def test_a_ring_has_its_own_pair_and_every_server(tmp_path: Path) -> None:
    wanted = [f"{tmp_path}/a=a", f"{tmp_path}/b=*:1", f"{tmp_path}/c", f"{tmp_path}/app"]
    assert main(("keys", "make", "--ring", "app", *wanted)) == 0
    ring = tmp_path / "app" / "app.ring"
    assert ring.stat().st_mode & 0o777 == 0o600
    assert read_pair(ring) == read_pair(tmp_path / "app" / "app.key_secret")
    known = {one.addresses: one.key for one in read_public(ring, ring=True)}
    assert known == {
        ("a",): read_pair(tmp_path / "a" / "a.key_secret").public,
        ("*:1",): read_pair(tmp_path / "b" / "b.key_secret").public,
    }
    assert main(("keys", "make", "--keep", "--ring", "another", *wanted)) != 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("=broker",), "does not name a folder"),
        (("{}/a=not an address",), "does not name a server"),
        (("{}/a", "{}/b", "--name", "c"), "--name works with one folder only"),
        (("{}/a", "--name", "../b"), "is not a valid key name"),
    ],
)
def test_what_it_refuses_makes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("keys", "make", *(word.format(tmp_path) for word in arguments))) != 0
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_access_keys_are_made_once_and_extended_by_a_first_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "access.keys"
    assert main(("keys", "access", str(file))) == 0
    assert capsys.readouterr().out == f"made {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    sealed = SecretKeys.read(file).seal("till", "a-secret")
    before = file.read_text()
    for words in ((), ("--id", "1"), ("--id", "a:b")):
        assert main(("keys", "access", str(file), *words)) == 2
        assert file.read_text() == before
        assert before.partition(":")[2].strip() not in capsys.readouterr().err
    assert main(("keys", "access", str(file), "--id", "2026-12")) == 0
    assert capsys.readouterr().out == f"added key 2026-12 to {file}; restart the brokers\n"
    assert file.read_text().endswith(before)
    assert file.stat().st_mode & 0o777 == 0o600
    keys = SecretKeys.read(file)
    assert keys.open("till", sealed) == "a-secret"
    assert keys.seal("till", "a-secret").key_id == "2026-12"
    assert [path.name for path in tmp_path.iterdir()] == ["access.keys"]


def test_a_file_that_is_no_key_file_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes"
    file.write_text("my notes")
    file.chmod(0o600)
    assert main(("keys", "access", str(file), "--id", "2")) == 2
    assert "is not a key" in capsys.readouterr().err
    assert file.read_text() == "my notes"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    assert main(("keys", "access", str(link))) == 2
    assert not (tmp_path / "elsewhere").exists()
    assert main(("keys", "access", str(tmp_path / "no" / "folder"))) == 2
