"""Generates the API's reference as one HTML page without a script.

Every problem's `type` is a link into this page, to `#code-16` or `#http-413`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from http import HTTPStatus
from typing import Any

from kourou.errors import Code

STYLE = """\
:root { color-scheme: light dark; --line: #8886; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 0 auto; padding: 1rem; }
h1, h2, h3 { line-height: 1.2; }
h2 { border-bottom: 2px solid var(--line); margin-top: 2.5rem; }
code, .method { font-family: ui-monospace, monospace; font-size: 0.95em; }
.method { font-weight: bold; }
.right { float: right; font-size: 0.85em; border: 1px solid var(--line); padding: 0 0.4em; }
article { padding: 0.3rem 0 0.8rem; border-bottom: 1px solid var(--line); }
table { border-collapse: collapse; width: 100%; margin: 0.4rem 0; }
caption { text-align: left; font-weight: bold; }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 0.8rem 0.2rem 0; }
td + td { border-left: 1px solid var(--line); padding-left: 0.5rem; }
nav ul { columns: 2; }
"""

HTTP_STATUSES: Mapping[int, str] = {
    401: "A token is missing or unknown.",
    404: "No such path.",
    405: "Method not allowed; see the Allow header.",
    408: "The body was not received in time.",
    413: "The body is too large, possibly after decompression.",
    415: "The content type or encoding of the body is not supported.",
    422: "The Idempotency-Key was used for another request.",
}
"""Descriptions of the HTTP statuses."""


def reference(document: Mapping[str, Any]) -> str:
    """The HTML page."""
    return "".join(_page(document))


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width"><title>Kourou: HTTP API</title>'
    yield '<link rel="stylesheet" href="/docs.css"></head><body><header><h1>Kourou: HTTP API</h1>'
    yield '<p>Made from <a href="/openapi.json">/openapi.json</a>, which programs read.</p>'
    yield "</header>"
    chapters = by_chapter(document)
    yield '<nav aria-label="Chapters"><ul>'
    for chapter in chapters:
        yield f'<li><a href="#{_anchor(chapter)}">{escape(chapter)}</a></li>'
    yield '<li><a href="#types">Types</a></li><li><a href="#errors">Errors</a></li></ul></nav>'
    yield "<main>"
    for chapter, operations in chapters.items():
        yield f'<section><h2 id="{_anchor(chapter)}">{escape(chapter)}</h2>'
        for path, method, one in operations:
            yield from _operation(path, method, one)
        yield "</section>"
    yield '<section><h2 id="types">Types</h2>'
    for name, schema in document["components"]["schemas"].items():
        yield from _type(name, schema)
    yield "</section>"
    yield from _errors()
    yield "</main></body></html>"


def by_chapter(
    document: Mapping[str, Any],
) -> dict[str, list[tuple[str, str, Mapping[str, Any]]]]:
    """(path, method, operation) of each chapter, in the order of the description."""
    found: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            found.setdefault(one["tags"][0], []).append((path, method.upper(), one))
    return found


def _operation(path: str, method: str, one: Mapping[str, Any]) -> Iterator[str]:
    yield f'<article id="{escape(one["operationId"])}"><h3><span class="method">{method}</span> '
    yield f"<code>{escape(path)}</code></h3>"
    yield f'<span class="right">{escape(one["x-kourou-right"])}</span>'
    yield f"<p>{escape(one.get('description') or one['summary'] + '.')}</p>"
    if one["parameters"]:
        yield "<table><caption>Parameters</caption>"
        for each in one["parameters"]:
            location = f"{each['in']}{', needed' if each['required'] else ''}"
            about = " ".join(filter(None, (kind_of(each["schema"]), each.get("description", ""))))
            yield f"<tr><td><code>{escape(each['name'])}</code></td><td>{location}</td>"
            yield f"<td>{escape(about)}</td></tr>"
        yield "</table>"
    for media, content in one.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Takes <code>{escape(media)}</code>{_of(content['schema'])}.</p>"
    for status, answer in one["responses"].items():
        if status.startswith("2"):
            kinds = " or ".join(
                f"<code>{escape(media)}</code>{_of(content['schema'])}"
                for media, content in answer.get("content", {}).items()
            )
            yield f"<p>Answers {status}{': ' + kinds if kinds else ', with no body'}.</p>"
    yield "</article>"


def _of(schema: Mapping[str, Any]) -> str:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return f': <a href="#type-{escape(name)}">{escape(short(name))}</a>' if name else ""


def short(name: str) -> str:
    """A type's name without the module that distinguishes it from another of the same name."""
    return name.rpartition(".")[2]


def _type(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<article id="type-{escape(name)}"><h3>{escape(short(name))}</h3>'
    if about := schema.get("description"):
        yield f"<p>{escape(about)}</p>"
    if words := schema.get("enum"):
        yield f"<p>One of: {', '.join(f'<code>{escape(str(one))}</code>' for one in words)}.</p>"
    if fields := schema.get("properties"):
        needed = schema.get("required", ())
        yield "<table><caption>Fields</caption>"
        for field, kind in fields.items():
            more = "" if field in needed else "may be left out"
            yield f"<tr><td><code>{escape(field)}</code></td><td>{escape(kind_of(kind))}</td>"
            yield f"<td>{more}</td></tr>"
        yield "</table>"
    yield "</article>"


def kind_of(schema: Mapping[str, Any]) -> str:
    """A short description of a schema."""
    if target := schema.get("$ref"):
        return short(str(target).rpartition("/")[2])
    if parts := schema.get("anyOf"):
        return " or ".join(kind_of(one) for one in parts)
    if words := schema.get("enum"):
        return " | ".join(map(str, words))
    kind = schema.get("type", "any JSON")
    if kind == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {kind_of(schema['additionalProperties'])}"
    if schema.get("contentEncoding"):
        return str(schema["contentEncoding"])
    bounds = [
        f"{word} {schema[name]:,}"
        for name, word in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("minLength", "from"),
            ("maxLength", "to"),
        )
        if name in schema
    ]
    return " ".join([str(kind), *bounds])


def _errors() -> Iterator[str]:
    yield '<section><h2 id="errors">Errors</h2><p>Every error is <code>application/problem+json'
    yield "</code> (RFC 9457). <code>retryable</code> says whether the same request may work later."
    yield " 429 and 503: nothing was done. 504: it may have been done.</p><table>"
    yield "<caption>Codes</caption>"
    for code in Code:
        words = code.name.replace("_", " ").lower()
        yield f'<tr id="code-{int(code)}"><td><code>{int(code)}</code></td><td><code>{code.name}'
        yield f"</code></td><td>{escape(words)}</td></tr>"
    yield "</table><table><caption>Statuses of HTTP's own</caption>"
    for status, about in HTTP_STATUSES.items():
        yield f'<tr id="http-{status}"><td><code>{status}</code></td>'
        yield f"<td>{HTTPStatus(status).phrase}</td><td>{escape(about)}</td></tr>"
    yield "</table></section>"


def _anchor(text: str) -> str:
    return "chapter-" + "".join(one if one.isalnum() else "-" for one in text.lower())
