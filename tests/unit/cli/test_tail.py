"""A message as a line: complete, and unable to command the terminal."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator

import pytest

from kourou.cli import tail
from kourou.cli.tail import (
    BODY_CHARACTERS_SHOWN,
    TailOptions,
    as_json_line,
    as_text_line,
)
from kourou.client.consumer.received import ReceivedMessage
from kourou.model.message import StoredMessage
from kourou.model.topic import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 3)


def received(body: bytes, **properties: str) -> ReceivedMessage:
    stored = StoredMessage(
        topic="orders",
        body=body,
        properties={"UNIQ_KEY": "ID1", **properties},
        flag=0,
        queue_id=3,
        offset=17,
        position=0,
        size=100,
        sys_flag=0,
        born_timestamp=0,
        born_host=("127.0.0.1", 1),
        store_timestamp=1_700_000_000_123,
        store_host=("127.0.0.1", 2),
        body_crc=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
        broker_name="broker-a",
    )
    return ReceivedMessage(QUEUE, 17, 100, _stored=stored)


def test_a_text_line_names_place_tag_keys_and_body() -> None:
    line = as_text_line(received(b"hello", TAGS="paid", KEYS="A-1 B"))
    assert line.endswith(".123  broker-a/3@17  [paid]  A-1 B  hello")


def test_control_characters_are_escaped() -> None:
    line = as_text_line(received(b"\x1b[31mred\nnext", TAGS="a\x07"))
    assert "\x1b" not in line
    assert "\n" not in line
    assert "\\x1b[31mred\\nnext" in line


def test_binary_and_long_bodies_are_cut_and_said_so() -> None:
    assert as_text_line(received(b"\xff\xfe\x00")).endswith("3 bytes: ff fe 00")
    long = as_text_line(received(b"x" * 1_000))
    assert long.endswith(f"{'x' * BODY_CHARACTERS_SHOWN}… (1000 characters)")


def test_a_json_line_keeps_the_applications_properties() -> None:
    facts = json.loads(as_json_line(received(b"hello", TAGS="paid", colour="red")))
    assert facts["properties"] == {"colour": "red"}
    assert (facts["offset"], facts["tag"], facts["body"]) == (17, "paid", "hello")
    binary = json.loads(as_json_line(received(b"\xff")))
    assert binary["body_base64"] == "/w=="
    assert "body" not in binary


def test_it_ends_with_the_reader_of_its_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only when the next message comes."""
    reading, writing = os.pipe()

    async def messages(*_: object) -> AsyncIterator[ReceivedMessage]:
        yield received(b"hello")
        assert os.read(reading, 1_000).endswith(b"hello\n")
        os.close(reading)
        await asyncio.Event().wait()

    monkeypatch.setattr(tail, "_messages", messages)
    with os.fdopen(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert tail.run_tail(None, "orders", TailOptions()) == 1
