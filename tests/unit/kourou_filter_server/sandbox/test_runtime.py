"""From a source to verdicts: what is asked, what counts as an answer, what is told of errors."""

import codecs
import re
import sys
import time

import pytest

from kourou.filtering.python_rules import FORBIDDEN_NAMES, MODULES
from kourou_filter_server.sandbox import runtime
from kourou_filter_server.sandbox.runtime import (
    MEMORY,
    NO_FAILURE,
    RAISED,
    LoadedFilter,
    SetUpFailed,
)
from kourou_rigs.records import RecordRun

pytestmark = pytest.mark.usefixtures("prepared")


def made(source: str) -> LoadedFilter:
    return LoadedFilter(source.encode(), "checkout", "late", 3)


def records(count: int = 4) -> bytes:
    run = RecordRun()
    for index in range(count):
        run.add("orders", 2, tag=f"t{index}", body=b'{"n": %d}' % index)
    return run.data


def evaluated(source: str, count: int = 4) -> tuple[list[int], int, str | None]:
    results, failure, reason = made(source).evaluate("orders", 77, records(count), count)
    return list(results), failure, reason


# -- verdicts -------------------------------------------------------------------------------------


@pytest.mark.feature("F242")
def test_a_function_judges_by_header_and_by_body() -> None:
    source = "def match(message, context): return message.tag == 't1' or message.json['n'] > 2"
    assert evaluated(source) == ([0, 1, 0, 1], NO_FAILURE, None)


@pytest.mark.feature("F242")
def test_a_class_is_made_and_set_up_once() -> None:
    source = """
class Odd:
    def __init__(self):
        self.calls = []
    def set_up(self, context):
        self.calls.append((context.group, context.name, context.version, context.topic))
    def match(self, message, context):
        assert self.calls == [("checkout", "late", 3, "")]
        return message.offset % 2 == 1
"""
    assert evaluated(source) == ([0, 1, 0, 1], NO_FAILURE, None)


def test_a_function_with_set_up() -> None:
    source = """
TAGS = set()
def set_up(context):
    TAGS.add("t2")
def match(message, context):
    return message.tag in TAGS
"""
    assert evaluated(source)[0] == [0, 0, 1, 0]


def test_what_the_context_tells() -> None:
    source = """
def match(message, context):
    return (context.group, context.name, context.version) == ("checkout", "late", 3) and (
        context.topic, context.now_ms) == ("orders", 77)
"""
    assert evaluated(source, 1)[0] == [1]


def test_an_empty_batch() -> None:
    assert evaluated("def match(message, context): return True", 0) == ([], NO_FAILURE, None)


def test_views_outlive_the_buffer_that_they_came_in() -> None:
    source = "KEPT = []\ndef match(m, c):\n    KEPT.append(m)\n    return KEPT[0].tag == 't0'"
    found = made(source)
    first, second = bytearray(records(1)), records(2)
    assert found.evaluate("orders", 0, memoryview(first), 1)[0] == b"\x01"
    first[:] = bytes(len(first))
    first.clear()  # raises BufferError if somebody still holds on to it
    assert found.evaluate("orders", 0, second, 2)[0] == b"\x01\x01"


# -- errors at a message --------------------------------------------------------------------------


WITHOUT_TEXT = """
class Odd(Exception):
    def __str__(self):
        raise self
def match(m, c):
    raise Odd
"""
BATCH_FORM = """
def match(m, c): return True
def match_batch(messages, context):
    return [10 // (message.offset - 2) < 0 for message in messages]
"""


def raising(error: str) -> str:
    """A filter that raises at the messages 1 and 2."""
    return f"""def match(message, context):
    if message.offset in (1, 2):
        raise {error}
    return True
class Stop(BaseException): pass
"""


