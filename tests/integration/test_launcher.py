"""./kourou makes its environment once, adds groups of packages on demand, and notices changes.

A fake Python records its calls, so nothing is downloaded here; one slow test at the end installs
real packages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import zlib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

PRETENDER = """\
#!/bin/sh
# Plays a Python: notes its arguments, "makes" environments, has ensurepip unless told otherwise.
own_pip() {
    mkdir -p "$1/lib/python3.11/site-packages/pip-26.0.dist-info"
    : > "$1/lib/python3.11/site-packages/pip-26.0.dist-info/RECORD"
}
echo "$*" >> "$CALLS"
case $1 in
-c)
    case $2 in
    *version_info*) exit "${OLD:-0}" ;;
    *"import pip"*"(25,0)"*) exit "${OLD_PIP:-${SLOW_PIP:-0}}" ;;
    *"import pip"*) exit "${OLD_PIP:-0}" ;;
    *ensurepip*) exit "${NO_ENSUREPIP:-0}" ;;
    *tomllib* | *setpgid*) exec "$REAL" "$@" ;;
    esac ;;
-m)
    case $2 in
    venv)
        rm -rf "$4"; mkdir -p "$4/bin"; cp "$PRETENDER" "$4/bin/python"; : > "$4/pyvenv.cfg"
        [ -n "${5:-}" ] || own_pip "$4" ;;
    ensurepip) own_pip "${0%/bin/python}" ;;
    pip)
        case $* in *"pip>=25") [ -n "${NO_NETWORK:-}" ] || own_pip "${4%/bin/python}"; exit ;; esac
        echo "a line of pip"
        case $* in *" ${PIP_OF:--r} "*) ;; *) exit ;; esac
        if [ -n "${PIP_WAITS:-}" ]; then read -r _ < "$PIP_WAITS"; fi
        exit "${PIP_FAILS:-0}" ;;
    kourou.cli)
        shift 2
        case " ${KOUROU_GROUPS:-} " in
        *" ${NEEDS:-} "*) ;;
        *)
            export KOUROU_GROUPS="${KOUROU_GROUPS:-} $NEEDS"
            [ -z "${NEEDS:-}" ] || exec "$KOUROU_COMMAND" "$@" ;;
        esac
        (: <&0) && (: >&1) && (: >&2) || exit 9
        echo "ran: $*"
        echo "called $KOUROU_COMMAND" >> "$CALLS" ;;
    esac ;;
