"""The JSON body of GET_BROKER_CONFIG with `described`: a broker's settings with descriptions.

{"settings":[{"name":"maxMessageSize","value":"4194304","configured":"4194304","kind":"integer",
              "about":"…","changeable":true,"whyNot":"","minimum":1,"maximum":…,"choices":[]}]}
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kourou.protocol.request import Int64
from kourou.protocol.wire.json_bodies import Buffer, malformed


class SettingView(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """One setting of a broker.

    `value` is the effective value, `configured` that of the file, or the default: they differ if an
    operator changed it. `kind` is boolean, integer or text. `changeable`: while the broker runs;
    `why_not` is the reason if it is not. `minimum` and `maximum` are None if there is no limit.
    """

    name: str
    value: str
    configured: str
    kind: str
    about: str = ""
    changeable: bool = False
    why_not: str = ""
    minimum: Int64 | None = None
    maximum: Int64 | None = None
    choices: tuple[str, ...] = ()


class _SettingsShape(msgspec.Struct, frozen=True):
    settings: list[SettingView]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_SettingsShape).decode


def encode_setting_views(settings: Iterable[SettingView]) -> bytes:
    """The body of a reply."""
    return _encode(_SettingsShape(list(settings)))


def decode_setting_views(body: Buffer) -> list[SettingView]:
    """The settings in such a body. Raises DecodeError."""
    try:
        return _decode(body).settings
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed("description of settings", error) from error
