"""Trials of layers: what is there, and for each that is taken away its name, the word and why."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou_filter_server.sandbox import kernel, limits, seccomp, zygote
from kourou_rigs.forked import children_alone, in_child

pytestmark = pytest.mark.usefixtures("every_layer")

LAYERS = [
    "user namespaces",
    "network namespaces",
    "ipc namespaces",
    "uts namespaces",
    "Landlock",
    "seccomp",
    "no_new_privs",
    "capabilities",
    "rlimits",
    "parent-death signal",
    "pidfd",
]

X86 = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="needs a kernel layer: x86_64's numbers"
)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """As in a zygote: no library that other tests of this process loaded starts threads in ours."""
    with children_alone():
        yield


def refusing(number: int, word: int) -> list[seccomp.Step]:
    """A container's profile that refuses one call."""
    return [
        (0x20, 0, 0, 0),
        (0x15, 0, 1, number),
        (0x06, 0, 0, 0x0005_0000 | word),
        (0x06, 0, 0, seccomp.ALLOW),
    ]


def found_when(prepare) -> dict[str, str]:
    """The layers that are missing when `prepare` has been done to the asking process."""

    def look() -> object:
        prepare()
        return {found.name: found.detail for found in zygote.probe_layers() if not found.there}

    told = in_child(look)
    assert told.startswith("{"), told
    return eval(told)  # our own child's own repr


def test_every_layer_is_looked_at_and_the_asking_process_stays_as_it_was() -> None:
    before = (kernel.has_no_new_privs(), Path("/proc/self/ns/net").readlink(), os.nice(0))
    found = zygote.probe_layers()
    assert [layer.name for layer in found] == LAYERS
    assert [layer for layer in found if not layer.there] == []
    assert (kernel.has_no_new_privs(), Path("/proc/self/ns/net").readlink(), os.nice(0)) == before
    details = {layer.name: layer.detail for layer in found}
    assert details["Landlock"].startswith("ABI ")
    assert details["seccomp"] == os.uname().machine


def test_they_hold_where_a_library_starts_a_thread_in_every_child() -> None:
    """As OpenTelemetry does, once another test of this process has had spans exported."""
    wanted = [threading.Event().wait]
    os.register_at_fork(
        after_in_child=lambda: wanted and threading.Thread(target=wanted[0], daemon=True).start()
    )
    try:
        assert [layer for layer in zygote.probe_layers() if not layer.there] == []
        assert found_when(lambda: None) == {}
    finally:
        wanted.clear()  # from here on no child starts it


HOARDING = """
import ctypes
allocator = ctypes.CDLL(None)
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
allocator.mallopt(M_MMAP_MAX, 0)
allocator.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
bytearray(2**30)
from kourou_filter_server.sandbox import zygote
print([layer.name for layer in zygote.probe_layers() if not layer.there])
"""
"""The allocator keeps a GiB that was freed, and would give it out below any limit."""


def test_they_hold_where_the_allocator_has_free_memory() -> None:
    done = subprocess.run([sys.executable, "-c", HOARDING], check=True, capture_output=True)
    assert done.stdout == b"[]\n"


@X86
@pytest.mark.parametrize(
    ("number", "word", "missing", "said"),
    [
        (272, errno.EPERM, LAYERS[:4], "unshare: Operation not permitted (a container's seccomp"),
        (272, errno.ENOSPC, LAYERS[:4], "unshare: No space left on device (user.max_user_namesp"),
        (272, errno.EINVAL, LAYERS[:4], "unshare: Invalid argument (the kernel was built without"),
        (444, errno.ENOSYS, ["Landlock"], "landlock: Function not implemented (a kernel before 5"),
        (444, errno.EOPNOTSUPP, ["Landlock"], "landlock: Operation not supported (it is not amon"),
        (126, errno.EPERM, ["capabilities"], "capset: Operation not permitted (a container's"),
        (424, errno.ENOSYS, ["pidfd"], "pidfd: Function not implemented (a container's"),
    ],
)
def test_a_refused_call_is_named_with_what_usually_causes_it(
    number: int, word: int, missing: list[str], said: str
) -> None:
    def refuse() -> None:
        kernel.set_no_new_privs()
        seccomp.apply_program(refusing(number, word))

    lacking = found_when(refuse)
    assert set(missing) <= lacking.keys() <= {*missing, "capabilities"}
    assert lacking[missing[0]].startswith(said)


def test_a_layer_without_effect_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, attribute in (
        (kernel, "apply_landlock"),
        (seccomp, "allow_only_the_list"),
        (kernel, "set_no_new_privs"),
        (kernel, "drop_capabilities"),
        (limits, "confine"),
        (kernel, "die_with_parent"),
    ):
        monkeypatch.setattr(owner, attribute, lambda *_: None)
    lacking = {found.name: found.detail for found in zygote.probe_layers() if not found.there}
    assert lacking == {
        "Landlock": "a folder could be opened all the same",
        "seccomp": "seccomp: the filter blocks nothing",
        "no_new_privs": "no_new_privs: it is not set",
        "capabilities": "capabilities: some remain",
        "rlimits": "rlimits: the limit of memory is not set",
        "parent-death signal": "parent-death signal: it is not set",
    }


def test_an_unknown_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "ARCHITECTURES", {})
    (lacking,) = [found for found in zygote.probe_layers() if not found.there]
    assert lacking.name == "seccomp"
    assert os.uname().machine in lacking.detail


def test_a_trial_that_crashes_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "confine", lambda _: os.kill(os.getpid(), 9))
    (lacking,) = [found for found in zygote.probe_layers() if not found.there]
    assert (lacking.name, lacking.detail) == ("rlimits", "the trial ended with status 9")
