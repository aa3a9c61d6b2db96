"""What comes home from a forked child."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kourou_rigs.forked import in_child


def test_a_result_an_error_and_an_end_are_brought_home() -> None:
    assert in_child(lambda: (1, "a")) == "(1, 'a')"
    assert in_child(lambda: os.open("/nowhere", os.O_RDONLY)) == "ENOENT"
    assert in_child(lambda: int("x")).startswith("ValueError: invalid literal")
    assert in_child(lambda: os.kill(os.getpid(), signal.SIGKILL)) == "killed by SIGKILL"
    assert in_child(lambda: os.fstat(7) and "there", tell_fd=7) == "there"


def test_the_child_never_comes_back_into_the_test() -> None:
    here = os.getpid()
    assert in_child(lambda: exit(3)) == "SystemExit: 3"
    assert os.getpid() == here


def test_the_child_is_alone_where_a_library_starts_a_thread_in_every_child() -> None:
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    wanted = [thread]
    os.register_at_fork(after_in_child=lambda: wanted and wanted.pop().start())

    assert in_child(lambda: sum(1 for _ in Path("/proc/self/task").iterdir())) == "1"
    assert wanted.pop() is thread  # from here on no child starts it


def test_a_library_that_waits_for_its_thread_in_every_child_holds_nobody_up() -> None:
    """As OpenTelemetry does for each provider that lives, whoever made it."""
    wanted = [int]

    def asks_a_thread() -> None:
        if wanted:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(wanted[0]).result()

    os.register_at_fork(after_in_child=asks_a_thread)
    assert in_child(lambda: "at once") == "at once"
    wanted.clear()  # from here on no child asks
