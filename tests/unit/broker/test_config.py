"""A broker's settings: RocketMQ's keys with the defaults that the design states."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kourou.broker.config import BrokerSettings, load_broker_settings
from kourou.broker.storage.open_store import _event_store_url
from kourou.broker.store_keys import FlushDiskType
from kourou.engine.policy import BrokerRole
from kourou.errors import ConfigError
from kourou.service.command_line import parse_arguments
from kourou.settings.declaration import settings_of
from kourou.settings.registry import SettingsRegistry
from kourou.settings.sources import LoadedSettings, as_entries
from kourou.store.paths import StorePaths

KEYS = {one.key: one for one in settings_of(BrokerSettings)}


def load(*argv: str, **environment: str) -> LoadedSettings[BrokerSettings]:
    return load_broker_settings(parse_arguments("kourou broker", "", argv), environment)


def feature(number: int, key: str, ours: str, seed: str, rocketmq: str) -> object:
    return pytest.param(
        key, ours, seed, rocketmq, id=key, marks=pytest.mark.feature(f"F{number:03d}")
    )


@pytest.mark.parametrize(
    ("key", "ours", "seed", "rocketmq"),
    [
        feature(331, "autoCreateTopicEnable", "true", "true", "true"),
        feature(332, "autoCreateSubscriptionGroup", "true", "true", "true"),
        feature(340, "deleteWhen", "04", "4", "04"),
        feature(341, "fileReservedTime", "72", "48", "72"),
        feature(351, "cleanFileForciblyEnable", "true", "true", "true"),
        feature(342, "maxTransferBytesOnMessageInMemory", "262144", "262144", "262144"),
        feature(343, "maxTransferCountOnMessageInMemory", "32", "32", "32"),
        feature(344, "maxTransferBytesOnMessageInDisk", "65536", "65536", "65536"),
        feature(345, "maxTransferCountOnMessageInDisk", "8", "8", "8"),
    ],
)
def test_a_key_and_its_three_defaults(key: str, ours: str, seed: str, rocketmq: str) -> None:
    one = KEYS[key]
    assert (one.shown_default, one.seed, one.rocketmq) == (ours, seed, rocketmq)


@pytest.mark.feature("F328")
@pytest.mark.parametrize(
    ("host", "name"),
    [("till-7.shop.example", "till-7.shop.example"), ("till 7", "till-7"), ("", "DEFAULT_BROKER")],
)
def test_a_broker_is_called_by_the_name_of_its_host(
    host: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename=host))
    assert BrokerSettings().broker_name == name


@pytest.mark.feature("F355", "F356", "F357")
def test_what_is_printed_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    BrokerSettings(broker_name="b1", reserved_hours=5).print_to_stdout(explained=True)
    template = tmp_path / "broker.p"
    template.write_text(capsys.readouterr().out.replace("brokerName=b1", "brokerName=edited"))
    loaded = load("-c", str(template))
    assert loaded.settings == BrokerSettings(broker_name="edited", reserved_hours=5)
    printed = BrokerSettings(broker_name="b1").render()
    assert len(printed.splitlines()) == len(KEYS)


def test_the_name_servers_come_from_four_places(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("namesrvAddr=file:1\n")
    assert load("-c", str(file)).settings.name_server_addresses == ("file:1",)
    loaded = load("-c", str(file), NAMESRV_ADDR="env:1;env:2")
    assert loaded.settings.name_server_addresses == ("env:1", "env:2")
    loaded = load("-n", " a:1 ;b:2; ", NAMESRV_ADDR="env:1")
    assert loaded.settings.name_server_addresses == ("a:1", "b:2")
    assert load().settings.name_server_addresses == ()


def test_a_key_without_effect_is_said_so() -> None:
    assert KEYS["waitTimeMillsInSendQueue"].without_effect
    assert not KEYS["sendThreadPoolQueueCapacity"].without_effect
    assert load("--set", "waitTimeMillsInSendQueue=200").warnings == ()
    assert load("--set", "waitTimeMillsInSendQueue=100").warnings == (
        "waitTimeMillsInSendQueue has no effect in this version of Kourou",
    )


def test_keys_of_rocketmq_are_accepted_and_typing_errors_are_not() -> None:
    assert len(load("--set", "sendMessageThreadPoolNums=4").warnings) == 1
    with pytest.raises(ConfigError, match="did you mean autoCreateTopicEnable"):
        load("--set", "autoCreateTopicsEnable=true")


def test_everything_is_checked_when_it_is_made() -> None:
    for wrong in (
        {"broker_name": "a b"},
        {"cluster_name": ""},
        {"broker_id": 1},
        {"broker_ip1": "broker"},
        {"broker_ip1": "::1"},
        {"bind_address": "::1"},
        {"queue_file_bytes": 21},
        {"delete_when": "24"},
        {"delete_when": "four"},
        {"message_delay_level": "1s 5x"},
        {"message_delay_level": ""},
        {"advertised_listeners": "host"},
        {"listen_port": 60_000},
        {"index_path": Path("/elsewhere"), "abort_path": Path("/elsewhere/abort")},
        {"broker_role": BrokerRole.SLAVE},
        {"bind_address": "0.0.0.0"},
        {"bind_address": "no such host"},
        {"admin_host": "0.0.0.0"},
        {"admin_host": ""},
        {"namesrv_addr": "10.0.0.1:port"},
        {"event_store_url": "mysql://host/db"},
        {"event_store_url": "not a url"},
    ):
        with pytest.raises(ConfigError):
            BrokerSettings(**wrong)  # type: ignore[arg-type]  # that is the point


def test_the_event_stores_password_comes_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    given = BrokerSettings(
        event_store_url="postgresql://kourou@db/kourou", event_store_password_file=file
    )
    assert _event_store_url(given, StorePaths.under(tmp_path)) == (
        "postgresql+psycopg://kourou:secret@db/kourou"
    )
    assert "secret" not in given.render()
    with pytest.raises(ConfigError, match="eventStoreUrl"):
        BrokerSettings(event_store_password_file=file)
    with pytest.raises(ConfigError, match="cannot read the password"):
        BrokerSettings(
            event_store_url="postgresql://kourou@db/kourou",
            event_store_password_file=tmp_path / "none",
        )


def test_what_is_open_to_the_network_must_be_wanted() -> None:
    given = {"bind_address": "0.0.0.0", "admin_host": "0.0.0.0"}
    assert BrokerSettings(**given, insecure_network=True).bind_address == "0.0.0.0"
    assert BrokerSettings(admin_host="0.0.0.0", admin_enabled=False).admin_port is None


def test_nothing_that_matters_can_be_changed_from_afar() -> None:
    registry = SettingsRegistry.of(BrokerSettings())
    dynamic = {spec.key for spec in registry if spec.dynamic}
    assert {"traceOn", "maxMessageSize", "autoCreateTopicEnable"} <= dynamic
    assert {"fileReservedTime", "deleteWhen", "diskMaxUsedSpaceRatio"} <= dynamic
    assert not dynamic & {
        "storePathRootDir",
        "cleanFileForciblyEnable",
        "allowLoseUnconsumed",
        "flushDiskType",
        "brokerRole",
        "bindAddress",
        "namesrvAddr",
    }
    assert list(as_entries(BrokerSettings())) == [one.key for one in settings_of(BrokerSettings)]


@pytest.mark.feature("F128")
def test_where_members_meet_and_what_counts_as_a_copy() -> None:
    assert BrokerSettings(listen_port=10_911).members_bind_address.endswith(":20912")
    assert BrokerSettings(listen_port=0).members_bind_address.endswith(":0")
    assert BrokerSettings(listen_port=55_535).members_bind_address.endswith(":0")
    assert BrokerSettings(replication_port=7).members_bind_address.endswith(":7")
    assert not BrokerSettings(broker_role=BrokerRole.SYNC_MASTER).ack_on_flush
    assert BrokerSettings(flush_disk_type=FlushDiskType.SYNC_FLUSH).ack_on_flush
    assert BrokerSettings(ack_on="flushed").ack_on_flush
