"""Pages by time leave nothing out and repeat nothing, whatever queues and filters do."""

from __future__ import annotations

import base64
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.admin.messages import Reading
from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.errors import BadRequest, Corrupt, KourouError, Unavailable
from kourou.model.message import SendResult, SendStatus, SysFlag
from kourou.model.topic import MessageQueue
from kourou_console.messages import pages
from kourou_console.messages.pages import (
    READS,
    Cursor,
    decode_cursor,
    encode_cursor,
    offsets_at,
    page_by_time,
)
from kourou_console.messages.transactions import half_of, id_of
from kourou_console.messages.views import Budget, view_of
from kourou_rigs.queues_read import QueuesRead, message_at

Step = tuple[int, int, bool]


async def all_pages(
    queues: QueuesRead, count: int, until_ms: int
) -> list[tuple[int, MessageQueue]]:
    reading = queues.face()
    offsets, missing = await offsets_at(reading, list(queues.messages), 0)
    assert missing == []
    found: list[tuple[int, MessageQueue]] = []
    for _ in range(1_000):
        page = await page_by_time(reading, offsets, until_ms=until_ms, count=count, wanted="*")
        assert len(page.messages) <= count
        found += [(one.store_timestamp, one.queue) for one in page.messages]
        if page.offsets is None:
            return found
        assert page.offsets != offsets, "every page goes on"
        offsets = page.offsets
    raise AssertionError("pages without end")


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=40),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(0, 60),
)
@pytest.mark.feature("F263")
async def test_every_message_once_in_the_order_of_time(
    steps: list[Step], count: int, read_max: int, until_ms: int
) -> None:
    queues = QueuesRead("t", 3, read_max=read_max)
    every = list(queues.messages)
    now_ms = 0
    wanted: list[tuple[int, MessageQueue]] = []
    for which, later_ms, hidden in steps:
        now_ms += later_ms
        queues.put(every[which], stored_ms=now_ms, tag="hidden" if hidden else "")
        if not hidden and now_ms <= until_ms:
            wanted.append((now_ms, every[which]))
    assert await all_pages(queues, count, until_ms) == sorted(wanted)


async def test_a_page_does_not_pass_what_a_slow_queue_may_still_have() -> None:
    queues = QueuesRead("t", 2, read_max=1)
    slow, quick = queues.messages
    for _ in range(READS + 1):
        queues.put(slow, stored_ms=1, tag="hidden")
    queues.put(slow, stored_ms=5)
    queues.put(quick, stored_ms=9)
    assert await all_pages(queues, 5, 99) == [(5, slow), (9, quick)]


@pytest.mark.parametrize(
    "error", [Unavailable("its broker is away"), Corrupt("bytes that are no record")]
)
async def test_a_queue_that_cannot_be_read_is_named_and_nothing_of_it_passed_over(
    error: KourouError,
) -> None:
    queues = QueuesRead("t", 2)
    first, second = queues.messages
    queues.put(second, stored_ms=1)
    queues.failing[first] = [error]
    queues.put(first, stored_ms=1)
    page = await page_by_time(queues.face(), {first: 0, second: 0}, until_ms=9, count=5, wanted="*")
    assert [one.queue for one in page.messages] == [second]
    assert [(one.what, one.why) for one in page.missing] == [(str(first), str(error))]


