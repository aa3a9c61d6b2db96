"""What a filter may name and import, as far as Python itself keeps it from more."""

import codecs
import sys
import time

import pytest

from kourou.filtering.python_rules import FORBIDDEN_NAMES, MODULES
from kourou_filter_server.sandbox import runtime

pytestmark = pytest.mark.usefixtures("prepared")


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
