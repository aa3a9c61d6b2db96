"""Capabilities alone: all are gone, also those that a program could be given."""

import re
import socket
from pathlib import Path

import pytest

from kourou_filter_server.sandbox import kernel
from kourou_rigs.forked import in_child

pytestmark = pytest.mark.usefixtures("every_layer")


def sets() -> dict[str, int]:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return {name: int(value, 16) for name, value in re.findall(r"Cap(\w+):\s*(\w+)", status)}


@pytest.mark.feature("F243")
def test_every_set_is_empty() -> None:
    def look() -> object:
        kernel.leave_namespaces()
        assert kernel.capability_count() > 30
        kernel.drop_capabilities()
        return kernel.capability_count(), set(sets().values())

    assert in_child(look) == "(0, {0})"


def test_what_they_allowed_is_forbidden() -> None:
    def rename() -> None:
        kernel.leave_namespaces()
        socket.sethostname("inside")  # in a namespace of its own it may, ...
        kernel.drop_capabilities()
        socket.sethostname("outside")

    assert in_child(rename) == "EPERM"
