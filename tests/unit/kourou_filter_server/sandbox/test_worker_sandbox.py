"""All layers of the sandbox together: each is in force, and one that cannot be applied is named.

What seccomp forbids hides whether the other layers are in force, so they are tested without it.
"""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou_filter_server.sandbox import kernel, seccomp, worker
from kourou_filter_server.sandbox.limits import SandboxLimits
from kourou_rigs.forked import in_child

pytestmark = pytest.mark.usefixtures("every_layer")

ALLOWED = SandboxLimits(memory_bytes=8 << 30, cpu_allowance_s=10, niceness=5)


def behind(
    look: Callable[[], object], *, unsafe: bool = False, without_seccomp: bool = True
) -> str:
    """The result of `look` inside the sandbox."""

    def run() -> object:
        if without_seccomp:
            seccomp.allow_only_the_list = lambda: None  # in this child only
        os.dup2(os.open("/dev/null", os.O_RDWR), 0)
        worker.enter_sandbox(3, os.getppid(), ALLOWED, unsafe=unsafe)
        return look()

    return in_child(run, tell_fd=3)


NAMESPACES = [Path(f"/proc/self/ns/{kind}") for kind in ("user", "net", "ipc", "uts")]


def namespaces_now() -> list[str]:
    return [str(path.readlink()) for path in NAMESPACES]


BEFORE = namespaces_now()


@pytest.mark.feature("F243")
def test_seccomp_stands() -> None:
    assert behind(lambda: os.fork(), without_seccomp=False) == "EPERM"
    assert behind(lambda: os.open("/dev/null", os.O_RDONLY), without_seccomp=False) == "EPERM"


@pytest.mark.feature("F243")
def test_landlock_stands(tmp_path: Path) -> None:
    assert behind(lambda: (tmp_path / "new").mkdir()) == "EACCES"


def test_it_dies_with_its_parent_gains_nothing_and_is_not_seen() -> None:
    assert behind(kernel.death_signal) == str(signal.SIGKILL.value)
    assert behind(kernel.has_no_new_privs) == "True"
    assert behind(lambda: kernel.prctl("GET_DUMPABLE", 3)) == "0"


def test_handlers_of_signals_are_gone() -> None:
    assert behind(lambda: signal.getsignal(signal.SIGINT)) == str(signal.SIG_DFL)


def test_without_a_sandbox_limits_and_lineage_are_left() -> None:
    def look() -> object:
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        return soft, kernel.death_signal(), kernel.has_no_new_privs(), namespaces_now() == BEFORE

    told = behind(look, unsafe=True, without_seccomp=False)
    assert told == repr((8 << 30, 9, True, True))


@pytest.mark.parametrize(
    ("name", "attribute", "raised", "said"),
    [
        ("kernel", "leave_namespaces", OSError(1, "unshare: no"), "namespaces: unshare: no"),
        ("kernel", "apply_landlock", OSError(38, "landlock: no"), "Landlock: landlock: no"),
        ("kernel", "drop_capabilities", OSError(1, "capset: no"), "capabilities: capset: no"),
        ("limits", "confine", OSError(1, "no"), "rlimits: no"),
        ("limits", "confine", ValueError("not allowed"), "rlimits: not allowed"),
        ("kernel", "set_no_new_privs", OSError(1, "no"), "no_new_privs: no"),
        ("seccomp", "allow_only_the_list", OSError(22, "seccomp: no"), "seccomp: seccomp: no"),
    ],
)
def test_a_layer_that_cannot_be_applied_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, attribute: str, raised: Exception, said: str
) -> None:
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(getattr(worker, name), attribute, fail)
    told = behind(lambda: "inside", without_seccomp=name != "seccomp")
    assert told == f"LayerMissing: {said}"
