"""Derives the settings of each component from those of the broker."""

from __future__ import annotations

from dataclasses import fields

from kourou.broker.config import BrokerSettings
from kourou.engine.effects import ChangeRole
from kourou.engine.policy import BrokerRole
from kourou.engine.roles.follower import FollowerRole
from kourou.engine.roles.leader import SYNC_MASTER, LeaderRole
from kourou.engine.roles.replicas import ReplicaAggregate, leads
from kourou.engine.roles.role import STANDALONE, RoleSettings
from kourou.eventstore.database import sqlite_file
from kourou.model.limits import DISK_RESERVE_BYTES
from kourou.replication.raft.node import RaftSettings
from kourou.store.flush_schedule import FlushPolicy
from kourou.store.settings import StoreFileSettings, StoreSettings
from kourou.store.store import Store


def store_settings_of(settings: BrokerSettings) -> StoreSettings:
    """Return the settings of the store."""
    return StoreSettings(
        root=settings.store_root,
        commit_log=settings.commit_log_path,
        consume_queue=settings.consume_queue_path,
        index=settings.index_path,
        checkpoint=settings.checkpoint_path,
        abort=settings.abort_path,
        events=sqlite_file(settings.event_store_url) if settings.event_store_url else None,
        queue_file_units=settings.queue_file_bytes // 20,
        index_enabled=settings.message_index,
        delay_levels_ms=settings.delay_levels_ms,
        reserve_bytes=DISK_RESERVE_BYTES,
        # Bytes copied from a leader are not staged in memory, as in RocketMQ.
        staging_buffers=0 if settings.is_replica else settings.staging_buffers,
        replicated=settings.broker_role is not BrokerRole.ASYNC_MASTER,
        **{one.name: getattr(settings, one.name) for one in fields(StoreFileSettings)},
    )


def log_flush_of(settings: BrokerSettings) -> FlushPolicy:
    """Return the policy of log flushes under ASYNC_FLUSH."""
    return FlushPolicy(
        interval_ms=settings.flush_interval_ms,
        least_pages=settings.flush_least_pages,
        thorough_ms=settings.flush_thorough_interval_ms,
        # Under SYNC_FLUSH the requests that wait for the disk start the flush.
        timed=settings.flush_timed or settings.sync_flush,
    )


def write_out_of(settings: BrokerSettings) -> FlushPolicy:
    """Return the policy of writing out staged appends."""
    return FlushPolicy(
        interval_ms=settings.write_out_interval_ms,
        least_pages=settings.write_out_least_pages,
        thorough_ms=settings.write_out_thorough_interval_ms,
    )


def queue_flush_of(settings: BrokerSettings) -> FlushPolicy:
    """Return the policy of queue and index flushes."""
    return FlushPolicy(
        interval_ms=settings.queue_flush_interval_ms,
        least_pages=settings.queue_flush_least_pages,
        thorough_ms=settings.queue_flush_thorough_interval_ms,
    )


def role_of(
    settings: BrokerSettings,
    store: Store,
    replicas: ReplicaAggregate,
    change: ChangeRole | None = None,
) -> RoleSettings:
    """Return the role of this broker.

    `change`: the role that the core requested. At startup, a replica's own log says whether it was
    promoted; the setting brokerRole is its initial role.
    """
    sync = settings.broker_role is BrokerRole.SYNC_MASTER
    if settings.is_replica:
        promoted = leads(replicas, settings.broker_name, settings.broker_id)
        if not (promoted if change is None else change.leads):
            return FollowerRole(settings.ha_master_address or "", settings.accept_loss_at)
        sync = replicas.role == SYNC_MASTER
    elif not settings.replication_enabled:
        return STANDALONE
    return LeaderRole(
        chunks=store,
        sync=sync,
        ack_on_flush=settings.ack_on_flush,
        fallbehind_max=settings.fallbehind_max_bytes,
        slave_timeout_ms=settings.slave_timeout_ms,
        epoch=0 if change is None else change.epoch,
        may_follow=settings.is_replica,
    )


def raft_settings_of(settings: BrokerSettings) -> RaftSettings:
    """Return the settings of the Raft core; only valid with enableDLegerCommitLog=true."""
    return RaftSettings(
        group=settings.raft_group,
        member=settings.raft_self or "",
        members=tuple(settings.raft_peers),
        heartbeat_ms=settings.raft_heartbeat_ms,
        election_timeout_ms_min=settings.raft_election_ms,
        election_timeout_ms_max=2 * settings.raft_election_ms,
        lease_ms=settings.raft_lease_ms,
    )
