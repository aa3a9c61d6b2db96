"""The doctor tells what is missing and what to type."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from kourou.broker.config import BrokerSettings
from kourou.cli import doctor
from kourou.errors import MissingPackages
from kourou.settings.declaration import settings_of
from kourou_console.config import ConsoleSettings
from kourou_filter_server import zygote_link as layers
from kourou_filter_server.config import FilterServerSettings
from kourou_filter_server.zygote_link import Layer
from kourou_namesrv.config import NamesrvSettings
from kourou_spark_etl import machine
from kourou_spark_etl.config import EtlSettings

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


@pytest.mark.parametrize(
    ("flag", "arguments", "kind", "what"),
    [
        ("-fprofile-use", "'--enable-shared'", "NOTE", "built without --enable-optimizations"),
        ("-fprofile-use", "'--enable-optimizations' '--with-lto'", "GOOD", "Python 3."),
        ("", "'--enable-shared'", "GOOD", "Python 3."),
        (None, None, "GOOD", "Python 3."),
    ],
    ids=["usual", "optimized", "of a distribution", "unknown"],
)
def test_a_python_without_optimizations_is_noted(
    monkeypatch: pytest.MonkeyPatch, flag, arguments, kind, what
) -> None:
    known = {"PGO_PROF_USE_FLAG": flag, "CONFIG_ARGS": arguments}
    monkeypatch.setattr(doctor.sysconfig, "get_config_var", known.get)
    finding = next(doctor._python())
    assert finding.kind is doctor.FindingKind[kind]
    assert what in finding.what
    assert bool(finding.remedy) is (kind == "NOTE")


def test_a_taken_port_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", {port: "name server"})
        finding = next(doctor._ports())
    assert finding.kind is doctor.FindingKind.NOTE
    assert str(port) in finding.what
    assert list(doctor._ports()) == []


def test_every_port_that_services_take_by_default_is_looked_at() -> None:
    namesrv, broker = NamesrvSettings(), BrokerSettings()
    filters, console = FilterServerSettings(), ConsoleSettings()
    taken = [
        *namesrv.listeners().values(),
        *namesrv.tcp_listeners.values(),
        broker.zmq_bind_address,
        broker.members_bind_address,
        *broker.tcp_listeners.values(),
        filters.zmq_bind_address,
        *filters.tcp_listeners.values(),
    ]
    ports = {int(address.rpartition(":")[2]) for address in taken}
    ports |= {one.admin_port for one in (namesrv, broker, filters, console)} | {console.port}
    assert set(doctor.PORTS) == ports


@pytest.mark.parametrize(("free", "noted"), [(16, False), (15, True), (5, True)])
def test_a_disk_on_which_brokers_would_refuse_sends_is_noted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, noted: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    usage = SimpleNamespace(total=100 << 30, used=(100 - free) << 30, free=free << 30)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)
    (finding,) = doctor._disk()
    assert (finding.kind is doctor.FindingKind.NOTE) is noted
    assert ("at 90 % they refuse sends" in finding.what) is noted


def test_missing_packages_fail_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "LOOKS", (doctor._packages,))
    assert doctor.run_doctor() == 0
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert doctor.run_doctor() == 1
    assert "zmq" in capsys.readouterr().out


def test_what_spark_lacks_is_a_note_with_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(machine, "missing_packages", lambda group: ("pyspark",))
    monkeypatch.setattr(doctor, "LOOKS", (doctor._spark,))
    assert doctor.run_doctor() == 0
    assert capsys.readouterr().out == (
        "note     no pyspark (only the Spark pipeline needs it)\n"
        f"           {MissingPackages('', 'spark').hint}\n"
        "note     no Java (only the Spark pipeline needs it)\n"
        "           sudo apt install -y openjdk-17-jre-headless\n"
    )
    monkeypatch.setattr(machine, "lacking", lambda: ())
    assert doctor.run_doctor() == 0
    assert capsys.readouterr().out == "ok       Java and packages (for Spark only)\n"


def test_a_home_that_is_not_there_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    assert doctor.run_doctor() == 1
    assert f"missing  the home folder {tmp_path / 'none'}\n" in capsys.readouterr().out


@pytest.mark.feature("F243")
def test_what_the_filter_sandbox_lacks_is_named_and_nothing_else_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Layer("user namespaces", False, "Operation not permitted"), Layer("rlimits", True, "")]
    monkeypatch.setattr(layers, "probe", lambda: tuple(found))
    monkeypatch.setattr(doctor, "LOOKS", (doctor._filter_sandbox,))
    assert doctor.run_doctor() == 0
    printed = capsys.readouterr().out
    assert (
        "no filter server can start here; its sandbox lacks user namespaces (Operation not"
        in printed
    )
    assert "rlimits" not in printed
    assert "deploy/seccomp/filter-server.json" in printed
    found[0] = Layer("user namespaces", True, "")
    assert doctor.run_doctor() == 0
    assert capsys.readouterr().out == "ok       sandbox for filters: user namespaces, rlimits\n"


def test_the_doctor_tries_the_real_layers() -> None:
    [finding] = doctor._filter_sandbox()
    for name in ("user namespaces", "Landlock", "seccomp"):
        assert name in finding.what or finding.kind is doctor.FindingKind.NOTE


def test_a_key_that_all_users_can_read_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory(dir="/dev/shm") as name:
        Path(name).chmod(0o755)
        file = Path(name) / "ops.ring"
        file.write_text("secret")
        monkeypatch.setenv("KOUROU_CURVE_KEY_FILE", str(file))
        file.chmod(0o644)
        [finding] = doctor._secret_files()
        assert finding.what == f"KOUROU_CURVE_KEY_FILE={file} is open to all users of this machine"
        assert finding.remedy == f"chmod o= {file}"
        file.chmod(0o600)
        assert list(doctor._secret_files()) == []


def test_files_with_secrets_are_declared_so() -> None:
    """Every setting of a service that names a file with a key, a secret, a token or a password."""
    services = (BrokerSettings, ConsoleSettings, NamesrvSettings, FilterServerSettings, EtlSettings)
    declared = {one.key for kind in services for one in settings_of(kind) if one.secret_file}
    assert declared == {
        *("curveKeyFile", "tls.server.keyPath", "tls.server.keyPasswordFile", "tokenFile"),
        "tls.client.keyPath",
        *("eventStorePasswordFile", "readModelPasswordFile", "initialAdminFile"),
        "aclImportDir",
    }
    named = {
        one.key
        for kind in services
        for one in settings_of(kind)
        if one.kind is Path and re.search("(?i)key|secret|password|token|admin", one.key)
    }
    refused_if_open = {"accessKeyFile"}
    public = {"curveServerKey"}
    folders = {"aclImportDir"}
    assert named == (declared - folders) | refused_if_open | public
