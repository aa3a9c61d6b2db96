"""Compressed bodies: zlib, LZ4 frames, Zstandard (fact sheet §4.4). Brokers never look inside.

A body that is compressed may be a bomb: what it grows to is bounded before it is made.
"""

from __future__ import annotations

import zlib

import lz4.frame
import zstandard

from kourou.errors import Corrupt
from kourou.model.limits import (
    BODY_SIZE_BYTES_MAX,
    DECOMPRESS_FACTOR_MAX,
    DECOMPRESS_RATIO_MAX,
)
from kourou.model.sysflag import COMPRESSION_SHIFT, Compression

LEVEL = 5


def compress(kind: Compression, body: bytes, level: int = LEVEL) -> bytes:
    """The compressed body; whether it became smaller is for the caller to see."""
    match kind:
        case Compression.LZ4:
            return bytes(lz4.frame.compress(body))
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(level=level).compress(body)
        case _:
            return zlib.compress(body, level)


def size_limit(compressed_size: int, size_max: int) -> int:
    """How much a body of this compressed size may grow to, in bytes."""
    by_ratio = max(compressed_size * DECOMPRESS_RATIO_MAX, 64 * 1024)
    return min(by_ratio, size_max * DECOMPRESS_FACTOR_MAX)


def decompress(sys_flag: int, body: bytes, *, size_max: int = BODY_SIZE_BYTES_MAX) -> bytes:
    """The body as it was sent; the type stands in bits 8 to 10 of `sys_flag`.

    Raises Corrupt for bytes that are not of that type, that end early, or that grow beyond the
    limit.
    """
    kind = (sys_flag >> COMPRESSION_SHIFT) & 7
    limit = size_limit(len(body), size_max)
    try:
        if kind in (Compression.ZLIB, Compression.ZLIB_UNMARKED):
            return _inflate(body, limit)
        if kind == Compression.LZ4:
            return _unlz4(body, limit)
        if kind == Compression.ZSTD:
            return _unzstd(body, limit)
    except (zlib.error, RuntimeError, zstandard.ZstdError, EOFError) as error:
        raise Corrupt(f"the compressed body cannot be read: {error}") from error
    raise Corrupt(f"the body is compressed in an unknown way ({kind})")


def _too_large(limit: int) -> Corrupt:
    return Corrupt(f"the body would grow beyond {limit} bytes when it is decompressed")


def _inflate(body: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, limit)
    if inflater.unconsumed_tail and inflater.decompress(inflater.unconsumed_tail, 1):
        raise _too_large(limit)
    if not inflater.eof:
        raise Corrupt("the compressed body is cut off")
    return data


def _unlz4(body: bytes, limit: int) -> bytes:
    inflater = lz4.frame.LZ4FrameDecompressor()
    data = bytes(inflater.decompress(body, max_length=limit))
    if not inflater.eof:
        if len(data) >= limit:
            raise _too_large(limit)
        raise Corrupt("the compressed body is cut off")
    return data


def _unzstd(body: bytes, limit: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        data = reader.read(limit + 1)
    if len(data) > limit:
        raise _too_large(limit)
    return data
