"""Filters that took over their worker and speak to the parent themselves: whatever they say.

The socket is the one thing that a worker may write to, so all of this gets through to the parent.
It believes a reply only for its own batch, of its own width, and then it was this filter's verdict
anyway: of its own group's messages.
"""

import struct

import pytest

from kourou_filter_server.sandbox import wire

SPEAK = """
import struct
def say(*parts):
    data = b"".join(parts)
    while data:
        data = data[os.write(3, data):]
def setup(outcome, reason=b""):
    return struct.pack("<I512s", outcome, reason)
def head(number, count, micros=1, failure=0):
    return struct.pack("<IIII", number, count, micros, failure)
def rest(text=b"why"):
    return text.ljust(512, b"\\0")
SEEN = []
"""
assert (wire.SETUP_REPLY.format, wire.REPLY_HEAD.format) == ("<I512s", "<IIII")
assert struct.calcsize("<I512s") == wire.SETUP_REPLY.size

LIES = {
    # what is said at the first of three messages, before the honest reply follows
    "one byte": "say(b'x')",
    "half a head": "say(head(1, 3)[:9])",
    "a head and nothing": "say(head(1, 3))",
    "another batch": "say(head(2, 3), bytes(3))",
    "the batch before": "say(head(0, 3), bytes(3))",
    "fewer verdicts": "say(head(1, 2), bytes(2))",
    "more verdicts": "say(head(1, 4), bytes(4))",
    "no verdicts": "say(head(1, 0))",
    "gigantically many verdicts": "say(head(1, 2**32 - 1), bytes(100))",
    "a verdict of three": "say(head(1, 3), bytes([1, 3, 1]))",
    "a verdict of 255": "say(head(1, 3), bytes([255, 0, 1]))",
    "text for verdicts": "say(head(1, 3), b'111')",
    "a failure that is none": "say(head(1, 3, failure=9), bytes(3), rest())",
    "a failure without its message": "say(head(1, 3, failure=1), bytes(3), rest())",
    "a message without its failure": "say(head(1, 3), bytes([2, 2, 2]))",
    "one byte too many": "say(head(1, 3), bytes(4))",
    "the reply twice": "say(head(1, 3), bytes(3), head(1, 3), bytes(3))",
    "the next reply as well": "say(head(1, 3), bytes(3), head(2, 3), bytes(3))",
    "its reason and more": "say(head(1, 3, failure=1), bytes([2, 0, 0]), rest(), b'x')",
    "a second readiness": "say(setup(0))",
    "a flood": "say(bytes(1 << 20))",
    "a flood of replies": "say((head(1, 3) + bytes(3)) * 100_000)",
    "a pickle": "say(b'\\x80\\x04\\x95' + bytes(100))",
}


@pytest.mark.feature("F243")
@pytest.mark.parametrize("name", LIES)
def test_a_lie_ends_the_worker(jail, name: str) -> None:
    source = f"{SPEAK}\ndef match(message, context):\n    if not SEEN:\n        SEEN.append(1)\n"
    source += f"        {LIES[name]}\n    return True"
    outcome = jail.reach(source, batches=2)
    assert outcome.kind == "lied", outcome
    assert outcome.reason.startswith("the worker broke the protocol: ")


def test_lies_end_in_quarantine(jail) -> None:
    lie = f"{SPEAK}\ndef match(m, c):\n    {LIES['more verdicts']}\n    return True"
    assert jail.until_quarantine(jail.preamble + lie) == 3


@pytest.mark.parametrize(
    ("what", "source", "kind"),
    [
        ("readiness twice", "say(setup(0), setup(0))", "lied"),
        ("an outcome that is none", "say(setup(77))", "lied"),
        ("a reply before it was asked", "say(setup(0), head(1, 3), bytes([1, 1, 1]))", "lied"),
        ("a flood", "say(bytes(1 << 20))", "lied"),
        ("half of it", "say(setup(0)[:100])\nwhile True: pass", "timeout"),
        ("that a layer is missing", "say(setup(3, b'seccomp'))\nwhile True: pass", "setup"),
        (
            "a refusal with a strange reason",
            "say(setup(1, bytes(range(256)) * 2))\nwhile True: pass",
            "setup",
        ),
        ("nothing any more", "while True: pass", "timeout"),
        ("that it is gone", "os._exit(0)", "died"),
    ],
)
def test_lies_at_set_up(jail, what: str, source: str, kind: str) -> None:
    lie = f"{SPEAK}\n{source}\ndef match(m, c): return True"
    outcome = jail.reach(lie, batches=2, hurried=kind == "timeout")
    assert outcome.kind == kind, outcome
    assert outcome.reason.isprintable()


def test_who_is_ready_too_early_is_found_at_the_first_batch(jail) -> None:
    """It says that it is ready, and goes on in its set-up for ever."""
    outcome = jail.reach(f"{SPEAK}\nsay(setup(0))\nwhile True: pass", hurried=True)
    assert outcome.kind == "timeout"


SLOW = """
def match(message, context):
    for byte in head(1, 3) + bytes(3):
        say(bytes([byte]))
        for _ in range(10**6):
            pass
    while True:
        pass
"""


@pytest.mark.parametrize(
    ("what", "source"),
    [
        ("byte by byte", SLOW),
        ("never", "def match(m, c):\n    while True: pass"),
        ("all but a byte", "def match(m, c):\n    say(head(1, 3), bytes(2))\n    while True: pass"),
    ],
)
def test_a_slow_reply_is_too_late(jail, what: str, source: str) -> None:
    outcome = jail.reach(SPEAK + source, hurried=True)
    assert outcome.kind == "timeout"
    assert outcome.reason.startswith("no reply within 53 ms")


def test_who_reads_no_more_is_too_late(jail) -> None:
    """It answers the first batch itself, right, and then reads no request; a large one blocks."""
    source = f"{SPEAK}\ndef match(m, c):\n    say(head(1, 3), bytes(3))\n    while True: pass"
    outcome = jail.reach(source, batches=2, body=bytes(1 << 20), hurried=True)
    assert outcome.kind == "timeout"


def test_who_reads_for_himself_answers_for_himself(jail) -> None:
    """The whole loop in the filter's hands: it can say of its own messages what it likes."""
    source = f"""{SPEAK}
def match(message, context):
    for number in range(1, 100):
        say(head(number, 3), bytes([1, 0, 1]))
        size, = struct.unpack("<I", os.read(3, 4))
        while size:
            size -= len(os.read(3, size))
"""
    outcome = jail.reach(source, batches=5)
    assert (outcome.kind, outcome.results) == ("", b"\1\0\1")


def test_a_worker_that_lies_about_its_time_is_not_believed(jail) -> None:
    source = f"{SPEAK}\ndef match(m, c):\n    say(head(1, 3, micros=2**32 - 1), bytes(3))\n"
    outcome = jail.reach(source + "    while True: pass")
    assert outcome.kind == ""


def test_a_reason_is_one_harmless_line(jail) -> None:
    source = f"""{SPEAK}
def match(message, context):
    say(head(1, 3, failure=1), bytes([0, 2, 1]), rest(b"a\\x1b[31m\\nb\\xff\\xe2\\x80\\xae" * 9))
    while True: pass
"""
    outcome = jail.reach(source)
    assert (outcome.kind, outcome.results) == ("raised", b"\0\2\1")
    assert outcome.reason.isprintable()
    assert "\x1b" not in outcome.reason
