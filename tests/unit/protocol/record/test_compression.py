"""Compression: what goes in comes out, and nothing hostile gets far."""

import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Corrupt
from kourou.model.message import COMPRESSION_SHIFT, Compression, SysFlag
from kourou.protocol.record.compression import compress, decompress, pieces, size_limit

KINDS = list(Compression)


def flag(kind: int) -> int:
    return int(SysFlag.COMPRESSED) | kind << COMPRESSION_SHIFT


@pytest.mark.feature("F171")
@pytest.mark.parametrize("kind", KINDS)
@given(body=st.binary(max_size=300) | st.binary(max_size=3).map(lambda piece: piece * 3000))
def test_what_goes_in_comes_out(kind: Compression, body: bytes) -> None:
    assert decompress(flag(kind), compress(kind, body)) == body


def test_zlib_is_written_as_java_writes_it() -> None:
    body = b"z" * 5000
    assert compress(Compression.ZLIB, body) == zlib.compress(body, 5)
    assert decompress(769, zlib.compress(body, 9)) == body
    assert decompress(1, zlib.compress(body)) == body


def streamed(body: bytes) -> bytes:
    """Zstandard as a stream writes it: without telling the size."""
    squeezer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return squeezer.compress(body) + squeezer.flush()


def test_a_zstandard_stream_without_its_size() -> None:
    assert decompress(flag(2), streamed(b"abc" * 9000)) == b"abc" * 9000


def summed(body: bytes, *, declared: bool) -> bytes:
    """Zstandard with a checksum behind the data."""
    squeezer = zstandard.ZstdCompressor(write_checksum=True, write_content_size=declared)
    if declared:
        return squeezer.compress(body)
    stream = squeezer.compressobj()
    return stream.compress(body) + stream.flush()


FORMS = [
    (Compression.ZLIB, zlib.compress(bytes(range(256)) * 20)),
    (Compression.LZ4, lz4.frame.compress(bytes(range(256)) * 20)),
    (Compression.ZSTD, zstandard.compress(bytes(range(256)) * 20)),
    (Compression.ZSTD, streamed(bytes(range(256)) * 20)),
    (Compression.ZSTD, summed(bytes(range(256)) * 20, declared=True)),
    (Compression.ZSTD, summed(bytes(range(256)) * 20, declared=False)),
]


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_a_cut_form_is_corrupt(kind: Compression, form: bytes) -> None:
    assert decompress(flag(kind), form) == bytes(range(256)) * 20
    for length in range(len(form)):
        with pytest.raises(Corrupt):
            decompress(flag(kind), form[:length])


@pytest.mark.parametrize("declared", [True, False])
def test_a_frame_of_zstandard_is_cut_if_its_checksum_is(declared: bool) -> None:
    for body in (b"", b"abc" * 100):
        form = summed(body, declared=declared)
        assert decompress(flag(2), form) == body
        for missing in (1, 4):
            with pytest.raises(Corrupt):
                decompress(flag(2), form[:-missing])


@pytest.mark.fuzz
@pytest.mark.parametrize(("kind", "form"), FORMS)
@given(at=st.integers(0, 10_000), flip=st.integers(1, 255), extra=st.binary(max_size=4))
def test_damage_raises_nothing_but_corrupt(
    kind: Compression, form: bytes, at: int, flip: int, extra: bytes
) -> None:
    damaged = bytearray(form)
    damaged[at % len(form)] ^= flip
    try:
        body = decompress(flag(kind), bytes(damaged) + extra, size_max=9000)
    except Corrupt:
        return
    assert len(body) <= 72_000


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", [1, 2, 3])
@given(form=st.binary(max_size=80))
def test_noise_raises_nothing_but_corrupt(kind: int, form: bytes) -> None:
    try:
        decompress(flag(kind), form, size_max=1000)
    except Corrupt:
        return


@pytest.mark.parametrize(
    ("kind", "make"),
    [(3, zlib.compress), (1, lz4.frame.compress), (2, zstandard.compress), (2, streamed)],
)
def test_a_bomb_is_what_grows_beyond_the_message_limit(
    kind: int, make: Callable[[bytes], bytes]
) -> None:
    """However well a body within the limit compresses, it is none."""
    assert decompress(flag(kind), make(bytes(100_000)), size_max=100_000) == bytes(100_000)
    with pytest.raises(Corrupt, match="would grow"):
        decompress(flag(kind), make(bytes(5_000_000)), size_max=10_000)


def test_the_limit_follows_the_compressed_size() -> None:
    assert size_limit(10, 4096) == 4096
    assert size_limit(100, 4096) == 10_000
    assert size_limit(10_000, 4096) == 8 * 4096


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_an_unknown_way_is_corrupt(kind: int) -> None:
    with pytest.raises(Corrupt, match="unknown way"):
        decompress(flag(kind), b"x")


def in_pieces(kind: int, body: bytes, piece_bytes: int) -> bytes:
    found = list(pieces(flag(kind), body, piece_bytes))
    assert all(0 < len(one) <= piece_bytes for one in found)
    return b"".join(found)


@pytest.mark.parametrize("kind", KINDS)
@given(
    body=st.binary(max_size=300) | st.binary(max_size=3).map(lambda piece: piece * 3000),
    piece_bytes=st.integers(1, 4_000),
)
def test_pieces_are_the_whole(kind: Compression, body: bytes, piece_bytes: int) -> None:
    assert in_pieces(kind, compress(kind, body), piece_bytes) == body
    assert in_pieces(2, streamed(body), piece_bytes) == body


@pytest.mark.parametrize(("kind", "body"), FORMS)
@pytest.mark.parametrize("piece_bytes", [7, 5_120, 100_000])
def test_pieces_of_what_is_cut_off_end_in_an_error(
    kind: Compression, body: bytes, piece_bytes: int
) -> None:
    for size in range(len(body)):
        with pytest.raises(Corrupt):
            in_pieces(kind, body[:size], piece_bytes)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_a_bomb_end_at_the_limit(kind: Compression) -> None:
    body = compress(kind, bytes(1 << 20))
    limit = size_limit(len(body), 10)
    sizes: list[int] = []
    with pytest.raises(Corrupt, match="grow"):
        sizes.extend(map(len, pieces(flag(kind), body, 7, size_max=10)))
    assert sum(sizes) <= limit
    with pytest.raises(Corrupt, match="unknown way"):
        next(pieces(flag(7), b"x", 10))
