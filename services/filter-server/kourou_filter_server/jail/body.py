"""Decompresses message bodies inside the sandbox: zlib, LZ4 frames, Zstandard.

A filter sees what a consumer sees, so the rules are those of kourou.protocol.record.compression.
They are implemented again because the sandbox contains no other code of Kourou; a test compares the
two. LZ4 and Zstandard are not in the standard library: they are available if the zygote found them.
A body whose codec is missing causes an error that names the codec.

State: soft; the codecs are loaded before the first worker is forked.

Invariant: decompressing allocates no more than the limit, and raises only BadRecord and
MemoryError.
"""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any

BODY_SIZE_BYTES_MAX = 4 * 1024 * 1024
DECOMPRESS_RATIO_MAX = 100
DECOMPRESS_FACTOR_MAX = 8
"""The same value as in kourou.model.limits."""

_SHIFT = 8
_KIND_MASK = 7
_ZLIB_UNMARKED, _LZ4, _ZSTD, _ZLIB = range(4)

_modules: dict[int, Any] = {}


class BadRecord(Exception):
    """The bytes are not a valid record, or cannot be decompressed here."""


def load_codecs(paths: Sequence[str]) -> None:
    """Import lz4.frame and zstandard from `paths`, if they exist; once, outside the sandbox."""
    before = list(sys.path)
    sys.path.extend(paths)
    try:
        for kind, name in ((_LZ4, "lz4.frame"), (_ZSTD, "zstandard")):
            try:
                _modules[kind] = importlib.import_module(name)
            except ImportError:
                # Not installed: `decompress` reports it for the first body that needs it.
                _modules.pop(kind, None)
    finally:
        sys.path[:] = before


def decompress(sys_flag: int, body: bytes) -> bytes:
    """The decompressed body; bits 8 to 10 of `sys_flag` are the codec.

    Raises BadRecord if the bytes are not of that codec, end early or exceed the limit, and if the
    codec is unknown or not installed.
    """
    kind = (sys_flag >> _SHIFT) & _KIND_MASK
    by_ratio = max(len(body) * DECOMPRESS_RATIO_MAX, BODY_SIZE_BYTES_MAX)
    limit = min(by_ratio, BODY_SIZE_BYTES_MAX * DECOMPRESS_FACTOR_MAX)
    try:
        data, whole = _inflater(kind)(body, limit)
    except (MemoryError, BadRecord):
        raise
    except Exception as error:  # noqa: BLE001 - of third-party codecs, see below
        # Each codec has its own errors, and two of the three cannot be imported by name here.
        raise BadRecord(f"body: it cannot be decompressed: {error}") from None
    if len(data) > limit:
        raise BadRecord(f"body: it would grow beyond {limit} bytes when it is decompressed")
    if not whole:
        raise BadRecord("body: its compressed form is cut off")
    return data


_Inflate = Callable[[bytes, int], tuple[bytes, bool]]
"""Returns up to limit + 1 bytes, and whether the compressed data was complete."""


def _inflater(kind: int) -> _Inflate:
    if kind in (_ZLIB, _ZLIB_UNMARKED):
        return _inflate
    found = {_LZ4: ("LZ4", "lz4", _unlz4), _ZSTD: ("Zstandard", "zstandard", _unzstd)}.get(kind)
    if found is None:
        raise BadRecord(f"body: it is compressed in an unknown way ({kind})")
    name, package, inflate = found
    if kind not in _modules:
        raise BadRecord(
            f"body: it is compressed with {name}, but this filter server has no "
            f"{package}: install the Python package {package}"
        )
    return inflate


def _inflate(body: bytes, limit: int) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, limit + 1)
    if not inflater.eof and len(data) <= limit:
        data += inflater.decompress(inflater.unconsumed_tail, limit + 1 - len(data))
    return data, inflater.eof


def _unlz4(body: bytes, limit: int) -> tuple[bytes, bool]:
    inflater = _modules[_LZ4].LZ4FrameDecompressor()
    data = bytes(inflater.decompress(body, max_length=limit + 1))
    return data, bool(inflater.eof)


def _unzstd(body: bytes, limit: int) -> tuple[bytes, bool]:
    codec = _modules[_ZSTD]
    told = codec.frame_content_size(body)
    if told > limit:
        raise BadRecord(f"body: it would grow to {told} bytes; at most {limit} are allowed")
    if told > 0:
        # Allocates exactly the declared size; raises if the frame, including its checksum, is
        # incomplete.
        return bytes(codec.ZstdDecompressor().decompress(body)), True
    with codec.ZstdDecompressor().stream_reader(body) as reader:
        data = bytes(reader.read(limit + 1))
    if len(data) > limit:
        return data, False
    # Without a declared size, the reader does not report an incomplete stream. Decompress again to
    # check this; the size is known to be within the limit now.
    whole = codec.ZstdDecompressor().decompressobj()
    whole.decompress(body)
    return data, bool(whole.eof)
