"""What the console watches can be set, in units that people write."""

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.transport.tls import TlsMode
from kourou_console.config import ConsoleSettings, SignInMode, WatchKeys
from kourou_console.metrics.alarms import AlarmThresholds
from kourou_rigs.certificates import Authority


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


def test_addresses_over_tls_have_an_authority_that_can_be_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "own")
    trust = authority.path
    settings = ConsoleSettings(spark_etl_address="https://etl:18281", tls_client_trust_path=trust)
    assert settings.client_tls.trust == trust
    with pytest.raises(ConfigError, match="gone cannot be read"):
        ConsoleSettings(spark_etl_address="https://etl:1", tls_client_trust_path=tmp_path / "gone")
    with pytest.raises(ConfigError, match="does not begin with https://"):
        ConsoleSettings(spark_etl_address="etl:18281", tls_client_trust_path=trust)
    with pytest.raises(ConfigError, match="sparkEtlAddress"):
        ConsoleSettings(spark_etl_address="https://etl")
    certificate, _ = authority.pair("console")
    with pytest.raises(ConfigError, match="belong together"):
        ConsoleSettings(spark_etl_address="https://etl:1", tls_client_cert_path=certificate)


def test_a_console_is_not_permissive(tmp_path: Path) -> None:
    files = {"tls_cert_path": tmp_path / "c.pem", "tls_key_path": tmp_path / "k.pem"}
    ConsoleSettings(tls_mode=TlsMode.ENFORCING, **files)
    with pytest.raises(ConfigError, match="an HTTP port serves TLS or clear text, never both"):
        ConsoleSettings(tls_mode=TlsMode.PERMISSIVE, **files)
