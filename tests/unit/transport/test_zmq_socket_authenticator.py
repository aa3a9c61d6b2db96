"""One authenticator for all listeners of a process, and none in one that has no keys."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from kourou.transport.curve_keys import AllowedKeys
from kourou.transport.zmq_socket import close_domain, open_domain

ANYBODY = AllowedKeys(None)
WITHOUT_KEYS = """
import threading
from kourou.transport.zmq_server import ZmqServer
print([one.name for one in threading.enumerate()])
"""
LEFT_OPEN = """
from kourou.transport.zmq_socket import open_domain
from kourou.transport.curve_keys import AllowedKeys
open_domain(AllowedKeys(None), lambda: "here:1")
"""


def where() -> str:
    return "127.0.0.1:1"


def threads() -> int:
    return sum("Authentication" in type(one).__name__ for one in threading.enumerate())


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout


def test_all_listeners_share_one_thread() -> None:
    first, second = open_domain(ANYBODY, where), open_domain(ANYBODY, where)
    assert first != second
    assert threads() == 1
    close_domain(first)
    close_domain(first)
    close_domain(second)
    again = open_domain(ANYBODY, where)
    assert threads() == 1
    close_domain(again)


def test_who_has_no_keys_has_no_thread() -> None:
    assert run(WITHOUT_KEYS) == "['MainThread']\n"


def test_a_process_ends_though_somebody_still_listens() -> None:
    assert run(LEFT_OPEN) == ""


def test_a_child_has_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    domain = open_domain(ANYBODY, where)
    child = os.fork()
    if child == 0:  # whatever happens in it, it ends here
        code = 1
        try:
            own = open_domain(ANYBODY, where)
            code = 0 if threads() == 1 else 2
            close_domain(own)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    close_domain(domain)
    assert capfd.readouterr().err == ""
