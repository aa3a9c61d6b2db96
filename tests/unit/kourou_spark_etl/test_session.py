"""What a session needs before there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou_spark_etl.session import missing_java, open_session


def test_without_java_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_java() == (
        "Spark requires Java 17 or later and found no Java: "
        "sudo apt install -y openjdk-17-jre-headless"
    )
    with pytest.raises(ConfigError, match="Spark requires Java 17"):
        open_session()


def test_java_is_found_by_its_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert missing_java() == ""
