"""What every service may be told, and that nothing of it is open by default."""

from __future__ import annotations

import pytest

from kourou.engine.settings_registry import SettingsRegistry
from kourou.errors import ConfigError
from kourou.service.process_keys import ProcessKeys
from kourou.service.settings import setting_specs


def test_nothing_is_open_to_the_network_by_default() -> None:
    keys = ProcessKeys()
    assert (keys.bind_address, keys.admin_host) == ("127.0.0.1", "127.0.0.1")
    assert not keys.insecure_network


@pytest.mark.parametrize("key", ["bind_address", "admin_host"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "*", "192.0.2.1"])
def test_an_address_open_to_the_network_must_be_wanted(key: str, host: str) -> None:
    with pytest.raises(ConfigError, match="insecureNetwork"):
        ProcessKeys(**{key: host}).check_process()
    ProcessKeys(**{key: host}, insecure_network=True).check_process()


def test_pages_that_are_not_served_are_open_to_nobody() -> None:
    ProcessKeys(admin_host="0.0.0.0", admin_enabled=False).check_process()


def test_none_of_them_can_be_changed_from_afar() -> None:
    registry = SettingsRegistry(setting_specs(ProcessKeys()))
    assert not any(spec.dynamic for spec in registry)
