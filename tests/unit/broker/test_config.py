"""A broker's settings: RocketMQ's keys with the defaults that the design states."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kourou.broker.config import BrokerSettings, FlushDiskType
from kourou.broker.part_settings import store_settings_of
from kourou.broker.storage.open_store import _event_store_url
from kourou.engine.policy import BrokerRole
from kourou.errors import ConfigError
from kourou.service.command_line import parse_arguments
from kourou.settings.declaration import settings_of
from kourou.settings.registry import SettingsRegistry
from kourou.settings.sources import LoadedSettings, as_entries, load_settings, render
from kourou.store.paths import StorePaths
from kourou_broker import app
from kourou_ha_replica import app as replica_app
from kourou_ha_replica.app import ReplicaSettings

KEYS = {one.key: one for one in settings_of(BrokerSettings)}


def load(*argv: str, **environment: str) -> LoadedSettings[BrokerSettings]:
    arguments = parse_arguments("kourou broker", "", argv)
    return load_settings(
        BrokerSettings,
        arguments=arguments.settings,
        environment=environment,
        file=arguments.file,
    )


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
def test_what_is_printed_is_read_back(tmp_path: Path) -> None:
    printed = render(BrokerSettings(broker_name="b1", reserved_hours=5))
    template = tmp_path / "broker.p"
    template.write_text(printed.replace("brokerName=b1", "brokerName=edited"))
    loaded = load("-c", str(template))
    assert loaded.settings == BrokerSettings(broker_name="edited", reserved_hours=5)
    plain = render(BrokerSettings(broker_name="b1"), explained=False)
    assert len(plain.splitlines()) == len(KEYS)


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
    assert "secret" not in render(given, explained=False)
    with pytest.raises(ConfigError, match="eventStoreUrl"):
        BrokerSettings(event_store_password_file=file)
    with pytest.raises(ConfigError, match="cannot read the password"):
        BrokerSettings(
            event_store_url="postgresql://kourou@db/kourou",
            event_store_password_file=tmp_path / "none",
        )


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


# -- what follows from the store's keys ------------------------------------------------------------


def test_every_path_reaches_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = store_settings_of(load().settings)
    assert store.paths == StorePaths.under(tmp_path / "store")
    keys = ("storePathCommitLog", "storePathConsumeQueue", "storePathIndex", "storeCheckpoint")
    text = "".join(f"{key}={tmp_path}/{key}\n" for key in (*keys, "abortFile"))
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/s\n{text}")
    paths = store_settings_of(load("-c", str(file)).settings).paths
    log, queues, index, checkpoint = (tmp_path / key for key in keys)
    assert (paths.root, paths.commit_log, paths.consume_queue) == (tmp_path / "s", log, queues)
    assert (paths.index, paths.checkpoint) == (index, checkpoint)
    assert paths.abort == tmp_path / "abortFile"


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("commit_log_path", "store/consumequeue"),
        ("consume_queue_path", "store"),
        ("index_path", "store/commitlog/index"),
        ("checkpoint_path", "store/index/checkpoint"),
        ("abort_path", "store/checkpoint"),
    ],
)
def test_a_path_in_another_ones_directory_is_refused(tmp_path: Path, key: str, path: str) -> None:
    with pytest.raises(ConfigError, match="use a separate path for each of them"):
        BrokerSettings(**{"store_root": tmp_path / "store", key: tmp_path / path})  # type: ignore[arg-type]  # a test's shorthand


# -- A broker's settings, as its own command takes them --------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        "brokerRole=SLAVE",
        "brokerId=1",
        "namesrvAddr=10.0.0.1:port",
        "eventStoreUrl=mysql://host/db",
        "adminHost=0.0.0.0",
        "bindAddress=0.0.0.0",
        "deleteWhen=24",
    ],
)
@pytest.mark.parametrize("way", ["-p", "-m"])
def test_what_is_printed_could_be_started(
    wrong: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value that a start refuses is refused where settings are read, so by every way alike."""
    assert app.run([way, "--set", wrong]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert wrong.partition("=")[0] in err or "eventStoreUrl" in wrong or "namesrvAddr" in wrong
    assert len(err.splitlines()) == 1


# -- which settings a replica takes ----------------------------------------------------------------


def replica(**given: object) -> ReplicaSettings:
    found = {"store_root": Path("/nowhere"), "namesrv_addr": "127.0.0.1:9876", **given}
    return ReplicaSettings(**found)  # type: ignore[arg-type]  # a shorthand


@pytest.mark.feature("F128")
def test_without_a_word_it_is_the_first_follower() -> None:
    settings = replica()
    assert (settings.broker_id, settings.broker_role, settings.is_replica) == (1, "SLAVE", True)


@pytest.mark.parametrize(
    ("written", "dialled"),
    [
        ("10.0.0.1:20912", "10.0.0.1:20912"),
        ("10.0.0.1:10912", "10.0.0.1:20912"),  # what stands in a broker.conf of RocketMQ's
        ("leader:41234", "leader:41234"),
        ("[::1]:10912", "[::1]:20912"),
    ],
)
def test_where_the_leader_meets_followers(written: str, dialled: str) -> None:
    settings = replica(ha_master_address=written, namesrv_addr=None)
    assert settings.leader_endpoint == dialled


def test_a_follower_that_could_never_find_its_leader_is_refused() -> None:
    with pytest.raises(ConfigError, match="the address of the leader is unknown"):
        replica(namesrv_addr=None)


@pytest.mark.parametrize(
    "wrong",
    [
        *("brokerRole=SYNC_MASTER", "brokerId=0", "brokerId=64", "haMasterAddress=10.0.0.1:port"),
        "dLegerSelfId=n0",  # of a group that was not switched on
    ],
)
def test_what_it_cannot_be_is_refused_where_settings_are_read(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replica_app.run(["-p", "-n", "127.0.0.1:9876", "--set", wrong]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kourou ha-replica: ")
    assert len(err.splitlines()) == 1
