"""JSON as RocketMQ's clients and brokers write it: any spelling is read, one is written.

In addition to the standard, the reader accepts:

    unquoted keys, numbers as keys     {brokerAddrs:{0:"127.0.0.1:10911"}}
    objects as keys                    {offsetTable:{{"brokerName":"b","queueId":3,"topic":"T"}:0}}
    single quotes, trailing commas, comments, a byte order mark, further escapes

A scalar key is read as text (`"0"`), an object key as an `ObjectKey`. The writer emits standard
JSON except for mappings with objects as keys, for which the standard has no form.

Every error is a DecodeError that names the position. The caller limits the depth, because the
reader recurses. State: none.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from kourou.errors import DecodeError
from kourou.model.limits import JSON_DEPTH_MAX, JSON_NUMBER_LENGTH_MAX

ObjectKey = tuple[tuple[str, str | int | float | bool | None], ...]
"""A map key that is itself an object: its members, sorted by name, as (name, scalar) pairs."""

_strict = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

_SPACE = re.compile(r"(?:[ \t\r\n\f\x0b\ufeff]+|//[^\n]*(?:\n|\Z)|/\*.*?\*/)+", re.DOTALL)
_DOUBLE = re.compile(r'"([^"\\]*)"')
_SINGLE = re.compile(r"'([^'\\]*)'")
_DOUBLE_RUN = re.compile(r'[^"\\]+')
_SINGLE_RUN = re.compile(r"[^'\\]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BARE = re.compile(r"[^\s\"'\\:,{}\[\]/]+")
_ESCAPES = {
    '"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "F": "\f", "n": "\n",
    "r": "\r", "t": "\t", "v": "\v", "0": "\0", "1": "\1", "2": "\2", "3": "\3", "4": "\4",
    "5": "\5", "6": "\6", "7": "\7",
}  # fmt: skip
_WORDS: dict[str, Any] = {
    "true": True, "false": False, "null": None, "undefined": None, "NaN": None,
}  # fmt: skip


def loads(data: bytes | bytearray | memoryview, *, depth_max: int = JSON_DEPTH_MAX) -> Any:
    """The value of a JSON text. Raises DecodeError if even a tolerant reader cannot parse it.

    Standard JSON takes a fast path, in which the interpreter limits the depth.
    """
    try:
        return _strict(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass  # not standard, or not JSON at all: the tolerant reader decides
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"the JSON text is not UTF-8: {error}") from error
    reader = _Reader(text, depth_max)
    value = reader.value(0)
    reader.end()
    return value


class _Reader:
    """A recursive-descent reader over one text; `_at` is the index of the next character."""

    __slots__ = ("_at", "_depth_max", "_text")

    def __init__(self, text: str, depth_max: int) -> None:
        self._text = text
        self._depth_max = depth_max
        self._at = 0

    def end(self) -> None:
        """Only blanks and comments may follow."""
        if self._peek():
            raise self._error("something follows the end of the value")

    def value(self, depth: int) -> Any:
        """The value that starts here."""
        character = self._peek()
        if character == "{":
            return self._object(depth + 1)
        if character == "[":
            return self._array(depth + 1)
        if character in {'"', "'"}:
            return self._string(character)
        if not character:
            raise self._error("the text ends where a value should be")
        return self._scalar()

    def _object(self, depth: int) -> dict[Any, Any]:
        self._enter(depth)
        members: dict[Any, Any] = {}
        while True:
            character = self._peek()
            if character == "}":
                self._at += 1
                return members
            if character == ",":  # a trailing or doubled comma
                self._at += 1
                continue
            key = self._key(character, depth)
            if self._peek() != ":":
                raise self._error("a ':' is missing after a key")
            self._at += 1
            members[key] = self.value(depth)
            if self._peek() not in {",", "}"}:
                raise self._error("a ',' or '}' is missing after a member")

    def _array(self, depth: int) -> list[Any]:
        self._enter(depth)
        items: list[Any] = []
        while True:
            character = self._peek()
            if character == "]":
                self._at += 1
                return items
            if character == ",":
                self._at += 1
                continue
            items.append(self.value(depth))
            if self._peek() not in {",", "]"}:
                raise self._error("a ',' or ']' is missing after an item")

    def _enter(self, depth: int) -> None:
        if depth > self._depth_max:
            raise self._error(f"the value is nested deeper than {self._depth_max}")
        self._at += 1

    def _key(self, character: str, depth: int) -> str | ObjectKey:
        if character in {'"', "'"}:
            return self._string(character)
        if character == "{":
            return self._object_key(depth)
        return self._word("a key")

    def _object_key(self, depth: int) -> ObjectKey:
        members = self._object(depth + 1)
        for name, value in members.items():
            if not isinstance(name, str) or isinstance(value, (dict, list)):
                raise self._error("a key that is an object has members that are not plain")
        return tuple(sorted(members.items()))

    def _string(self, quote: str) -> str:
        whole = (_DOUBLE if quote == '"' else _SINGLE).match(self._text, self._at)
        if whole is not None:
            self._at = whole.end()
            return whole.group(1)
        run_of = _DOUBLE_RUN if quote == '"' else _SINGLE_RUN
        pieces: list[str] = []
        self._at += 1
        while True:
            run = run_of.match(self._text, self._at)
            if run is not None:
                pieces.append(run.group())
                self._at = run.end()
            character = self._text[self._at : self._at + 1]
            self._at += 1
            if character == quote:
                return _without_lone_surrogates("".join(pieces))
            if not character:
                raise self._error("the text ends within a string")
            pieces.append(self._escape())

    def _escape(self) -> str:
        character = self._text[self._at : self._at + 1]
        self._at += 1
        if character == "u":
            return chr(self._hexadecimal(4))
        if character == "x":
            return chr(self._hexadecimal(2))
        plain = _ESCAPES.get(character)
        if plain is None:
            raise self._error("unknown escape in a string")
        return plain

    def _hexadecimal(self, digits: int) -> int:
        text = self._text[self._at : self._at + digits]
        if len(text) != digits or not all(c in "0123456789abcdefABCDEF" for c in text):
            raise self._error("malformed escape in a string")
        self._at += digits
        return int(text, 16)

    def _scalar(self) -> Any:
        start = self._at
        number = _NUMBER.match(self._text, start)
        word = self._word("a value")
        if word in _WORDS:
            return _WORDS[word]
        if number is None or number.end() != self._at or len(word) > JSON_NUMBER_LENGTH_MAX:
            self._at = start
            raise self._error("neither a number nor true, false or null")
        if word.lstrip("+-").isdigit():
            return int(word)
        value = float(word)
        if math.isinf(value):
            self._at = start
            raise self._error("the number is too large")
        return value

    def _word(self, what: str) -> str:
        bare = _BARE.match(self._text, self._at)
        if bare is None:
            raise self._error(f"here should be {what}")
        self._at = bare.end()
        return bare.group()

    def _peek(self) -> str:
        """The next character that is not a blank or a comment; empty at the end."""
        text = self._text
        character = text[self._at : self._at + 1]
        if character in {" ", "\t", "\r", "\n", "\f", "\v", "\ufeff", "/"}:
            space = _SPACE.match(text, self._at)
            if space is None:
                raise self._error("a '/' that begins no comment")
            self._at = space.end()
            character = text[self._at : self._at + 1]
        return character

    def _error(self, what: str) -> DecodeError:
        return DecodeError(f"malformed JSON at character {self._at}: {what}")


def _without_lone_surrogates(text: str) -> str:
    """Join surrogate pairs that were escaped separately; an unpaired half becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def object_key(**members: str | int) -> ObjectKey:
    """A key for `dumps`."""
    return tuple(sorted(members.items()))


def dumps(value: Any) -> bytes:
    """Standard JSON of plain values, except for mappings with `ObjectKey`s.

    A struct may be a value; its own mappings must not have object keys.
    """
    return _text(value).encode()


def _text(value: Any) -> str:
    if isinstance(value, dict):
        members = (f"{_key_text(key)}:{_text(member)}" for key, member in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return "[" + ",".join(_text(item) for item in value) + "]"
    return _encode(value).decode()


def _key_text(key: str | int | ObjectKey) -> str:
    if isinstance(key, tuple):
        return "{" + ",".join(f'"{name}":{_encode(value).decode()}' for name, value in key) + "}"
    return _encode(str(key)).decode()
