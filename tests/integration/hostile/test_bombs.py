"""Bodies that are small and become large: nothing that receives one spends memory on it."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard

from kourou.errors import Code, Corrupt
from kourou.model.message import COMPRESSION_SHIFT, Compression, SysFlag
from kourou.protocol.record.layout import parts_of
from kourou.protocol.record.message_record import decode_record
from kourou_rigs.attacked import Attacked

SIZE = 256 << 20
ROOM = 128 << 20
"""More than the limit of a decompressed body, with the copies of a codec; half of a bomb."""

CODECS = {
    Compression.ZLIB: lambda: zlib.compress(bytes(SIZE), 9),
    Compression.LZ4: lambda: bytes(lz4.frame.compress(bytes(SIZE))),
    Compression.ZSTD: lambda: zstandard.compress(bytes(SIZE)),
}


def item(body: bytes) -> bytes:
    """A message of a batch."""
    properties = b"KEYS\x01k"
    size = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(properties)
    return (
        struct.pack(">5I", size, 0, 0, 0, len(body))
        + body
        + struct.pack(">H", len(properties))
        + properties
    )


@pytest.mark.fault
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
async def test_a_bomb_is_stored_as_it_is_and_refused_where_it_is_read(
    attacked: Attacked, codec: Compression
) -> None:
    bomb = CODECS[codec]()
    assert len(bomb) < SIZE // 100
    flag = int(SysFlag.COMPRESSED) | codec << COMPRESSION_SHIFT
    tracemalloc.start()
    try:
        alone = await attacked.send(bomb, f=flag)
        batched = await attacked.send(item(bomb) + item(bomb), f=flag, m="true")
        codes = {alone.code, batched.code}
        positions = [
            int(text[16:], 16)
            for reply in (alone, batched)
            if reply.code == Code.SUCCESS
            for text in (reply.ext_fields or {})["msgId"].split(",")
        ]
        for position in positions:
            record = bytes((await attacked.say(33, offset=position)).body)
            assert parts_of(record, 0, len(record)).sys_flag & int(SysFlag.COMPRESSED)
            with pytest.raises(Corrupt, match="grow"):
                decode_record(record)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert codes <= {Code.SUCCESS, Code.MESSAGE_ILLEGAL}
    assert alone.code == Code.SUCCESS
    assert peak < ROOM
    await attacked.serves()


@pytest.mark.fault
async def test_json_that_names_much_and_holds_nothing(attacked: Attacked) -> None:
    """A heartbeat of a few megabytes is read or refused, in time for everybody else."""
    many = [{"groupName": f"g{number}"} for number in range(100_000)]
    for body in (
        {"clientID": "c", "producerDataSet": many},
        {"clientID": "c", "producerDataSet": many[:2_000]},
        {"clientID": "c", "consumerDataSet": many},
        {
            "clientID": "c",
            "consumerDataSet": [
                {
                    "groupName": "g",
                    "subscriptionDataSet": [
                        {"topic": f"t{number}", "subString": "*"} for number in range(50_000)
                    ],
                }
            ],
        },
    ):
        reply = await attacked.say(34, json.dumps(body).encode())
        assert reply.code != Code.SUCCESS
        assert len(reply.remark or "") < 2_000
    assert len(attacked.view.control.groups.table) < 100
    await attacked.serves()
