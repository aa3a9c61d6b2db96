"""How every JSON body becomes a typed value."""

from enum import Enum

import pytest

from kourou.errors import Code, DecodeError
from kourou.model.limits import LENIENT_REPLY_BYTES_MAX, LENIENT_REQUEST_BYTES_MAX
from kourou.model.topic import MessageQueue
from kourou.protocol.wire.json_bodies import (
    Shape,
    choice,
    items,
    members,
    queue_key,
    queue_map,
    queue_shape,
    reply_decoder,
    shape_decoder,
    submap,
)


class Point(Shape, kw_only=True):
    at_x: int
    far: bool = False


decode = shape_decoder(Point, "point")


@pytest.mark.parametrize(
    "body",
    [
        b'{"atX":5,"far":true}',
        b'{"atX":"5","far":"true","other":[{}]}\n',
        b'{"atX":5,"far":1}',
        b"{atX:5,'far':'1',}",
        b"/* odd */ {atX:'5',far:true}",
    ],
)
def test_every_spelling_is_one_value(body):
    for given in (body, bytearray(body), memoryview(body)):
        assert decode(given) == Point(at_x=5, far=True)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"{}", "missing required field `atX`"),
        (b'{"atX":"far"}', r"\$.atX"),
        (b'{"atX":5,"far":7}', r"\$.far"),
        (b'{"atX":', "malformed JSON"),
        (b"[]", "object"),
    ],
)
def test_errors_name_the_body_and_the_place(body, complaint):
    with pytest.raises(
        DecodeError, match=f"the body is not a valid point: .*{complaint}"
    ) as caught:
        decode(body)
    assert caught.value.wire_code == Code.SYSTEM_ERROR


def test_a_long_body_must_be_standard_json():
    blanks = b" " * LENIENT_REQUEST_BYTES_MAX
    assert decode(b'{"atX":5}' + blanks) == Point(at_x=5)
    with pytest.raises(DecodeError, match="longer than 262144"):
        decode(b"{atX:5}" + blanks)
    assert reply_decoder(Point, "point")(b"{atX:5}" + blanks) == Point(at_x=5)
    with pytest.raises(DecodeError, match="longer than 8388608"):
        reply_decoder(Point, "point")(b"{atX:5}" + b" " * LENIENT_REPLY_BYTES_MAX)


class Colour(Enum):
    RED = "RED"
    BLUE = "BLUE"


def test_enums_by_name_and_by_number():
    order = (Colour.BLUE, Colour.RED)
    for given in ("RED", "red", " Red ", 1, "1", " 1", "01"):
        assert choice(Colour, given, order) is Colour.RED
    also = {"NAVY": Colour.BLUE}
    assert choice(Colour, "navy", order, also) is Colour.BLUE
    assert choice(Colour, "red", order, also) is Colour.RED
    for wrong in ("GREEN", "", 2, -1, "2", "-1", "²", "9" * 5000):
        with pytest.raises(ValueError):
            choice(Colour, wrong, order)


def test_queues_as_keys():
    queue = MessageQueue("T", "b", 3)
    assert queue_shape(queue).model() == queue
    assert queue_map({queue_key(queue): "5"}, int, "table") == {queue: 5}
    for key in ("T", (("topic", "T"),), (("topic", None), ("brokerName", "b"), ("queueId", 1))):
        with pytest.raises(DecodeError, match="the body is not a valid table"):
            queue_map({key: 5}, int, "table")


def test_members_of_an_object():
    assert submap({"a": {"b": 1}}, "a", "x") == {"b": 1}
    assert submap({"a": None}, "a", "x") == submap({}, "a", "x") == {}
    assert items({"a": [1]}, "a", "x") == [1]
    assert items({"a": None}, "a", "x") == items({}, "a", "x") == []
    for read, wrong in ((submap, []), (submap, 5), (items, {}), (items, "text")):
        with pytest.raises(DecodeError):
            read({"a": wrong}, "a", "x")
    with pytest.raises(DecodeError):
        members([], "x")
