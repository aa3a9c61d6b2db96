"""docs/reference/errors.md: all errors, what to do about each, and the codes on the wire."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from generators.requests import GENERAL
from generators.tables import code, document, head, link, paragraph, prose, sentence, table

from kourou import errors
from kourou.client.producer.send_frames import STORED
from kourou.client.producer.sender import worth_another_attempt
from kourou.errors import Code, KourouError, error_from_code
from kourou.model.message import PullStatus
from kourou.protocol.table import REQUESTS, SEND_ANSWERS

SOURCE = "libs/kourou/errors.py"
PULL_STATUSES = frozenset(status.value for status in PullStatus)
NAMED_MAX = 3
"""Requests are not named for a code that more than so many of them can return."""

ABOUT = """\
Error classes and response codes, with what to do. A server replies with a code and a message; the
client raises the class of that code. All classes are in `kourou.errors`."""

ANSWERS = """\
Codes from 30000 on are Kourou's own, the others are RocketMQ's. *RMQ* marks codes that only
RocketMQ's servers return; Kourou's clients understand them. *Sent again?* states whether a
producer retries (`retry_times_when_send_failed`) after this code, at another broker if there is
one."""


def page(root: Path) -> str:
    """The class tree, the classes in its order, the codes."""
    tree = [
        line[4:]
        for line in (errors.__doc__ or "").splitlines()
        if re.match(r"    ( *[├│└]|KourouError)", line)
    ]
    lines = head("Errors", ABOUT, SOURCE)
    lines += ["```", *tree, "```", "", "## Classes", ""]
    lines += table(
        ("class", "when", "what to do", "number", "try again?"),
        [
            (
                code(kind.__name__),
                sentence(kind),
                advice(kind),
                str(kind.code.value),
                "yes" if kind.retryable else "no",
            )
            for kind in classes(KourouError)
        ],
    )
    lines += ["## Numbers", "", paragraph(ANSWERS), ""]
    said = comments(root)
    lines += table(
        ("number", "name", "when", "exception", "sent again?", "answer to"),
        [
            (
                str(one.value),
                code(one.name),
                said[one.name].replace("[RMQ]", "*RMQ*"),
                _outcome(one),
                _sent_again(one),
                _requests(one),
            )
            for one in Code
        ],
    )
    return document(lines)


def classes(kind: type[KourouError]) -> Iterator[type[KourouError]]:
    """All classes below `kind`, depth first, in the order of the source."""
    for below in kind.__subclasses__():
        if below.__module__ == kind.__module__:
            yield below
            yield from classes(below)


def advice(kind: type[KourouError]) -> str:
    """The paragraph of its docstring that starts with "Do:"."""
    for part in (inspect.getdoc(kind) or "").split("\n\n"):
        if part.startswith("Do: "):
            return prose(part.removeprefix("Do: "))
    raise ValueError(f"the docstring of {kind.__name__} does not say what to do")


def comments(root: Path) -> dict[str, str]:
    """The comment after each code in the source, by name."""
    source = (root / SOURCE).read_text(encoding="utf-8")
    return dict(re.findall(r"^    ([A-Z_]+) = \d+  # (.+)$", source, re.MULTILINE))


def _outcome(one: Code) -> str:
    if one is Code.SUCCESS:
        return "a result"
    if one in STORED:
        return f"a result with the status {code(STORED[one].value)}"
    if one.value in PULL_STATUSES:
        return f"a result with the status {code(PullStatus(one.value).name)}"
    return code(type(error_from_code(one, "")).__name__)


def _sent_again(one: Code) -> str:
    if one in STORED or one not in {*SEND_ANSWERS, *GENERAL}:
        return ""
    return "yes" if worth_another_attempt(error_from_code(one, "")) else "no"


def _requests(one: Code) -> str:
    if one in (Code.SUCCESS, *GENERAL):
        return "any request"
    names = sorted(spec.name for spec in REQUESTS.values() if one in spec.answers)
    if len(names) > NAMED_MAX:
        return f"{len(names)} requests"
    return ", ".join(link(code(name), name, "requests.md") for name in names)
