"""From a function or a class to a text that means the same far away."""

from __future__ import annotations

import functools
import linecache
import sys
from types import ModuleType

import pytest

import kourou
from kourou import Filter
from kourou.errors import BadRequest

TEXT = "def match(message, context):\n    return message.tag == 'late'\n"
LIMIT = 120


class Delayed:
    """A message, as far as these filters look at one."""

    json = {"delay": 130}


def test_a_lambda_has_no_text_of_its_own():
    with pytest.raises(BadRequest, match="cannot be a lambda"):
        Filter(lambda message, context: True, name="x")


def test_parameters_must_fit():
    def one(message):
        return True

    def more(message, context, other):
        return True

    async def waits(message, context):
        return True

    def free(*given):
        return bool(given)

    for wrong in (one, more):
        with pytest.raises(BadRequest, match=r"must take \(message, context\)"):
            Filter(wrong)
    with pytest.raises(BadRequest, match="async"):
        Filter(waits)
    assert Filter(free).name == "free"


def test_a_class_must_be_made_without_arguments_and_have_match():
    class Wants:
        def __init__(self, limit):
            self.limit = limit

        def match(self, message, context):
            return True

    class Lacks:
        pass

    class Odd:
        def match(self, message):
            return True

    with pytest.raises(BadRequest, match="without arguments"):
        Filter(Wants)
    with pytest.raises(BadRequest, match="no method match"):
        Filter(Lacks)
    with pytest.raises(BadRequest, match=r"must take \(message, context\)"):
        Filter(Odd)


def test_what_closes_over_variables_is_refused():
    limit = 5

    def above(message, context):
        return message.offset > limit

    with pytest.raises(BadRequest, match="enclosing function: limit"):
        Filter(above)


def test_what_uses_its_module_is_refused():
    def above(message, context):
        return message.offset > LIMIT or len([one for one in "ab" if one in sys.argv]) > 0

    class Above(Delayed):
        def match(self, message, context):
            return True

    with pytest.raises(BadRequest, match="uses LIMIT, sys from its module"):
        Filter(above)
    with pytest.raises(BadRequest, match="uses Delayed from its module"):
        Filter(Above)


def test_what_it_imports_itself_is_its_own():
    def dated(message, context):
        import datetime

        return message.born_ms > datetime.timedelta(days=9).total_seconds()

    assert "import datetime" in Filter(dated).source


def test_one_that_calls_itself_finds_itself():
    def deep(message, context):
        return message.json is None or deep(None, context)

    # Inside a test it would close over itself, so it is built as a module's function is.
    text = "def deep(message, context):\n    return not message or deep(None, context)\n"
    module = made_of(text)
    source = Filter(module.deep).source
    assert source == text.replace("def deep", "def match") + "\n\ndeep = match\n"
    with pytest.raises(BadRequest, match="enclosing function: deep"):
        Filter(deep)


def made_of(text: str, *, file: str = "<made>") -> ModuleType:
    """A module whose source `inspect` finds."""
    module = ModuleType("made")
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)
    return module


def test_a_text_that_is_not_what_runs_is_refused():
    module = made_of(TEXT)
    linecache.cache["<made>"] = (1, None, [TEXT.replace("late", "l8")], "<made>")
    with pytest.raises(BadRequest, match="differs from the running match"):
        Filter(module.match, name="x")
    kind = "class A:\n    def match(self, message, context):\n        return True\n"
    made = made_of(kind).A
    sys.modules["made"] = ModuleType("made")
    sys.modules["made"].__file__ = "<made>"
    made.__module__ = "made"
    made.match.__code__ = (lambda self, message, context: False).__code__
    try:
        with pytest.raises(BadRequest, match=r"differs from the running A\.match"):
            Filter(made)
    finally:
        del sys.modules["made"]


def test_a_source_that_is_not_to_be_had_is_refused():
    scope: dict = {}
    exec(TEXT, scope)
    with pytest.raises(BadRequest, match="is not available"):
        Filter(scope["match"], name="x")


def test_other_decorators_are_not_uploaded():
    def doubtful(function):
        return functools.wraps(function)(lambda message, context: not function(message, context))

    @doubtful
    def late(message, context):
        return True

    with pytest.raises(BadRequest, match="enclosing function: function"):
        Filter(late)

    with pytest.raises(BadRequest, match=r"decorated with functools\.total_ordering"):

        @kourou.Filter
        @functools.total_ordering
        class Late:
            def __lt__(self, other):
                return True

            def match(self, message, context):
                return True


def test_texts_of_several_lines_keep_their_indentation():
    def odd(message, context):
        words = """one
        two"""
        return message.tag in words

    with pytest.raises(
        BadRequest, match="contains a multi-line string whose content depends on the indentation"
    ):
        Filter(odd)


def test_annotations_may_name_what_only_the_program_has():
    def typed(message: Delayed, context: object) -> bool:
        return message.json == {}

    assert Filter(typed).source.startswith("from __future__ import annotations\n")
    module = made_of(
        "def typed(message: Delayed, context) -> bool:\n    return True\n".replace(
            "Delayed", "object"
        )
    )
    assert Filter(module.typed).source.startswith("def match(message: object")
