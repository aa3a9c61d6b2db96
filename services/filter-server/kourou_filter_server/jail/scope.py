"""The names that an uploaded filter begins with, and the modules that it may import.

None of this is the boundary. Python gives any object a way to every other, so a filter that wants
`os` gets it; what keeps it in are the walls of the process. This is for those who mean no harm: a
filter that opens a file fails with a sentence on the first day, and not with EPERM on the second.

State: soft; settled by `prepare` before the first worker is forked.
"""

from __future__ import annotations

import builtins
import codecs
import importlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kourou_filter_server.jail.body import load_codecs

WITHHELD = (
    "__import__",
    "breakpoint",
    "compile",
    "copyright",
    "credits",
    "eval",
    "exec",
    "exit",
    "help",
    "input",
    "license",
    "open",
    "print",
    "quit",
)
"""Builtins that filters do not have; `__import__` and `print` have tame ones in their place."""

LOADED_LATE = ("_strptime", "stringprep", "encodings.idna")
"""What allowed modules import only when it is used; behind the walls no file can be read."""

ENCODINGS = (
    "ascii",
    "latin_1",
    "utf_8_sig",
    "utf_16",
    "utf_16_le",
    "utf_16_be",
    "utf_32",
    "utf_7",
    "raw_unicode_escape",
    "unicode_escape",
    "punycode",
    "cp437",
    "cp850",
    "cp1250",
    "cp1251",
    "cp1252",
    "iso8859_2",
    "iso8859_15",
    "koi8_r",
    "big5",
    "euc_jp",
    "euc_kr",
    "gb18030",
    "gbk",
    "shift_jis",
)
"""Encodings that bodies can be decoded with, beside UTF-8; each is a module, too."""

_allowed: frozenset[str] = frozenset()


def prepare(modules: Sequence[str], codec_paths: Sequence[str] = ()) -> None:
    """Load all that filters may need; once, in the zygote, while files can still be read.

    `modules` is kourou.filtering.python_modules.MODULES; `codec_paths` are directories in which
    lz4 and zstandard may be. The process's time zone becomes UTC, so that a local time means the
    same at every filter server. Raises ImportError for a module that this Python has not.
    """
    global _allowed
    for name in (*modules, *LOADED_LATE):
        importlib.import_module(name)
    for name in ENCODINGS:
        codecs.lookup(name)
    load_codecs(codec_paths)
    os.environ["TZ"] = "UTC0"
    time.tzset()
    _allowed = frozenset(modules)


def new_scope(name: str) -> dict[str, Any]:
    """The globals of one filter, before its first line runs; `name` is its `__name__`."""
    known = {key: value for key, value in vars(builtins).items() if key not in WITHHELD}
    known["__import__"] = _import
    known["print"] = _discard
    return {"__builtins__": known, "__name__": name}


def _import(
    name: str,
    scope: Mapping[str, object] | None = None,
    local: Mapping[str, object] | None = None,
    wanted: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """`import` and `from … import`, for what is on the list; raises ImportError for all else."""
    if level != 0 or name not in _allowed:
        raise ImportError(f"a filter may not import {'.' * level}{name}", name=name)
    module = sys.modules[name]
    if wanted:
        return module
    return sys.modules[name.partition(".")[0]]


def _discard(*values: object, **options: object) -> None:
    """`print`, for filters that were tried elsewhere: there is nobody to read it."""
