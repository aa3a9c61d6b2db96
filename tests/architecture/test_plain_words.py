"""Texts that users see have the field's words: help, HTTP API, alarms, console, errors, logs.

One list of private words. Errors, hints, log lines, descriptions of settings and metrics: all
strings of all modules are read. Docstrings and comments, which users do not see, are not.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.architecture.conftest import Source
from typer.main import get_command

from kourou.cli.commands import app
from kourou_console.http.openapi import described
from kourou_console.operations import OPERATIONS

CONSOLE = Path("services/console/kourou_console")
ALERTS = Path("deploy/prometheus/alerts.yml")
DASHBOARDS = Path("deploy/grafana/dashboards")

PRIVATE = re.compile(
    r"\b(beside|nobody|whoever|somebody|mend(s|ed|ing)?|anew|in peace|ought to|what becomes of"
    r"|lies at|lie at|redrives? (of|by|all|\d)|no member|how far behind|told|tells|desks?|lanes?"
    r"|rehears\w+|let(ting)? (them|it) go|(?<!there )is no (?!longer|more)|furthest|anybody"
    r"|passed over|dealt with|is away|gives? up|given up|cannot judge|taken back|more letters"
    r"|meanwhile|go(?:es|ing)? on|went on|insists?|lets? in|hung up|handed over|hands? over"
    r"|to be had|is meant|says nothing)\b",
    re.IGNORECASE,
)
"""Words that only this project uses so: name the actor, and use the words of Kafka and RocketMQ."""

COMMENTS = re.compile(
    r'class="[^"]*"|/\*.*?\*/|^\s*//[^\n]*$|\s//\s[^\n]*$', re.DOTALL | re.MULTILINE
)


def helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """The help of a command, of its options, and of all commands below it."""
    yield name, f"{command.help or ''} {command.short_help or ''}"
    for one in command.params:
        yield f"{name} {one.name}", getattr(one, "help", None) or ""
    for below, inner in getattr(command, "commands", {}).items():
        yield from helps(inner, f"{name} {below}")


def labels(root: Path) -> Iterator[tuple[str, str]]:
    """The strings and the text of the console's pages, without comments and CSS classes."""
    for path in sorted((root / CONSOLE / "static" / "js").rglob("*.js")):
        code = COMMENTS.sub("", path.read_text("utf-8"))
        for number, text in enumerate(re.findall(r'"([^"\n]* [^"\n]*)"|`([^`]*)`', code)):
            yield f"{path.name} {number}", re.sub(r"\$\{.*?\}", "…", "".join(text), flags=re.DOTALL)


def annotations(root: Path) -> Iterator[tuple[str, str]]:
    """The summary of each alert rule."""
    for group in yaml.safe_load((root / ALERTS).read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["annotations"]["summary"]


def panels(root: Path) -> Iterator[tuple[str, str]]:
    """Title and description of each dashboard and each of its panels, and names of its lines."""
    for path in sorted((root / DASHBOARDS).glob("*.json")):
        board = json.loads(path.read_text("utf-8"))
        yield path.name, f"{board['title']}. {board['description']}"
        for panel in board["panels"]:
            lines = [target["legendFormat"] for target in panel.get("targets", [])]
            texts = [panel["title"], panel.get("description", ""), *lines]
            yield f"{path.name} {panel['id']}", ". ".join(texts)


def api(node: Any, name: str = "openapi") -> Iterator[tuple[str, str]]:
    """Summaries and descriptions, wherever they stand."""
    if isinstance(node, dict):
        for key, inner in node.items():
            if key in ("summary", "description") and isinstance(inner, str):
                yield f"{name}.{key}", inner
            else:
                yield from api(inner, f"{name}.{key}")
    elif isinstance(node, list):
        for number, inner in enumerate(node):
            yield from api(inner, f"{name}[{number}]")


def sentences(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each string that is not a docstring; … stands for a value."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            left_out.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            left_out.update(id(part) for part in node.values)
            parts = [getattr(part, "value", "") for part in node.values]
            yield node.lineno, "".join(one if isinstance(one, str) else "…" for one in parts)
        elif isinstance(node, ast.Constant) and id(node) not in left_out:
            yield node.lineno, node.value if isinstance(node.value, str) else ""


@pytest.mark.parametrize("texts", ["help", "labels", "alarms", "panels", "api"])
def test_users_read_no_private_words(root: Path, texts: str) -> None:
    found = {
        "help": lambda: helps(get_command(app), "kourou"),
        "labels": lambda: labels(root),
        "alarms": lambda: annotations(root),
        "panels": lambda: panels(root),
        "api": lambda: api(described(OPERATIONS)),
    }[texts]
    seen = list(found())
    private = [f"{name}: {text}" for name, text in seen if PRIVATE.search(text)]
    assert len(seen) > 20, "nothing was read"
    assert private == [], "\n".join(private)


def test_errors_and_log_lines_have_no_private_words(production: list[Source]) -> None:
    seen = [
        (f"{source.path}:{line}", text)
        for source in production
        for line, text in sentences(source.tree)
        if " " in text
    ]
    private = sorted(f"{place}: {text}" for place, text in seen if PRIVATE.search(text))
    assert len(seen) > 3000, "nothing was read"
    assert private == [], "\n".join(private)
