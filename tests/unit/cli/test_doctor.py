"""The doctor tells what is missing and what to type."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from kourou.cli import doctor

MOUNTS = """\
/dev/sda1 / ext4 rw,relatime 0 0
tmpfs /data/ann tmpfs rw 0 0
/dev/sdb1 /srv/my\\040disk xfs rw 0 0
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/data/ann/store", "tmpfs"),
        ("/data/annette", "ext4"),
        ("/srv/my disk/store", "xfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert doctor.file_system_of(Path(path), MOUNTS) == kind


def test_no_mounts_no_answer() -> None:
    assert doctor.file_system_of(Path("/x"), "") == ""


def test_a_taken_port_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", {port: "name server"})
        finding = next(doctor._ports())
    assert finding.verdict is doctor.Verdict.NOTE
    assert str(port) in finding.what
    assert list(doctor._ports()) == []


@pytest.mark.parametrize(("free", "noted"), [(16, False), (15, True), (5, True)])
def test_a_disk_on_which_brokers_would_refuse_sends_is_noted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, noted: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    usage = SimpleNamespace(total=100 << 30, used=(100 - free) << 30, free=free << 30)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)
    (finding,) = doctor._disk()
    assert (finding.verdict is doctor.Verdict.NOTE) is noted
    assert ("from 90 % on they refuse sends" in finding.what) is noted


def test_missing_packages_fail_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "LOOKS", (doctor._packages,))
    assert doctor.run_doctor() == 0
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert doctor.run_doctor() == 1
    assert "zmq" in capsys.readouterr().out


def test_java_is_asked_for_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    finding = next(doctor._java())
    assert finding.verdict is doctor.Verdict.NOTE
    assert finding.remedy == "sudo apt install -y openjdk-17-jre-headless"


@pytest.mark.parametrize("variable", ["PATH", "JAVA_HOME"])
def test_java_is_found_by_path_or_by_its_home(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(variable, str(java.parent if variable == "PATH" else tmp_path))
    finding = next(doctor._java())
    assert (finding.verdict, finding.remedy) == (doctor.Verdict.GOOD, "")


def test_a_python_without_ensurepip_is_told_with_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [finding.remedy for finding in doctor._python()] == [""]
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    _, finding = doctor._python()
    assert finding.remedy == "sudo apt install -y python3-venv"


def test_a_home_that_is_not_there_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    assert doctor.run_doctor() == 1
    assert f"missing  the home folder {tmp_path / 'none'}\n" in capsys.readouterr().out
