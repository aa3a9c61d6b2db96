"""Headers as RocketMQ's extension fields: text to text, as in remoting frames.

Reading is lenient where the meaning is clear: spaces around a number or boolean, a plus sign and
leading zeros do not matter, an empty text or `null` means absent, unknown fields are ignored. A
boolean is true for `true` in any case and false for anything else. Writing is strict: decimal
integers, `true`/`false`, absent instead of null.

A flag of `1` is also true: a C++ client of 2019 marks its batches this way, with code 10; Java
reads it as false and stores one message with an encoded batch as its body.

Only fields of scalar types can be sent; Kourou's own fields of other types
(`RegisterBroker.listeners`) are omitted. State: none, except a cache of each class's field names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TypeVar

import msgspec

from kourou.errors import BadRequest, Code, DecodeError
from kourou.protocol.messages.sends import SEND_SHORT_NAMES
from kourou.protocol.request import Header, Request, RequestSpec, Response
from kourou.protocol.table import REQUESTS

_SHORT_NAME_OF = {name: short_name for short_name, name in SEND_SHORT_NAMES.items()}
_KINDS = {msgspec.inspect.BoolType: bool, msgspec.inspect.IntType: int}
_INTEGER = re.compile(r"([+-]?)([0-9]+)")
_TRUE = ("true", "1")
_ABSENT = ("", "null")

HeaderType = TypeVar("HeaderType", bound=Header)


@cache
def _fields_of(header: type[Header]) -> tuple[tuple[str, str], ...]:
    """(attribute, field name) of every field that can be sent, in declared order."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(header))


@cache
def _kinds_of(header: type[Header]) -> dict[str, type]:
    """The types of fields that are not text: bool, int, or object for one that cannot be sent."""
    info = msgspec.inspect.type_info(header)
    assert isinstance(info, msgspec.inspect.StructType)
    kinds: dict[str, type] = {}
    for field in info.fields:
        found = (
            field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
        )
        if any(isinstance(kind, msgspec.inspect.StrType) for kind in found):
            continue
        kinds[field.encode_name] = next(
            (_KINDS[type(kind)] for kind in found if type(kind) in _KINDS), object
        )
    return kinds


def encode_ext_fields(header: Header, *, short_names: bool = False) -> dict[str, str]:
    """The extension fields of a header; `short_names` spells them as the V2 sends do."""
    fields: dict[str, str] = {}
    for attribute, name in _fields_of(type(header)):
        value = getattr(header, attribute)
        if short_names:
            name = _SHORT_NAME_OF.get(name, name)
        if isinstance(value, bool):
            fields[name] = "true" if value else "false"
        elif isinstance(value, (str, int)):
            fields[name] = str(value)
    return fields


def decode_ext_fields(code: int, fields: Mapping[str, str] | None) -> Request:
    """The request of `code` with these fields.

    Raises BadRequest, with the code REQUEST_CODE_NOT_SUPPORTED if remoting has no request of that
    code, and otherwise naming the field that is missing or wrong.
    """
    spec = REQUESTS.get(code)
    if spec is None or not spec.remoting:
        raise BadRequest(f"request type {code} not supported", code=Code.REQUEST_CODE_NOT_SUPPORTED)
    given = fields or {}
    if spec.short_names:
        given = {SEND_SHORT_NAMES.get(name, name): value for name, value in given.items()}
    try:
        return _convert(given, spec.header)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the header of {spec.name} is wrong: {_as_sent(error, spec)}") from error


def decode_response_fields(
    fields: Mapping[str, str] | None, response_type: type[Response]
) -> Response:
    """The fields of a reply. Raises DecodeError if it is not a `response_type`."""
    try:
        return _convert(fields or {}, response_type)
    except msgspec.ValidationError as error:
        raise DecodeError(f"a reply is malformed: {error}") from error


def _convert(fields: Mapping[str, str], header: type[HeaderType]) -> HeaderType:
    try:
        return msgspec.convert(fields, header, strict=False)
    except msgspec.ValidationError:
        pass  # another spelling, or wrong: the plain spelling decides
    return msgspec.convert(_plainly(fields, header), header, strict=False)


def _plainly(fields: Mapping[str, str], header: type[Header]) -> dict[str, str | bool]:
    """The fields in strict spelling, as far as they have a meaning."""
    kinds = _kinds_of(header)
    plain: dict[str, str | bool] = {}
    for name, text in fields.items():
        kind = kinds.get(name, str)
        if kind is str:
            plain[name] = text
            continue
        bare = text.strip()
        if bare.lower() in _ABSENT:
            continue
        if kind is bool:
            plain[name] = bare.lower() in _TRUE
            continue
        integer = _INTEGER.fullmatch(bare) if kind is int else None
        plain[name] = bare if integer is None else _without_zeros(*integer.groups())
    return plain


def _without_zeros(sign: str, digits: str) -> str:
    return sign.strip("+") + (digits.lstrip("0") or "0")


def _as_sent(error: Exception, spec: RequestSpec) -> str:
    """The error message with the names that the sender used."""
    text = str(error)
    if spec.short_names:
        for short_name, name in SEND_SHORT_NAMES.items():
            text = text.replace(f"`{name}`", f"`{short_name}` ({name})")
            text = text.replace(f"`$.{name}`", f"`$.{short_name}` ({name})")
    return text
