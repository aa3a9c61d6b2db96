"""Bits of a record's SYSFLAG (RocketMQ `MessageSysFlag`)."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class SysFlag(IntFlag):
    """What the broker must know of a message without parsing it."""

    NONE = 0
    COMPRESSED = 1
    MULTI_TAGS = 2
    TRANSACTION_PREPARED = 4
    TRANSACTION_COMMIT = 8
    TRANSACTION_ROLLBACK = 12
    TRANSACTION_MASK = 12
    BORN_HOST_V6 = 16
    STORE_HOST_V6 = 32


COMPRESSION_SHIFT = 8
COMPRESSION_MASK = 0x7 << COMPRESSION_SHIFT


class Compression(IntEnum):
    """Three bits at `COMPRESSION_SHIFT`; 0 is what clients before 4.9.4 write for zlib."""

    ZLIB_UNMARKED = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3
