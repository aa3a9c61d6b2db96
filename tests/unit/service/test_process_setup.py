"""A process without standard streams works; one that cannot write says so once."""

from __future__ import annotations

import errno
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from kourou.errors import MissingPackages
from kourou.service import process_setup as collector
from kourou.service import process_setup as packages
from kourou.service.process_setup import as_output_sentence, missing_packages, require_group

HOLD = (
    "import os, sys\n"
    "from kourou.service.process_setup import hold_standard_streams, output_trouble\n"
    "hold_standard_streams()\n"
)


def run(source: str, streams: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Python with some streams redirected as a shell writes it, such as `<&-`."""
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {streams}', sys.executable, HOLD + source],
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), **environment},
        check=False,
    )


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_ones_are_taken_so_that_nothing_else_gets_their_numbers(
    streams: str, tmp_path: Path
) -> None:
    written = tmp_path / "written"
    source = (
        "print('out'); print('err', file=sys.stderr)\n"
        f"with open({str(written)!r}, 'w') as out: out.write(str(out.fileno()))\n"
    )
    done = run(source, streams)
    assert done.returncode == 0, done.stderr
    assert int(written.read_text()) > 2
    assert done.stdout == (b"" if ">&-" in streams.replace("2>&-", "") else b"out\n")


def test_children_get_them_too() -> None:
    source = (
        "import subprocess\n"
        "child = 'import os; os.fstat(0); os.fstat(1); os.fstat(2)'\n"
        "sys.exit(subprocess.run([sys.executable, '-c', child]).returncode)\n"
    )
    assert run(source, "<&- >&- 2>&-").returncode == 0


def test_nothing_is_read_from_a_closed_input() -> None:
    source = "try: sys.stdin.buffer.read(1)\nexcept OSError as error: print(error.errno)\n"
    assert run(source, "<&-").stdout == b"%d\n" % errno.EBADF


def test_what_an_encoding_lacks_is_escaped() -> None:
    done = run("print('h\\u00f6rt \\u2026')", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (0, b"h\\xf6rt \\u2026\n"), done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_known_afterwards(unbuffered: str) -> None:
    """Whether a print failed or its bytes still waited; the end of the process is quiet."""
    source = (
        "try: print('x')\n"
        "except OSError: pass\n"
        "print(output_trouble().errno, file=sys.stderr)\n"
        "print('y')\n"
    )
    done = run(source, ">/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (0, b"%d\n" % errno.ENOSPC)


def test_a_reader_that_had_enough_needs_no_word() -> None:
    assert as_output_sentence(BrokenPipeError(errno.EPIPE, "Broken pipe")) == ""
    full = OSError(errno.ENOSPC, "No space left on device")
    assert as_output_sentence(full) == "cannot write output: No space left on device"


# -- the garbage collector of a process that is a service ------------------------------------------


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


# -- packages --------------------------------------------------------------------------------------


DECLARED = [
    "aiohttp>=3.11",
    "pandas<3,>=2.2; extra == 'spark'",
    "pyspark>=4.1; extra == 'spark'",
    'redis[hiredis]>=5.2; extra == "bench"',
    "zope.none>=1; python_version >= '3.11' and extra == 'bench'",
]


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: DECLARED)


@pytest.mark.usefixtures("declared")
def test_a_group_names_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_installed", lambda name: name == "pandas")
    assert missing_packages("spark") == ("pyspark",)
    assert missing_packages("bench") == ("redis", "zope.none")
    assert missing_packages("none") == ()
    with pytest.raises(MissingPackages, match=r"Spark needs packages: pyspark") as caught:
        require_group("spark", "Spark")
    assert caught.value.group == "spark"


@pytest.mark.usefixtures("declared")
def test_a_group_that_is_installed_is_no_error() -> None:
    require_group("spark", "Spark")
    assert missing_packages("bench") == ("zope.none",)


@pytest.mark.usefixtures("declared")
def test_without_metadata_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", none)
    assert missing_packages("spark") == ()
