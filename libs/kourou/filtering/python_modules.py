"""The modules that an uploaded filter may import: the only list.

State: none. The process that starts a zygote passes it this list, because no code of Kourou is
inside the sandbox.

The modules on the list only compute: they use no file, clock, random numbers, process or network.
The result of a filter should depend only on the message and the context, so that every filter
server returns the same result for the same message. `re` is on the list although a pattern can run
for years: every batch has a deadline, after which the worker is killed. `random`, `time`, `os` and
`logging` are not.
"""

from __future__ import annotations

MODULES = (
    "__future__",
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "cmath",
    "collections",
    "collections.abc",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "heapq",
    "html",
    "ipaddress",
    "itertools",
    "json",
    "math",
    "numbers",
    "operator",
    "re",
    "string",
    "struct",
    "typing",
    "unicodedata",
    "urllib.parse",
    "zlib",
)
