"""A client's keys: its settings first, then its environment, and never half of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.client.session.client_keys import KEY_FILE, SERVER_KEY, client_curve
from kourou.client.settings.client_settings import ClientSettings
from kourou.errors import ConfigError
from kourou.service.process_keys import ProcessKeys
from kourou.settings.declaration import environment_name, settings_of
from kourou.transport.curve_keys import PublicKey, make_pair, read_pair, write_ring


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("own", "other", "server"):
        make_pair(tmp_path, name)
    return tmp_path


def test_without_any_it_is_clear_text() -> None:
    assert client_curve(ClientSettings(), {}) is None


def test_settings_are_above_the_environment(folder: Path) -> None:
    environment = {
        KEY_FILE: str(folder / "other.key_secret"),
        SERVER_KEY: str(folder / "server.key"),
    }
    found = client_curve(ClientSettings(), environment)
    assert found is not None
    assert found.own.pair == read_pair(folder / "other.key_secret")
    assert found.servers.of("anywhere:1") == (read_pair(folder / "server.key_secret").public,)
    chosen = ClientSettings(curve_key_file=str(folder / "own.key_secret"))
    found = client_curve(chosen, environment)
    assert found is not None
    assert found.own.pair == read_pair(folder / "own.key_secret")


def test_half_of_them_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=f"{SERVER_KEY} is set, but {KEY_FILE} is not"):
        client_curve(ClientSettings(), {SERVER_KEY: str(folder / "own.key")})
    with pytest.raises(ConfigError, match="holds no public key of a server"):
        client_curve(ClientSettings(), {KEY_FILE: str(folder / "own.key_secret")})


def test_a_ring_is_all_that_it_needs(folder: Path) -> None:
    own, server = read_pair(folder / "own.key_secret"), read_pair(folder / "server.key_secret")
    other = read_pair(folder / "other.key_secret")
    ring = folder / "own.ring"
    write_ring(ring, own, [PublicKey(server.public, ("a:1",)), PublicKey(other.public, ("b:1",))])
    found = client_curve(ClientSettings(), {KEY_FILE: str(ring)})
    assert found is not None
    assert (found.own.pair, found.servers.of("a:1")) == (own, (server.public,))
    assert found.servers.of("b:1") == (other.public,)
    with pytest.raises(ConfigError, match="no public key is known"):
        found.servers.of("c:1")


def test_what_cannot_be_read_is_said_before_anybody_is_dialled(folder: Path) -> None:
    gone = folder / "gone"
    settings = ClientSettings(curve_key_file=str(gone), curve_server_key=str(folder / "server.key"))
    with pytest.raises(ConfigError, match=str(gone)):
        client_curve(settings, {})
    settings = ClientSettings(
        curve_key_file=str(folder / "own.key_secret"), curve_server_key=str(gone)
    )
    with pytest.raises(ConfigError, match=str(gone)):
        client_curve(settings, {})


def test_clients_and_services_call_them_the_same() -> None:
    services = {spec.key: spec.environment_name for spec in settings_of(ProcessKeys)}
    clients = {key: environment_name(key) for key in ClientSettings.by_key() if "curve" in key}
    assert clients == {"curveKeyFile": KEY_FILE, "curveServerKey": SERVER_KEY}
    assert clients.items() <= services.items()
