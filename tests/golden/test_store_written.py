"""A store that we write has the files of a RocketMQ store: RocketMQ 4.9.8 can take it back."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kourou.model.message import parse_delay_levels
from kourou.store.real_disk import RealDisk
from kourou.store.store import Store
from kourou_rigs.store import small_settings

GOLDEN = Path(__file__).parent / "rocketmq-4.9.8/store-clean"
END = 7183


def files_of(root: Path) -> dict[str, bytes]:
    """Everything but the tables, which have tests of their own; an index is named by its time."""
    return {
        "index" if path.parent.name == "index" else str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.relative_to(root).parts[0] not in ("config", "kourou")
    }


def with_plain_codes(units: bytes, extended: bytes) -> bytes:
    """A queue file with tag codes in place of addresses into consumequeue_ext."""
    plain = b""
    for position, size, code in struct.iter_unpack(">qiq", units):
        if code < -(2**31):
            code = int.from_bytes(extended[code + 2**63 + 2 :][:8], "big", signed=True)
        plain += struct.pack(">qiq", position, size, code)
    return plain


@pytest.mark.feature("F064", "F069", "F077")
def test_the_same_records_give_the_same_files(tmp_path: Path) -> None:
    theirs = files_of(GOLDEN)
    for name in [name for name in theirs if name.startswith("consumequeue_ext")]:
        extended, queue = theirs.pop(name), name.replace("_ext", "")
        theirs[queue] = with_plain_codes(theirs[queue], extended)
    levels_ms = parse_delay_levels("1s 2s 3s 4s 5s")
    store = Store.open(small_settings(tmp_path, delay_levels_ms=levels_ms), RealDisk())
    store.append([(0, theirs["commitlog/" + "0" * 20][:END])], [], END)
    store.dispatch()
    store.close()
    assert files_of(tmp_path) == theirs
