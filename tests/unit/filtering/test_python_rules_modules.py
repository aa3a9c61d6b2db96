"""The one list of modules for filters."""

import subprocess
import sys

from kourou.filtering.python_rules import MODULES

REACH = {"os", "sys", "socket", "subprocess", "ctypes", "signal", "threading", "asyncio", "io"}
UNSTEADY = {"random", "secrets", "time", "uuid"}


def test_the_list_is_in_order_and_has_nothing_twice() -> None:
    assert list(MODULES) == sorted(set(MODULES))


def test_nothing_on_it_reaches_out_or_depends_on_chance_or_clock() -> None:
    assert not set(MODULES) & (REACH | UNSTEADY)


def test_each_is_of_the_standard_library_and_loads_nothing_that_opens_sockets() -> None:
    code = (
        f"import importlib, sys\nfor name in {MODULES!r}: importlib.import_module(name)\n"
        "print(sorted({'socket', 'ssl', 'subprocess', 'ctypes', 'threading'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
