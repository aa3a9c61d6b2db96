"""The CURVE keys of a client: from its settings, or else from its environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kourou.client.settings.client_settings import ClientSettings
from kourou.errors import ConfigError
from kourou.transport.curve_keys import ClientCurve, PairFile, ServerKeys

KEY_FILE = "KOUROU_CURVE_KEY_FILE"
SERVER_KEY = "KOUROU_CURVE_SERVER_KEY"


def client_curve(settings: ClientSettings, environment: Mapping[str, str]) -> ClientCurve | None:
    """Return the keys to connect with, or None for clear text. Raises ConfigError if unreadable."""
    own = settings.curve_key_file or environment.get(KEY_FILE, "")
    servers = settings.curve_server_key or environment.get(SERVER_KEY, "")
    if not own and not servers:
        return None
    if not own:
        raise ConfigError(
            f"{SERVER_KEY} is set, but {KEY_FILE} is not",
            hint="a client needs its own pair of keys: kourou keys make FOLDER",
        )
    found = ServerKeys(Path(servers or own), ring=not servers)
    found.check()
    return ClientCurve(PairFile(Path(own)), found)
