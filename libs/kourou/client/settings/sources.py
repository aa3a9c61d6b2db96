"""Loading of client settings from values, the environment and a file.

    consumer = load_settings(
        ConsumerSettings, {"consumeThreadMax": 40}, file="client.properties", environment=os.environ
    )

    values  >  environment (KOUROU_ + KEY_IN_CAPITALS)  >  file  >  default

One file may contain the settings of a whole application: keys of other settings classes are ignored
here. A key that no class has is refused with the nearest known one, so that a typing error is not
silently ignored. By itself a client reads no file, and from the environment only its name server
address (kourou.client.session.discovery), its CURVE keys (kourou.client.session.client_keys) and
OpenTelemetry's variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from kourou.client.settings.client_settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.client.settings.declaration import Settings, unknown_key
from kourou.errors import ConfigError
from kourou.model.limits import SETTINGS_FILE_BYTES_MAX
from kourou.model.refused_settings import refused_setting
from kourou.protocol.wire.properties_text import read_properties

KINDS: tuple[type[Settings], ...] = (
    ClientSettings,
    ProducerSettings,
    ConsumerSettings,
    PullConsumerSettings,
)
SettingsT = TypeVar("SettingsT", bound=Settings)


def load_settings(
    kind: type[SettingsT],
    values: Mapping[str, Any] | None = None,
    *,
    file: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
) -> SettingsT:
    """Return settings of one class from these sources; keys are RocketMQ's, or in its style.

    `file` is in the properties format. Texts in `values` and `environment` are parsed as in the
    file. Raises ConfigError, which names the source and the key, for invalid settings.
    """
    found: dict[str, Any] = {}
    if file is not None:
        found |= _of_kind(kind, _read(Path(file)), str(file))
    for key in kind.by_key():
        text = (environment or {}).get(environment_name(key))
        if text is not None:
            found[key] = text
    found |= _of_kind(kind, values or {}, "the given values")
    return kind.from_rocketmq(**found)


def environment_name(key: str) -> str:
    """Return KOUROU_ and the key in capitals: sendMsgTimeout is KOUROU_SEND_MSG_TIMEOUT."""
    words = ["KOUROU_"]
    for at, char in enumerate(key):
        before, after = key[at - 1 : at], key[at + 1 : at + 2]
        starts_word = char.isupper() and (
            before.islower() or before.isdigit() or (before.isupper() and after.islower())
        )
        words.append(("_" if starts_word else "") + char.upper())
    return "".join(words)


def _of_kind(kind: type[Settings], given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the settings for `kind`. Raises ConfigError for a key that no class has."""
    own = kind.by_key()
    wanted: dict[str, Any] = {}
    for key, value in given.items():
        if refused_setting(key) is not None or key in own or key in kind.inert_keys:
            wanted[key] = value
        elif not any(key in other.by_key() or key in other.inert_keys for other in KINDS):
            known = {name: item for other in KINDS for name, item in other.by_key().items()}
            raise unknown_key(source, key, known)
    return wanted


def _read(file: Path) -> dict[str, str]:
    try:
        with file.open("rb") as opened:
            data = opened.read(SETTINGS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"the settings in {file} cannot be read: {error.strerror}") from error
    if len(data) > SETTINGS_FILE_BYTES_MAX:
        raise ConfigError(
            f"{file} is larger than {SETTINGS_FILE_BYTES_MAX} bytes; it is not a settings file"
        )
    try:
        return read_properties(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", hint=error.hint) from error
