"""Compressed bodies: zlib, LZ4 frames, Zstandard (fact sheet §4.4). Brokers never look inside.

A compressed body may be a bomb. What maxMessageSize allows was a message before it was compressed,
so that much is always let through; a body that grows beyond must do so in proportion to its size.

Invariant: decompressing allocates no more than the limit, and raises nothing but Corrupt.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

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
_KIND_MASK = 7


def compress(kind: Compression, body: bytes, level: int = LEVEL) -> bytes:
    """The compressed body; whether it became smaller is for the caller to see.

    `level` counts for zlib and Zstandard; RocketMQ's LZ4 has none.
    """
    match kind:
        case Compression.LZ4:
            return bytes(lz4.frame.compress(body))
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(level=level).compress(body)
        case _:
            return zlib.compress(body, level)


def size_limit(compressed_size: int, size_max: int) -> int:
    """How much a body of this compressed size may grow to, in bytes; `size_max`: maxMessageSize."""
    by_ratio = max(compressed_size * DECOMPRESS_RATIO_MAX, size_max)
    return min(by_ratio, size_max * DECOMPRESS_FACTOR_MAX)


def decompress(sys_flag: int, body: bytes, *, size_max: int = BODY_SIZE_BYTES_MAX) -> bytes:
    """The body as it was sent; the type stands in bits 8 to 10 of `sys_flag`.

    Raises Corrupt for bytes that are not of that type, that end early, or that grow beyond the
    limit.
    """
    kind = (sys_flag >> COMPRESSION_SHIFT) & _KIND_MASK
    limit = size_limit(len(body), size_max)
    try:
        if kind in (Compression.ZLIB, Compression.ZLIB_UNMARKED):
            data, whole = _inflate(body, limit)
        elif kind == Compression.LZ4:
            data, whole = _unlz4(body, limit)
        elif kind == Compression.ZSTD:
            data, whole = _unzstd(body, limit)
        else:
            raise Corrupt(f"body: it is compressed in an unknown way ({kind})")
    except (zlib.error, RuntimeError, zstandard.ZstdError, EOFError) as error:
        raise Corrupt(f"body: it cannot be decompressed: {error}") from error
    if len(data) > limit:
        raise Corrupt(f"body: it would grow beyond {limit} bytes when it is decompressed")
    if not whole:
        raise _cut_off()
    return data


def pieces(
    sys_flag: int, body: bytes, piece_bytes: int, *, size_max: int = BODY_SIZE_BYTES_MAX
) -> Iterator[bytes]:
    """As `decompress`, in pieces of 1 to `piece_bytes` bytes, each made when it is asked for.

    Who stops asking has inflated no more than that. Raises Corrupt where it comes upon the fault,
    so whoever does not come so far may not hear of it.
    """
    kind = (sys_flag >> COMPRESSION_SHIFT) & _KIND_MASK
    limit = size_limit(len(body), size_max)
    if kind in (Compression.ZLIB, Compression.ZLIB_UNMARKED):
        made = _inflate_pieces(body, piece_bytes)
    elif kind == Compression.LZ4:
        made = _unlz4_pieces(body, piece_bytes)
    elif kind == Compression.ZSTD:
        made = _unzstd_pieces(body, piece_bytes, limit)
    else:
        raise Corrupt(f"body: it is compressed in an unknown way ({kind})")
    size = 0
    try:
        for piece in made:
            size += len(piece)
            if size > limit:
                raise Corrupt(f"body: it would grow beyond {limit} bytes when it is decompressed")
            yield piece
    except (zlib.error, RuntimeError, zstandard.ZstdError, EOFError) as error:
        raise Corrupt(f"body: it cannot be decompressed: {error}") from error


# Each of these gives up to limit + 1 bytes, and whether the compressed form was complete.


def _inflate(body: bytes, limit: int) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, limit + 1)
    if not inflater.eof and len(data) <= limit:
        data += inflater.decompress(inflater.unconsumed_tail, limit + 1 - len(data))
    return data, inflater.eof


def _unlz4(body: bytes, limit: int) -> tuple[bytes, bool]:
    inflater = lz4.frame.LZ4FrameDecompressor()
    data = bytes(inflater.decompress(body, max_length=limit + 1))
    return data, bool(inflater.eof)


def _unzstd(body: bytes, limit: int) -> tuple[bytes, bool]:
    told = zstandard.frame_content_size(body)
    if told > limit:
        raise Corrupt(f"body: it would grow to {told} bytes; at most {limit} are allowed")
    if told > 0:
        # Room for what was told and no more; raises if the frame, its checksum included, is cut.
        return zstandard.ZstdDecompressor().decompress(body), True
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        data = reader.read(limit + 1)
    if len(data) > limit:
        return data, False
    # A stream that does not say its size does not say either that it was cut: ask again, now that
    # the size is known to be harmless.
    whole = zstandard.ZstdDecompressor().decompressobj()
    whole.decompress(body)
    return data, whole.eof


# Each of these gives its pieces, and raises Corrupt behind the last one of what was cut off.


def _inflate_pieces(body: bytes, piece_bytes: int) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    rest = body
    while not inflater.eof:
        piece = inflater.decompress(rest, piece_bytes)
        rest = inflater.unconsumed_tail
        if piece:
            yield piece
        elif not inflater.eof:
            raise _cut_off()


def _unlz4_pieces(body: bytes, piece_bytes: int) -> Iterator[bytes]:
    inflater = lz4.frame.LZ4FrameDecompressor()
    piece = bytes(inflater.decompress(body, max_length=piece_bytes))
    while True:
        if piece:
            yield piece
        if inflater.eof:
            return
        if inflater.needs_input:
            raise _cut_off()
        piece = bytes(inflater.decompress(b"", max_length=piece_bytes))


def _unzstd_pieces(body: bytes, piece_bytes: int, limit: int) -> Iterator[bytes]:
    told = zstandard.frame_content_size(body)
    if told > limit:
        raise Corrupt(f"body: it would grow to {told} bytes; at most {limit} are allowed")
    size = 0
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        while size <= limit and (piece := reader.read(piece_bytes)):
            size += len(piece)
            yield piece
    # As in `_unzstd`: only the other face tells whether the frame was whole.
    whole = zstandard.ZstdDecompressor().decompressobj()
    whole.decompress(body)
    if not whole.eof:
        raise _cut_off()


def _cut_off() -> Corrupt:
    return Corrupt("body: its compressed form is cut off")
