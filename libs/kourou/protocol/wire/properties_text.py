"""The text of a Java properties file: configuration files, and the bodies of 25, 26, 318, 319.

    line      = blank | comment | entry
    comment   = [spaces] ("#" | "!") anything
    entry     = [spaces] key (spaces | [spaces] ("=" | ":") [spaces]) value
    escapes   = \\t \\n \\r \\f \\uXXXX; a backslash before any other character is removed

A line that ends in an odd number of backslashes continues in the next one, without its leading
spaces. Text is UTF-8 (RocketMQ reads its files as UTF-8 on current systems). If a key occurs twice,
its last value counts, as in Java.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kourou.errors import ConfigError
from kourou.model.limits import PROPERTIES_TEXT_BYTES_MAX

_SPACES = " \t\f"
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {
    "\t": "\\t",
    "\n": "\\n",
    "\r": "\\r",
    "\f": "\\f",
    "\\": "\\\\",
}


def read_properties(text: str) -> dict[str, str]:
    """The entries of a properties text, in file order. Raises ConfigError for a malformed line."""
    entries: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        entries.pop(key, None)
        entries[_unescape(key, number)] = _unescape(value, number)
    return entries


def write_properties(entries: Mapping[str, str]) -> str:
    """`key=value` lines that `read_properties`, and Java, read back unchanged."""
    return "".join(
        f"{_escape(key, True)}={_escape(value, False)}\n" for key, value in entries.items()
    )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first natural line, the line with its continuations joined)."""
    pending = ""
    first = 0
    for number, natural in enumerate(_natural_lines(text), start=1):
        line = natural.lstrip(_SPACES)
        if not pending and (not line or line[0] in "#!"):
            continue
        if not pending:
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def _natural_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line):
        char = line[at]
        if char == "\\":
            at += 2
            continue
        if char in "=:" or char in _SPACES:
            break
        at += 1
    key = line[:at]
    rest = line[at:].lstrip(_SPACES)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_SPACES)
    return key, rest


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\":
            out.append(char)
            continue
        if at == len(text):
            break
        escaped = text[at]
        at += 1
        if escaped != "u":
            out.append(_ESCAPED.get(escaped, escaped))
            continue
        digits = text[at : at + 4]
        if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise ConfigError(f"line {number}: \\u must be followed by four hexadecimal digits")
        out.append(chr(int(digits, 16)))
        at += 4
    return _join_surrogates("".join(out), number)


def _join_surrogates(text: str, number: int) -> str:
    """Java writes a character beyond 16 bits as two escapes."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigError(f"line {number}: half of a surrogate pair") from None


def _escape(text: str, is_key: bool) -> str:
    out: list[str] = []
    for at, char in enumerate(text):
        leading_space = char == " " and (is_key or at == 0)
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif leading_space or (is_key and (char in "=:" or (at == 0 and char in "#!"))):
            out.append("\\" + char)
        elif ord(char) < 0x20 or ord(char) == 0x7F:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(char)
    return "".join(out)


def decode_properties_text(body: bytes | bytearray | memoryview) -> dict[str, str]:
    """The entries of a body. Raises ConfigError if it is too long, not UTF-8, or malformed."""
    if len(body) > PROPERTIES_TEXT_BYTES_MAX:
        raise ConfigError(
            f"the settings are {len(body)} bytes long; "
            f"at most {PROPERTIES_TEXT_BYTES_MAX} are allowed"
        )
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the settings are not UTF-8 text: {error}") from error
    return read_properties(text)


def encode_properties_text(entries: Mapping[str, str]) -> bytes:
    """The body for these entries, sorted by key."""
    return write_properties(dict(sorted(entries.items()))).encode()
