"""The modules that an uploaded filter may import: the one list.

State: none. Whoever starts a zygote hands it this list, since nothing of Kourou is inside the jail.

On the list is what computes and needs nothing: no file, clock of its own, chance, process or
network. A verdict should follow from the message and the context, so that the same message gets
the same verdict at every filter server. `re` is on it although a pattern can run for years: every
batch has a deadline, and the worker is killed at it. `random`, `time`, `os`, `logging` are not.
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
