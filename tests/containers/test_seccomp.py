"""What an engine's system-call filter does to the filter server: Docker's own, and ours.

No engine is needed: a profile is compiled and put into force as an engine does it
(seccomp_profile.py), for a process that has lost its capabilities. What Docker's profile refuses is
asked twice: by the rules that matter, which stand here, and by the file that Docker is built with,
where Go's proxy can be asked for it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.containers.seccomp_profile import ALLOW, Seccomp, read_profile

from kourou import Filter
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou.service.local_cluster import ClusterSettings, LocalCluster, zmq_address
from kourou.service.processes import Child
from kourou.sync import Client

HERE = Path(__file__).parent
LAUNCHER = HERE / "seccomp_profile.py"
NAMESPACES = 0x7E020000
"""CLONE_NEW… of every kind but time: the mask in that profile's rule for clone."""

REFUSED_BY_DOCKER = (
    *("bpf", "fanotify_init", "fsconfig", "fsmount", "fsopen", "fspick", "lookup_dcookie"),
    *("mount", "mount_setattr", "move_mount", "open_tree", "perf_event_open", "quotactl"),
    *("setdomainname", "sethostname", "setns", "syslog", "umount", "umount2", "unshare"),
)
"""What that profile allows to none but who has CAP_SYS_ADMIN."""

NEVER = frozenset(
    {
        *("mount", "umount2", "pivot_root", "chroot", "setns", "ptrace", "process_vm_readv"),
        *("process_vm_writev", "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key"),
        *("request_key", "io_uring_setup", "io_uring_enter", "io_uring_register", "kexec_load"),
        *("init_module", "finit_module", "open_by_handle_at", "reboot", "swapon", "mknod"),
        *("personality", "clone3", "fanotify_init", "mount_setattr", "pidfd_getfd", "kcmp"),
        *("iopl", "ioperm", "settimeofday", "clock_settime", "acct", "quotactl", "syslog"),
        *("setuid", "setgid", "setgroups", "vhangup", "name_to_handle_at", "modify_ldt"),
    }
)
"""What no filter server needs, and what escapes were made of."""

ATTEMPTS = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
USER = 0x10000000

def call(name, *arguments):
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

for what, work in {
    "user+net+ipc+uts": lambda: call("unshare", USER | 0x40000000 | 0x08000000 | 0x04000000),
    "mount": lambda: call("unshare", USER | 0x00020000),
    "pid": lambda: call("unshare", USER | 0x20000000),
    "cgroup": lambda: call("unshare", USER | 0x02000000),
    "time": lambda: call("unshare", USER | 0x80),
    "ptrace": lambda: call("ptrace", 0, 0, 0, 0),
    "keyctl": lambda: call("syscall", KEYCTL, 0, -3, 1),
    "io_uring": lambda: call("syscall", 425, 1, ctypes.create_string_buffer(256)),
    "unix": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
    "inet": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "alg": lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET),
}.items():
    if os.fork() == 0:  # each in a process of its own: after one user namespace none is like before
        try:
            work()
        except OSError as error:
            print(what, error.strerror, flush=True)
        else:
            print(what, "done", flush=True)
        os._exit(0)
    os.wait()
