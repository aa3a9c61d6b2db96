"""What the console watches can be set, in units that people write."""

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou_console.config import ConsoleSettings, SignInMode, WatchKeys
from kourou_console.metrics.alarms import AlarmThresholds


def test_percent_becomes_a_ratio_and_the_defaults_agree() -> None:
    assert WatchKeys().thresholds == AlarmThresholds()
    assert WatchKeys(alarm_disk_percent=90).thresholds.disk_used_ratio == 0.9


def test_users_need_the_key_by_which_brokers_know_the_console(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="signIn=users needs curveKeyFile") as refused:
        ConsoleSettings(sign_in=SignInMode.USERS)
    assert "--role console" in refused.value.hint
    key = tmp_path / "console.key_secret"
    open_to_all = ConsoleSettings(
        sign_in=SignInMode.USERS, curve_key_file=key, bind_address="0.0.0.0"
    )
    assert open_to_all.bind_address == "0.0.0.0"
    with pytest.raises(ConfigError, match="signIn=users"):
        ConsoleSettings(curve_key_file=key, bind_address="0.0.0.0")
