"""What keeps Spark from starting here is named, with the line to type."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError, MissingPackages
from kourou.service import process_setup as packages
from kourou_spark_etl import machine
from kourou_spark_etl.machine import Lack, check_machine, java_version, lacking, lacking_java
from kourou_spark_etl.session import missing_java, open_session


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Java without a version, by JAVA_HOME."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    return program


def test_a_machine_with_everything_lacks_nothing(java: Path) -> None:
    assert lacking() == ()
    assert missing_java() == ""
    check_machine()


@pytest.mark.parametrize(
    ("told", "version"),
    [("17.0.15", 17), ("21", 21), ("1.8.0_442", 8), ("25.0.1+8-LTS", 25)],
)
def test_a_version_is_read_without_starting_java(java: Path, told: str, version: int) -> None:
    assert java_version(java) is None
    release = java.parent.parent / "release"
    release.write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{told}"\n', encoding="utf-8")
    link = java.parent.parent.parent / "java"
    link.symlink_to(java)
    assert java_version(link) == version
    old = (Lack(f"Java {version}, which is too old", machine.JAVA_LINE),)
    assert lacking_java() == (old if version < 17 else ())


def test_a_home_without_java_is_reported_whatever_the_path_has(
    java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As Spark's own scripts have it."""
    monkeypatch.setenv("PATH", str(java.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    [lack] = lacking_java()
    assert lack.what == f"no Java in JAVA_HOME ({tmp_path / 'none'})"


def test_packages_come_first_and_each_has_its_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(packages, "_installed", lambda name: name == "pandas")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert lacking() == (
        Lack("no pyarrow, pyspark", MissingPackages("", "spark").hint),
        Lack("no Java", "sudo apt install -y openjdk-17-jre-headless"),
    )
    with pytest.raises(ConfigError, match="this machine has no Java"):
        check_machine()
    with pytest.raises(
        ConfigError, match="Spark requires Java 17 or later and found no Java: sudo"
    ):
        open_session()
    monkeypatch.setattr(machine, "lacking_java", tuple)
    with pytest.raises(MissingPackages, match=r"Spark needs packages: pyarrow, pyspark \(pip inst"):
        check_machine()
