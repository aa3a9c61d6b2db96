"""Layouts that both sides share."""

from kourou_filter_server.sandbox import wire


def test_a_reason_has_its_width_and_is_cut_between_characters() -> None:
    assert wire.padded("") == bytes(512)
    assert wire.padded("no\0way") == b"no way".ljust(512, b"\0")
    cut = wire.padded("x" + "é" * 400)
    assert len(cut) == 512
    assert cut.rstrip(b"\0").decode() == "x" + "é" * 255
    assert wire.padded("\ud800") == b"?".ljust(512, b"\0")
