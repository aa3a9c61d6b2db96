"""What a filter's source must have and must not, and how it is said."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest, Throttled
from kourou.filtering.python_rules import (
    FORBIDDEN_NAMES,
    MODULES,
    CheckAllowance,
    check_source,
)
from kourou.model.filter import FilterFailure, FilterPolicy
from kourou.model.limits import (
    FILTER_BRACKET_DEPTH_MAX,
    FILTER_CHECKED_BYTES_MAX,
    FILTER_CHECKED_BYTES_S,
    FILTER_SOURCE_BYTES_MAX,
    FILTER_TREE_DEPTH_MAX,
    FILTER_VERSIONS_MAX,
    FILTERS_GROUP_MAX,
    FILTERS_MAX,
)

GOOD = "def match(message, context):\n    return message.tag == 'paid'\n"


def refused(source: str) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        check_source(source, "late")
    return caught.value


# -- what is taken --------------------------------------------------------------------------------


EVERYTHING = '''
"""Flights that are late."""
from __future__ import annotations
import json, math
from collections import abc, deque
from urllib import parse
from dataclasses import dataclass

@dataclass
class Flight:
    minutes: int
    def __post_init__(self) -> None:
        self.hours = self.minutes / 60

class Late:
    """One thing."""
    def __init__(self, limit=2) -> None:
        super().__init__()
        self.limit = limit
    def set_up(self, context) -> None:
        self.table = {}
    def match(self, message, context) -> bool:
        return Flight(message.json["late"]).hours > self.limit
    def match_batch(self, messages, context) -> list[bool]:
        return [self.match(message, context) for message in messages]
'''
"""A class that has all that a class may have."""


@pytest.mark.feature("F240", "F242")
@pytest.mark.parametrize(
    "source",
    [
        GOOD,
        EVERYTHING,
        "match = lambda message, context: True",
        "def late(message, context): return True\nmatch = late",
        "def match(*both): return True",
        "def match(message, context, *, limit=3): return True",
        "def match(message, context, limit=3): return True",
        "def match(message, _): return True",
        "class A:\n @staticmethod\n def match(message, context): return True",
        "class A:\n @classmethod\n def match(cls, message, context): return True",
        "class A:\n match = lambda self, message, context: True",
        "T = None\ndef set_up(context):\n    global T\n    T = 1\n" + GOOD,
        "import re\nP = re.compile('a')\n" + GOOD,
        "def open(door): return door\nX = open(1)\n" + GOOD,
        "def helper():\n    yield 1\n" + GOOD,
        "def match(m, c):\n    def each():\n        yield m\n    return list(each()) == [m]",
        "X = '\\d'\n" + GOOD,
        "\ufeff" + GOOD,
        "def match(m, c): return 'open' in m.properties and m.json['__class__'] == 'x'",
    ],
)
def test_what_people_may_write(source: str) -> None:
    check_source(source, "late")


# -- what is not ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "where", "said"),
    [
        ("", "", "the source is empty"),
        (" \n", "", "the source is empty"),
        ("x = 1", "", "neither a function"),
        (GOOD + "\0", "", "a NUL"),
        ("def match(message, context) return True", "1:29", "expected ':'"),
        ("def match(m, c):\n\treturn 1\n        return 2", "3:1", "inconsistent use of tabs"),
        ("print 'x'", "1:1", "Missing parentheses"),
        ("import os\n" + GOOD, "1:1", "os is not among the modules"),
        (GOOD + "def f():\n    import socket", "4:5", "socket is not among"),
        ("from os import path\n" + GOOD, "1:1", "os is not among"),
        ("from . import x\n" + GOOD, "1:1", ". is not among"),
        ("from math import *\n" + GOOD, "1:1", "from math import *"),
        ("import json.tool\n" + GOOD, "1:1", "json.tool is not among"),
        ("def match(m, c): return m.__class__", "1:25", "__class__ is not for filters"),
        ("def match(m, c): return ().__class__.__subclasses__()", "1:25", "is not for filters"),
        ("X = __builtins__\n" + GOOD, "1:5", "__builtins__ is not for filters"),
        ("async def match(m, c): return True", "1:1", "async is not supported"),
        (GOOD + "async def other(): pass", "3:1", "async is not supported"),
        ("N = 0\ndef match(m, c):\n    global N\n    N += 1\n    return True", "3:5", "global"),
        (GOOD + GOOD, "3:1", "match is written twice"),
        (GOOD + "class A:\n def match(s, m, c): return True", "3:1", "both a function match and"),
        (
            "class A:\n def match(s, m, c): return 1\nclass B:\n def match(s, m, c): return 1",
            "3:1",
            "A and B define match",
        ),
        ("from re import match", "1:1", "match is imported"),
        ("match = 3", "1:1", "match is not a function"),
        ("match = other", "1:1", "match is not a function"),
        ("def late(m): return True\nmatch = late", "1:1", "match must take (message, context)"),
        ("def match(): return True", "1:1", "match must take (message, context)"),
        ("def match(message): return True", "1:1", "match must take (message, context)"),
        ("def match(m, c, x): return True", "1:1", "match must take (message, context)"),
        ("def match(m, c, *, x): return True", "1:1", "match must take (message, context)"),
        ("class A:\n def match(m, c): return True", "2:2", "match must take (self, message,"),
        ("def set_up(): pass\n" + GOOD, "1:1", "set_up must take (context)"),
        ("def match_batch(m): return []\n" + GOOD, "1:1", "match_batch must take (messages, cont"),
        ("def match_batch(m, c): pass\n" + GOOD, "1:1", "never returns a list"),
        ("def match(m, c):\n    m.tag == 'paid'", "1:1", "never returns True or False"),
        ("def match(m, c):\n    def f():\n        return 1\n    f()", "1:1", "never returns"),
        ("def match(m, c):\n    yield True", "2:5", "return its answer, not yield"),
        (
            "class A:\n def __init__(s, x): pass\n def match(s, m, c): return 1",
            "2:2",
            "A is made w",
        ),
        ("X = '\ud800'\n" + GOOD, "", "not valid Unicode"),
        ("X = " + "(" * 65 + "1" + ")" * 65 + "\n" + GOOD, "", "brackets nest 65 deep"),
        ("#" * FILTER_SOURCE_BYTES_MAX + "\n" + GOOD, "", "65536 are allowed"),
        ("#" + "ü" * (FILTER_SOURCE_BYTES_MAX // 2) + "\n" + GOOD, "", "65536 are allowed"),
    ],
)
def test_what_is_refused_says_where_and_what(source: str, where: str, said: str) -> None:
    error = refused(source)
    assert error.message.startswith(f"filter late, {where}: " if where else "filter late: ")
    assert said in error.message


@pytest.mark.parametrize("name", sorted(FORBIDDEN_NAMES))
def test_every_builtin_that_is_not_there_has_a_hint(name: str) -> None:
    error = refused(f"def match(m, c):\n    {name}(1)\n    return True")
    assert f"2:5: a filter has no {name}()" in error.message
    assert error.hint


def test_the_list_of_modules_is_in_the_hint() -> None:
    assert "collections.abc" in refused("import os\n" + GOOD).hint


# -- bombs ----------------------------------------------------------------------------------------

BOMBS = {
    "brackets": "(" * (FILTER_BRACKET_DEPTH_MAX + 1) + ")" * (FILTER_BRACKET_DEPTH_MAX + 1),
    "open brackets": "[" * 60_000,
    "braces": "{" * 60_000,
    "minus": "x = " + "-" * 60_000 + "1",
    "not": "x = " + "not " * 15_000 + "1",
    "lambda": "x = " + "lambda: " * 8_000 + "1",
    "attributes": "x = a" + ".b" * 30_000,
    "calls": "x = a" + "()" * 30_000,
    "sum": "x = 1" + "+1" * 30_000,
    "powers": "x = 1" + "**1" * 20_000,
    "else": "x = " + "1 if 1 else " * 5_000 + "1",
    "elif": "if 1: pass\n" + "elif 1: pass\n" * 4_000,
    "indentation": "".join(" " * depth + "if 1:\n" for depth in range(99)) + " " * 99 + "pass",
    "a shallow tree too deep": "x = a" + ".b" * FILTER_TREE_DEPTH_MAX,
    "many names": "a;" * 32_000,
    "a huge number": "x = " + "9" * 60_000,
    "f-strings": "f'{" * 30 + "1" + "}'" * 30,
    "wrong inside brackets": "(" * 60 + "a b" + ")" * 60,
    "patterns": "match x:\n case " + "(" * 60 + "a|" + ")" * 60 + ": pass",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(name: str) -> None:
    refused(BOMBS[name])


WORDS = [*"()[]{}:,=*.'\"\\@;#", "def", "class", "match", "lambda", "return", "yield", "await"]
WORDS += ["async", "with", "as", "for", "in", "if", "else", "not", "**", "import", "from", "global"]
WORDS += ["0", "1e9", "0x", "f'{", "}'"]
BLANKS = ["\n", " ", "    ", "\t", "\0", "\ufeff", "\r", "\x0c", "\ud800"]


@pytest.mark.fuzz
@given(
    st.lists(st.sampled_from(WORDS + BLANKS) | st.text(max_size=3), max_size=40).map("".join),
)
def test_whatever_the_text_is_only_bad_request_is_raised(source: str) -> None:
    with suppress(BadRequest):
        check_source(source, "late")


# -- the page -------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs" / "filters.md").read_text(encoding="utf-8")


def test_the_filters_on_the_page_are_filters() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    filters = [block for block in blocks if "def match(" in block]
    assert len(filters) == 2
    for block in filters:
        check_source(block, "page")


def test_the_page_names_every_module_and_the_limits() -> None:
    listed = re.search(r"\*\*Modules\*\* that a filter may import: (.*?)\. Local", PAGE, re.DOTALL)
    assert listed is not None
    assert tuple(re.findall(r"`([\w.]+)`", listed[1])) == MODULES
    assert f"at most {FILTER_SOURCE_BYTES_MAX // 1024} KiB" in PAGE
    assert f"| brackets in it | {FILTER_BRACKET_DEPTH_MAX} deep |" in PAGE
    assert f"| versions kept | {FILTER_VERSIONS_MAX} |" in PAGE
    assert (
        f"| filters | {FILTERS_GROUP_MAX} for each group, {FILTERS_MAX} for each broker |" in PAGE
    )


def test_the_page_has_every_kind_of_failure_and_every_policy() -> None:
    for word in (*FilterFailure, *FilterPolicy):
        assert f"| `{word}`" in PAGE


# -- check_allowance -------------------------------------------------------------------------------


def test_what_is_spent_comes_back_with_time_and_never_more() -> None:
    allowance = CheckAllowance()
    now_ms = 90_000_000
    for _ in range(FILTER_CHECKED_BYTES_MAX // FILTER_SOURCE_BYTES_MAX):
        allowance.take(now_ms, FILTER_SOURCE_BYTES_MAX)
    with pytest.raises(Throttled, match="at once"):
        allowance.take(now_ms, 1)
    allowance.take(now_ms + 2_000, 2 * FILTER_CHECKED_BYTES_S)
    with pytest.raises(Throttled):
        allowance.take(now_ms + 2_000, 1)
    later_ms = now_ms + 10**9
    allowance.take(later_ms, FILTER_CHECKED_BYTES_MAX)
    with pytest.raises(Throttled):
        allowance.take(later_ms, 1)


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    allowance = CheckAllowance()
    allowance.take(5_000, FILTER_CHECKED_BYTES_MAX)
    with pytest.raises(Throttled):
        allowance.take(4_000, 1)


# -- the one list of modules for filters -----------------------------------------------------------


REACH = {"os", "sys", "socket", "subprocess", "ctypes", "signal", "threading", "asyncio", "io"}
UNSTEADY = {"random", "secrets", "time", "uuid"}


def test_nothing_on_it_reaches_out_or_depends_on_chance_or_clock() -> None:
    assert not set(MODULES) & (REACH | UNSTEADY)


def test_each_is_of_the_standard_library_and_loads_nothing_that_opens_sockets() -> None:
    code = (
        f"import importlib, sys\nfor name in {MODULES!r}: importlib.import_module(name)\n"
        "print(sorted({'socket', 'ssl', 'subprocess', 'ctypes', 'threading'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
