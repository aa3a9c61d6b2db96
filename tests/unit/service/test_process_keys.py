"""What every service may be told, and that nothing of it is open by default."""

from __future__ import annotations

from kourou.engine.settings_registry import SettingsRegistry
from kourou.service.process_keys import ProcessKeys
from kourou.service.settings import setting_specs


def test_nothing_is_open_to_the_network_by_default() -> None:
    keys = ProcessKeys()
    assert (keys.bind_address, keys.admin_host) == ("127.0.0.1", "127.0.0.1")
    assert not keys.insecure_network


def test_none_of_them_can_be_changed_from_afar() -> None:
    registry = SettingsRegistry(setting_specs(ProcessKeys()))
    assert not any(spec.dynamic for spec in registry)
