"""What a command line becomes as messages; lines of stdin wait for nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kourou.cli.send import CHUNK, SendOptions, arriving
from kourou.errors import ConfigError


def test_options_make_a_message() -> None:
    options = SendOptions(tag="paid", keys=["A-1", "B"], properties=["colour=red", "note=a=b"])
    message = options.message("orders", "höllo")
    assert (message.topic, message.body, message.tag) == ("orders", "höllo".encode(), "paid")
    assert message.keys == ("A-1", "B")
    assert message.properties == {"colour": "red", "note": "a=b"}


def test_a_property_needs_a_value() -> None:
    with pytest.raises(ConfigError, match="no '='"):
        SendOptions(properties=["colour"]).message("orders", "x")


def test_every_line_arrives_once_and_in_order() -> None:
    lines = [f"line {number}\n" for number in range(3 * CHUNK + 1)]
    chunks = list(arriving(lines))
    assert [line for chunk in chunks for line in chunk] == [line.rstrip() for line in lines]
    assert max(map(len, chunks)) <= CHUNK


def test_a_line_is_not_kept_waiting_for_the_next() -> None:
    more = threading.Event()

    def slowly() -> Iterator[str]:
        yield "first\n"
        assert more.wait(10)
        yield "second\n"

    chunks = arriving(slowly())
    assert next(chunks) == ["first"]
    more.set()
    assert list(chunks) == [["second"]]
