"""The garbage collector of a process that is a service."""

import subprocess
import sys

from kourou.service import process_setup as collector

IMPORTS = """
import gc, sys
from importlib import import_module
sys.argv = ["kourou_namesrv", "-m"]
looks = sum(each["collections"] for each in gc.get_stats())
try:
    import_module("kourou_namesrv.__main__")
except SystemExit:
    assert "kourou_namesrv.core" in sys.modules
print("looks", sum(each["collections"] for each in gc.get_stats()) - looks)
"""


def test_it_does_not_look_while_a_service_is_imported():
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True
    )
    looks = int(ran.stdout.splitlines()[-1].removeprefix("looks "))
    assert looks < 10


PROGRAM = """
import gc
from kourou.service import process_setup as collector
kept = [[number] for number in range(100_000)]
collector.freeze_gc()
assert gc.get_freeze_count() > len(kept), gc.get_freeze_count()
looks = sum(each["collections"] for each in gc.get_stats())
for turn in range(100):
    grown = [(turn, number) for number in range(1_000)]
print(sum(each["collections"] for each in gc.get_stats()) - looks)
cycles = []
for number in range(2 * collector.YOUNG_OBJECTS):
    cycle = []
    cycle.append(cycle)
print(sum(each["collected"] for each in gc.get_stats()))
"""


def test_bursts_of_tuples_wake_it_no_more_and_cycles_still_go():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    looks, collected = map(int, ran.stdout.split())
    assert looks == 0
    assert collected >= collector.YOUNG_OBJECTS
