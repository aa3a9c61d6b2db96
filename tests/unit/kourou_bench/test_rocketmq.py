"""RocketMQ is what the list of jars says, and what is missing to run it is told."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou_bench.jars import fetched, read_list
from kourou_bench.rocketmq import RocketMq


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    digest = hashlib.sha256(b"broker").hexdigest()
    listed = f"{digest} org.apache.rocketmq:rocketmq-broker:4.9.7"
    for name in ("rocketmq.jars", "rocketmq-client-4.9.8.jars"):
        (tmp_path / name).write_text(listed)
    return tmp_path


def commands(folder: Path, *names: str) -> str:
    folder.mkdir()
    for name in names:
        script = folder / name
        script.write_text(
            "#!/bin/sh\nfor w; do case $w in -DoutputDirectory=*) to=${w#*=};; esac; done\n"
            'mkdir "$to" && printf broker > "$to/rocketmq-broker-4.9.7.jar"\n'
        )
        script.chmod(0o755)
    return str(folder)


def test_the_version_is_that_of_the_broker_in_the_list(sources: Path) -> None:
    assert RocketMq(sources, sources / "cache").title() == "RocketMQ 4.9.7"
    (sources / "rocketmq.jars").write_text("# nothing\n")
    with pytest.raises(ConfigError, match="no rocketmq-broker"):
        RocketMq(sources, sources / "cache").title()


def test_what_is_missing_is_told_with_what_to_type(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", commands(tmp_path / "none"))
    missing = RocketMq(sources, tmp_path / "cache").missing()
    assert "openjdk-17-jdk-headless" in missing
    assert "apt install -y maven" in missing


def test_maven_is_not_needed_once_the_jars_are_there(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_of_them = commands(tmp_path / "all", "java", "javac", "mvn")
    without = commands(tmp_path / "without", "java", "javac")
    system = RocketMq(sources, tmp_path / "cache")
    monkeypatch.setenv("PATH", without)
    assert (
        system.missing() == "Maven, which fetches the jars, is missing: sudo apt install -y maven"
    )
    monkeypatch.setenv("PATH", f"{all_of_them}:/bin:/usr/bin")
    fetched(read_list((sources / "rocketmq.jars").read_text()), tmp_path / "cache")
    monkeypatch.setenv("PATH", without)
    assert system.missing() == ""
