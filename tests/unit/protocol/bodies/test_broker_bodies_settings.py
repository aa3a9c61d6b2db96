"""What a broker tells of its settings, as bytes."""

from __future__ import annotations

import json

import pytest

from kourou.errors import DecodeError
from kourou.protocol.bodies.broker_bodies import (
    SettingView,
    decode_setting_views,
    encode_setting_views,
)

TOLD = SettingView(
    name="fileReservedTime",
    value="100",
    configured="72",
    kind="integer",
    about="hours",
    changeable=True,
    minimum=1,
    choices=("1", "100"),
)


def test_it_comes_back_as_it_was() -> None:
    assert decode_setting_views(encode_setting_views([TOLD])) == [TOLD]
    assert json.loads(encode_setting_views([TOLD]))["settings"][0]["whyNot"] == ""


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"brokerName=broker-a\n", b'{"settings":[{"name":1}]}', b"\xff"]
)
def test_what_is_no_such_body_is_a_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_setting_views(body)
