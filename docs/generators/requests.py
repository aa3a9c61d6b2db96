"""docs/reference/requests.md: every request with header, reply and permission."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from generators.served import answered_now
from generators.tables import code, document, head, link, paragraph, prose, table

from kourou.errors import Code
from kourou.protocol import table as request_table
from kourou.protocol.messages.sends import SEND_SHORT_NAMES, Target
from kourou.protocol.request import Body, Header, Int32, Int64, RequestSpec
from kourou.protocol.table import REQUESTS

MESSAGES = "libs/kourou/protocol/messages"
LETTERS = "Short field names"

ABOUT = """\
Requests between clients, brokers and name servers: code, header fields, body and possible replies.
Codes and field names are RocketMQ 4.9's; codes from 30000 on are Kourou's own and exist only in
ZeroMQ frames ([frame.md](../formats/frame.md))."""

READING = """\
The first column has the name of the field in the header. Optional fields are left out if they have
the default; unknown fields are ignored. Integers have 32 or 64 bits, as in Java. *Other answers*
are response codes besides success and the general ones, which any request may get: {general}.
[errors.md](errors.md#numbers) explains all of them. *Permission* is what access rules will require;
this version has no accounts, so every client has it. *Answered by* is read from the dispatch tables
of the services; a request that is *not implemented* gets 3 (REQUEST_CODE_NOT_SUPPORTED)."""

GENERAL = (
    Code.SYSTEM_ERROR,
    Code.SYSTEM_BUSY,
    Code.REQUEST_CODE_NOT_SUPPORTED,
    Code.SERVICE_NOT_AVAILABLE,
    Code.DEADLINE_PASSED,
    Code.NO_PERMISSION,
)
"""Codes that a service returns before, or instead of, handling a request."""

_TYPES: dict[object, str] = {
    str: "text",
    bool: "true, false",
    bytes: "bytes",
    Int32: "integer, 32 bits",
    Int64: "integer, 64 bits",
    float: "number",
}
_BODIES = {
    Body.NONE: "",
    Body.MESSAGE: "a message's body, or an encoded batch",
    Body.DRAFTS: "drafts: records without offset and position, concatenated",
    Body.RECORDS: "stored records, concatenated",
    Body.LOG: "bytes of the commit log: whole records and fillers",
    Body.JSON: "JSON",
    Body.PROPERTIES: "properties text, `key=value` lines",
    Body.SOURCE: "the text of a filter program",
}


def page(_root: Path) -> str:
    """All requests by code, then each topic area with its requests by code."""
    sources = ("libs/kourou/protocol/table.py", MESSAGES, "docs/generators/served.py")
    lines = head("Requests", ABOUT, *sources)
    lines += [paragraph(READING.format(general=", ".join(map(_answer, GENERAL)))), ""]
    lines += ["## All by number", ""]
    lines += table(
        ("code", "name", "answered by", "origin", "permission"),
        [
            (
                str(number),
                link(code(spec.name), spec.name),
                _answerers(spec),
                "RocketMQ" if spec.remoting else "Kourou",
                spec.requirement.text,
            )
            for number, spec in sorted(REQUESTS.items())
        ],
    )
    for title, specs in sorted(_conversations().items()):
        lines += [f"## {title}", ""]
        for spec in specs:
            lines += _section(spec)
    lines += _letters()
    return document(lines)


def _conversations() -> dict[str, list[RequestSpec]]:
    """Requests by the module of their header; the first sentence of its docstring is the title."""
    found: dict[str, list[RequestSpec]] = {}
    for _, spec in sorted(REQUESTS.items()):
        module = importlib.import_module(spec.header.__module__)
        words = re.split(r"[.:;,]", prose(module.__doc__ or ""), maxsplit=1)[0]
        title = words.removeprefix("Headers of ").strip()
        found.setdefault(title[0].upper() + title[1:], []).append(spec)
    return found


def _section(spec: RequestSpec) -> list[str]:
    lines = [f"### {spec.name}", "", paragraph(_about(spec.header)), ""]
    lines += [f"- {fact}" for fact in _facts(spec)]
    lines += ["", *_fields(spec.header)]
    if spec.response is not None:
        lines += [paragraph(f"Answer: {_told(spec.response)}"), "", *_fields(spec.response)]
    return lines


def _about(header: type[Header]) -> str:
    """The docstring without the codes, which are in the heading and in the list of facts."""
    text = re.sub(r"\s*\((\d+)(, [^)]*)?\)", "", _told(header))
    text = re.sub(r"^[A-Z0-9_]+(?:(?:, | and )[A-Z0-9_]+)*[:;.,]? ?", "", text)
    if not text:
        raise ValueError(f"the docstring of {header.__name__} does not say what it is for")
    return text[:1].upper() + text[1:]


def _told(kind: type[Header]) -> str:
    """The docstring with the fields' names on the wire."""
    text = prose(kind)
    for field in msgspec.structs.fields(kind):
        text = text.replace(f"`{field.name}`", f"`{field.encode_name}`")
    return text


def _facts(spec: RequestSpec) -> Iterator[str]:
    yield f"code {spec.code}, {'RocketMQ' if spec.remoting else 'Kourou'}'s"
    yield f"{'received (without a reply)' if spec.oneway else 'answered'} by: {_answerers(spec)}"
    yield f"permission: {spec.requirement.text}"
    if _BODIES[spec.body]:
        yield f"body: {_BODIES[spec.body]}"
    if _BODIES[spec.reply_body]:
        yield f"body of the answer: {_BODIES[spec.reply_body]}"
    others = sorted(spec.answers - set(GENERAL))
    if others:
        yield f"other answers: {', '.join(map(_answer, others))}"
    if spec.short_names:
        yield f"in RocketMQ's frames its field names are {link('single letters', LETTERS)}"


def _answerers(spec: RequestSpec) -> str:
    now = sorted(who.value for who in answered_now(spec))
    if not now:
        who = " or ".join(sorted(who.value for who in spec.answered_by))
        return f"*not implemented* ({who} in RocketMQ)"
    return ", ".join(now)


def _answer(number: int) -> str:
    names = {value: name for name, value in vars(request_table).items() if type(value) is int}
    return f"{int(number)} {Code(number).name if number in set(Code) else names[number]}"


def _fields(kind: type[Header]) -> list[str]:
    fields = msgspec.structs.fields(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    if not fields:
        return ["No fields.", ""]
    return table(
        ("field", "type", "required", "default"),
        [
            (
                code(field.encode_name),
                type_text(hints[field.name]),
                "yes" if field.required else "no",
                "" if field.required else _default(field),
            )
            for field in fields
        ],
    )


def _default(field: Any) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    match value:
        case None:
            return "absent"
        case "" | b"" | [] | {}:
            return "empty"
        case bool():
            return code(str(value).lower())
    return code(value)


def type_text(hint: Any) -> str:
    """A type in words; whether it can be None is in the column of defaults."""
    if hint in _TYPES:
        return _TYPES[hint]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(type_text(part) for part in inner if part is not type(None))
    if origin is typing.Annotated:
        return type_text(inner[0])
    if origin is list:
        return f"list of {_plural(inner[0])}"
    if origin is tuple:
        kinds = [type_text(part) for part in inner if part is not Ellipsis]
        return f"({', '.join(kinds)})"
    if origin is dict:
        return f"{type_text(inner[0])} → {type_text(inner[1])}"
    if hint is int:
        return "integer"
    if inspect.isclass(hint) and dataclasses.is_dataclass(hint):
        return code(hint.__name__)
    raise ValueError(f"no words for the type {hint!r}")


def _plural(hint: Any) -> str:
    if hint is Target:
        return "[topic, queue id]"
    return type_text(hint)


def _letters() -> Iterable[str]:
    yield from (f"## {LETTERS}", "")
    names = ", ".join(spec.name for _, spec in sorted(REQUESTS.items()) if spec.short_names)
    yield f"Field names of {names} in RocketMQ's frames:"
    yield ""
    yield from table(
        ("letter", "field"),
        [(code(short_name), code(name)) for short_name, name in SEND_SHORT_NAMES.items()],
    )
