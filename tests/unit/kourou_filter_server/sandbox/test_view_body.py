"""Compressed bodies inside the sandbox: the same answers as kourou.protocol.record.compression."""

import sys
import zlib

import pytest
import zstandard

from kourou.errors import Corrupt
from kourou.model import limits
from kourou.model.message import Compression
from kourou.protocol.record.compression import compress
from kourou.protocol.record.compression import decompress as outside
from kourou_filter_server.sandbox import view
from kourou_filter_server.sandbox.view import BadRecord, decompress

pytestmark = pytest.mark.usefixtures("prepared")

FLAGS = {kind: 1 | kind << 8 for kind in Compression}


def test_a_stream_that_does_not_tell_its_size() -> None:
    packed = zstandard.ZstdCompressor().compressobj()
    data = packed.compress(b"hello" * 100) + packed.flush()
    assert decompress(FLAGS[Compression.ZSTD], data) == b"hello" * 100
    with pytest.raises(BadRecord):
        decompress(FLAGS[Compression.ZSTD], data[:-3])


@pytest.mark.parametrize("kind", list(Compression))
@pytest.mark.parametrize("change", ["cut", "garbage", "empty"])
def test_damage_is_refused_with_the_words_of_the_outside(kind: Compression, change: str) -> None:
    packed = {"cut": compress(kind, b"hello" * 99)[:-5], "garbage": b"\x07garbage", "empty": b""}
    with pytest.raises(Corrupt) as there:
        outside(FLAGS[kind], packed[change])
    with pytest.raises(BadRecord) as here:
        decompress(FLAGS[kind], packed[change])
    assert str(here.value) == str(there.value)


@pytest.mark.parametrize("kind", list(Compression))
def test_a_bomb_is_refused(kind: Compression) -> None:
    packed = compress(kind, bytes(limits.BODY_SIZE_BYTES_MAX * limits.DECOMPRESS_FACTOR_MAX + 1))
    with pytest.raises(BadRecord, match="grow"):
        decompress(FLAGS[kind], packed)


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(BadRecord, match=r"unknown way \(5\)"):
        decompress(1 | 5 << 8, zlib.compress(b"x"))


@pytest.mark.parametrize(
    ("kind", "named"), [(Compression.LZ4, "no lz4"), (Compression.ZSTD, "no zstandard")]
)
def test_a_codec_that_is_not_installed_is_named(
    kind: Compression, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_modules", {})
    with pytest.raises(BadRecord, match=named):
        decompress(FLAGS[kind], compress(kind, b"x"))


def test_codecs_are_looked_for_in_their_directories_only(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(view, "_modules", {})
    for name in [name for name in sys.modules if name.partition(".")[0] in ("lz4", "zstandard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    view.load_codecs([str(tmp_path)])
    assert (view._modules, sys.path) == ({}, [])
