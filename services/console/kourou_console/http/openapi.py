"""Generates the API's description (OpenAPI 3.1) from the operations and their types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

import kourou
from kourou_console.http.call import Content
from kourou_console.http.pages import Page, page
from kourou_console.http.request_input import is_list, path_names
from kourou_console.http.responses import PROBLEM_JSON, Problem
from kourou_console.operation import BodyKind, Operation

_REF = "#/components/schemas/{name}"

PUBLISHED_NAMES: Mapping[str, str] = {
    "BatchToSend": "Batch",
    "BrokerFilterServers": "FilterServers",
    "BrokerSetting": "Setting",
    "ChangedFilter": "FilterChange",
    "ConnectedClient": "kourou_console.api.members.Member",
    "ConnectedProducer": "Producer",
    "ControlEventView": "Decision",
    "DeadLetterList": "Letters",
    "DiscardResult": "Discarded",
    "EndedTransaction": "Ended",
    "ExportedMetadata": "Metadata",
    "ExportedTables": "Tables",
    "FilterVersionStatistics": "Figures",
    "FilterVersionView": "FilterVersion",
    "FilterView": "Filter",
    "GroupConfigView": "GroupConfig",
    "HistoryStart": "Beginning",
    "LaggingGroup": "GroupFigures",
    "LeaderChange": "Leading",
    "LeaseProblem": "kourou_console.api.leases.Problem",
    "LeasedTopic": "TopicUse",
    "LogReplica": "kourou_console.api.cluster.Member",
    "MessageList": "Messages",
    "ProbeSend": "kourou_console.api.probes.Sent",
    "Problem": "kourou_console.problems.Problem",
    "QuarantinedVersion": "Quarantine",
    "QueueUnitView": "QueueUnit",
    "RedriveParams": "RedriveWish",
    "RunningConsumer": "Running",
    "SentMessage": "kourou_console.api.producing.Sent",
    "StoredMessageView": "MessageView",
    "StartedTransaction": "Begun",
    "StateView": "State",
    "SubscriptionView": "Subscription",
    "TopicConfigView": "TopicConfig",
    "TransferParams": "ThreadQueue",
    "TrialResult": "Trial",
    "ValueChange": "Change",
}
"""Class -> the name of its schema where they differ: a published name never changes.

A name with dots is from a time when several classes had the same name; its title is the last part.
"""

_LISTING = re.compile(r"(Listing[\[_])(\w+?)([\]_])")
ERRORS = {
    "400": "A parameter or field is invalid; the response names it.",
    "401": "A token is missing or unknown.",
    "403": "The token, topic or group does not allow it.",
    "404": "Not found.",
    "405": "Method not allowed.",
    "default": "Any other error, with its code.",
}


def described(
    operations: Sequence[Operation], *, tokens: bool = True, users: bool = False
) -> dict[str, Any]:
    """The whole document. Calls need a token (`tokens`), or a credential of a user (`users`)."""
    schemes: dict[str, Any] = {}
    if tokens or users:
        schemes["token"] = {"type": "http", "scheme": "bearer"}
    if users:
        schemes["user"] = {"type": "http", "scheme": "basic"}
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        methods = paths.setdefault(one.path, {})
        methods[one.method.lower()] = _operation(one, schemas, tokens=bool(schemes))
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Kourou",
            "version": kourou.__version__,
            "summary": "Messages and cluster administration over HTTP.",
        },
        "tags": [{"name": name} for name in dict.fromkeys(one.chapter for one in operations)],
        "paths": paths,
        "components": {"schemas": schemas.components},
    }
    if schemes:
        found["components"]["securitySchemes"] = schemes
        found["security"] = [{name: []} for name in schemes]
    return found


def description_pages(
    operations: Sequence[Operation], *, tokens: bool, users: bool = False
) -> Mapping[str, Callable[[], Page]]:
    """`/openapi.json` and `/docs`; generated at the first request, because it takes a while."""

    @cache
    def document() -> dict[str, Any]:
        return described(operations, tokens=tokens, users=users)

    @cache
    def description() -> Page:
        return page(msgspec.json.encode(document()), "application/json")

    @cache
    def docs() -> Page:
        from kourou_console.http.reference import reference

        return page(reference(document()).encode(), "text/html; charset=utf-8")

    @cache
    def style() -> Page:
        from kourou_console.http.reference import STYLE

        return page(STYLE.encode(), "text/css; charset=utf-8")

    return {"/openapi.json": description, "/docs": docs, "/docs.css": style}


class _Schemas:
    """The schemas of all types of the API; named types are references.

    They are generated together, so that each name stands for one type.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._kinds: list[Any] = [Problem]
        for one in operations:
            for kind in (one.answer, one.body, one.json_body):
                if kind is not None and kind is not Content and kind not in self._kinds:
                    self._kinds.append(kind)
        self._found, components = _schemas(self._kinds)
        self.components = {name: _in_one_line(one) for name, one in components.items()}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of one type."""
        return dict(self._found[self._kinds.index(kind)])


def _schemas(kinds: Iterable[Any]) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The schemas of these types, and the components that they refer to, by published names."""
    found, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    return (
        [_published(one) for one in found],
        {_published_name(name): _published(one) for name, one in components.items()},
    )


