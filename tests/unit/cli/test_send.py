"""What a command line becomes as messages; lines of stdin wait for nobody."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from kourou.cli import send
from kourou.cli.send import CHUNK, LINE_BYTES_MAX, SendOptions, arriving
from kourou.errors import ConfigError, MessageIllegal
from kourou.model.message import Message


def test_options_make_a_message() -> None:
    options = SendOptions(tag="paid", keys=["A-1", "B"], properties=["colour=red", "note=a=b"])
    message = options.message("orders", "höllo".encode())
    assert (message.topic, message.body, message.tag) == (
        "orders",
        "höllo".encode(),
        "paid",
    )
    assert message.keys == ("A-1", "B")
    assert message.properties == {"colour": "red", "note": "a=b"}


def test_a_property_needs_a_value() -> None:
    with pytest.raises(ConfigError, match="no '='"):
        SendOptions(properties=["colour"]).message("orders", b"x")


def test_every_line_arrives_once_and_in_order() -> None:
    lines = [b"line %d" % number for number in range(5 * CHUNK + 1)]
    chunks = list(arriving(io.BytesIO(b"\n".join(lines))))
    assert [line for chunk in chunks for line in chunk] == lines
    assert max(map(len, chunks)) <= CHUNK


def test_lines_are_sent_as_they_are_whatever_their_encoding() -> None:
    given = io.BytesIO(b"h\xf6rt\r\n\n \x00\xff \n")
    assert [line for chunk in arriving(given) for line in chunk] == [b"h\xf6rt", b"", b" \x00\xff "]


def test_a_line_is_not_kept_waiting_for_the_next() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as there, os.fdopen(writing, "wb", buffering=0) as here:
        chunks = arriving(there)
        here.write(b"first\n")
        assert next(chunks) == [b"first"]
        here.write(b"second\n")
        here.close()
        assert list(chunks) == [[b"second"]]


def test_a_line_longer_than_a_body_ends_it_after_what_came_before() -> None:
    longest = b"x" * (LINE_BYTES_MAX - 2)
    seen: list[bytes] = []
    given = io.BytesIO(b"first\n" + longest + b"\r\n" + longest + b"123")
    with pytest.raises(MessageIllegal, match="line 3 has more than"):
        seen.extend(line for chunk in arriving(given) for line in chunk)
    assert seen == [b"first", longest]


def test_a_reader_that_fails_is_heard_of() -> None:
    class Broken(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        list(arriving(Broken()))


@pytest.mark.parametrize("streams", ["<&-", "0>/dev/null", "<&- >&-"])
def test_a_closed_input_is_wrong_usage_and_nothing_hangs(streams: str) -> None:
    """The launcher opens a closed input on /dev/null, but not for reading."""
    done = subprocess.run(
        [
            "sh",
            "-c",
            f'exec "$0" -m kourou.cli send orders -n 127.0.0.1:1 {streams}',
            sys.executable,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("kourou: nothing to send: ")
    assert done.stderr.count("\n") == 1


class Recorder:
    """Stands for a client and keeps what it is given."""

    sent: list[Message]

    def __init__(self, namesrv: str | None, *, group: str) -> None:
        type(self).sent = []

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None: ...

    def send_many(self, messages: list[Message]) -> list[object]:
        self.sent.extend(messages)
        return []


def test_an_argument_of_any_encoding_is_sent_byte_for_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send, "Client", Recorder)
    typed = os.fsdecode(b"h\xf6rt")
    assert send.run_send("here", "orders", [typed, "h\u00f6rt"], SendOptions()) == 0
    assert [message.body for message in Recorder.sent] == [b"h\xf6rt", b"h\xc3\xb6rt"]


@pytest.mark.parametrize("given", [b"", b"\n"])
def test_an_empty_input_is_reported_and_an_empty_line_is_a_message(
    given: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(send, "Client", Recorder)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert send.run_send("here", "orders", None, SendOptions()) == 0
    printed = capsys.readouterr()
    assert printed.err == ("" if given else "0 messages: standard input was empty\n")
    assert [message.body for message in Recorder.sent] == ([b""] if given else [])
