"""Settings go to the part they belong to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.config import BrokerSettings, FlushDiskType
from kourou.broker.part_settings import (
    log_flush_of,
    queue_flush_of,
    role_of,
    store_settings_of,
    write_out_of,
)
from kourou.engine.effects import ChangeRole
from kourou.engine.policy import BrokerRole, EffectivePolicy
from kourou.engine.roles.follower import FollowerRole
from kourou.engine.roles.leader import LeaderRole
from kourou.engine.roles.replicas import ReplicaAggregate
from kourou.engine.roles.role import STANDALONE
from kourou.settings.declaration import Setting
from kourou.settings.registry import SettingsRegistry
from kourou.settings.sources import load_settings
from kourou.store.flush_schedule import FlushPolicy
from kourou_rigs.engine import Engine

DYNAMIC = [spec for spec in SettingsRegistry.of(BrokerSettings()) if spec.dynamic]


def another(spec: Setting) -> bool | int | str:
    """A value that is allowed and is not the one in force."""
    match spec.default:
        case bool():
            return not spec.default
        case int():
            low = spec.high is None or spec.default < spec.high
            return spec.default + 1 if low else spec.default - 1
        case "04":
            return "04;16"
        case _:
            return next(each for each in spec.choices if each != spec.default)


def in_force(engine: Engine) -> list[Any]:
    """Everything that decisions look at."""
    parts = engine.core.parts
    return [
        replace(parts.policy),
        parts.topic_handler.rules,
        parts.confirmations.flush_timeout_ms,
        parts.membership.expiry_ms,
        parts.membership.policy,
        parts.commits.interval_ms,
    ]


@pytest.mark.parametrize("spec", DYNAMIC, ids=[spec.key for spec in DYNAMIC])
def test_every_dynamic_key_has_an_effect(spec) -> None:
    engine = Engine(policy=EffectivePolicy.of(BrokerSettings()), specs=[spec])
    before = in_force(engine)
    engine.core.parts.apply(spec.key, another(spec))
    assert in_force(engine) != before, f"{spec.key} is called dynamic and changes nothing"


@pytest.mark.feature("F335", "F346")
def test_the_store_gets_its_keys() -> None:
    settings = BrokerSettings(
        store_root=Path("/s"),
        commit_log_path=Path("/fast/log"),
        segment_size_bytes=8_192,
        queue_file_bytes=40,
        message_index=False,
        read_mode="pread",
        queue_flush_interval_ms=21,
        queue_flush_least_pages=22,
        queue_flush_thorough_interval_ms=23,
    )
    store = store_settings_of(settings)
    assert (store.root, store.commit_log) == (Path("/s"), Path("/fast/log"))
    assert (store.segment_size_bytes, store.queue_file_units) == (8_192, 2)
    assert (store.index_enabled, store.read_mode) == (False, "pread")
    queues = queue_flush_of(settings)
    assert (queues.interval_ms, queues.least_pages, queues.thorough_ms) == (21, 22, 23)


@pytest.mark.feature("F102", "F103", "F104", "F105", "F106")
def test_messages_are_staged_under_async_flush_only() -> None:
    staged = BrokerSettings(staging=True, staging_pool_size=3)
    assert store_settings_of(staged).staging_buffers == 3
    assert store_settings_of(BrokerSettings()).staging_buffers == 0
    sync = replace(staged, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    assert store_settings_of(sync).staging_buffers == 0, "RocketMQ has no pool there either"
    default = write_out_of(staged)
    assert (default.interval_ms, default.least_pages, default.thorough_ms) == (200, 4, 200)


@pytest.mark.parametrize(
    ("flush", "timed", "by_clock"),
    [
        (FlushDiskType.ASYNC_FLUSH, False, False),
        (FlushDiskType.ASYNC_FLUSH, True, True),
        (FlushDiskType.SYNC_FLUSH, False, True),
    ],
)
def test_who_may_wake_the_flush(flush: FlushDiskType, timed: bool, by_clock: bool) -> None:
    """Under SYNC_FLUSH those who wait for the disk do; an append alone would flush twice."""
    assert not BrokerSettings().flush_timed
    assert log_flush_of(BrokerSettings(flush_disk_type=flush, flush_timed=timed)).timed is by_clock


@pytest.mark.feature("F099", "F100", "F101", "F354")
def test_the_eight_keys_of_flushing_under_their_own_names(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "flushCommitLogTimed=true\n"
        "flushIntervalCommitLog=41\n"
        "flushCommitLogLeastPages=42\n"
        "flushCommitLogThoroughInterval=43\n"
        "transientStorePoolEnable=true\n"
        "commitIntervalCommitLog=51\n"
        "commitCommitLogLeastPages=52\n"
        "commitCommitLogThoroughInterval=53\n"
    )
    settings = load_settings(BrokerSettings, arguments={}, environment={}, file=file).settings
    assert log_flush_of(settings) == FlushPolicy(41, 42, 43, timed=True)
    assert write_out_of(settings) == FlushPolicy(51, 52, 53, timed=True)
    assert store_settings_of(settings).staging_buffers > 0


def test_what_an_operator_accepts_as_lost_reaches_the_store() -> None:
    assert store_settings_of(BrokerSettings()).accept_loss_at is None
    assert store_settings_of(BrokerSettings(accept_loss_at=4_096)).accept_loss_at == 4_096


@pytest.mark.feature("F122", "F340", "F341", "F351")
def test_retention_gets_its_keys() -> None:
    settings = BrokerSettings(
        reserved_hours=5,
        delete_when="3;15",
        disk_clean_percent=11,
        disk_force_percent=12,
        disk_refuse_percent=13,
        clean_forcibly=False,
        lose_unconsumed=False,
    )
    policy = EffectivePolicy.of(settings)
    assert (policy.reserved_hours, policy.delete_hours) == (5, (3, 15))
    assert (policy.disk_clean_percent, policy.disk_force_percent) == (11, 12)
    assert policy.disk_refuse_percent == 13
    assert not policy.clean_forcibly
    assert not policy.lose_unconsumed
    assert store_settings_of(settings).reserve_bytes == 16 << 20


class Follows(BrokerSettings):
    """What the replica service adds is its own."""

    def check_role(self) -> None:
        pass


def replica(**given: Any) -> BrokerSettings:
    return Follows(broker_role=BrokerRole.SLAVE, broker_id=2, broker_name="b", **given)


@pytest.mark.feature("F128")
def test_who_leads_and_who_follows() -> None:
    store: Any = object()
    alone = role_of(BrokerSettings(replication_enabled=False), store, ReplicaAggregate())
    assert alone == STANDALONE
    sync = role_of(BrokerSettings(broker_role=BrokerRole.SYNC_MASTER), store, ReplicaAggregate())
    assert isinstance(sync, LeaderRole)
    assert (sync.sync, sync.may_follow, sync.chunks) == (True, False, store)
    given = {"ha_master_address": "10.0.0.1:20912", "accept_loss_at": 7}
    assert role_of(replica(**given), store, ReplicaAggregate()) == FollowerRole("10.0.0.1:20912", 7)


def test_a_replica_that_was_promoted_leads_whatever_its_settings_say() -> None:
    """The role of the pair is in the log, since the replica's settings say SLAVE."""
    store: Any = object()
    promoted = ReplicaAggregate(epochs=[(64, 0)], leader="b/2", role="SYNC_MASTER")
    another = ReplicaAggregate(epochs=[(64, 0)], leader="b/0", role="SYNC_MASTER")
    role = role_of(replica(), store, promoted)
    assert isinstance(role, LeaderRole)
    assert (role.sync, role.may_follow, role.epoch) == (True, True, 0)
    assert isinstance(role_of(replica(), store, another), FollowerRole)
    now = role_of(replica(), store, another, ChangeRole(True, 2**32 + 66))
    assert isinstance(now, LeaderRole)
    assert now.epoch == 2**32 + 66
    assert isinstance(role_of(replica(), store, promoted, ChangeRole(False, 99)), FollowerRole)


def test_what_is_copied_is_not_staged_in_memory() -> None:
    assert store_settings_of(BrokerSettings(staging=True)).staging_buffers > 0
    assert store_settings_of(replica(staging=True)).staging_buffers == 0