"""
INSTEAD = dict(
    re.findall(
        r"(\w+):(\w+)",
        """
    access:faccessat stat:newfstatat lstat:newfstatat open:openat mkdir:mkdirat rmdir:unlinkat
    unlink:unlinkat rename:renameat readlink:readlinkat getdents:getdents64 dup2:dup3 pipe:pipe2
    poll:ppoll select:pselect6 epoll_wait:epoll_pwait pause:ppoll eventfd:eventfd2
    signalfd:signalfd4 fork:clone vfork:clone getpgrp:getpgid time:gettimeofday
    """,
    )
)
"""What x86 has from its youth, and what does the same everywhere."""

KEYCTL = {"x86_64": 250, "aarch64": 219}[os.uname().machine]

Under = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def seccomp() -> Seccomp:
    try:
        return Seccomp()
    except OSError as missing:
        pytest.skip(f"needs libseccomp: {missing}")


@pytest.fixture(scope="session")
def ours(root: Path) -> Path:
    return root / "deploy" / "seccomp" / "filter-server.json"


@pytest.fixture(scope="session")
def dockers_rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile that refuses no more than Docker's does."""
    plain = {"index": 0, "value": NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    rules: list[dict[str, Any]] = [
        {"names": list(REFUSED_BY_DOCKER), "action": "SCMP_ACT_ERRNO"},
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
    ]
    # Of clone it allows what makes no namespace; that is said here from the other side.
    for bit in range(NAMESPACES.bit_length()):
        if NAMESPACES >> bit & 1:
            one = plain | {"value": 1 << bit, "valueTwo": 1 << bit}
            rules.append({"names": ["clone"], "action": "SCMP_ACT_ERRNO", "args": [one]})
    file = tmp_path_factory.mktemp("dockers") / "rules.json"
    file.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}))
    return file


@pytest.fixture(params=["dockers_rules", "dockers_own"])
def dockers(request: pytest.FixtureRequest) -> Path:
    """Docker's profile: the rules of it that matter, and the file itself."""
    return Path(request.getfixturevalue(request.param))


@pytest.fixture(scope="session")
def under(seccomp: Seccomp) -> Under:
    """`under(profile, "-m", "kourou.cli", "doctor")`: Python under a profile."""

    def run(profile: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            confined(profile, *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def confined(profile: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(LAUNCHER), str(profile), "--", sys.executable, *arguments]


# -- the profile itself ---------------------------------------------------------------------------


@pytest.mark.feature("F243")
def test_our_profile_names_calls_that_exist_and_none_that_it_must_not(
    seccomp: Seccomp, ours: Path
) -> None:
    view = json.loads(ours.read_text(encoding="utf-8"))
    assert view["defaultAction"] == "SCMP_ACT_ERRNO"
    assert set(view["architectures"]) == {"SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"}
    profile = read_profile(ours)
    names = [name for rule in profile.rules for name in rule.names]
    assert [name for name in names if not seccomp.knows(name)] == []
    whole = [name for rule in profile.rules if not rule.arguments for name in rule.names]
    assert len(whole) == len(set(whole)), "each stands in one place"
    allowed = {name for rule in profile.rules if rule.action == ALLOW for name in rule.names}
    assert allowed & NEVER == set()
    assert all(seccomp.knows(name) for name in NEVER), "the look knows what it looks for"
    in_part = {name for rule in profile.rules if rule.arguments for name in rule.names}
    assert in_part == {"clone", "socket", "unshare"}


def test_what_it_allows_is_enough_on_aarch64_too(seccomp: Seccomp, ours: Path) -> None:
    """For each call that only x86 has, the one that does the same there is allowed as well."""
    rules = read_profile(ours).rules
    allowed = {name for rule in rules if rule.action == ALLOW for name in rule.names}
    old = {name for name in allowed if not seccomp.on_aarch64(name)}
    assert old == set(INSTEAD) | {"arch_prctl"}
    assert set(INSTEAD.values()) <= allowed - old


def test_of_namespaces_it_gives_those_of_the_jail_and_no_other(under: Under, ours: Path) -> None:
    done = under(ours, "-c", ATTEMPTS.replace("KEYCTL", str(KEYCTL)))
    assert done.returncode == 0, done.stderr
    found = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines() if line.endswith("done"))
    assert set(found) == {"user+net+ipc+uts", "unix", "inet"}, done.stdout


def test_without_a_profile_more_would_have_been_done(under: Under, tmp_path: Path) -> None:
    """So it is our profile that refuses it, and not that capabilities are missing."""
    file = tmp_path / "open.json"
    file.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}))
    done = under(file, "-c", ATTEMPTS.replace("KEYCTL", str(KEYCTL)))
    assert {"mount done", "ptrace done"} <= set(done.stdout.splitlines()), done.stdout