@pytest.mark.parametrize(
    ("source", "results", "failure", "reason"),
    [
        (
            raising("ValueError(f'no number {message.offset}')"),
            [1, 2, 2, 1],
            RAISED,
            r"ValueError: no number 1, line 3 of the filter, at orders/2@1$",
        ),
        *(
            (raising(f"{name}()"), [1, 2, 2], RAISED, f"{name}, line 3")
            for name in ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "Stop")
        ),
        (raising("MemoryError"), [1, 2, 2, 1], MEMORY, ".*memory"),
        (
            "def match(m, c): return match(m, c) if m.offset == 1 else True",
            [1, 2, 1],
            RAISED,
            "RecursionError",
        ),
        ("def match(m, c):\n    c.now_ms = 1\n    return True", [2], RAISED, "AttributeError"),
        (WITHOUT_TEXT, [2], RAISED, "Odd: it does not say what it means, line 6"),
        ("def match(m, c): return None", [2], RAISED, r".*is a `return` missing\?.*orders/2@0"),
        ("def match(m, c): return 1", [2], RAISED, ".*returned a int.*orders/2@0"),
        ("def match(m, c): return 'yes'", [2], RAISED, ".*returned a str.*orders/2@0"),
        ("def match(m, c): return m.json", [2], RAISED, ".*returned a dict.*orders/2@0"),
        (BATCH_FORM, [1, 1, 2, 0], RAISED, "ZeroDivisionError.*at orders/2@2$"),
    ],
)
def test_an_error_costs_its_message_and_no_other(
    source: str, results: list[int], failure: int, reason: str
) -> None:
    found = evaluated(source, len(results))
    assert found[:2] == (results, failure)
    assert re.match(reason, found[2] or "")


@pytest.mark.parametrize("text", ["x" * 100_000, "ü" * 100_000, "\ud800" * 1000, "a\0b"])
def test_a_reason_always_fits_and_keeps_its_place(text: str) -> None:
    reason = evaluated(f"def match(m, c): raise ValueError({text!r})", 1)[2]
    assert reason is not None
    assert len(reason.encode()) <= runtime.REASON_BYTES_MAX
    assert "\0" not in reason
    assert reason.endswith("orders/2@0")


def test_a_record_that_is_none_ends_the_batch() -> None:
    data = records(3)
    size = len(data) // 3
    broken = data[:size] + b"\0" * size + data[2 * size :]
    for face in ("", "def match_batch(ms, c): return [True] * len(ms)"):
        found = made(f"def match(m, c): return True\n{face}")
        results, failure, reason = found.evaluate("orders", 0, broken, 3)
        assert (list(results), failure) == ([1, 2, 2], RAISED)
        assert reason is not None
        assert reason.startswith("BadRecord: magic")


def test_a_record_whose_inside_is_broken_costs_one_message() -> None:
    data = bytearray(records(3))
    size = len(data) // 3
    data[size + 84 : size + 88] = b"\x7f\xff\xff\xff"  # the body's length
    results, failure, reason = made("def match(m, c): return m.tag != ''").evaluate(
        "orders", 0, bytes(data), 3
    )
    assert (list(results), failure) == ([1, 2, 1], RAISED)
    assert reason is not None
    assert "body length" in reason
    assert "at a record that cannot be read" in reason


def test_an_error_between_two_messages_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(data: bytes, at: int) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(runtime, "next_record", interrupted)
    results, failure, reason = evaluated("def match(m, c): return True", 2)
    assert (results, failure) == ([2, 2], RAISED)
    assert reason == "KeyboardInterrupt, between two messages"


# -- the batch form -------------------------------------------------------------------------------


def test_the_batch_form_is_asked_instead() -> None:
    source = """
def match(m, c):
    raise AssertionError
def match_batch(messages, context):
    return [message.tag == "t2" for message in messages]
"""
    assert evaluated(source) == ([0, 0, 1, 0], NO_FAILURE, None)


@pytest.mark.parametrize(
    "answer", ["[]", "[True]", "True", "None", "[1] * len(ms)", "(True for m in ms)", "'1' * 4"]
)
def test_a_batch_form_that_does_not_answer_for_every_message_has_not_answered(answer: str) -> None:
    source = f"def match(m, c): return True\ndef match_batch(ms, c): return {answer}"
    results, failure, reason = evaluated(source)
    if answer == "[True]":  # an answer, as soon as there is one message
        assert (results, failure) == ([1, 1, 1, 1], NO_FAILURE)
    else:
        assert (results, failure) == ([2, 2, 2, 2], RAISED)
        assert reason is not None
        assert "as many bools as messages" in reason


def test_a_batch_form_may_do_with_its_list_what_it_likes() -> None:
    source = """
def match(m, c): return True
def match_batch(messages, context):
    if len(messages) > 1:
        messages.clear()
    return [True] * len(messages)
"""
    assert evaluated(source)[0] == [1, 1, 1, 1]


