"""Pages of the HTTP API: docs/reference/http.md from its OpenAPI description, and a table.

The table is that of docs/http-admin.md: each command with the operations that do the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from generators.readme import replaced
from generators.tables import code, document, head, link, paragraph, table

from kourou.operations import CATALOGUE, verbs_of
from kourou_console.http.openapi import described
from kourou_console.http.reference import HTTP_STATUSES, by_chapter, kind_of, short
from kourou_console.operations import OPERATIONS

SOURCE = "services/console/kourou_console/api"
COMMANDS_PAGE = "docs/http-admin.md"

ABOUT = """\
Every call of the HTTP API, with parameters and responses. A console serves the same at `/docs`, and
as OpenAPI 3.1 at `/openapi.json`."""

READING = """\
A list has `items`, `total` (null: unknown), `truncated`, and often `missing`: the servers that did
not reply, and why. Times end in `_ms` and count from the epoch; `as_of_ms` is the time of the data;
null means unknown. If tokens are configured, *right* is what the token of a call must have. For an
introduction see [http.md](../http.md)."""

ERRORS = """\
Every error is `application/problem+json` (RFC 9457) with `code` and `code_name` from
[errors.md](errors.md#numbers), and `retryable`. 429 and 503 mean that nothing was done, 504 that
the outcome is unknown."""


def page(root: Path) -> str:
    """The chapters, then types, then errors."""
    found = json.loads(msgspec.json.encode(described(OPERATIONS)))
    lines = head("HTTP", ABOUT, SOURCE)
    lines += [paragraph(READING), ""]
    chapters = by_chapter(found)
    for chapter, calls in chapters.items():
        lines += [f"## {chapter}", ""]
        for path, method, one in calls:
            lines += _call(path, method, one)
    lines += ["## Types", ""]
    for name, schema in found["components"]["schemas"].items():
        lines += _type(name, schema)
    lines += ["## Errors", "", paragraph(ERRORS), ""]
    rows = [(code(status), about) for status, about in HTTP_STATUSES.items()]
    return document([*lines, *table(("status of HTTP's own", "means"), rows)])


def commands_page(root: Path) -> str:
    """The page about administration with its table according to the catalogue of verbs."""
    paths = {one.name: code(f"{one.method} {one.path}") for one in OPERATIONS}
    names = dict.fromkeys(name for one in CATALOGUE for name in one.commands)
    rows = [
        (code(name), ", ".join(paths[one.name] for one in verbs_of(name)))
        for name in names
        if all(one.over_http for one in verbs_of(name))
    ]
    text = (root / COMMANDS_PAGE).read_text(encoding="utf-8")
    lines = table(("command", "operation"), rows)
    source = "libs/kourou/operations.py"
    return replaced(text, "operations", source, "\n".join(lines).rstrip())


def _call(path: str, method: str, one: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {one['operationId']}"
    yield ""
    yield f"`{method} {path}` · right: {one['x-kourou-right']}"
    yield ""
    yield paragraph(one.get("description") or one["summary"] + ".")
    yield ""
    if one["parameters"]:
        yield from table(
            ("parameter", "in", "type", "about"),
            (
                (
                    code(each["name"]),
                    each["in"] + (", needed" if each["required"] else ""),
                    kind_of(each["schema"]),
                    each.get("description", ""),
                )
                for each in one["parameters"]
            ),
        )
    told = [
        f"Takes {' or '.join(_media(one['requestBody']['content']))}."
        if "requestBody" in one
        else "",
        *(
            f"Answers {status}: {' or '.join(_media(answer['content']))}."
            if answer.get("content")
            else f"Answers {status} without a body."
            for status, answer in one["responses"].items()
            if status.startswith("2")
        ),
    ]
    yield paragraph(" ".join(filter(None, told)))
    yield ""


def _media(content: Mapping[str, Any]) -> Iterator[str]:
    for media, each in content.items():
        name = str(each["schema"].get("$ref", "")).rpartition("/")[2]
        yield f"{code(media)} {link(code(short(name)), _title(name))}" if name else code(media)


def _title(name: str) -> str:
    """The heading of a type; types with the same name are distinguished by their module."""
    if "." not in name:
        return f"Type {name}"
    return f"Type {short(name)} of {name.rsplit('.', 2)[1]}"


def _type(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {_title(name)}"
    yield ""
    if about := schema.get("description"):
        yield paragraph(about)
        yield ""
    if words := schema.get("enum"):
        yield paragraph("One of " + ", ".join(code(one) for one in words) + ".")
        yield ""
    if fields := schema.get("properties"):
        needed = schema.get("required", ())
        rows = (
            (code(field), kind_of(kind), "" if field in needed else "may be left out")
            for field, kind in fields.items()
        )
        yield from table(("field", "type", ""), rows)