# -- Docker's -------------------------------------------------------------------------------------


@pytest.mark.feature("F243")
def test_under_dockers_profile_the_doctor_names_what_is_missing(
    under: Under, dockers: Path
) -> None:
    done = under(dockers, "-m", "kourou.cli", "doctor")
    lines = done.stdout.splitlines()
    [found] = [line for line in lines if "no filter server can start here" in line]
    assert found.startswith("note")
    assert "user namespaces (" in found
    remedy = lines[lines.index(found) + 1]
    assert "seccomp=deploy/seccomp/filter-server.json" in remedy


@pytest.mark.feature("F243")
def test_under_dockers_profile_a_filter_server_refuses_to_start(
    under: Under, dockers: Path
) -> None:
    broker = ("--set", "connectWhichBroker=127.0.0.1:10911", "--set", "listenPort=0")
    done = under(dockers, "-m", "kourou.cli", "filter-server", *broker)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "user namespaces" in done.stderr
    assert "Traceback" not in done.stderr


def test_under_dockers_profile_all_else_starts(
    seccomp: Seccomp, dockers_rules: Path, tmp_path: Path
) -> None:
    command = ("-m", "kourou.cli", "up", "--free-ports", "--folder", str(tmp_path / "store"))
    child = Child("up", confined(dockers_rules, *command), tmp_path, says_ready=False)
    try:
        wait_for(child, "Ctrl-C stops it.")
        view = child.log_path.read_text(encoding="utf-8")
        assert "no filter servers: this machine lacks layers of their sandbox" in view
        assert "user namespaces (" in view
        assert "broker-a" in view
    finally:
        assert child.stop() == 0


# -- ours -----------------------------------------------------------------------------------------


@pytest.mark.feature("F243")
def test_under_our_profile_the_doctor_finds_the_whole_jail(under: Under, ours: Path) -> None:
    done = under(ours, "-m", "kourou.cli", "doctor")
    [found] = [line for line in done.stdout.splitlines() if "sandbox for filters" in line]
    assert found.startswith("ok")
    assert "user namespaces" in found
    assert "Landlock" in found


@pytest.mark.feature("F238", "F239", "F241", "F243")
def test_under_our_profile_a_filter_server_runs_filters(
    seccomp: Seccomp, ours: Path, tmp_path: Path
) -> None:
    """The whole service: it registers, starts a worker in its jail, and consumers pull from it."""
    with (
        LocalCluster(tmp_path / "cluster", ClusterSettings()) as cluster,
        Client(cluster.address, group="till") as client,
    ):
        settings = {"connectWhichBroker": zmq_address(cluster.brokers[0]), "listenPort": "0"}
        view = [word for pair in settings.items() for word in ("--set", "=".join(pair))]
        child = cluster.children.start(
            "filter-server", confined(ours, "-m", "kourou_filter_server", *view)
        )
        child.wait_for_ready()
        client.admin.topics.create("flights", queues=1)
        client.send_many("flights", [f"flight {number}" for number in range(30)])
        client.admin.filters.put("till", "odd", ODD)
        trials = client.admin.filters.try_out("till", "odd", "flights")
        assert [(one.seen, one.passed) for one in trials.values()] == [(30, 15)]
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer = ConsumerSettings(consumer_group="till", consume_from_where=first)
        with client.subscribe("flights", Filter.named("odd"), settings=consumer) as messages:
            stream = iter(messages)
            seen = [bytes(next(stream).body).decode() for _ in range(15)]
        assert seen == [f"flight {number}" for number in range(1, 30, 2)]
        assert child.stop() == 0, child.log_tail(30)


ODD = "def match(message, context):\n    return int(message.body.split()[-1]) % 2 == 1\n"


def wait_for(child: Child, text: str) -> None:
    """Until it has said that; a failed test if it ends before."""
    while text not in child.log_path.read_text(encoding="utf-8", errors="replace"):
        assert child.wait_for_exit(0.05) is None, child.log_tail(50)