esac
"""


SOURCE = Path(__file__).resolve().parents[2]
NEEDED = (
    "cat",
    "cksum",
    "cp",
    "cut",
    "dirname",
    "flock",
    "grep",
    "ls",
    "mkdir",
    "mv",
    "readlink",
    "rm",
    "sed",
    "sh",
    "sleep",
    "sort",
    "tail",
    "tr",
)


class Checkout:
    """A copy of the launcher with a fake Python."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.root.mkdir()
        shutil.copy(SOURCE / "kourou", self.root / "kourou")
        shutil.copy(SOURCE / "pyproject.toml", self.root / "pyproject.toml")
        self.tools = folder / "bin"
        self.tools.mkdir()
        for name in NEEDED:
            if found := shutil.which(name):
                (self.tools / name).symlink_to(found)
        self.calls = folder / "calls"
        self.pretender = folder / "python3"
        self.pretender.write_text(PRETENDER)
        self.pretender.chmod(0o755)

    def run(
        self,
        *arguments: str,
        launcher: Path | None = None,
        streams: str = "",
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run it; `streams` are redirections as a shell writes them, such as `<&-`."""
        self.calls.write_text("")
        typed = [str(launcher or self.root / "kourou"), *arguments]
        return subprocess.run(
            ["sh", "-c", f'exec "$0" "$@" {streams}', *typed] if streams else typed,
            env=self.environment(environment),
            capture_output=True,
            text=True,
            check=False,
        )

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        """Of a launcher that finds the fake Python and the tools of NEEDED only."""
        return {
            "PATH": str(self.tools),
            "HOME": os.environ.get("HOME", "/"),
            "CALLS": str(self.calls),
            "PRETENDER": str(self.pretender),
            "KOUROU_PYTHON": str(self.pretender),
            "REAL": sys.executable,
            **more,
        }

    def fetched(self) -> set[str]:
        """What the last installation fetched for groups: requirements of pyproject.toml."""
        required = (self.root / ".venv" / "kourou-packages.txt").read_text().splitlines()
        own = project()["dependencies"]
        assert set(own) <= set(required)
        return set(required) - set(own)

    def pips(self) -> list[str]:
        """The last run's calls of pip."""
        return [line for line in self.calls.read_text().splitlines() if line.startswith("-m pip")]

    def asked(self, word: str) -> int:
        """How many of the last run's calls of Python began so."""
        return sum(line.startswith(word) for line in self.calls.read_text().splitlines())


def project() -> dict[str, Any]:
    """The project table of pyproject.toml."""
    read: dict[str, Any] = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    return read


def extras(*groups: str) -> set[str]:
    """The requirements of these groups."""
    return {one for group in groups for one in project()["optional-dependencies"][group]}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_first_run_installs_and_the_second_does_not(checkout: Checkout) -> None:
    first = checkout.run("demo", "--plain", "two words")
    assert (first.returncode, first.stdout) == (0, "ran: demo --plain two words\n")
    assert (checkout.asked("-m venv"), checkout.asked("-m pip")) == (1, 2)
    assert any(one.endswith(f" --no-deps -e {checkout.root}") for one in checkout.pips())
    second = checkout.run("test")
    assert (second.returncode, second.stdout, second.stderr) == (0, "ran: test\n", "")
    assert (checkout.asked("-m venv"), checkout.asked("-m pip")) == (0, 0)


@pytest.mark.parametrize("no_ensurepip", ["0", "1"])
def test_a_pip_of_the_machine_installs_into_an_environment_without_one(
    checkout: Checkout, no_ensurepip: str
) -> None:
    python = f"{checkout.root}/.venv/bin/python"
    assert checkout.run("version", NO_ENSUREPIP=no_ensurepip).returncode == 0
    assert checkout.asked(f"-m venv --clear {checkout.root}/.venv --without-pip") == 1
    assert checkout.asked(f"-m pip --python {python} install ") == 2
    assert checkout.run("demo", KOUROU_GROUPS="demo").returncode == 0
    assert checkout.asked(f"-m pip --python {python} install ") == 1, "nothing is built again"
    assert checkout.fetched() == extras("demo")


def test_where_the_machine_has_none_the_environment_has_its_own(checkout: Checkout) -> None:
    assert checkout.run("version", OLD_PIP="1").returncode == 0
    assert checkout.asked(f"-m venv --clear {checkout.root}/.venv") == 1
    assert checkout.asked("-m pip install ") == 2
    assert checkout.run("demo", KOUROU_GROUPS="demo").returncode == 0
    assert checkout.asked("-m pip install ") == 1, "the one that is there is used"


def test_a_pip_that_the_machine_no_longer_has_is_put_into_the_environment(
    checkout: Checkout,
) -> None:
    assert checkout.run("version").returncode == 0
    assert checkout.run("demo", KOUROU_GROUPS="demo", OLD_PIP="1").returncode == 0
    assert (checkout.asked("-m ensurepip"), checkout.asked("-m pip install ")) == (1, 1)


def test_a_slow_pip_of_the_machine_fetches_a_newer_one_first(checkout: Checkout) -> None:
    assert checkout.run("version", SLOW_PIP="1").returncode == 0
    ours = [line for line in checkout.pips() if not line.startswith("-m pip --python ")]
    assert [line.rpartition(" -r ")[2] for line in ours] == [
        f"{checkout.root}/.venv/kourou-packages.txt"
    ]
    before = [line for line in checkout.pips() if line not in ours]
    assert sorted("pip>=25" in line for line in before) == [False, True]


def test_where_no_newer_pip_can_be_had_the_slow_one_installs(
    checkout: Checkout, tmp_path: Path
) -> None:
    assert checkout.run("version", SLOW_PIP="1", NO_NETWORK="1").returncode == 0
    assert checkout.asked("-m pip --python ") == 3
    offline = checkout.run(
        "version", SLOW_PIP="1", KOUROU_WHEELHOUSE=str(tmp_path), KOUROU_GROUPS="demo"
    )
    assert offline.returncode == 0
    assert not any("pip>=25" in line for line in checkout.pips()), "it is the only source"


@pytest.mark.parametrize("name", ["pyproject.toml", "libs/kourou/protocol/_kernel.pyx"])
def test_a_changed_project_is_installed_again(checkout: Checkout, name: str) -> None:
    (checkout.root / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout.root / name).touch()
    checkout.run("test")
    with (checkout.root / name).open("a") as file:
        file.write("# one more line\n")
    assert checkout.run("test").returncode == 0
    assert (checkout.asked("-m venv"), checkout.asked("-m pip")) == (0, 2)


def test_a_moved_folder_gets_a_new_environment(checkout: Checkout) -> None:
    checkout.run("test")
    checkout.root = checkout.root.rename(checkout.root.with_name("elsewhere"))
    assert checkout.run("test").stdout == "ran: test\n"
    assert (checkout.asked("-m venv"), checkout.asked("-m pip")) == (1, 2)


@pytest.mark.parametrize("which", ["-r", "-e"])
def test_a_failed_installation_shows_why_and_is_done_again(checkout: Checkout, which: str) -> None:
    failed = checkout.run("test", PIP_FAILS="1", PIP_OF=which)
    assert failed.returncode == 2
    assert "a line of pip" in failed.stderr
    log = failed.stderr.rstrip().rpartition("the whole log is ")[2]
    assert "a line of pip" in Path(log).read_text()
    assert log.endswith(".build") == (which == "-e")
    assert checkout.run("test").stdout == "ran: test\n"
    assert checkout.asked("-m pip") == 2


def test_missing_ensurepip_names_the_line_to_type(checkout: Checkout) -> None:
    done = checkout.run("demo", NO_ENSUREPIP="1", OLD_PIP="1")
    assert done.returncode == 2
    assert done.stderr.endswith("sudo apt install -y python3-venv\n")
    assert not (checkout.root / ".venv").exists()


def test_the_first_run_fetches_no_group_and_says_what_it_fetches(checkout: Checkout) -> None:
    first = checkout.run("--help")
    assert checkout.fetched() == set()
    assert first.stderr == (
        f"kourou: making {checkout.root}/.venv\n"
        "kourou: fetching the packages of Kourou: 56 MB, about 15 s "
        f"(once, into {checkout.root}/.venv)\n"
    )


def with_their_requirements(lines: Iterable[str]) -> dict[str, metadata.Distribution]:
    """The installed packages that requirements name, and those that these need."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(lines)
    while waiting:
        one = Requirement(waiting.pop())
        if one.name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found[one.name] = metadata.distribution(one.name)
            waiting += found[one.name].requires or ()
    return found


BLOCK_BYTES, BLOCKS = 65_536, 8
"""Of so many blocks of a file one is compressed, and stands for all of them."""


def compressed_bytes(package: metadata.Distribution) -> float:
    """The files of its wheel, each compressed as there."""
    found = 0.0
    for one in package.files or ():
        if one.size:
            content = Path(str(one.locate())).read_bytes()
            starts = range(0, len(content), BLOCK_BYTES * BLOCKS)
            sample = b"".join(content[at : at + BLOCK_BYTES] for at in starts)
            found += len(zlib.compress(sample)) * len(content) / len(sample)
    return found


def test_the_size_that_it_prints_is_that_of_the_installed_packages() -> None:
    """Within a fifth: they are compressed again here, and versions differ."""
    building = tomllib.loads((SOURCE / "pyproject.toml").read_text())["build-system"]
    required = [*project()["dependencies"], *building["requires"]]
    packages = with_their_requirements(required)
    assert {"numpy", "hatchling", "pydantic-core"} <= packages.keys()
    measured_mb = sum(map(compressed_bytes, packages.values())) / 1e6
    printed = re.search(r"the packages of Kourou: (\d+) MB", (SOURCE / "kourou").read_text())
    assert printed is not None
    assert abs(measured_mb - int(printed[1])) <= int(printed[1]) / 5, f"{measured_mb:.0f} MB"


def test_a_command_that_needs_a_group_gets_it_once(checkout: Checkout) -> None:
    """The command asks by running the launcher again; its arguments stay as they were."""
    assert checkout.run("up").returncode == 0
    first = checkout.run("up", "--spark", "two words", NEEDS="spark")
    assert (first.returncode, first.stdout) == (0, "ran: up --spark two words\n")
    assert checkout.fetched() == extras("spark")
    assert first.stderr.startswith("kourou: fetching Spark, pyarrow and pandas: ")
    again = checkout.run("up", NEEDS="spark", KOUROU_GROUPS="spark")
    assert (again.stdout, again.stderr, checkout.asked("-m pip")) == ("ran: up\n", "", 0)


def test_groups_add_up(checkout: Checkout) -> None:
    assert checkout.run("demo", KOUROU_GROUPS="demo").returncode == 0
    assert checkout.fetched() == extras("demo")
    assert checkout.run("demo", KOUROU_GROUPS="spark bench").returncode == 0
    assert checkout.fetched() == extras("bench", "demo", "spark")
    with (checkout.root / "pyproject.toml").open("a") as file:
        file.write("# one more line\n")
    changed = checkout.run("--help")
    assert changed.stderr.startswith("kourou: fetching what has changed ")
    assert checkout.fetched() == extras("bench", "demo", "spark")


def test_every_extra_of_the_project_is_a_group_and_nothing_else_is(checkout: Checkout) -> None:
    groups = project()["optional-dependencies"]
    for name in groups:
        assert checkout.run("version", KOUROU_GROUPS=name).returncode == 0, name
    refused = checkout.run("version", KOUROU_GROUPS="spark,demo")
    assert refused.returncode == 2
    said, _, names = refused.stderr.rpartition(" Groups: ")
    assert said == "kourou: KOUROU_GROUPS: there is no group 'spark,demo'."
    assert sorted(names.split()) == sorted(groups)


@pytest.mark.parametrize("which", ["-r", "-e"])
def test_an_installation_that_was_killed_is_completed_by_the_next_start(
    checkout: Checkout, tmp_path: Path, which: str
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    process = subprocess.Popen(
        [str(checkout.root / "kourou"), "version"],
        env=checkout.environment({"PIP_WAITS": str(gate), "PIP_OF": which}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell ignores what was ignored when it began, as in a background job.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with gate.open("wb", buffering=0) as opened:  # when pip reads
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate()[1]
        with pytest.raises(BrokenPipeError):  # pip does not read any longer
            opened.write(b"go on\n")
    assert process.returncode == 130
    assert said.endswith(b"kourou: interrupted; the next start completes the installation\n")
    done = checkout.run("version")
    assert (done.stdout, checkout.asked("-m pip")) == ("ran: version\n", 2)


def test_a_terminal_shows_what_pip_does_while_it_works(checkout: Checkout, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [str(checkout.root / "kourou"), "version"],
        env=checkout.environment({"PIP_WAITS": str(gate)}),
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    with gate.open("w") as opened:
        while b"  2 s  a line of pip" not in seen:
            seen += os.read(ours, 4_096)
        opened.write("go on\n")
    assert process.wait() == 0
    os.close(ours)
    assert b"\r\x1b[Kkourou:   1 s  a line of pip\r\x1b[Kkourou:   2 s  a line of pip" in seen


def test_an_old_python_is_refused(checkout: Checkout) -> None:
    done = checkout.run("demo", OLD="1")
    assert done.returncode == 2
    assert "is not a Python 3.11 or newer" in done.stderr


def test_a_wheelhouse_is_the_only_source(checkout: Checkout, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    assert checkout.run("test", KOUROU_WHEELHOUSE=str(wheels)).returncode == 0
    assert f"--no-index --find-links {wheels}" in checkout.calls.read_text()


def test_a_wheelhouse_that_lacks_a_package_is_named(checkout: Checkout, tmp_path: Path) -> None:
    done = checkout.run("test", KOUROU_WHEELHOUSE=str(tmp_path), PIP_FAILS="1")
    assert done.returncode == 2
    assert f"Check that KOUROU_WHEELHOUSE={tmp_path} holds all packages" in done.stderr
    assert "network" not in done.stderr


def test_a_wheelhouse_that_is_missing_is_told_and_the_environment_stays(
    checkout: Checkout, tmp_path: Path
) -> None:
    assert checkout.run("test").returncode == 0
    refused = checkout.run("test", KOUROU_WHEELHOUSE=str(tmp_path / "none"))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"kourou: KOUROU_WHEELHOUSE={tmp_path / 'none'} is not a ")
    assert refused.stderr.count("\n") == 1
    again = checkout.run("test")
    assert (again.returncode, again.stderr, checkout.asked("-m pip")) == (0, "", 0)


@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_leads_to_the_checkout(checkout: Checkout, tmp_path: Path, absolute: bool) -> None:
    elsewhere = tmp_path / "links" / "further"
    elsewhere.mkdir(parents=True)
    launcher = checkout.root / "kourou"
    (tmp_path / "links" / "first").symlink_to(
        launcher if absolute else Path("..") / checkout.root.name / "kourou"
    )
    (elsewhere / "kourou").symlink_to(Path("..") / "first")
    done = checkout.run("version", launcher=elsewhere / "kourou")
    assert (done.returncode, done.stdout) == (0, "ran: version\n"), done.stderr
    assert (checkout.root / ".venv").is_dir()
    assert sorted(path.name for path in elsewhere.iterdir()) == ["kourou"]
    assert f"called {elsewhere / 'kourou'}\n" in checkout.calls.read_text()


def test_a_copy_outside_a_checkout_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(checkout.root / "kourou", copy / "kourou")
    done = checkout.run("version", launcher=copy / "kourou")
    assert done.returncode == 2
    assert done.stderr.startswith(f"kourou: {copy} holds no pyproject.toml: ")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in copy.iterdir()] == ["kourou"]


@pytest.mark.parametrize("place", ["/proc/nix/venv", "/proc/venv", "{tmp}/file/venv"])
def test_a_place_that_cannot_be_written_is_told_in_a_sentence(
    checkout: Checkout, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").touch()
    where = place.format(tmp=tmp_path)
    done = checkout.run("version", KOUROU_VENV=where)
    assert done.returncode == 2
    assert done.stderr == (
        f"kourou: {where} cannot be made. Make room or give rights there, "
        "or set KOUROU_VENV to another place.\n"
    )


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_are_open_when_kourou_begins(checkout: Checkout, streams: str) -> None:
    assert checkout.run("version").returncode == 0
    done = checkout.run("version", streams=streams)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "called " in checkout.calls.read_text()


def test_a_folder_that_is_no_environment_stays_untouched(
    checkout: Checkout, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "letter").write_text("dear")
    done = checkout.run("test", KOUROU_VENV=str(precious))
    assert done.returncode == 2
    assert [item.name for item in precious.iterdir()] == ["letter"]
    assert not precious.with_suffix(".lock").exists()


def test_another_checkouts_environment_stays_untouched(checkout: Checkout, tmp_path: Path) -> None:
    """A link to it is no reason to clear it."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "pyvenv.cfg").write_text("")
    (theirs / "kourou-installed").write_text(f"venv {theirs}\n")
    (checkout.root / ".venv").symlink_to(theirs)
    done = checkout.run("--version")
    assert done.returncode == 2
    assert "another checkout's environment; nothing was touched" in done.stderr
    assert sorted(path.name for path in theirs.iterdir()) == ["kourou-installed", "pyvenv.cfg"]


def test_the_environment_may_live_elsewhere(checkout: Checkout, tmp_path: Path) -> None:
    assert checkout.run("test", KOUROU_VENV=str(tmp_path / "venv")).stdout == "ran: test\n"
    assert (tmp_path / "venv" / "pyvenv.cfg").exists()
    assert not (checkout.root / ".venv").exists()


def tracked_files() -> list[Path]:
    """What a clone would have, with what is not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(name) for name in listed.stdout.split("\0") if name and (SOURCE / name).is_file()]


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_a_copy_in_an_empty_folder_installs_itself_and_works(tmp_path: Path) -> None:
    """Nothing else is typed: help, doctor and a short demo, in a folder with a space."""
    root = tmp_path / "a fresh clone"
    for name in tracked_files():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(SOURCE / name, root / name)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KOUROU_V", "PYTHON", "VIRTUAL_ENV", "NAMESRV", "COV"))
    }

    def type_in(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["./kourou", *words],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    first = type_in("--help")
    assert first.returncode == 0, first.stderr
    assert "demo" in first.stdout
    assert "fetching the packages of Kourou: 56 MB" in first.stderr
    assert "pandas" not in (root / ".venv" / "kourou-install.log").read_text()
    doctor = type_in("doctor")
    assert (doctor.returncode, doctor.stderr) == (0, ""), doctor.stdout
    assert "ok       packages" in doctor.stdout
    demo = type_in("demo", "--json", "--events", "5000")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert json.loads(demo.stdout.splitlines()[-1])["ok"] is True
    where = subprocess.run(
        [root / ".venv" / "bin" / "python", "-c", "import kourou; print(kourou.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(root), "the copy's own sources run"
