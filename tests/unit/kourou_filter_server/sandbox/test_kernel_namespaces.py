"""Namespaces alone: each kind is another one than ours, and there is nothing in it."""

import os
import socket
from pathlib import Path

import pytest

from kourou_filter_server.sandbox import kernel
from kourou_rigs.forked import in_child

pytestmark = pytest.mark.usefixtures("every_layer")

FILES = {
    kernel.USER: "user",
    kernel.NETWORK: "net",
    kernel.IPC: "ipc",
    kernel.UTS: "uts",
}


def read(kind: int) -> str:
    return str((Path("/proc/self/ns") / FILES[kind]).readlink())


@pytest.mark.feature("F243")
@pytest.mark.parametrize("kind", FILES)
def test_a_worker_leaves_every_kind(kind: int) -> None:
    assert FILES.keys() == kernel.NAMESPACES.keys()

    def look() -> str:
        kernel.leave_namespaces()
        return read(kind)

    there = in_child(look)
    assert there.startswith(FILES[kind] + ":[")
    assert there != read(kind)


def test_it_is_nobody_there() -> None:
    def look() -> tuple[int, int]:
        kernel.leave_namespaces(kernel.USER)
        return os.getuid(), os.getgid()

    assert in_child(look) == "(65534, 65534)"


def test_there_is_no_network_there() -> None:
    def look() -> object:
        kernel.leave_namespaces()
        assert [name for _, name in socket.if_nameindex()] == ["lo"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            return probe.sendto(b"x", ("127.0.0.1", 9))

    assert in_child(look) == "ENETUNREACH"


def test_what_the_kernel_refuses_names_the_call() -> None:
    def leave_for_nonsense() -> str:
        try:
            kernel.leave_namespaces(1)
        except OSError as error:
            return str(error.strerror)
        return "left"

    assert in_child(leave_for_nonsense) == "unshare: Invalid argument"
