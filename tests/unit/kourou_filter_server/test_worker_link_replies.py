"""Replies of workers: the right one, and every way to lie about it."""

import struct

import pytest

from kourou_filter_server.worker_link import (
    FilterRefused,
    FilterResults,
    ProtocolViolation,
    read_filter_results,
    read_setup,
)

ELAPSED_US = 900


def read(reply: bytes, count: int = 3) -> FilterResults | None:
    return read_filter_results(bytearray(reply), 7, count, ELAPSED_US)


def reply(results: bytes, *, number=7, count=None, micros=40, failure=0, reason=None) -> bytes:
    told = len(results) if count is None else count
    head = struct.pack("<IIII", number, told, micros, failure)
    return head + results + (b"" if reason is None else reason.ljust(512, b"\0"))


def test_a_whole_reply() -> None:
    assert read(reply(b"\1\0\1")) == FilterResults(b"\1\0\1", None, 40, "")
    failed = FilterResults(b"\1\2\1", "KeyError: 'x'", 40, "raised")
    assert read(reply(b"\1\2\1", failure=1, reason=b"KeyError: 'x'")) == failed
    memory = FilterResults(b"\2\2\2", "no memory", 40, "memory")
    assert read(reply(b"\2\2\2", failure=2, reason=b"no memory")) == memory
    assert read(reply(b""), count=0) == FilterResults(b"", None, 40, "")


def test_part_of_a_reply_is_no_reply_yet() -> None:
    whole = reply(b"\1\2\1", failure=1, reason=b"why")
    assert {read(whole[:length]) for length in range(len(whole))} == {None}


def test_time_that_did_not_pass_was_not_worked() -> None:
    told = read(reply(b"\1\1\1", micros=0xFFFF_FFFF))
    assert told is not None
    assert told.micros == ELAPSED_US


@pytest.mark.feature("F243")
@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (reply(b"\1\1\1", number=8), "batch 8 instead of 7"),
        (reply(b"\1\1\1", number=6), "batch 6 instead of 7"),
        (reply(b"\1\1"), "2 results instead of 3"),
        (reply(b"\1\1\1", count=4), "4 results instead of 3"),
        (reply(b"\1\1\1", count=0xFFFF_FFFF), "4294967295 results"),
        (reply(b"\1\3\1"), "an invalid result"),
        (reply(b"\1\xff\1"), "an invalid result"),
        (reply(b"\1\1\1", failure=3), "failure 3"),
        (reply(b"\1\1\1\1", count=3), "more bytes"),
        (reply(b"\1\2\1", failure=1, reason=b"why") + b"\0", "more bytes"),
        (reply(b"\1\2\1"), "a failure without its message"),
        (reply(b"\1\1\1", failure=1, reason=b"why"), "a failure without its message"),
    ],
)
def test_a_lie_is_found_out(lie: bytes, said: str) -> None:
    with pytest.raises(ProtocolViolation, match=said):
        read(lie)


def test_a_wrong_head_is_a_lie_before_the_rest_has_come() -> None:
    with pytest.raises(ProtocolViolation):
        read(reply(b"\1\1\1", number=8)[:16])


def test_reasons_are_one_harmless_line_whatever_the_bytes_are() -> None:
    for told, said in (
        (b"a\nb\x1b[2Jc\0hidden", "a b [2Jc"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("fin\u202eally".encode(), "fin ally"),
        (b"", "no reason was given"),
        (b" \n ", "no reason was given"),
    ):
        results = read(reply(b"\2\1\1", failure=1, reason=told))
        assert results is not None
        assert results.failure == said


def setup(outcome: int, reason: bytes = b"") -> FilterResults | None:
    return read_setup(bytearray(struct.pack("<I512s", outcome, reason)), 0)


def test_a_setup_is_ready_or_refused() -> None:
    assert setup(0) == FilterResults(b"", None, 0)
    for outcome, kind in ((1, "setup"), (2, "memory"), (3, "setup")):
        with pytest.raises(FilterRefused, match="why not") as refused:
            setup(outcome, b"why not")
        assert refused.value.kind == kind
    assert read_setup(bytearray(515), 0) is None
    with pytest.raises(ProtocolViolation, match="result 4"):
        setup(4)
    with pytest.raises(ProtocolViolation, match="more bytes"):
        read_setup(bytearray(517), 0)
