"""What a process sets up before it imports most of Kourou: streams, garbage collector, packages.

**Standard streams** are always open, and can encode any text. A process may be started with some of
the three closed. The next file or socket that it opens gets that descriptor number, and libuv
aborts a process that closes one of them. Therefore closed streams are opened on /dev/null; standard
input is opened write-only, as nohup does, so that a read fails with an error.

**The garbage collector** of a service runs rarely. A broker creates thousands of small tuples per
loop iteration, which reference counting frees; cycles are rare. With Python's default threshold of
700 the collector would still run a hundred times a second, sometimes over all objects: with 10,000
queues that took a quarter of the broker's time.

**Optional package groups** are the extras of pyproject.toml, read from the metadata of the
installed project, which is their only list. No package of a group is imported to find it missing.

Only the standard library and the errors are imported here, because every command runs this code.

State: global to the process.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import resource
import sys
from contextlib import suppress
from importlib import import_module
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, NoReturn, TextIO

from kourou.errors import MissingPackages

_MODES = (os.O_WRONLY, os.O_RDWR, os.O_RDWR)


class _Output(FileIO):
    """One of the two output streams; keeps its first write error."""

    trouble: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write as FileIO does, and keep the first error."""
        try:
            return super().write(data)
        except OSError as trouble:
            self.trouble = self.trouble or trouble
            raise


_outputs: list[_Output] = []
"""The outputs of this process; filled by `hold_standard_streams`."""


def hold_standard_streams() -> None:
    """Open closed streams, and let both outputs escape unencodable text; once per process."""
    for number, mode in enumerate(_MODES):
        try:
            os.fstat(number)
        except OSError:
            _open_null(number, mode)
    if _outputs:
        return
    if sys.stdin is None:  # Python sets None if it was closed
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open
    sys.stdout = _held(1, sys.stdout)
    sys.stderr = _held(2, sys.stderr)


def _held(number: int, given: TextIO | None) -> TextIO:
    """Return a stream with Python's settings, over a file that keeps its first error."""
    if given is not None and type(given) is not TextIOWrapper:
        return given  # a test's or notebook's own stream
    raw = _Output(number, "w", closefd=False)
    _outputs.append(raw)
    direct = given is not None and given.write_through
    return TextIOWrapper(
        raw if direct else BufferedWriter(raw),
        encoding="utf-8" if given is None else given.encoding,
        errors="backslashreplace",
        line_buffering=given is not None and given.line_buffering,
        write_through=direct,
    )


def output_trouble() -> OSError | None:
    """Flush both outputs; returns the first write error, if any.

    The failed output is redirected to /dev/null, so that the exit of the process does not fail on
    it again.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the stream keeps the error
            stream.flush()
    found = [raw for raw in _outputs if raw.trouble is not None]
    for raw in found:
        _open_null(raw.fileno(), os.O_RDWR)
    return found[0].trouble if found else None


def as_output_sentence(trouble: OSError) -> str:
    """Return the message for an output error; "" if the reader of a pipe has closed it."""
    if trouble.errno == errno.EPIPE:
        return ""
    return f"cannot write output: {trouble.strerror or trouble}"


def _open_null(number: int, mode: int) -> None:
    opened = os.open(os.devnull, mode)
    if opened == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(opened, number)  # inheritable, as the three streams always are
        os.close(opened)


# -- the garbage collector -------------------------------------------------------------------------


YOUNG_OBJECTS = 100_000
"""Threshold of new objects for a collection of the youngest generation: some 10 MB."""

MIDDLE_COLLECTIONS = 20
OLD_COLLECTIONS = 50


def disable_core_dumps() -> None:
    """Let a crash of a service write no memory image, which would contain secrets."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def relax_gc() -> None:
    """Raise the thresholds; call it before a service's modules are imported."""
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_COLLECTIONS, OLD_COLLECTIONS)


def run_module(module: str) -> NoReturn:
    """Import a service's module with raised thresholds, call its `run`, and end the process."""
    relax_gc()
    from kourou.service.lifecycle import leave  # it imports much

    leave(import_module(module).run(sys.argv[1:]))


def freeze_gc() -> None:
    """Exclude all current objects from future collections.

    Call it once, when the service is ready.
    """
    gc.collect()
    gc.freeze()
    relax_gc()


# -- optional packages -----------------------------------------------------------------------------


_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*;.*extra == ['\"]([a-z]+)['\"]")


def missing_packages(group: str) -> tuple[str, ...]:
    """Return the packages of a group that are not installed; empty if all are."""
    from importlib import metadata  # it takes milliseconds, and few commands need it

    try:
        lines = metadata.requires("kourou") or ()
    except metadata.PackageNotFoundError:  # run from a source path: nothing is declared there
        return ()
    found = (_REQUIREMENT.match(line) for line in lines)
    names = (one[1] for one in found if one is not None and one[2] == group)
    return tuple(name for name in names if not _installed(name))


def require_group(group: str, purpose: str) -> None:
    """Raises MissingPackages if a group is not installed; `purpose` names what needs it."""
    if missing := missing_packages(group):
        raise MissingPackages(f"{purpose} needs packages: {', '.join(missing)}", group)


def _installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
