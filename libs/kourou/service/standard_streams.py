"""Makes standard input, output and error usable: always open, and able to encode any text.

A process may be started with some of the three closed. The next file or socket that it opens gets
that descriptor number, and libuv aborts a process that closes one of them. Therefore closed streams
are opened on /dev/null; standard input is opened write-only, as nohup does, so that a read fails
with an error.

Only the standard library is imported here, because every command runs this code.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, TextIO

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
