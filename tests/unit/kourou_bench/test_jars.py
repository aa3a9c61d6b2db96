"""Jars are what the list says, byte for byte, or they are not used."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kourou.errors import ConfigError, Corrupt
from kourou_bench.jars import check, fetched, have, pom, read_list

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


def test_a_list_has_comments_and_jars() -> None:
    jars = read_list(f"# heading\n\n{LIST}  # the end\n")
    assert [jar.file_name for jar in jars] == list(CONTENT)
    assert {jar.group for jar in jars} == {"org.example"}


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


def test_a_jar_listed_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"twice: one-1\.0\.jar"):
        read_list(LIST + LIST.splitlines()[0])


def test_the_bytes_that_the_list_means_pass(folder: Path) -> None:
    check(read_list(LIST), folder)


def test_other_bytes_are_refused(folder: Path) -> None:
    (folder / "two-2.0.jar").write_bytes(b"secund")
    with pytest.raises(Corrupt, match=r"two-2\.0\.jar has the checksum"):
        check(read_list(LIST), folder)


def test_a_missing_jar_is_refused(folder: Path) -> None:
    (folder / "one-1.0.jar").unlink()
    with pytest.raises(Corrupt, match=r"one-1\.0\.jar is missing"):
        check(read_list(LIST), folder)


def test_maven_is_asked_for_these_jars_alone() -> None:
    project = ElementTree.fromstring(pom(read_list(LIST), "https://example.org/?a&b"))
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    wanted = [
        tuple(part.text for part in found)[:3]
        for found in project.findall("m:dependencies/m:dependency", space)
    ]
    assert wanted == [("org.example", "one", "1.0"), ("org.example", "two", "2.0")]
    excluded = project.findall(".//m:exclusion/m:artifactId", space)
    assert [one.text for one in excluded] == ["*", "*"]
    urls = {one.text for one in project.findall(".//m:url", space)}
    assert urls == {"https://example.org/?a&b"}
    assert "<url>" not in pom(read_list(LIST))  # then Maven knows where to ask


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


def test_jars_are_fetched_once_and_again_when_they_were_touched(
    tmp_path: Path, fake_maven: Path
) -> None:
    jars, cache, calls = read_list(LIST), tmp_path / "cache", tmp_path / "calls"
    for name, content in CONTENT.items():
        (fake_maven / name).write_bytes(content)
    assert not have(jars, cache)
    place = fetched(jars, cache)
    assert have(jars, cache)
    assert fetched(jars, cache) == place
    assert calls.read_text().count("once") == 1
    (place / "one-1.0.jar").write_bytes(b"touched")
    assert fetched(jars, cache) == place
    assert (place / "one-1.0.jar").read_bytes() == b"first"
    assert calls.read_text().count("once") == 2


def test_two_who_want_the_same_jars_at_once_fetch_them_once(
    tmp_path: Path, fake_maven: Path
) -> None:
    jars, cache = read_list(LIST), tmp_path / "cache"
    for name, content in CONTENT.items():
        (fake_maven / name).write_bytes(content)
    together = threading.Barrier(2)

    def fetch() -> Path:
        together.wait()
        return fetched(jars, cache)

    with ThreadPoolExecutor(2) as threads:
        places = {one.result() for one in [threads.submit(fetch), threads.submit(fetch)]}
    assert len(places) == 1
    assert have(jars, cache)
    assert (tmp_path / "calls").read_text().count("once") == 1


def test_a_fetched_jar_with_another_checksum_never_reaches_the_cache(
    tmp_path: Path, fake_maven: Path
) -> None:
    for name in CONTENT:
        (fake_maven / name).write_bytes(b"something else")
    cache = tmp_path / "cache"
    with pytest.raises(Corrupt, match="has the checksum"):
        fetched(read_list(LIST), cache)
    assert list(cache.iterdir()) == []


def test_the_projects_own_list_is_one(pytestconfig: pytest.Config) -> None:
    text = (pytestconfig.rootpath / "benchmarks/java/rocketmq.jars").read_text(encoding="utf-8")
    artifacts = {jar.artifact for jar in read_list(text)}
    assert {"rocketmq-broker", "rocketmq-namesrv", "rocketmq-client", "netty-all"} <= artifacts
