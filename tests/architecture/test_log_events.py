"""Each log line names its event: docs/reference/log-events.md lists what these calls log."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from kourou.telemetry.logs import RESERVED

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS))  # where docs/generate.py finds them, too
from generators import log_events  # noqa: E402 - after the path to it
from generators.log_events import LogCall, calls_of  # noqa: E402 - after the path to it

NOT_FIELDS = RESERVED | {"left_out"}
"""What a line has from elsewhere; see kourou.transport.rate_limited_log for the last one."""


@pytest.fixture(scope="module")
def calls(root: Path) -> list[LogCall]:
    found = list(log_events.all_calls(root))
    assert len(found) > 300, "the look sees too few calls"
    return found


def test_every_call_names_an_event_in_kebab_case(calls: list[LogCall]) -> None:
    unnamed = [
        f"{where(call)}: {call.text!r}: write event-name: sentence, without an f-string"
        for call in calls
        if not call.event or not call.sentence
    ]
    assert not unnamed, "\n".join(unnamed)


def test_every_field_is_in_the_sentence(calls: list[LogCall]) -> None:
    wrong = [
        f"{where(call)}: {call.event} has the fields {call.fields}, its sentence has "
        f"{sorted(call.placeholders)}"
        for call in calls
        if call.fields is None or set(call.fields) != call.placeholders
    ]
    assert not wrong, "\n".join(wrong)


def test_no_value_is_left_without_a_name(calls: list[LogCall]) -> None:
    """%s and the like take positions; a percent sign beside fields is doubled."""
    unnamed = [
        f"{where(call)}: {call.text!r}"
        for call in calls
        if call.fields and "%" in log_events.FIELD.sub("", call.text or "").replace("%%", "")
    ]
    assert not unnamed, "\n".join(unnamed)


def test_no_field_hides_what_every_line_has(calls: list[LogCall]) -> None:
    hidden = [
        f"{where(call)}: {name}"
        for call in calls
        for name in call.fields or ()
        if name in NOT_FIELDS or not name.isidentifier() or name != name.lower()
    ]
    assert not hidden, "\n".join(hidden)


def test_one_event_has_one_meaning(calls: list[LogCall]) -> None:
    sentences: defaultdict[str, set[str]] = defaultdict(set)
    events: defaultdict[str, set[str]] = defaultdict(set)
    for call in calls:
        sentences[call.event].add(call.text or "")
        events[call.sentence].add(call.event)
    assert {event: texts for event, texts in sentences.items() if len(texts) > 1} == {}
    assert {text: names for text, names in events.items() if len(names) > 1} == {}


def test_only_relays_log_the_texts_of_others(root: Path) -> None:
    """A module that no longer does is checked like the others."""
    for name in log_events.RELAYS:
        tree = ast.parse((root / name).read_text(encoding="utf-8"))
        assert any(call.text is None for call in calls_of(name, tree)), name


def where(call: LogCall) -> str:
    return f"{call.path}:{call.line}"


# -- the look sees what it looks for --------------------------------------------------------------
SAMPLE = """
_log.info("peer-found: a sentence")
_log.exception("peer-failed: %(peer)s has 100 %% of %(share)+.1f", {"peer": 1, "share": 2})
class A:
    def f(self, level):
        fields = {"peer": 1}
        which = logging.DEBUG if self else logging.WARNING
        self._log.log(which, "peer-odd: %(peer)r", fields, exc_info=error)
        self._log.log(level, f"peer {level}", 1)
        self._complaints.warning("peer-cut: %(peer)s", {**fields}, kind="x")
        return [LogWarning("peer-late: late", {"peer": 1})]
def g(fields):
    _log.error("peers", fields)
    logging.getLogger("x").debug("Peer-Found: %s", 1)
math.log(2)
done.exception()
"""


def test_the_look_sees_what_it_looks_for() -> None:
    found = list(calls_of("libs/kourou/x.py", ast.parse(SAMPLE)))
    assert [(call.levels, call.event, call.sentence, call.fields) for call in found] == [
        (("info",), "peer-found", "a sentence", ()),
        (("error",), "peer-failed", "{peer} has 100 % of {share}", ("peer", "share")),
        (("debug", "warning"), "peer-odd", "{peer}", ("peer",)),
        ((), "", "", None),
        (("warning",), "peer-cut", "%(peer)s", None),
        (("warning",), "peer-late", "late", ("peer",)),
        (("error",), "", "peers", None),
        (("debug",), "", "Peer-Found: %s", None),
    ]
    assert found[1].placeholders == {"peer", "share"}
    assert found[5].placeholders == set()


def test_modules_are_named_as_they_are_imported() -> None:
    assert log_events.module_of("libs/kourou/store/startup.py") == "kourou.store.startup"
    assert log_events.module_of("services/broker/kourou_broker/app.py") == "kourou_broker.app"
    assert log_events.module_of("examples/demo/kourou_demo/story.py") == "kourou_demo.story"
