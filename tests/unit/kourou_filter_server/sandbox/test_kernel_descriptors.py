"""Descriptors alone: three times nothing, and one channel."""

import os
from pathlib import Path

import pytest

from kourou_filter_server.sandbox import kernel

FOLDER = Path("/proc/self/fd")
NULL = "/dev/null"


def open_now() -> dict[int, str]:
    """What is open, without the folder that is open for looking."""
    named = {}
    for path in FOLDER.iterdir():
        try:
            named[int(path.name)] = str(path.readlink()).partition(":")[0]
        except FileNotFoundError:
            continue
    return dict(sorted(named.items()))


def left_over(*, keep_stderr: bool = False) -> str:
    """What a child has open in the sandbox, sent through the one channel that it keeps."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            assert all(os.dup(writing) for _ in range(10))
            os.dup2(os.open(NULL, os.O_RDONLY), 0)
            os.dup2(writing, 2)
            os.closerange(kernel.DESCRIPTORS_MAX, kernel.DESCRIPTORS_MAX + 65_536)
            kernel.keep_only(writing, keep_stderr=keep_stderr)
            os.write(kernel.CHANNEL_FD, repr(open_now()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    told = os.read(reading, 4_096).decode()
    os.close(reading)
    os.waitpid(pid, 0)
    return told


@pytest.mark.feature("F243")
def test_only_the_channel_is_left() -> None:
    assert left_over() == repr({0: NULL, 1: NULL, 2: NULL, 3: "pipe"})


def test_the_zygote_keeps_a_way_to_say_why_it_broke() -> None:
    assert left_over(keep_stderr=True) == repr({0: NULL, 1: NULL, 2: "pipe", 3: "pipe"})
