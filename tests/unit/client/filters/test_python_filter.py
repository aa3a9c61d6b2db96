"""Filters that an application brings along or names."""

from __future__ import annotations

import functools
import hashlib

import pytest

from kourou import Filter
from kourou.errors import BadRequest
from kourou.filtering.python_rules import check_source

TEXT = "def match(message, context):\n    return message.tag == 'late'\n"


class Delayed:
    """A message, as far as these filters look at one."""

    json = {"delay": 130}


@Filter
def late(message, context):
    """Over two hours."""
    return message.json["delay"] > 120


@Filter.define("by-day", note="the first version")
class ByDay:
    def set_up(self, context):
        self.days = {"mon", "tue"}

    def match(self, message, context):
        return message.tag in self.days


@pytest.mark.feature("F240")
def test_a_function_is_uploaded_as_match_without_its_decorator():
    assert (late.name, late.note) == ("late", "")
    assert late.source == (
        "from __future__ import annotations\n\n\n"
        "def match(message, context):\n"
        '    """Over two hours."""\n'
        '    return message.json["delay"] > 120\n'
    )
    assert late.sha256 == hashlib.sha256(late.source.encode()).hexdigest()
    check_source(late.source, "late")
    assert str(late) == "late"
    assert "source" not in repr(late)


def test_it_can_still_be_called_here():
    assert late(Delayed()) is True
    with pytest.raises(BadRequest, match="was not made from a function, so it cannot be called"):
        ByDay(Delayed())  # type: ignore[operator]  # it is a Filter


@pytest.mark.feature("F240", "F242")
def test_a_class_keeps_its_name_and_gets_another_as_a_filter():
    assert (ByDay.name, ByDay.note) == ("by-day", "the first version")
    assert ByDay.source is not None
    assert "class ByDay:\n    def set_up(self, context):" in ByDay.source
    assert "define" not in ByDay.source


def test_a_text_and_a_file(tmp_path):
    path = tmp_path / "on-time.py"
    path.write_text(TEXT)
    assert Filter.from_file(path).name == "on-time"
    assert Filter.from_file(path, name="b", note="n") == Filter(TEXT, name="b", note="n")
    assert Filter(TEXT, name="b") != Filter(TEXT + "\n", name="b")
    with pytest.raises(BadRequest, match="a filter given as text needs a name"):
        Filter(TEXT)
    with pytest.raises(BadRequest, match="cannot be read"):
        Filter.from_file(tmp_path / "nowhere.py")
    path.write_bytes(b"# \xff")
    with pytest.raises(BadRequest, match="cannot be read"):
        Filter.from_file(path)
    for too_long in ("#" * 70_000, "#" + "é" * 35_000):  # the limit cuts an é in two
        path.write_bytes(too_long.encode())
        with pytest.raises(BadRequest, match="65536 are allowed"):
            Filter.from_file(path)


def test_one_that_is_stored_has_no_source():
    stored = Filter.named("late")
    assert (stored.name, stored.source, stored.sha256) == ("late", None, "")


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "a" * 128, 5])
def test_names_are_checked(name):
    with pytest.raises(BadRequest):
        Filter.named(name)


def test_a_source_is_checked_before_it_travels():
    with pytest.raises(BadRequest, match="neither a function"):
        Filter("x = 1", name="x")
    with pytest.raises(BadRequest, match="filter x, 1:"):
        Filter("import os\n" + TEXT, name="x")
    with pytest.raises(BadRequest, match="note"):
        Filter(TEXT, name="x", note="n" * 257)


def test_decorators_with_another_meaning_are_rejected():
    with pytest.raises(BadRequest, match=r'@Filter\.define\("late"\)'):
        Filter("late")

    def late(message, context):
        return True

    with pytest.raises(BadRequest, match=r'use @Filter\.define\("late"\), or just @Filter'):
        Filter.define(late)  # type: ignore[arg-type]  # @Filter.define without parentheses


def test_what_is_no_filter_at_all():
    for what in (5, None, functools.partial(print), len):
        with pytest.raises(BadRequest, match="is not a filter"):
            Filter(what)  # type: ignore[arg-type]  # what somebody may pass


def test_match_has_no_name_of_its_own():
    def match(message, context):
        return True

    with pytest.raises(BadRequest, match="a filter made from a function named match needs a name"):
        Filter(match)
    assert Filter(match, name="all").source.endswith(
        "def match(message, context):\n    return True\n"
    )
