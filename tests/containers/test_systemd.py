"""The systemd units: few rights by systemd's own measure, and services work under them.

The second test boots Debian's systemd in a container of systemd-nspawn, with this machine's /usr
and this checkout inside, read-only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = "deploy/systemd"
NAMES = (
    "kourou-namesrv.service",
    "kourou-console.service",
    "kourou-broker@a.service",
    "kourou-ha-replica@b.service",
    "kourou-filter-server@f.service",
)
EXPOSURE_MAX = 20
"""Tenths of systemd's exposure level: 0 is none, 10 points are everything."""

BOOT_S = 300
LANDLOCK = "@resources landlock_create_ruleset landlock_add_rule landlock_restrict_self"
"""System calls of the filters' sandbox that systemd-nspawn does not allow by itself."""

FILTER = """
def match(message, context) -> bool:
    return message.tag == "A"
"""

SETTINGS = {
    "namesrv": "",
    "a": (
        "brokerName=broker-a\nnamesrvAddr=127.0.0.1:9876\nmapedFileSizeCommitLog=16777216\n"
        "storePathRootDir=/var/lib/kourou/a\n"
    ),
    "f": "connectWhichBroker=127.0.0.1:20911\n",
    "console": "namesrvAddr=127.0.0.1:9876\n",
}

PROBE = """#!/bin/sh
exec > /var/log/probe.txt 2>&1
export NAMESRV_ADDR=127.0.0.1:9876 PATH=/opt/kourou/bin:$PATH
units="kourou-namesrv kourou-broker@a kourou-filter-server@f kourou-console"
until kourou health http://127.0.0.1:18081 && kourou health http://127.0.0.1:18181 &&
    kourou health http://127.0.0.1:18380; do
    sleep 1
    tries=$((tries + 1))
    [ $tries -lt 30 ] || break
done > /dev/null 2>&1
kourou send orders first --tag A
kourou send orders second --tag B
kourou admin updateSubGroup -g g
kourou admin filter put -g g -f f /opt/filter.py
kourou admin filter try -g g -f f -t orders
for unit in $units; do echo "$unit is $(systemctl is-active $unit)"; done
systemctl stop $units
for unit in $units; do echo "$unit ended: $(systemctl show -p Result --value $unit)"; done
journalctl -b --no-pager -u 'kourou-*' > /var/log/journal.txt
kill -s RTMIN+4 1
"""


def needed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"needs systemd: {program} is missing")
    return found


def folder(root: Path, at: Path) -> None:
    """A file system with the units as an administrator installs them."""
    shutil.copytree(root / UNITS, at / "etc/systemd/system")
    (at / "opt/kourou/bin").mkdir(parents=True)


