"""Lineage alone: who dies with whom, and that nothing is gained or seen."""

import os
import select
import signal
from pathlib import Path

import pytest

from kourou_filter_server.sandbox import kernel
from kourou_rigs.forked import in_child

PR_GET_DUMPABLE = 3


@pytest.mark.feature("F243")
def test_a_child_dies_with_its_parent() -> None:
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            here = os.getpid()
            if os.fork() == 0:
                kernel.die_with_parent(here)
                os.write(writing, b"%d\n" % os.getpid())
                os.close(writing)
                while True:
                    signal.pause()
            signal.pause()
        finally:
            os._exit(0)
    try:
        os.close(writing)
        child = os.pidfd_open(int(os.read(reading, 32)))
        os.kill(middle, signal.SIGKILL)
        ended = select.poll()
        ended.register(child, select.POLLIN)
        assert ended.poll(60_000), "the child lives on without its parent"
        os.close(child)
    finally:
        os.waitpid(middle, 0)
        os.close(reading)


def test_a_child_that_comes_too_late_says_so() -> None:
    assert in_child(lambda: kernel.die_with_parent(1 << 22)).startswith("Orphaned: process")


def test_nobody_looks_into_it() -> None:
    def look() -> object:
        kernel.hide_memory()
        if os.getuid() == 0:
            os.setuid(54_321)  # root may look into anything
        dumpable = kernel.prctl("GET_DUMPABLE", PR_GET_DUMPABLE)
        assert dumpable == 0
        return Path("/proc/self/mem").open("rb")

    assert in_child(look) == "EACCES"


def test_signals_are_as_at_the_beginning() -> None:
    def look() -> object:
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        kernel.reset_signal_handlers()
        handlers = {signal.getsignal(number) for number in signal.valid_signals() - {9, 19}}
        return handlers == {signal.SIG_DFL}, signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert in_child(look) == "(True, set())"
