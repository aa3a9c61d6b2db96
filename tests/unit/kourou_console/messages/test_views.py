"""Few bytes of a log are many of an answer: what is shown, and what is inflated, is bounded."""

from __future__ import annotations

import asyncio
import base64
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.consumer.received import ReceivedMessage
from kourou.model.message import COMPRESSION_SHIFT, Compression, SysFlag
from kourou.model.topic import MessageQueue
from kourou.protocol.record import compression
from kourou_console.messages import views
from kourou_console.messages.views import PIECE_BYTES, Budget, json_bytes
from kourou_rigs.queues_read import message_at

QUEUE = MessageQueue("t", "broker-a", 0)
MIB = 1 << 20
KINDS = [Compression.ZLIB, Compression.LZ4, Compression.ZSTD]


def compressed(raw: bytes, kind: Compression = Compression.ZLIB) -> ReceivedMessage:
    message = message_at(QUEUE, 3, body=compression.compress(kind, raw))
    message.stored().sys_flag = int(SysFlag.COMPRESSED) | kind << COMPRESSION_SHIFT
    return message


@given(st.text(max_size=200) | st.text(st.characters(max_codepoint=0x80), max_size=200))
def test_text_is_counted_as_json_has_it(text: str) -> None:
    assert json_bytes(text.encode()) == len(msgspec.json.encode(text)) - 2


@pytest.mark.parametrize("kind", KINDS)
async def test_bodies_of_zeros_are_bounded_together(kind: Compression, inflated: list[int]) -> None:
    messages = [compressed(bytes(4_000_000), kind) for _ in range(60)]
    budget = Budget()
    found = [await budget.body(one, 4 * MIB) for one in messages]
    assert sum(len(msgspec.json.encode(one.text)) - 2 for one in found) <= 8 * MIB
    assert [len(one.text or "") for one in found] == [8 * MIB // 6] + [0] * 59
    assert all(one.truncated for one in found)
    assert found[0].size_bytes == 4_000_000
    assert sum(inflated) == budget.inflated <= 16 * MIB + PIECE_BYTES
    assert max(inflated) <= PIECE_BYTES


async def test_sizes_are_counted_only_so_far(inflated: list[int]) -> None:
    """What a list of previews inflates does not grow with what lies behind them."""
    budget = Budget()
    found = [await budget.body(compressed(b"a" * 4_000_000), 1_000) for _ in range(200)]
    assert {one.text for one in found} == {"a" * 1_000}
    assert [one.size_bytes for one in found] == [4_000_000] * 2 + [None] * 198
    assert sum(inflated) <= 8 * MIB + PIECE_BYTES + 200 * 1_001


@given(
    raw=st.binary(max_size=60) | st.text(max_size=30).map(str.encode),
    body_max=st.integers(0, 70),
    left=st.integers(0, 90),
    squeezed=st.booleans(),
)
def test_what_is_shown_fits_and_is_the_beginning(
    raw: bytes, body_max: int, left: int, squeezed: bool
) -> None:
    budget = Budget(left)
    message = compressed(raw) if squeezed else message_at(QUEUE, 3, body=raw)
    found = asyncio.run(budget.body(message, body_max))
    value = found.text if found.text is not None else found.encoded
    assert value is not None
    size = len(msgspec.json.encode(value)) - 2
    assert size <= left
    part = value.encode() if found.text is not None else base64.b64decode(value)
    assert raw.startswith(part)
    assert len(part) <= body_max
    assert found.truncated or part == raw
    assert squeezed or found.truncated == (part != raw)
    # Where the budget cut something, nothing is left, be it too little for the next character.
    assert budget.left in (0, left - size)
    assert budget.left == left - size or (found.truncated and len(part) < body_max)


async def test_whole_ones_ask_no_budget() -> None:
    budget = Budget(10)
    found = await budget.body(compressed(bytes(PIECE_BYTES * 2 + 1)), None, whole=True)
    assert (found.text, found.truncated) == ("\0" * (PIECE_BYTES * 2 + 1), False)
    assert budget.left == 0
    binary = await Budget(1).body(message_at(QUEUE, 3, body=b"\xff" * 9), None, whole=True)
    assert base64.b64decode(binary.encoded or "") == b"\xff" * 9


async def test_the_loop_turns_between_two_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "PIECE_BYTES", 10)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await Budget().body(compressed(b"a" * 1_000), None)
    counting.cancel()
    assert turns >= 100


async def test_a_fault_that_is_come_upon_is_told() -> None:
    message = message_at(QUEUE, 3, body=zlib.compress(bytes(2_000))[:-2])
    message.stored().sys_flag = int(SysFlag.COMPRESSED)
    budget = Budget()
    found = await budget.body(message, 100)
    assert (found.text, found.encoded, found.size_bytes) == (None, None, None)
    assert "cut off" in (found.error or "")
    assert budget.left == Budget().left
