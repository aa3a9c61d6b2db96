"""Gives a record kernel hostile bytes; a program, for an interpreter whose memory is watched.

    python kernel_under_fire.py EXTENSION FIRST_SEED SEEDS

Each seed is one run of records that was damaged in a few places: bits, lengths, cuts. Every
function of the kernel gets it, with hostile numbers where it takes any. All buffers that
hold such bytes end where they say, so that a byte read behind one is seen. What the kernel in
Python gives for the same bytes must be what this one gives.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import random
import sys
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kourou.errors import KourouError
from kourou.model.limits import BODY_SIZE_BYTES_MAX
from kourou.protocol import kernel_python
from kourou.protocol.kernel_python import FIELDS
from kourou.protocol.record.layout import encode_batch

HOSTS = (bytes(range(8)), bytes(range(20)))
LABELS = (
    *(b"UNIQ_KEY\x01%032X" % 7, b"TAGS\x01paid", b"KEYS\x01a b  c", b"DELAY\x013", b"TAGS\x01\xff"),
    *(b"TRAN_MSG\x01true", b"XTAGS", b"\x01", b"", "KEYS\x01schlüssel".encode()),
    *(b"__CRC32#\x010123456789", b"REAL_TOPIC\x01t", b"REAL_QID\x014"),
)
NAMES = (b"UNIQ_KEY", b"TAGS", b"", b"REAL_TOPIC", b"x" * 40)
LENGTHS = (0, 1, -1, 7, 91, 127, 128, 255, 0x7FFF, 0x8000, 0x7FFFFFFF, -0x80000000)
LONGS = (0, 1, -1, 2**31, 2**62, -(2**62), 2**63 - 1, -(2**63))
FIELD_NAMES = ("AccessKey", "Signature", "_UNIQUE_KEY_QUERY", "a", "b", "i", "topic", "A", "")
FIELD_TEXTS = (
    *("till", "s=", "orders", "KEYS\x01k\x02", 'a"b\\c/', "\n\t\x00\x7f", "ü", "✓", "😀", ""),
)
LENGTH_PLACES = (0, 4, 36, 84, 88, 96, 100)
REFUSALS = (ValueError, OverflowError, KourouError)


def exact(data: bytes | bytearray | array[int]) -> Any:
    """A buffer of its own for these bytes, with nothing behind them."""
    raw = bytes(data)
    return (ctypes.c_ubyte * len(raw)).from_buffer_copy(raw) if raw else b""


class Fire:
    """What one seed gives."""

    def __init__(self, made: ModuleType, seed: int) -> None:
        self.made = made
        self.draw = random.Random(seed)

    def drafts(self) -> list[bytes]:
        """A few records as they should be."""
        draw = self.draw
        found = []
        for _ in range(draw.randint(0, 5)):
            topic = draw.choice((b"T", b"orders", b"x" * 127))
            texts = b"\x02".join(draw.choices(LABELS, k=draw.randint(0, 6)))
            made = kernel_python.draft(
                *(topic, draw.randint(-2, 9), draw.randbytes(draw.choice((0, 1, 40)))),
                *(texts, 0, draw.choice((0, 4, 8)), 17, draw.choice(HOSTS), draw.random() < 0.3),
                *(0, 0, draw.random() < 0.8),
            )
            assert made is not None
            found.append(made)
        return found

    def damaged(self, data: bytes) -> bytes:
        """These bytes with nothing, one thing or a few things wrong."""
        draw, found = self.draw, bytearray(data)
        for _ in range(draw.choice((0, 1, 1, 2, 4))):
            if not found:
                found += draw.randbytes(draw.randint(0, 9))
                continue
            at = draw.randrange(len(found))
            match draw.randrange(5):
                case 0:
                    found[at] ^= 1 << draw.randrange(8)
                case 1:
                    at = draw.choice(LENGTH_PLACES)
                    found[at : at + 4] = draw.choice(LENGTHS).to_bytes(4, "big", signed=True)
                case 2:
                    del found[at:]
                case 3:
                    found[at:at] = draw.randbytes(draw.randint(1, 30))
                case _:
                    found[at] = draw.choice((0, 1, 2, 127, 128, 255))
        return bytes(found)

    def numbers(self, good: list[int]) -> array[int]:
        """These numbers, or some that are not so good."""
        draw, found = self.draw, list(good)
        if draw.random() < 0.3:
            for _ in range(draw.randint(1, 3)):
                match draw.randrange(3):
                    case 0 if found:
                        found[draw.randrange(len(found))] = draw.choice(LONGS)
                    case 1 if found:
                        found.pop()
                    case _:
                        found.append(draw.choice(LONGS))
        return array("q", found)

    def outcome_of(self, name: str, *arguments: object) -> object:
        """What a function of the compiled kernel gives or refuses; a crash ends this program."""
        return outcome(getattr(self.made, name), *arguments)

    def same(self, name: str, data: bytes | list[bytes], *rest: object) -> None:
        """The same, compared with the kernel in Python."""
        given = list(map(exact, data)) if isinstance(data, list) else exact(data)
        ours = self.outcome_of(name, given, *rest)
        if ours is None:
            return  # it leaves this to the other one
        theirs = outcome(getattr(kernel_python, name), given, *rest)
        assert meaning(name, ours) == meaning(name, theirs), (name, data, rest, ours, theirs)

    def go(self) -> None:
        """All functions."""
        draw = self.draw
        drafts = self.drafts()
        raw = self.damaged(b"".join(drafts))
        sizes = self.numbers(list(map(len, drafts)))
        starts = self.numbers([sum(map(len, drafts[:number])) for number in range(len(drafts))])
        changes = draw.choice(
            ((), ((b"TAGS", None),), ((b"DELAY", b"2"), (b"REAL_QID", b"1"), (b"n", b"\x01")))
        )
        self.same("scan", raw)
        self.same("check_drafts", raw, sizes, draw.choice((BODY_SIZE_BYTES_MAX, 0)))
        if len(starts) == len(sizes):
            self.same("read", raw, starts, sizes)
            self.same("verify", raw, starts, sizes)
            self.outcome_of("verify", exact(raw), starts, sizes, starts, exact(b"orders"), 1, sizes)
        for one in (raw, *map(self.damaged, drafts)):
            self.same("values", [one], tuple(draw.sample(NAMES, 2)))
            self.same("move", one, b"other", 3, changes, 4, 8, draw.choice((-1, 6)), 2**40)
        texts = self.damaged(b"\x02".join(draw.choices(LABELS, k=4)))
        self.same("edit", texts, changes)
        self.batch(texts)
        self.new_drafts()
        table, _ = kernel_python.scan(raw)
        self.tables(raw, array("q", bytes(table)))
        self.append(drafts, raw, sizes)
        self.index()
        self.header()

    def header(self) -> None:
        """A request's header as a RocketMQ client signs it, damaged.

        It is an object of its own anyway, with nothing but one zero behind it.
        """
        draw = self.draw
        names = draw.sample(FIELD_NAMES, draw.randint(0, len(FIELD_NAMES)))
        fields = {name: draw.choice(FIELD_TEXTS) for name in names}
        members = {"code": 310, "extFields": fields, "flag": 0, "language": "JAVA", "remark": None}
        escapes = draw.random() < 0.8
        text = json.dumps(members, separators=(",", ":"), ensure_ascii=escapes)
        raw = self.damaged(text.encode())
        ours = self.outcome_of("signed_parts", raw)
        if ours is not None:
            assert ours == outcome(kernel_python.signed_parts, raw), (raw, ours)

    def batch(self, texts: bytes) -> None:
        """A batch body as a RocketMQ client sends it, damaged."""
        draw = self.draw
        # A piece that looks like a checksum, but is none, is left in a batch and cut off elsewhere.
        texts = texts.replace(b"CRC32", b"CRC33")
        items = [
            (draw.randint(0, 9), draw.randbytes(draw.randint(0, 30)), texts[:60])
            for _ in range(draw.randint(0, 4))
        ]
        body = self.damaged(encode_batch(items)) if items else b""
        head = (b"orders", 3, draw.choice((0, 8)), 17, draw.choice(HOSTS), 2)
        most = draw.choice(((10, 10_000), (2, 10_000), (10, 200)))
        self.same("batch", body, draw.choice((b"WAIT\x01true", b"a\x01\xff\x02")), *head, *most)

    def new_drafts(self) -> None:
        """The drafts of a batch of Kourou's client; bodies and properties have one zero behind."""
        draw = self.draw
        count = draw.randint(0, 4)
        fields = (
            [draw.randbytes(draw.choice((0, 1, 300))) for _ in range(count)],
            [self.damaged(b"\x02".join(draw.choices(LABELS, k=3))) for _ in range(count)],
            [draw.choice((0, -1, 2**31 - 1, 2**31)) for _ in range(count)],
            [draw.choice((0, 1, 16, 48)) for _ in range(draw.choice((count, count, count, 1)))],
        )
        given = (b"orders", 3, *fields, draw.choice(LONGS), draw.choice((*HOSTS, b"x")), True)
        ours = self.outcome_of("drafts", *given)
        assert ours == outcome(kernel_python.drafts, *given), (given, ours)

    def tables(self, raw: bytes, table: array[int]) -> None:
        """What takes a table gets one that is not true of the bytes."""
        draw, count = self.draw, len(table) // len(FIELDS)
        for _ in range(3):
            hostile = self.numbers(table.tolist())
            codes = self.numbers([0] * count)
            numbers = self.numbers([draw.randrange(2) for _ in range(count)])
            for name, *rest in (
                ("topics",),
                ("project",),
                ("check_targets", [b"orders", b"T"], array("q", (1, 2)), numbers),
            ):
                self.outcome_of(name, exact(raw), hostile, *rest)
            self.outcome_of("queue_units", hostile, codes, draw.choice((None, numbers)))

    def append(self, drafts: list[bytes], raw: bytes, sizes: array[int]) -> None:
        """Places for drafts, most of which are none."""
        draw = self.draw
        targets = self.numbers([draw.randrange(2) for _ in drafts])
        ends = self.numbers([5, 7])
        segment = draw.choice((10_000, 300, 8, 9, 0, -1))
        end = draw.choice((0, 290, 9_990, -5))
        self.outcome_of(
            *("append", exact(raw) or bytearray(), sizes, draw.choice((None, targets)), ends, end),
            *(draw.choice((10**6, 0)), segment, 99, draw.choice((*HOSTS, b"x"))),
        )

    def index(self) -> None:
        """Entries and slots of the key index."""
        draw = self.draw
        count = draw.randint(0, 5)
        hashes = array("i", [draw.choice((0, 5, 2**31 - 1, -1)) for _ in range(count)])
        longs = [self.numbers([draw.choice(LONGS) for _ in range(count)]) for _ in range(2)]
        slots = array("i", [0] * draw.choice((1, 3, 8)))
        number = draw.choice((1, 2, 2**31 - 4, 0))
        self.outcome_of("index_entries", hashes, *longs, slots, number, draw.choice(LONGS))
        pages = bytearray(draw.choice((1, 3)))
        self.outcome_of("link_slots", hashes, number, slots, pages, draw.choice((1, 4, 0)))


def outcome(call: Callable[..., Any], *arguments: object) -> object:
    """What it returns, as things that compare, or the kind of its refusal."""
    try:
        found = call(*arguments)
    except REFUSALS as error:
        return "refused", isinstance(error, KourouError)
    if not isinstance(found, tuple):
        return bytes(found) if isinstance(found, bytearray) else found
    return tuple(bytes(one) if isinstance(one, bytearray) else one for one in found)


def meaning(name: str, found: object) -> object:
    """What of an outcome means something: beside a problem the rest does not."""
    if isinstance(found, tuple) and name == "check_drafts" and found[0] != "refused" and found[2]:
        return found[2:]
    if isinstance(found, tuple) and name == "read" and found[0] != "refused" and found[1] >= 0:
        return found[1]
    return found


def main() -> None:
    """Run the seeds of the command line."""
    spec = importlib.util.spec_from_file_location("_kernel", sys.argv[1])
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    first, count = int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, first + count):
        try:
            Fire(made, seed).go()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


if __name__ == "__main__":
    main()
