"""Jars are what the list says, byte for byte, or they are not used."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kourou.errors import ConfigError, Corrupt
from kourou_bench.jars import check, fetched, read_list

CONTENT = {"one-1.0.jar": b"first", "two-2.0.jar": b"second"}
LIST = "".join(
    f"{hashlib.sha256(content).hexdigest()} org.example:{name[:3]}:{name[4:7]}\n"
    for name, content in CONTENT.items()
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in CONTENT.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(
    "wrong",
    [
        "org.example:one:1.0",
        f"{'0' * 63} org.example:one:1.0",
        f"{'0' * 64} org.example:one",
        f"{'0' * 64} org.example:one:1.0</version>",
        f"{'0' * 64} ../..:one:1.0/../..",
    ],
)
def test_a_line_that_is_no_jar_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="line 3"):
        read_list(f"{LIST}{wrong}\n")


def test_other_bytes_are_refused(folder: Path) -> None:
    (folder / "two-2.0.jar").write_bytes(b"secund")
    with pytest.raises(Corrupt, match=r"two-2\.0\.jar has the checksum"):
        check(read_list(LIST), folder)


def test_a_missing_jar_is_refused(folder: Path) -> None:
    (folder / "one-1.0.jar").unlink()
    with pytest.raises(Corrupt, match=r"one-1\.0\.jar is missing"):
        check(read_list(LIST), folder)


@pytest.fixture
def fake_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `mvn` that copies what lies in a folder to where it is told."""
    supply = tmp_path / "supply"
    supply.mkdir()
    commands = tmp_path / "bin"
    commands.mkdir()
    script = commands / "mvn"
    script.write_text(
        "#!/bin/sh\nfor word; do case $word in -DoutputDirectory=*) to=${word#*=};; esac; done\n"
        f'mkdir "$to" && cp {supply}/* "$to" && echo once >> {tmp_path}/calls\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    return supply


def test_a_fetched_jar_with_another_checksum_never_reaches_the_cache(
    tmp_path: Path, fake_maven: Path
) -> None:
    for name in CONTENT:
        (fake_maven / name).write_bytes(b"something else")
    cache = tmp_path / "cache"
    with pytest.raises(Corrupt, match="has the checksum"):
        fetched(read_list(LIST), cache)
    assert list(cache.iterdir()) == []
