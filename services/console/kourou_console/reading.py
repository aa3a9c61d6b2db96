"""Parses a request's parameters and JSON body into Structs; errors name the invalid part."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import inspect

from kourou.errors import BadRequest
from kourou.model.limits import GATEWAY_QUERY_FIELDS_MAX
from kourou_console.operation import Operation

_AT = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
SEE_DOCS = "/docs shows the fields of every request"
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


def path_names(path: str) -> tuple[str, ...]:
    """The names in braces, in order."""
    return tuple(re.findall(r"\{(\w+)\}", path))


def decoded(text: str) -> str:
    """Decode a percent-encoded part of a path. Raises BadRequest if it is invalid."""
    if "%" not in text:
        return text
    try:
        found = unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{text[:100]!r} in the path is not UTF-8 when decoded") from error
    return found


def query_pairs(raw: str) -> list[tuple[str, str]]:
    """The query's names and values in order. Raises BadRequest."""
    if not raw:
        return []
    try:
        return parse_qsl(
            raw, keep_blank_values=True, errors="strict", max_num_fields=GATEWAY_QUERY_FIELDS_MAX
        )
    except UnicodeDecodeError as error:
        raise BadRequest("the query is not UTF-8 when decoded") from error
    except ValueError as error:
        raise BadRequest(f"the query cannot be read: {error}") from error


class Reader:
    """Parses the input of one operation."""

    def __init__(self, operation: Operation) -> None:
        self._type = operation.parameters
        self._in_path = path_names(operation.path)
        known = {field.encode_name: field for field in msgspec.structs.fields(operation.parameters)}
        missing = set(self._in_path) - set(known)
        assert not missing, f"{operation.name}: {missing} of the path are not parameters"
        self.query_names = tuple(name for name in known if name not in self._in_path)
        self._lists = {name for name, field in known.items() if is_list(field.type)}
        self._decoder: Callable[[bytes], Any] | None = (
            None if operation.body is None else msgspec.json.Decoder(operation.body).decode
        )

    def parameters(self, in_path: Sequence[str], query: Sequence[tuple[str, str]]) -> Any:
        """The Struct of path and query. Raises BadRequest, which names the parameter."""
        values: dict[str, Any] = dict(zip(self._in_path, in_path, strict=True))
        for name, value in query:
            if name not in self.query_names:
                raise BadRequest(f"unknown parameter {name[:64]!r}", hint=self._known(name))
            if name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise BadRequest(f"the parameter {name} is given more than once")
            else:
                values[name] = value
        try:
            return msgspec.convert(values, self._type, strict=False)
        except msgspec.ValidationError as error:
            raise _named(str(error), "the parameter", values) from None

    def _known(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.query_names, n=1)
        if near:
            return f"did you mean {near[0]}?"
        return (
            (f"known: {', '.join(self.query_names)}")
            if self.query_names
            else "it takes no parameters"
        )

    def body(self, content: bytes) -> Any:
        """The value of a JSON body. Raises BadRequest, which names the field."""
        assert self._decoder is not None, "asked only where there is a body"
        return decoded_json(self._decoder, content)


def decoded_json(decode: Callable[[bytes], Any], content: bytes) -> Any:
    """Decode JSON. Raises BadRequest, which names the field."""
    try:
        return decode(content)
    except msgspec.ValidationError as error:
        raise _named(str(error), "the field", {}) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def is_list(kind: Any) -> bool:
    """Whether a parameter of this type may be repeated."""
    found = inspect.type_info(kind)
    if isinstance(found, inspect.UnionType):
        return any(isinstance(one, _LISTS) for one in found.types)
    return isinstance(found, _LISTS)


def _named(text: str, what: str, values: Mapping[str, Any]) -> BadRequest:
    """msgspec's error message, with the name first."""
    if missing := _MISSING.search(text):
        return BadRequest(f"{what} {_within(text)}{missing[1]} is missing", hint=SEE_DOCS)
    if unknown := _UNKNOWN.search(text):
        return BadRequest(f"unknown field {_within(text)}{unknown[1][:64]}", hint=SEE_DOCS)
    found = _AT.search(text)
    if found is None or not found[1]:
        return BadRequest(f"the body is refused: {text}")
    name = found[1]
    said = text[: found.start()].replace("`", "")
    given = f" is {values[name]!r:.100}" if name in values else ""
    return BadRequest(f"{what} {name}{given}: {said[:1].lower()}{said[1:]}")


def _within(text: str) -> str:
    found = _AT.search(text)
    return f"{found[1]}." if found is not None and found[1] else ""
