"""A message as it comes: headers or an envelope, and nothing that is neither."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from kourou.errors import BadRequest
from kourou_console.api.sends import body_of, message_of
from kourou_console.http.call import RequestContext

JSON = ("Content-Type", "application/json; charset=utf-8")


def raw(*headers: tuple[str, str]) -> RequestContext:
    return RequestContext(headers=headers)


def test_a_raw_body_is_taken_as_it_is():
    message = message_of(b'{"body": 1}', raw(("content-type", "text/plain")))
    assert message.body == b'{"body": 1}'
    assert (message.tag, message.keys, message.order_key) == (None, [], None)


def test_headers_say_what_belongs_to_it():
    message = message_of(
        b"",
        raw(
            ("kourou-tag", "t"),
            ("KOUROU-KEY", "a"),
            ("Kourou-Key", "b"),
            ("Kourou-Property-Some-Name", "v"),
            ("Kourou-Order-Key", "o"),
            ("Kourou-Delay-Ms", "5000"),
            ("Accept", "*/*"),
        ),
    )
    assert (message.tag, message.keys, message.order_key) == ("t", ["a", "b"], "o")
    assert message.properties == {"Some-Name": "v"}
    assert message.delay == timedelta(seconds=5)


@pytest.mark.parametrize(
    "header",
    [
        ("Kourou-Tags", "t"),
        ("Kourou-Delay-Ms", "-1"),
        ("Kourou-Delay-Ms", "1.5"),
        ("Kourou-Delay-Level", "33"),
        ("Kourou-Delay-Level", "9" * 30),
        ("Kourou-Tag", "\udcff"),
    ],
)
def test_a_wrong_header_is_named(header):
    with pytest.raises(BadRequest, match=header[0]):
        message_of(b"", raw(header))


def test_an_envelope_has_no_headers_beside_it():
    with pytest.raises(BadRequest, match="Kourou-Tag"):
        message_of(b'{"body":"x"}', raw(JSON, ("Kourou-Tag", "t")))


def test_json_in_an_envelope_stays_as_it_was_written():
    message = message_of(b'{"body": {"n": 1.00, "u": "\\u00fc"} }', raw(JSON))
    assert message.body == b'{"n": 1.00, "u": "\\u00fc"}'


def test_one_body_and_no_more():
    assert body_of(msgspec.Raw(b'"x"'), msgspec.UNSET) == b"x"
    assert body_of(msgspec.UNSET, b"x") == b"x"
    for both in ((msgspec.Raw(b"1"), b"x"), (msgspec.UNSET, msgspec.UNSET)):
        with pytest.raises(BadRequest):
            body_of(*both)
