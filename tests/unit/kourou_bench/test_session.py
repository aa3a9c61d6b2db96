"""A driver process answers commands for as long as it lives."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kourou.errors import TimedOut, Unavailable
from kourou.service.processes import Children
from kourou_bench.session import Driver, ready_driver

LINE = '{"work": "send", "values": {}, "sent": 1, "stored": 1}'
READY = "print('ready', flush=True);"


def python(script: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; {script}"]


def test_a_command_is_a_line_and_so_is_its_answer(tmp_path: Path) -> None:
    script = f"{READY} line = input(); print('{{}}' if line != 'measure 2.5' else '{LINE}')"
    with Children(tmp_path) as children:
        driver = ready_driver(children, "driver", python(script))
        driver.begin(2.5)
        assert driver.end().sent == 1


def test_a_second_driver_of_that_name_gives_its_own_answer(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        for sent in (1, 2):
            line = LINE.replace("1", str(sent))
            driver = ready_driver(children, "driver", python(f"{READY} input(); print('{line}')"))
            assert driver.measure().sent == sent


def test_half_a_line_is_waited_for(tmp_path: Path) -> None:
    script = f"{READY} input(); sys.stdout.write('{LINE[:9]}'); sys.stdout.flush(); input()"
    with Children(tmp_path) as children:
        driver = ready_driver(children, "driver", python(script))
        driver.begin(1)
        with pytest.raises(TimedOut, match=r"driver was not done after 0\.1 s"):
            driver.end(limit_s=0.1)


def test_one_that_ends_before_it_is_ready_is_quoted(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        driver = Driver(children, "driver", python("print('no servers'); sys.exit(4)"))
        with pytest.raises(Unavailable, match="driver ended with 4: no servers"):
            driver.wait_until_ready()


def test_one_that_has_ended_takes_no_command(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        driver = ready_driver(children, "driver", python(f"{READY} sys.exit(0)"))
        with pytest.raises(Unavailable, match="driver ended with 0"):
            driver.measure()