def _published(schema: Any) -> Any:
    """A schema with the published names of all types in it."""
    if isinstance(schema, list):
        return [_published(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _published(value) for key, value in schema.items()}
    target, title = found.get("$ref"), found.get("title")
    if isinstance(target, str):
        found["$ref"] = _REF.format(name=_published_name(target.rpartition("/")[2]))
    if isinstance(title, str):
        found["title"] = _published_name(title).rpartition(".")[2]
    return found


def _published_name(name: str) -> str:
    """The published name of a class, or of a list of a class."""
    if (listing := _LISTING.fullmatch(name)) is not None:
        item = _published_name(listing[2]).rpartition(".")[2]
        return f"{listing[1]}{item}{listing[3]}"
    return PUBLISHED_NAMES.get(name, name)


def _in_one_line(schema: dict[str, Any]) -> dict[str, Any]:
    """Join the lines of a docstring."""
    if "description" in schema:
        schema["description"] = " ".join(str(schema["description"]).split())
    return schema


def _operation(one: Operation, schemas: _Schemas, *, tokens: bool) -> dict[str, Any]:
    summary, _, rest = one.about.partition(". ")
    found: dict[str, Any] = {
        "operationId": one.name,
        "tags": [one.chapter],
        "summary": summary.rstrip("."),
        "parameters": [*_parameters(one), *_headers(one)],
        "responses": _responses(one, schemas, tokens=tokens),
        "x-kourou-right": one.right.name.lower(),
    }
    if rest:
        found["description"] = one.about
    body = _body(one, schemas)
    if body is not None:
        found["requestBody"] = body
    return found


def _parameters(one: Operation) -> list[dict[str, Any]]:
    in_path = path_names(one.path)
    _, components = _schemas([one.parameters])
    whole = components[_published_name(one.parameters.__name__)]
    found = []
    for field in msgspec.structs.fields(one.parameters):
        name = field.encode_name
        schema = dict(whole["properties"][name])
        about = schema.pop("description", "")
        entry: dict[str, Any] = {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in in_path or field.required,
            "schema": _inlined(schema, components),
        }
        if is_list(field.type):
            entry |= {"style": "form", "explode": True}
        if about:
            entry["description"] = about
        found.append(entry)
    return found


def _inlined(schema: Any, components: Mapping[str, Any]) -> Any:
    """Inline a parameter's types, because they are not types of the API's responses."""
    if isinstance(schema, dict):
        target = schema.get("$ref")
        if isinstance(target, str):
            return _inlined(components[target.rpartition("/")[2]], components)
        return {key: _inlined(value, components) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_inlined(one, components) for one in schema]
    return schema


def _headers(one: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": about,
            "schema": {"type": "string"},
        }
        for name, about in one.headers
        # "Kourou-Property-NAME" stands for many headers, which OpenAPI cannot describe.
        if not name.endswith("-NAME")
    ]


def _body(one: Operation, schemas: _Schemas) -> dict[str, Any] | None:
    if one.body_kind is BodyKind.NONE:
        return None
    content: dict[str, Any] = {}
    if one.body_kind is BodyKind.JSON:
        content["application/json"] = {"schema": schemas.of(one.body)}
    else:
        if one.json_body is not None:
            content["application/json"] = {"schema": schemas.of(one.json_body)}
        content["application/octet-stream"] = {"schema": {}}
    return {"required": True, "content": content}


def _responses(one: Operation, schemas: _Schemas, *, tokens: bool) -> dict[str, Any]:
    problem = {PROBLEM_JSON: {"schema": schemas.of(Problem)}}
    good: dict[str, Any] = {"description": "Done."}
    if one.stream or one.answer is Content:
        kind = one.media_type or ("text/event-stream" if one.stream else "*/*")
        good["content"] = {kind: {"schema": {}}}
    elif one.answer is not None:
        good["content"] = {"application/json": {"schema": schemas.of(one.answer)}}
    found: dict[str, Any] = {str(one.status): good}
    for status, about in ERRORS.items():
        if status == "401" and not tokens:
            continue
        found[status] = {"description": about, "content": problem}
    return found