# -- set-up ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def match(m, c) return True", "SyntaxError at line 1: expected ':'"),
        ("x = 1", "neither|no function"),
        ("class A:\n def match(s,m,c): pass\nclass B:\n def match(s,m,c): pass", "several classes"),
        ("match = 5", "must be functions"),
        ("def match(m, c): return True\nmatch_batch = 5", "must be functions"),
        ("import os\ndef match(m, c): return True", "may not import os, .*line 1 of the filter"),
        ("raise SystemExit(3)", "SystemExit: 3, line 1 of the filter, while the filter was set up"),
        ("def set_up(c): 1 / 0\ndef match(m, c): return True", "ZeroDivisionError"),
        ("class A:\n def __init__(s, a): pass\n def match(s,m,c): pass", "TypeError"),
        ("from re import Pattern", "no function"),
        ("x = '\0'", "null"),
    ],
)
def test_a_source_that_is_no_filter_says_why(source: str, said: str) -> None:
    with pytest.raises(SetUpFailed, match=said) as caught:
        made(source)
    assert caught.value.kind == "setup"
    assert len(caught.value.reason.encode()) <= runtime.REASON_BYTES_MAX


def test_a_source_that_is_no_text() -> None:
    with pytest.raises(SetUpFailed, match=r"not UTF-8 \(byte 1\)"):
        LoadedFilter(b"#\xff", "g", "n", 1)


def test_memory_at_set_up_has_its_kind() -> None:
    with pytest.raises(SetUpFailed) as caught:
        made("raise MemoryError")
    assert caught.value.kind == "memory"


def test_an_inherited_match_is_one_filter() -> None:
    source = """
class Base:
    limit = 2
    def below(self, message): return message.offset < self.limit
class Small(Base):
    def match(self, message, context): return self.below(message)
"""
    assert evaluated(source)[0] == [1, 1, 0, 0]


# -- what a filter may name and import, as far as Python itself keeps it from more -----------------


def run(source: str) -> dict:
    names = runtime.new_scope("filter_test")
    exec(source, names)
    return names


@pytest.mark.parametrize("name", MODULES)
def test_every_module_on_the_list_can_be_imported(name: str) -> None:
    assert run(f"import {name} as it")["it"] is sys.modules[name]


def test_the_forms_of_import() -> None:
    names = run(
        "import urllib.parse, json as j\nfrom collections import abc, deque\n"
        "from urllib.parse import unquote"
    )
    assert names["unquote"]("a%20b") == "a b"
    assert names["urllib"].parse.quote("a b") == "a%20b"
    assert names["j"] is sys.modules["json"]
    assert names["abc"] is sys.modules["collections.abc"]
    assert names["deque"] is sys.modules["collections"].deque


@pytest.mark.parametrize("name", ["os", "socket", "ctypes", "sys", "json.tool", "random", "time"])
def test_what_is_not_on_the_list_is_refused_by_name(name: str) -> None:
    with pytest.raises(ImportError, match=f"may not import {name}"):
        run(f"import {name}")


def test_a_relative_import_is_refused() -> None:
    with pytest.raises(ImportError, match=r"may not import \.json"):
        run("from .json import loads")


@pytest.mark.parametrize("name", sorted(set(runtime.WITHHELD) - {"__import__", "print"}))
def test_a_withheld_builtin_is_not_there(name: str) -> None:
    with pytest.raises(NameError, match=name):
        run(f"it = {name}")


def test_whatever_the_rules_forbid_is_withheld() -> None:
    assert set(FORBIDDEN_NAMES) <= set(runtime.WITHHELD)


def test_print_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    run("import json\nprint('x', file=1, flush=True)")
    assert capfd.readouterr() == ("", "")


def test_classes_dataclasses_and_enums_work() -> None:
    names = run(
        "from dataclasses import dataclass\nfrom enum import Enum\n"
        "class Kind(Enum):\n    A = 1\n"
        "@dataclass(frozen=True)\nclass Leg:\n    kind: Kind\n    minutes: int = 3\n"
        "it = repr(Leg(Kind.A))"
    )
    assert names["it"] == "Leg(kind=<Kind.A: 1>, minutes=3)"


def test_local_time_is_utc_wherever_the_machine_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    runtime.prepare(MODULES)
    names = run("import datetime\nit = datetime.datetime.fromtimestamp(1_700_000_000).isoformat()")
    assert names["it"] == "2023-11-14T22:13:20"


@pytest.mark.parametrize("name", runtime.ENCODINGS)
def test_every_encoding_is_a_real_one(name: str) -> None:
    assert codecs.lookup(name).name


def test_what_is_imported_late_is_loaded_before_the_sandbox() -> None:
    for name in runtime.LOADED_LATE:
        assert name in sys.modules


def test_filters_do_not_share_their_builtins() -> None:
    run("__builtins__['len'] = None")
    assert run("it = len('abc')")["it"] == 3
