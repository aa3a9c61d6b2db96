"""What several settings say together."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou_spark_etl.config import EtlSettings


def test_everything_lies_below_one_folder(tmp_path: Path) -> None:
    settings = EtlSettings(root=tmp_path)
    assert settings.read_model == f"sqlite:///{tmp_path}/read-model.db"
    assert settings.event_store == f"sqlite:///{tmp_path}/events.db"
    assert settings.session_settings["spark.local.dir"] == str(tmp_path / "spark")
    assert settings.admin_port == 18_281


def test_sparks_own_settings_go_above_ours() -> None:
    settings = EtlSettings(spark_options="spark.scheduler.mode=FIFO; spark.x.y=a=b")
    assert settings.session_settings["spark.scheduler.mode"] == "FIFO"
    assert settings.session_settings["spark.x.y"] == "a=b"
    with pytest.raises(ConfigError, match="sparkOptions"):
        EtlSettings(spark_options="shuffle=3")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="readModelPasswordFile"):
        EtlSettings(read_model_password_file=Path("secret"))
    with pytest.raises(ConfigError, match="jobFile is not set"):
        EtlSettings().wanted_job_file  # noqa: B018 - asked for what it raises
    with pytest.raises(ConfigError, match="insecureNetwork"):
        EtlSettings(admin_host="0.0.0.0")


def test_its_keys_reach_whoever_reads_and_writes_for_it(tmp_path: Path) -> None:
    """Clients in this process and in Spark's find them in their environment."""
    own, servers = tmp_path / "own.key_secret", tmp_path / "public"
    settings = EtlSettings(curve_key_file=own, curve_server_key=servers)
    assert settings.curve_environment == {
        "KOUROU_CURVE_KEY_FILE": str(own),
        "KOUROU_CURVE_SERVER_KEY": str(servers),
    }
    for name, value in settings.curve_environment.items():
        assert settings.session_settings[f"spark.executorEnv.{name}"] == value
    assert EtlSettings().curve_environment == {}
    with pytest.raises(ConfigError, match="curveServerKey is not"):
        EtlSettings(curve_key_file=own)
