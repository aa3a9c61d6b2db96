"""Converts the HTTP parser's error about a header to a text that names the header and a remedy.

The parser shows the line as a Python bytes literal. A header can contain no control character
except for the tab; a property with one must be sent in another way.
"""

from __future__ import annotations

import ast
import re

SHOWN_LENGTH = 200
_BYTES = re.compile(r"""\bb(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_NAME = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):")


def in_words(message: str) -> tuple[str, str]:
    """The error and the remedy ("" if unknown), from the parser's message."""
    line = _BYTES.search(message)
    if line is not None:
        raw: bytes = ast.literal_eval(line[0])
        wrong, name = _CONTROL.search(raw), _NAME.match(raw)
        if wrong is not None and name is not None and wrong.start() >= name.end():
            header = name[1].decode()[:64]
            return (
                f"the value of the header {header} contains the control character "
                f"U+{ord(wrong[0]):04X}, which no HTTP header may",
                _advice(header, ord(wrong[0])),
            )
    return message.partition("\n")[0].strip()[:SHOWN_LENGTH], ""


def _advice(header: str, character: int) -> str:
    if not header.lower().startswith("kourou-"):
        return "leave it out"
    if character in (1, 2):
        return "encode the value, for example as base64: these two separate stored properties"
    return (
        "send an envelope in JSON (Content-Type: application/json), which may hold it; or encode "
        "the value, for example as base64"
    )
