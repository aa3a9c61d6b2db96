"""Compressed bodies: zlib, LZ4 frames, Zstandard. Brokers never decompress them.

A compressed body may be a decompression bomb. A message may have up to maxMessageSize before
compression, so that size is always allowed; a larger result must be in proportion to the compressed
size.

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
from kourou.model.message import COMPRESSION_SHIFT, Compression

LEVEL = 5
_KIND_MASK = 7


def compress(kind: Compression, body: bytes, level: int = LEVEL) -> bytes:
    """The compressed body; the caller checks whether it became smaller.

    `level` applies to zlib and Zstandard; RocketMQ's LZ4 has none.
    """
    match kind:
        case Compression.LZ4:
            return bytes(lz4.frame.compress(body))
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(level=level).compress(body)
        case _:
            return zlib.compress(body, level)


def size_limit(compressed_size: int, size_max: int) -> int:
    """The maximum decompressed size in bytes; `size_max`: maxMessageSize."""
    by_ratio = max(compressed_size * DECOMPRESS_RATIO_MAX, size_max)
    return min(by_ratio, size_max * DECOMPRESS_FACTOR_MAX)


def decompress(sys_flag: int, body: bytes, *, size_max: int = BODY_SIZE_BYTES_MAX) -> bytes:
    """The body as it was sent; the type is in bits 8 to 10 of `sys_flag`.

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
    """As `decompress`, in pieces of 1 to `piece_bytes` bytes, each produced on demand.

    A caller that stops early has decompressed no more than that. Raises Corrupt at the position of
    the fault, so a caller that stops before it does not see the error.
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


# Each of these returns up to limit + 1 bytes, and whether the compressed form was complete.


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
    declared = zstandard.frame_content_size(body)
    if declared > limit:
        raise Corrupt(f"body: it would grow to {declared} bytes; at most {limit} are allowed")
    if declared > 0:
        # Allocates exactly the declared size; raises if the frame, including its checksum, is cut.
        return zstandard.ZstdDecompressor().decompress(body), True
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        data = reader.read(limit + 1)
    if len(data) > limit:
        return data, False
    # A stream without a declared size does not report that it was cut: decompress again, now that
    # the size is known to be harmless.
    whole = zstandard.ZstdDecompressor().decompressobj()
    whole.decompress(body)
    return data, whole.eof


# Each of these yields its pieces, and raises Corrupt after the last one of a truncated input.


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
    declared = zstandard.frame_content_size(body)
    if declared > limit:
        raise Corrupt(f"body: it would grow to {declared} bytes; at most {limit} are allowed")
    size = 0
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        while size <= limit and (piece := reader.read(piece_bytes)):
            size += len(piece)
            yield piece
    # As in `_unzstd`: only the other interface reports whether the frame was complete.
    whole = zstandard.ZstdDecompressor().decompressobj()
    whole.decompress(body)
    if not whole.eof:
        raise _cut_off()


def _cut_off() -> Corrupt:
    return Corrupt("body: its compressed form is cut off")
