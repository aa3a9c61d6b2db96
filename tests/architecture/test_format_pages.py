"""The worked examples of docs/formats are what the code reads and writes, byte for byte."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from array import array
from pathlib import Path
from typing import get_args

import pytest

from kourou.engine.admin.log_bootstrap import decode_beginning, encode_beginning
from kourou.engine.delays.progress import DelayProgress, decode_progress, progress_draft
from kourou.events.control_events import EVENT_TYPES, KnownEvent, TopicPut, decode_record_body
from kourou.protocol import kernel
from kourou.protocol.messages.pulls import GetMaxOffset, GetMaxOffsetResponse
from kourou.protocol.record.hashes import index_hash, tags_code
from kourou.protocol.record.layout import BLANK_MAGIC, MAGIC
from kourou.protocol.record.message_record import decode_record, encode_draft
from kourou.protocol.wire.frames import decode_frame, decode_reply, decode_request, encode_request
from kourou.protocol.wire.remoting import HeaderType, Language, decode_command, encode_command
from kourou.store.config.config_files import encode_offsets
from kourou.store.config.durable_files import SharedFiles, seal
from kourou.store.disk import write_atomically
from kourou.store.index.index_file import IndexHeader
from kourou.store.log.commit_log import Segment
from kourou.store.log.quarantine import Region, load_quarantine
from kourou.store.log.verified import check_stored
from kourou.store.paths import StorePaths
from kourou.store.real_disk import RealDisk
from kourou.store.recovery.recovery_point import FILE_BYTES, load_checkpoint
from kourou.store.replica.replica_files import MAGIC as EPOCHS_MAGIC
from kourou.store.retention import AgeClock, Now, load_queue_ends
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_filter_server.sandbox import wire
from kourou_filter_server.worker_link import FilterResults, read_filter_results
from kourou_rigs.store import small_settings

BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GOLDEN = "tests/golden/rocketmq-4.9.8/store-clean"
PATHS = StorePaths.under(Path("/s"))


@pytest.fixture
def closed(root: Path, tmp_path: Path) -> StorePaths:
    """The golden store, when we have opened and closed it."""
    shutil.copytree(root / GOLDEN, tmp_path / "store")
    settings = small_settings(tmp_path / "store")
    Store.open(settings, RealDisk()).close()
    return StorePaths.under(settings.root)


class Page:
    """One page of docs/formats."""

    def __init__(self, root: Path, name: str) -> None:
        self.text = (root / "docs/formats" / f"{name}.md").read_text(encoding="utf-8")

    def block(self, start: str) -> str:
        """The block of code that begins so."""
        (found,) = (block for block in BLOCK.findall(self.text) if block.lstrip().startswith(start))
        return str(found)

    def bytes(self, start: str) -> bytes:
        """The bytes of a block: hexadecimal, and four blanks before a comment."""
        return b"".join(
            bytes.fromhex(re.sub(r"00 × (\d+)", lambda many: "00" * int(many[1]), part).strip())
            for line in self.block(start).splitlines()
            if (part := re.split(r"\s{4,}(?=\S)", line.strip())[0])
        )

    def line(self, start: str) -> str:
        """What stands between back ticks and begins so."""
        (found,) = re.findall(rf"`({re.escape(start)}[^`]*)`", self.text)
        return str(found)


def test_the_record(root: Path) -> None:
    record = Page(root, "record").bytes("00000084")
    assert check_stored(memoryview(record), 0, len(record), 0x4000).size == 132
    read = decode_record(record)
    assert (read.topic, read.queue_id, read.offset, read.position) == ("TopicA", 2, 7, 16_384)
    assert (bytes(read.body), read.tag) == (b"hello", "TagA")
    assert read.store_timestamp - read.born_timestamp == 184


def test_the_zeromq_frames(root: Path) -> None:
    page = Page(root, "frame")
    request = page.bytes("4b 01 01 00")
    asked = GetMaxOffset(topic="TopicA", queue_id=3)
    assert decode_request(decode_frame([request])) == asked
    assert encode_request(asked, correlation=27, deadline_ms=3_000) == request
    reply = decode_frame([page.bytes("4b 01 02 00")])
    assert decode_reply(reply, GetMaxOffsetResponse) == (0, "", GetMaxOffsetResponse(offset=5))
    assert reply.correlation == 27


def test_the_remoting_frames(root: Path) -> None:
    page = Page(root, "frame")
    head, _, header = page.block("00 00 00 92").partition("{")
    lengths = b"".join(bytes.fromhex(line[:11]) for line in head.splitlines())
    text = "{" + header.replace("(without the line break)", "").replace("\n ", "").strip()
    as_json, binary = lengths + text.encode(), page.bytes("00 00 00 38")
    assert (len(as_json), len(binary)) == (150, 60)
    for frame, kind in ((as_json, HeaderType.JSON), (binary, HeaderType.BINARY)):
        command = decode_command(frame)
        assert (command.code, command.opaque, command.version) == (30, 27, 409)
        assert (command.language, command.header_type) == (Language.JAVA, kind)
        assert command.ext_fields == {"topic": "TopicA", "queueId": "3"}
        assert encode_command(command) == frame


def test_the_end_of_a_segment(root: Path) -> None:
    lines = re.findall(
        r"^  ([0-9a-f]{4})  ([0-9a-f]{8}) ([0-9a-f]{8})",
        Page(root, "commit-log").block("commitlog/00000000000000009216"),
        re.MULTILINE,
    )
    (first, filler, second) = [[int(number, 16) for number in line] for line in lines]
    assert first == [0x2784 - 9_216, 98, MAGIC]
    drafts = [
        encode_draft(
            topic=b"T",
            queue_id=0,
            body=bytes(size - 112),
            properties=b"",
            born_timestamp=1,
            born_host=bytes(8),
        )
        for size in (112, 200)
    ]
    at = 0x2784 + 98 - 112  # a record with its checksum has 112 bytes at least
    _, runs, blanks, *_ = kernel.append(
        bytearray().join(drafts),
        array("q", map(len, drafts)),
        None,
        array("q", [0]),
        at,
        1 << 62,
        1_024,
        1,
        bytes(8),
    )
    assert runs == [(0, 1, at), (1, 1, 10_240)]
    assert blanks == [(9_216 + filler[0], filler[1])]
    assert (filler[2], second) == (BLANK_MAGIC, [0, 200, MAGIC])


def test_the_beginning_of_a_real_log(root: Path) -> None:
    log = (root / GOLDEN / "commitlog" / ("0" * 20)).read_bytes()
    told = re.findall(
        r"^  ([0-9a-f]{4})  ([0-9a-f ]+) \.\.\.",
        Page(root, "commit-log").block("0000  000000de"),
        re.MULTILINE,
    )
    assert len(told) == 2
    for at, data in told:
        assert log[int(at, 16) :].startswith(bytes.fromhex(data))
    assert (len(log), len(log.rstrip(b"\0"))) == (16_384, 7_183)


def test_the_recovery_point(root: Path, closed: StorePaths) -> None:
    found = closed.recovery_point.read_bytes()
    told = Page(root, "commit-log").bytes("4b525031")
    assert (len(told), len(found)) == (72, FILE_BYTES)
    assert found[:512] == told + bytes(440)


def test_the_quarantine_and_the_files_of_retention(root: Path) -> None:
    disk = SimDisk()
    disk.make_dirs(PATHS.kourou)
    regions = Page(root, "commit-log").line('{"regions":')
    write_atomically(disk, PATHS.quarantine, regions.encode())
    region = Region(2064, 2275, "the record fails its check")
    assert load_quarantine(disk, PATHS).regions == [region]
    page = Page(root, "retention")
    write_atomically(disk, PATHS.queue_ends, page.line('{"orders"').encode())
    ends = load_queue_ends(disk, PATHS)
    assert ends == {"orders": {0: 1200, 1: 1187}, "%DLQ%till": {0: 3}}
    write_atomically(disk, PATHS.ages, page.line('{"at":').encode())
    file = disk.open(PATHS.kourou / "file", create_size=16)
    segments = [Segment(file, start, 16, mapped=False) for start in (0, 1 << 30)]
    look = Now(86_400_000 + 5, 1_795_228_849_207, "5f0e…")
    closed, _ = AgeClock(disk, PATHS).look(look, segments)
    assert [segment.age_ms for segment in closed] == [7_200_005, 5]


def test_the_queue_units(root: Path, closed: StorePaths) -> None:
    told = Page(root, "consume-queue").bytes("00 00 00 00 00 00 02 88")
    theirs = closed.queue("TopicA", 1) / ("0" * 20)
    theirs.unlink()
    Store.open(small_settings(closed.root), RealDisk()).close()
    assert theirs.read_bytes().startswith(told)
    assert tags_code("TagB") == 2_598_920 == int.from_bytes(told[12:20], "big")
    assert tags_code("TagOne") == -1_797_389_172 == int.from_bytes(told[32:40], "big", signed=True)


def test_the_key_index(root: Path) -> None:
    (path,) = (root / GOLDEN / "index").iterdir()
    file, page = path.read_bytes(), Page(root, "key-index")
    header = page.bytes("00 00 01 a1 fb fa 42 ea")
    assert file[:40] == header
    assert IndexHeader.decode(header) == IndexHeader(
        1_795_228_844_778, 1_795_228_851_617, 0, 6_875, 38, 51
    )
    entry = bytes.fromhex("".join(page.block("71 71 25 c9").splitlines()[0].split()))
    assert file[480:500] == entry
    assert index_hash("TopicA#k1") == int.from_bytes(entry[:4], "big") == 1_903_240_649


def test_the_control_event(root: Path) -> None:
    page = Page(root, "control-event")
    body = "".join(page.block('{"at_ms":1795228849207').splitlines())
    told = decode_record_body(body.encode(), offset=0, position=0)
    assert isinstance(told.event, TopicPut)
    assert told.event.before is not None
    queues = (told.event.before.write_queue_nums, told.event.topic.write_queue_nums)
    assert (told.actor, *queues) == ("admin:alice", 4, 8)
    rows = re.findall(r"^\| (`[A-Z].+?) \| .+? \| (.+?) \| .+ \|$", page.text, re.MULTILINE)
    fields = {
        name: set(fields.split(", "))
        for names, fields in rows
        for name in names[1:-1].split("`, `")
    }
    assert fields.keys() == EVENT_TYPES
    fields["KeyValueDeleted"].remove("value")  # it shares its row
    kinds = get_args(KnownEvent)
    assert fields == {kind.__name__: set(kind.__struct_fields__) for kind in kinds}


def test_the_tables(root: Path) -> None:
    page = Page(root, "tables")
    table = page.block('{\n→"offsetTable"').strip().replace("→", "\t").encode()
    assert encode_offsets({"TopicA@CG1": {0: 4, 1: 3}}) == table
    disk = SimDisk()
    SharedFiles(disk, PATHS.config, PATHS.kourou / "hashes", 1 << 20).save(
        "consumerOffset.json", table, json.loads
    )
    hashes = page.block('{"consumerOffset.json"')
    assert disk.read(PATHS.kourou / "hashes").decode() == hashes
    assert hashlib.sha256(table).hexdigest() in hashes
    told = page.bytes("000001a1fbfa5da1 000001a1fbfa5da1 0000000000000000")
    checkpoint = root / GOLDEN / "checkpoint"
    assert checkpoint.read_bytes() == told + bytes(4_072)
    assert load_checkpoint(RealDisk(), checkpoint).log_ms == 1_795_228_851_617


def test_every_page_says_what_is_good_and_bad_about_it(root: Path) -> None:
    for path in sorted((root / "docs/formats").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        assert "# Virtues" in text, path.name
        assert re.search(r"# .*[Ff]aults", text), path.name
        assert "xample" in text, path.name


def test_the_epochs_of_a_log(root: Path) -> None:
    rows = Page(root, "replication").block("4b524531").strip().splitlines()
    data = bytes.fromhex("".join(row.split("  ")[0] for row in rows))
    assert data == seal(EPOCHS_MAGIC, 3, (2).to_bytes(8, "big") + (1_024).to_bytes(8, "big"))


def test_what_comes_before_a_log(root: Path) -> None:
    told = Page(root, "backup").block('{"format":1').strip().encode()
    found = decode_beginning(told)
    assert (found.position, found.next_offset, found.epochs) == (65_536, 1, [(64, 15_388)])
    assert encode_beginning(found) == told


def test_the_progress_of_delay_levels(root: Path) -> None:
    body = Page(root, "delay").block('{"offsets":{').strip().encode()
    progress = DelayProgress({1: 40, 3: 7}, [(1, 40, 12), (3, 7, 1)])
    assert decode_progress(body) == progress
    assert body in progress_draft(progress, 0, bytes(8))


def test_the_filter_workers_frames(root: Path) -> None:
    page = Page(root, "filter-worker")
    head = wire.LENGTH.pack(16) + wire.SOURCE_HEAD.pack(4, 1, 4)
    assert page.bytes("10 00 00 00") == head + b"Glatepass"
    head = wire.LENGTH.pack(24) + wire.REQUEST_HEAD.pack(1, 77, 6)
    assert page.bytes("18 00 00 00") == head + b"orders" + wire.REQUEST_COUNT.pack(0)
    reply = bytearray(page.bytes("02 00 00 00") + bytes(494))
    told = FilterResults(b"\1\0\2", "KeyError: 'age'??!", 40, "raised")
    assert read_filter_results(reply, 2, 3, elapsed_us=100) == told
