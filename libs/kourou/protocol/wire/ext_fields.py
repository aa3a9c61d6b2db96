"""Headers as RocketMQ's extension fields: text to text, as in remoting frames.

Reading is lenient where the meaning is clear: spaces around a number or boolean, a plus sign and
leading zeros do not matter, an empty text or `null` means absent, unknown fields are ignored. A
boolean is true for `true` in any case and false for anything else. Writing is strict: decimal
integers, `true`/`false`, absent instead of null.

A flag of `1` is also true: a C++ client of 2019 marks its batches this way, with code 10; Java
reads it as false and stores one message with an encoded batch as its body.

Only fields of scalar types can be sent; Kourou's own fields of other types
(`RegisterBroker.listeners`) are omitted.

`decode_usual_header` decodes a request in one step if its header is written as RocketMQ's own
clients do. Its result is that of `remoting.decode_header` and `decode_ext_fields`, which decode
every header; only the value of an unknown field is not looked at.

State: none, except caches of each class's field names and decoders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple

from kourou.access.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, SignedFields
from kourou.errors import BadRequest, Code, DecodeError
from kourou.model.limits import JSON_FIELDS_MAX
from kourou.protocol import kernel
from kourou.protocol.messages.sends import SEND_SHORT_NAMES, SendFields
from kourou.protocol.request import Header, Int32, Request, RequestSpec, Response
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.remoting import FLAG_RESPONSE, LANGUAGE_NAMES, RemotingCommand

_SHORT_NAME_OF = {name: short_name for short_name, name in SEND_SHORT_NAMES.items()}
_KINDS = {msgspec.inspect.BoolType: bool, msgspec.inspect.IntType: int}
_INTEGER = re.compile(r"([+-]?)([0-9]+)")
_TRUE = ("true", "1")
_ABSENT = ("", "null")

HeaderType = TypeVar("HeaderType", bound=Header)


@cache
def _names_of(header: type[Header], *, short_names: bool) -> tuple[str, ...]:
    """The field name of each attribute, in declared order."""
    names = (field.encode_name for field in msgspec.structs.fields(header))
    return tuple(_SHORT_NAME_OF.get(name, name) if short_names else name for name in names)


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
    names = _names_of(type(header), short_names=short_names)
    for name, value in zip(names, astuple(header), strict=True):
        kind = type(value)
        if kind is str:
            fields[name] = value
        elif kind is bool:
            fields[name] = "true" if value else "false"
        elif kind is int or isinstance(value, (str, int)):
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


# -- usual headers --------------------------------------------------------------------------------

FieldsType = TypeVar("FieldsType")


class _UsualHeader(msgspec.Struct, Generic[FieldsType], rename="camel", kw_only=True):
    """A JSON header with the fields of one request."""

    code: int
    ext_fields: FieldsType
    flag: Int32 = 0
    language: str
    opaque: Int32 = 0
    remark: str | None = None
    version: Int32 = 0


class _UsualDecoder(NamedTuple):
    """How a request's header is decoded; `header` is its class if its fields have short names."""

    code: int
    decode: Callable[[bytes], _UsualHeader[Any]]
    header: type[SendFields] | None


_BEGIN = b'{"code":'
_CODE_END = len(_BEGIN) + 12
_USUAL_BYTES_MAX = len('"":"",') * JSON_FIELDS_MAX
"""A header that is not longer cannot have too many fields."""

_ACCESS_KEY = ACCESS_KEY.encode()
_usual: dict[bytes, _UsualDecoder | None] = {}


def decode_usual_header(header: bytes) -> RemotingCommand | None:
    """The command of a JSON header, with its `request`; None if it is not a usual one.

    A signed one has the text that is signed, too: it consists of the fields as sent.
    """
    if len(header) > _USUAL_BYTES_MAX or not header.startswith(_BEGIN):
        return None
    text = header[len(_BEGIN) : header.find(b",", len(_BEGIN), _CODE_END)]
    decoder = _usual[text] if text in _usual else _new_decoder(text)
    if decoder is None:
        return None
    try:
        given = decoder.decode(header)
        found = kernel.signed_parts(header) if _ACCESS_KEY in header else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    language = LANGUAGE_NAMES.get(given.language)
    if language is None or given.flag & FLAG_RESPONSE or given.code != decoder.code:
        return None
    request = given.ext_fields
    if decoder.header is not None:
        request = _with_full_names(decoder.header, request)
    command = RemotingCommand(given.code, language, given.version, given.opaque, given.flag)
    command.remark = given.remark
    if found is not None:
        access_key, signature, text = found
        command.signed = SignedFields(access_key.decode(), signature, text, header)
    command.request = request
    return command


def _new_decoder(text: bytes) -> _UsualDecoder | None:
    """The decoder for this code as text; None if there is no such request, or it is no scalar."""
    code = int(text) if text.isdigit() else -1
    spec = REQUESTS.get(code)
    if spec is None or not spec.remoting or b"%d" % code != text:
        return None
    if object in _kinds_of(spec.header).values():
        _usual[text] = None
        return None
    fields: type[Any] = spec.header
    header = None
    if issubclass(spec.header, SendFields) and spec.short_names:
        header, fields = spec.header, _with_short_names(spec.header)
    kind: Any = _UsualHeader[fields]  # type: ignore[valid-type]  # chosen at run time
    decode = msgspec.json.Decoder(kind, strict=False).decode
    _usual[text] = made = _UsualDecoder(code, decode, header)
    return made


def _with_full_names(header: type[SendFields], given: Any) -> SendFields:
    """The send with these fields. Spelled out, because Python passes a mapping far more slowly."""
    return header(
        producer_group=given.producer_group,
        topic=given.topic,
        default_topic=given.default_topic,
        default_topic_queue_nums=given.default_topic_queue_nums,
        queue_id=given.queue_id,
        sys_flag=given.sys_flag,
        born_timestamp=given.born_timestamp,
        flag=given.flag,
        properties=given.properties,
        reconsume_times=given.reconsume_times,
        unit_mode=given.unit_mode,
        batch=given.batch,
        max_reconsume_times=given.max_reconsume_times,
        bname=given.bname,
    )


def _with_short_names(header: type[SendFields]) -> type[msgspec.Struct]:
    """The same fields under their short names, and those of signatures.

    Others are refused: they may be full names.
    """
    fields: list[tuple[str, Any, Any]] = [
        (
            field.name,
            field.type,
            msgspec.field(
                name=_SHORT_NAME_OF.get(field.encode_name, field.encode_name), default=field.default
            ),
        )
        for field in msgspec.structs.fields(header)
    ]
    fields += [
        (name, str | None, msgspec.field(name=name, default=None))
        for name in (ACCESS_KEY, SECURITY_TOKEN, SIGNATURE)
    ]
    return msgspec.defstruct(
        header.__name__, fields, kw_only=True, frozen=True, forbid_unknown_fields=True
    )
