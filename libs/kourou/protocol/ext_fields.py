"""Headers as RocketMQ's extension fields: text to text, as remoting frames carry them.

Fact sheet §1.2 and §2. Reading is lenient: numbers and booleans come as text in every spelling
(`0`/`1` and `true`/`false`), an empty text for a number or boolean means that it is absent, unknown
fields are ignored. Writing is strict: decimal integers, `true`/`false`, absent instead of null.

A batch flag of `1`, as a C++ client of 2019 sends it with code 10, means true here; Java takes it
for false and stores one message with a packed body.

Lives here: struct <-> fields, and the letters of the V2 sends. May not live here: the frame around
the fields (kourou.protocol.remoting).

Only fields of scalar types travel; those of Kourou's own that are not (`RegisterBroker.listeners`)
stay behind. State: none (what a class's fields are called is computed once).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeVar

import msgspec

from kourou.errors import BadRequest, Code, DecodeError
from kourou.protocol.messages.sending import SEND_LETTERS
from kourou.protocol.request import Header, Request, RequestSpec, Response
from kourou.protocol.table import REQUESTS

_LETTER_OF = {name: letter for letter, name in SEND_LETTERS.items()}
_SCALARS = (str, int, bool)

HeaderType = TypeVar("HeaderType", bound=Header)


@cache
def _fields_of(header: type[Header]) -> tuple[tuple[str, str], ...]:
    """(attribute, field name) of every field that can travel, in declared order."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(header))


@cache
def _not_text(header: type[Header]) -> frozenset[str]:
    """Names of the fields whose type has no place for text, so that "" can only mean absent."""
    info = msgspec.inspect.type_info(header)
    assert isinstance(info, msgspec.inspect.StructType)
    names: set[str] = set()
    for field in info.fields:
        kinds = (
            field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
        )
        if not any(isinstance(kind, msgspec.inspect.StrType) for kind in kinds):
            names.add(field.encode_name)
    return frozenset(names)


def encode_ext_fields(header: Header, *, letters: bool = False) -> dict[str, str]:
    """The extension fields of a header; `letters` spells them as the V2 sends do."""
    fields: dict[str, str] = {}
    for attribute, name in _fields_of(type(header)):
        value = getattr(header, attribute)
        if value is None or not isinstance(value, _SCALARS):
            continue
        if letters:
            name = _LETTER_OF.get(name, name)
        if value is True:
            fields[name] = "true"
        elif value is False:
            fields[name] = "false"
        else:
            fields[name] = str(value)
    return fields


def decode_ext_fields(code: int, fields: Mapping[str, str] | None) -> Request:
    """The request of `code` with these fields.

    Raises BadRequest, with the code REQUEST_CODE_NOT_SUPPORTED where this carrier has no request of
    that code, and otherwise naming the field that is missing or wrong.
    """
    spec = REQUESTS.get(code)
    if spec is None or not spec.remoting:
        raise BadRequest(f"request type {code} not supported", code=Code.REQUEST_CODE_NOT_SUPPORTED)
    given = fields or {}
    if spec.letters:
        given = {SEND_LETTERS.get(name, name): value for name, value in given.items()}
    try:
        return _convert(given, spec.header)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the header of {spec.name} is wrong: {_as_sent(error, spec)}") from error


def decode_response_fields(
    fields: Mapping[str, str] | None, response_type: type[Response]
) -> Response:
    """The fields of an answer; DecodeError when it is not what `response_type` says."""
    try:
        return _convert(fields or {}, response_type)
    except msgspec.ValidationError as error:
        raise DecodeError(f"a reply is malformed: {error}") from error


def _convert(fields: Mapping[str, str], header: type[HeaderType]) -> HeaderType:
    try:
        return msgspec.convert(fields, header, strict=False)
    except msgspec.ValidationError:
        not_text = _not_text(header)
        kept = {name: text for name, text in fields.items() if text or name not in not_text}
        if len(kept) == len(fields):
            raise
        return msgspec.convert(kept, header, strict=False)


def _as_sent(error: Exception, spec: RequestSpec) -> str:
    """The complaint in the sender's spelling."""
    text = str(error)
    if spec.letters:
        for letter, name in SEND_LETTERS.items():
            text = text.replace(f"`{name}`", f"`{letter}` ({name})")
            text = text.replace(f"`$.{name}`", f"`$.{letter}` ({name})")
    return text
