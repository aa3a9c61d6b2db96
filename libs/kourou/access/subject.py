"""Subjects of certificates as text, in one form: RFC 4514, of which RFC 2253 is the former edition.

    CN=till,OU=Shop,O=Example,C=DE

The most specific name comes first, the reverse of a certificate's order. The nine names of the RFC
are short and in capitals, all others as OpenSSL writes them (`emailAddress`, or a dotted number).
Names that belong together (`CN=till+UID=7`) are sorted. Equal subjects are equal texts, and texts
of different subjects differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kourou.errors import BadRequest
from kourou.model.limits import SUBJECT_LENGTH_MAX

Rdns = Sequence[Iterable[tuple[str, str]]]
"""A subject as Python's ssl returns it: groups of (name, value) in the certificate's order."""

_SHORT = {
    "commonname": "CN",
    "localityname": "L",
    "stateorprovincename": "ST",
    "organizationname": "O",
    "organizationalunitname": "OU",
    "countryname": "C",
    "streetaddress": "STREET",
    "domaincomponent": "DC",
    "userid": "UID",
}
_SHORT |= {short.lower(): short for short in _SHORT.values()}

_ATTRIBUTE = re.compile(
    r" *(?P<name>[A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)+) *= *"
    r'(?P<value>(?:\\[0-9A-Fa-f]{2}|\\[ "#+,;<=>\\]|[^"+,;<>\\])*?) *(?P<end>[+,]|$)'
)
_UNIT = re.compile(r"\\[0-9A-Fa-f]{2}|\\.|[^\\]")
_ESCAPED = re.compile(r'["+,;<>\\]|^[ #]| $|[\x00-\x1f\x7f]')


def subject_text(rdns: Rdns) -> str:
    """The text of a certificate's subject; "" if it has none."""
    return ",".join(
        "+".join(sorted(f"{_short(name)}={_ESCAPED.sub(_escape, value)}" for name, value in rdn))
        for rdn in reversed(rdns)
    )


def parse_subject(text: str) -> str:
    """The same form of a subject that a person writes. Raises BadRequest."""
    rdns: list[list[tuple[str, str]]] = [[]]
    at, end = 0, ","
    try:
        if len(text) > SUBJECT_LENGTH_MAX or not text.isprintable():
            raise ValueError
        text = text.removeprefix("subject=")
        while end:
            found = _ATTRIBUTE.match(text, at)
            if found is None or found["value"].startswith("#"):
                raise ValueError
            rdns[-1].append((found["name"], _unescaped(found["value"])))
            at, end = found.end(), found["end"]
            if end == ",":
                rdns.append([])
    except ValueError:
        raise BadRequest(
            f"{text[:SUBJECT_LENGTH_MAX]!r} is not the subject of a certificate",
            hint="CN=till,O=Example, as `openssl x509 -in FILE -noout -subject -nameopt RFC2253` "
            "prints it after `subject=`",
        ) from None
    return subject_text(rdns[::-1])


def _short(name: str) -> str:
    return _SHORT.get(name.lower(), name)


def _escape(found: re.Match[str]) -> str:
    return f"\\{found[0]}" if found[0].isprintable() else f"\\{ord(found[0]):02X}"


def _unescaped(value: str) -> str:
    """Raises ValueError if escaped bytes are not UTF-8."""
    data = bytearray()
    for unit in _UNIT.findall(value):
        if unit[0] != "\\":
            data += unit.encode()
        elif len(unit) == 3:
            data += bytes.fromhex(unit[1:])
        else:
            data += unit[1].encode()
    return data.decode()