@pytest.mark.parametrize("unit", NAMES)
def test_units_give_few_rights(root: Path, tmp_path: Path, unit: str) -> None:
    analyze = needed("systemd-analyze")
    folder(root, tmp_path)
    done = subprocess.run(
        [
            analyze,
            "security",
            "--offline=yes",
            f"--root={tmp_path}",
            "--no-pager",
            f"--threshold={EXPOSURE_MAX}",
            unit,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr


def limits_of_memory(root: Path) -> dict[str, tuple[str, str]]:
    """The table of docs/operating.md: service -> limits of unit and chart."""
    text = (root / "docs/operating.md").read_text("utf-8")
    rows = re.findall(
        r"^\| `([a-z-]+)` \| [^|]+ \| `?([^|`]+)`? \| `([^|`]+)` \|", text, re.MULTILINE
    )
    return {name: (unit.strip(), chart) for name, unit, chart in rows}


def test_each_unit_has_the_limit_of_memory_that_the_page_explains(root: Path) -> None:
    wanted = limits_of_memory(root)
    assert set(wanted) == {
        "namesrv",
        "broker",
        "ha-replica",
        "filter-server",
        "console",
        "spark-etl",
    }
    for path in (root / UNITS).glob("*.service"):
        name = path.stem.removeprefix("kourou-").rstrip("@")
        [limit] = re.findall(r"^MemoryMax=(\S+)$", path.read_text("utf-8"), re.MULTILINE)
        assert limit == wanted.pop(name)[0], name
    assert {name: unit for name, (unit, _) in wanted.items()} == {"spark-etl": "–"}
    [sandbox] = (root / UNITS / "kourou-filter-server@.service.d").iterdir()
    assert "OOMPolicy=continue" in sandbox.read_text("utf-8"), "one worker is not all of them"


@pytest.mark.timeout(BOOT_S + 60)
def test_services_work_under_the_units(root: Path, tmp_path: Path) -> None:
    nspawn = needed("systemd-nspawn")
    if os.geteuid() != 0:
        pytest.skip("needs root: systemd-nspawn starts a system")
    make_system(root, tmp_path)
    booted = subprocess.Popen(
        [
            nspawn,
            "--quiet",
            "--boot",
            f"--directory={tmp_path}",
            "--register=no",
            "--keep-unit",
            "--private-network",
            "--console=pipe",
            "--tmpfs=/tmp",
            "--bind-ro=/usr",
            f"--system-call-filter={LANDLOCK}",
            f"--bind-ro={sys.base_prefix}:/opt/python",
            *(f"--bind-ro={path}:{inside}" for path, inside in code().items()),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        console, _ = booted.communicate(timeout=BOOT_S)
    finally:
        booted.terminate()  # a system that is still running ends with it
        booted.wait()
    report = tmp_path / "var/log/probe.txt"
    assert report.exists(), console
    said = report.read_text()
    journal = (tmp_path / "var/log/journal.txt").read_text()
    assert said.count("SEND_OK") == 2, said + journal
    assert "1 of 2 pass, 0 failed" in said, said + journal
    for name in ("namesrv", "broker@a", "filter-server@f", "console"):
        assert f"kourou-{name} is active" in said, said + journal
        assert f"kourou-{name} ended: success" in said, said + journal


def code() -> dict[Path, str]:
    """Where each folder of importable code is, and where it is inside."""
    paths = [Path(path) for path in sys.path if path and Path(path).is_dir()]
    outer = [path for path in paths if not path.is_relative_to(sys.base_prefix)]
    return {path: f"/opt/kourou/lib/{number}" for number, path in enumerate(dict.fromkeys(outer))}


def make_system(root: Path, at: Path) -> None:
    """What systemd needs besides /usr, the units, their settings, and the probe."""
    folder(root, at)
    for name in ("usr", "var/lib", "var/log", "run", "tmp", "proc", "sys", "dev", "root", "home"):
        (at / name).mkdir(parents=True)
    for link in ("bin", "sbin", "lib", "lib64"):
        if Path("/", link).is_symlink():
            (at / link).symlink_to(f"usr/{link}")
    etc = at / "etc"
    for name in ("ld.so.cache", "nsswitch.conf"):
        shutil.copy(Path("/etc", name), etc / name)
    shutil.copytree("/etc/dbus-1", etc / "dbus-1")
    (etc / "os-release").write_text("ID=test\n")
    (etc / "machine-id").write_text("")
    nologin = "/usr/sbin/nologin"
    users = {"root": 0, "messagebus": 100, "nobody": 65534, "kourou": 990}
    (etc / "passwd").write_text(
        "".join(f"{name}:x:{uid}:{uid}::/:{nologin}\n" for name, uid in users.items())
    )
    (etc / "group").write_text("".join(f"{name}:x:{gid}:\n" for name, gid in users.items()))
    (etc / "kourou").mkdir()
    for name, text in SETTINGS.items():
        (etc / "kourou" / f"{name}.conf").write_text(text)
    paths = ":".join(code().values())
    python = "LD_LIBRARY_PATH=/opt/python/lib exec /opt/python/bin/python3"
    script(
        at / "opt/kourou/bin/kourou",
        f'#!/bin/sh\nexport PYTHONPATH={paths}\n{python} -m kourou.cli "$@"\n',
    )
    (at / "opt/filter.py").write_text(FILTER)
    script(at / "opt/probe", PROBE)
    at.chmod(0o755)  # the root folder of all users inside
    system = etc / "systemd/system"
    (system / "probe.service").write_text(
        "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/opt/probe\n"
    )
    wants = system / "multi-user.target.wants"
    wants.mkdir()
    for name in ("namesrv", "console", "broker@a", "filter-server@f"):
        family = name.partition("@")[0] + "@" * ("@" in name)
        (wants / f"kourou-{name}.service").symlink_to(f"../kourou-{family}.service")
    (wants / "probe.service").symlink_to("../probe.service")
    (system / "default.target").symlink_to("/usr/lib/systemd/system/multi-user.target")


def script(at: Path, text: str) -> None:
    at.write_text(text)
    at.chmod(0o755)
