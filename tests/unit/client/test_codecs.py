"""Typed bodies."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from kourou.client.codecs import body_decoder, encode_body
from kourou.errors import BadRequest, DecodeError


class Order(msgspec.Struct):
    id: str
    amount: int


@dataclass
class Flight:
    number: int
    at: datetime


class Model(BaseModel):
    name: str
    size: int


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"\x00raw", None),
        (b"\x00raw", bytes),
        ("grüße", str),
        (Order("A-1", 42), Order),
        (Flight(7, datetime(2013, 1, 1, tzinfo=UTC)), Flight),
        (Model(name="x", size=3), Model),
        ({"a": [1, 2.5, None, "x"]}, dict),
        ([1, 2], list[int]),
        (7, int),
    ],
)
def test_round_trip(value, wanted):
    assert body_decoder(wanted)(encode_body(value)) == value


def test_buffers_are_copied():
    buffer = bytearray(b"abc")
    encoded = encode_body(buffer)
    buffer[0] = 0
    assert encoded == b"abc"
    assert encode_body(memoryview(b"abc")) == b"abc"


@pytest.mark.parametrize("value", [object(), lambda: 1, {object(): 1}])
def test_what_has_no_encoding_is_the_senders_mistake(value):
    with pytest.raises(BadRequest):
        encode_body(value)


def test_a_recursive_value_is_refused():
    value: list = []
    value.append(value)
    with pytest.raises(BadRequest):
        encode_body(value)


@pytest.mark.parametrize("wanted", [str, Order, Model, Flight, int])
@given(body=st.binary(max_size=40))
def test_arbitrary_bytes_raise_only_our_error(wanted, body):
    with contextlib.suppress(DecodeError):
        body_decoder(wanted)(body)


@pytest.mark.parametrize("wanted", [Order, Model])
def test_the_error_names_the_type(wanted):
    with pytest.raises(DecodeError, match=wanted.__name__):
        body_decoder(wanted)(b'{"id": 3}')


def test_a_type_that_cannot_be_decoded():
    with pytest.raises(BadRequest):
        body_decoder(3)
