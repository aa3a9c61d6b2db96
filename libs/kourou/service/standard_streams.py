"""Standard input, output and error: there, whatever the parent did, and able to take any text.

A process may be started with some of the three closed. The next file or socket it opens gets that
number, and libuv ends a process that closes one of them. So closed ones are opened on /dev/null:
input for writing only, as nohup does, so that whoever reads is told that there is none.

Nothing but the standard library is loaded here: every command comes by.
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
    """One of the two outputs; remembers why it could not be written."""

    trouble: OSError | None = None

    def write(self, data: Any, /) -> int:
        """As FileIO's."""
        try:
            return super().write(data)
        except OSError as trouble:
            self.trouble = self.trouble or trouble
            raise


_outputs: list[_Output] = []
"""Of this process, once `hold_standard_streams` was called."""


def hold_standard_streams() -> None:
    """Open what is closed, let both outputs escape what their encoding lacks; once a process."""
    for number, mode in enumerate(_MODES):
        try:
            os.fstat(number)
        except OSError:
            _open_null(number, mode)
    if _outputs:
        return
    if sys.stdin is None:  # so Python says that it was closed
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
    sys.stdout = _held(1, sys.stdout)
    sys.stderr = _held(2, sys.stderr)


def _held(number: int, given: TextIO | None) -> TextIO:
    """A stream as Python made it, over a file that remembers its trouble."""
    if given is not None and type(given) is not TextIOWrapper:
        return given  # of a test or a notebook, which has its own way with it
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
    """Write out what waits to be written; what went wrong with it or before, if anything did.

    The output is then led to /dev/null, so that the end of the process does not fail over it again.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # remembered where it happened
            stream.flush()
    found = [raw for raw in _outputs if raw.trouble is not None]
    for raw in found:
        _open_null(raw.fileno(), os.O_RDWR)
    return found[0].trouble if found else None


def as_output_sentence(trouble: OSError) -> str:
    """What to say about it; nothing where the reader of a pipe has just had enough."""
    if trouble.errno == errno.EPIPE:
        return ""
    return f"cannot write output: {trouble.strerror or trouble}"


def _open_null(number: int, mode: int) -> None:
    opened = os.open(os.devnull, mode)
    if opened == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(opened, number)  # inheritable, as the three always are
        os.close(opened)
