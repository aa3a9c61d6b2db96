"""The global names of an uploaded filter, and the modules that it may import.

This is not a security boundary. In Python every object leads to every other, so a hostile filter
can get `os`; only the sandbox of the process contains it. This module helps honest authors: a
filter that opens a file fails with a clear message the first time, not with EPERM.

State: soft; set by `prepare` before the first worker is forked.
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
"""Builtins that filters do not have; `__import__` and `print` are replaced by restricted ones."""

LOADED_LATE = ("_strptime", "stringprep", "encodings.idna")
"""Modules that allowed modules import only when used; inside the sandbox no file can be read."""

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
"""Encodings for decoding bodies, in addition to UTF-8; each is a module, too."""

_allowed: frozenset[str] = frozenset()


def prepare(modules: Sequence[str], codec_paths: Sequence[str] = ()) -> None:
    """Load everything that filters may need; once, in the zygote, while files can still be read.

    `modules` is kourou.filtering.python_rules.MODULES; `codec_paths` are directories that may
    contain lz4 and zstandard. The process's time zone becomes UTC, so that local times are the same
    at every filter server. Raises ImportError if this Python lacks a module.
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
    """The globals of a new filter; `name` is its `__name__`."""
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
    """`import` and `from … import` of the allowed modules. Raises ImportError for all others."""
    if level != 0 or name not in _allowed:
        raise ImportError(f"a filter may not import {'.' * level}{name}", name=name)
    module = sys.modules[name]
    if wanted:
        return module
    return sys.modules[name.partition(".")[0]]


def _discard(*values: object, **options: object) -> None:
    """`print` without an effect, for filters that were developed elsewhere."""