async def test_what_is_damaged_is_named_and_passed_over() -> None:
    queues = QueuesRead("t", 1)
    [queue] = queues.messages
    for _ in range(3):
        queues.put(queue, stored_ms=1)
    queues.failing[queue] = [UnreadableMessages("its checksum", 2)]
    page = await page_by_time(queues.face(), {queue: 0}, until_ms=9, count=5, wanted="*")
    assert [one.offset for one in page.messages] == [2]
    [damaged] = page.damaged
    assert (damaged.what, "its checksum" in damaged.why) == (f"{queue!s}@0", True)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 3), st.booleans()), max_size=40),
    st.integers(1, 9),
    st.integers(1, 6),
    st.integers(1, 4),
)
async def test_a_budget_of_bytes_leaves_nothing_out(
    steps: list[Step], count: int, read_max: int, at_once: int
) -> None:
    """Every message of these has 100 bytes; and the clock of their broker goes back sometimes."""
    queues = QueuesRead("t", 3, read_max=read_max)
    every = list(queues.messages)
    now_ms = 1
    wanted: list[tuple[MessageQueue, int]] = []
    for which, later_ms, hidden in steps:
        now_ms = max(1, now_ms + later_ms)
        queues.put(every[which], stored_ms=now_ms, tag="hidden" if hidden else "")
        if not hidden:
            wanted.append((every[which], len(queues.messages[every[which]]) - 1))
    offsets: dict[MessageQueue, int] | None = dict.fromkeys(every, 0)
    found: list[tuple[MessageQueue, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "MESSAGES_PAGE_BYTES_MAX", 100 * at_once)
        while offsets is not None:
            page = await page_by_time(queues.face(), offsets, until_ms=999, count=count, wanted="*")
            assert len(page.messages) <= min(count, at_once)
            found += [(one.queue, one.offset) for one in page.messages]
            assert page.offsets != offsets, "every page goes on"
            offsets = page.offsets
    assert len(found) == len(set(found))
    assert sorted(found) == sorted(wanted)


async def test_one_message_larger_than_a_page_is_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MESSAGES_PAGE_BYTES_MAX", 1)
    queues = QueuesRead("t", 2)
    for queue in queues.messages:
        queues.put(queue, stored_ms=1)
    assert await all_pages(queues, 5, 99) == [(1, queue) for queue in queues.messages]


async def test_a_queue_that_fails_half_way_shows_what_was_read() -> None:
    queues = QueuesRead("t", 2, read_max=1)
    first, second = queues.messages
    for at_ms in (1, 3):
        queues.put(first, stored_ms=at_ms)
    queues.put(second, stored_ms=2)
    face = queues.face()
    queues.reads = 0

    class Failing:
        """The second read of the first queue fails, once."""

        bounds = face.bounds
        failed = False

        async def read(self, queue: MessageQueue, offset: int, **how: object) -> object:
            if queue == first and offset == 1 and not self.failed:
                self.failed = True
                raise Unavailable("its broker went away")
            return await face.read(queue, offset, **how)  # type: ignore[arg-type]  # passed on

    reading = cast("Reading", Failing())
    page = await page_by_time(reading, {first: 0, second: 0}, until_ms=9, count=5, wanted="*")
    assert [one.store_timestamp for one in page.messages] == [1]
    assert [one.what for one in page.missing] == [str(first)]
    assert page.offsets == {first: 1, second: 0}
    page = await page_by_time(reading, page.offsets, until_ms=9, count=5, wanted="*")
    assert [one.store_timestamp for one in page.messages] == [2, 3]


# -- A cursor is one short text for the positions in all queues; any other text is refused ---------


QUEUES = [MessageQueue("orders", broker, number) for broker in "ab" for number in range(4)]


@given(st.lists(st.integers(0, 2**62), min_size=8, max_size=8), st.integers(0, 2**47))
def test_what_was_written_is_read(offsets: list[int], time_ms: int) -> None:
    known = dict(zip(QUEUES, offsets, strict=True))
    text = encode_cursor(known, time_ms)
    assert decode_cursor(text, QUEUES[::-1]) == Cursor(known, time_ms)
    assert text.replace("-", "").replace("_", "").isalnum()


def test_a_silent_queue_keeps_the_text_of_the_same_list() -> None:
    known = dict.fromkeys(QUEUES[:5], 7)
    text = encode_cursor(known, 1_000, QUEUES[5:])
    assert decode_cursor(text, QUEUES) == Cursor(known, 1_000, tuple(QUEUES[5:]))


def test_of_other_queues_only_the_time_is_left() -> None:
    text = encode_cursor({QUEUES[0]: 7}, 1_000)
    assert decode_cursor(text, QUEUES) == Cursor(None, 1_000)


@pytest.mark.fuzz
@given(st.text(max_size=40))
def test_any_other_text_is_refused_or_of_other_queues(text: str) -> None:
    try:
        found = decode_cursor(text, QUEUES)
    except BadRequest:
        return
    assert found.offsets is None


def test_a_text_that_was_cut_or_made_longer_is_refused() -> None:
    text = encode_cursor(dict.fromkeys(QUEUES, 2**40), 1_000)
    for changed in (text[:-4], text + "AAAA", "A" * 20_000, ""):
        with pytest.raises(BadRequest):
            decode_cursor(changed, QUEUES)


# -- what of a message is shown: where it was sent, and why a body cannot be read ------------------


QUEUE = MessageQueue("%RETRY%g", "broker-a", 0)


@pytest.mark.parametrize("level", ["", "x", "9" * 40])
async def test_a_message_that_is_retried_tells_where_it_was_sent(level: str) -> None:
    properties = {"RETRY_TOPIC": "orders", "TAGS": "a", "KEYS": "1 2", "own": "x", "DELAY": level}
    view = await view_of(message_at(QUEUE, 3, properties=properties), Budget())
    assert (view.topic, view.stored_topic) == ("orders", "%RETRY%g")
    assert (view.tag, view.keys, view.properties) == ("a", ["1", "2"], {"own": "x"})
    assert view.delay_level is None


async def test_a_body_that_cannot_be_read_says_why() -> None:
    """Any producer can say that any bytes are compressed; the rest is shown all the same."""
    message = message_at(QUEUE, 3, body=b"no zlib", properties={"TAGS": "a"})
    message.stored().sys_flag = int(SysFlag.COMPRESSED)
    view = await view_of(message, Budget())
    assert (view.offset, view.tag, view.body, view.body_base64) == (3, "a", None, None)
    assert view.body_bytes is None
    assert "cannot be decompressed" in (view.body_error or "")
    assert (await view_of(message_at(QUEUE, 3, body=b"x"), Budget())).body_error is None


# -- the ID of a transaction has what is needed to decide it; any other text is refused ------------


HALF = SendResult(
    SendStatus.SEND_OK,
    "AC11",
    MessageQueue("orders", "broker-a", 3),
    7,
    "7F00000100002A9F" + "0" * 16,
)


def test_an_id_is_read_where_it_was_made() -> None:
    assert half_of(id_of(HALF)) == HALF


@pytest.mark.fuzz
@given(
    st.text(max_size=60)
    | st.binary(max_size=60).map(base64.urlsafe_b64encode).map(bytes.decode)
    | st.lists(st.integers(-(2**63), 2**64 - 1) | st.text(max_size=9) | st.none(), max_size=8)
    .map(msgspec.msgpack.encode)
    .map(base64.urlsafe_b64encode)
    .map(bytes.decode)
)
def test_any_text_is_a_half_message_or_a_bad_request(text: str) -> None:
    try:
        half = half_of(text)
    except BadRequest:
        return
    assert half.offset >= 0
    assert half.queue.queue_id >= 0
