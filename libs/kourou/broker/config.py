"""The settings of a broker, under RocketMQ's names.

RocketMQ's keys that have no effect in Kourou are in kourou.service.rocketmq_keys.

State: none; settings are read once. Keys marked dynamic may be changed while the broker runs, by
events (kourou.settings.registry).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from kourou.broker.administrators import AdministratorFile, InitialUsersFile, recovery_file
from kourou.broker.raft_keys import FLUSHED, RaftKeys
from kourou.broker.store_keys import StoreKeys
from kourou.engine.policy import BrokerPolicy
from kourou.errors import ConfigError
from kourou.model.limits import PORT_MAX
from kourou.service.process_keys import REPLICATION_PORT_SHIFT
from kourou.service.rocketmq_keys import BROKER_KEYS
from kourou.transport.curve_keys import ANY


@dataclass(frozen=True, kw_only=True)
class BrokerSettings(BrokerPolicy, StoreKeys, RaftKeys):
    """All keys of `broker.conf`. The constructor raises ConfigError for invalid settings."""

    inert_keys: ClassVar[Collection[str]] = BROKER_KEYS

    def __post_init__(self) -> None:
        """Raises ConfigError for settings that are invalid in combination."""
        self.check_process()
        self.settle_raft()
        self.check_network()
        self.check_raft()
        self.check_store()
        self._check_access()
        self.delete_hours  # noqa: B018 - raises if malformed
        self.delay_levels_ms  # noqa: B018 - raises if malformed

    def _check_access(self) -> None:
        """Raises ConfigError for files of keys or users that cannot be used.

        Keys must not lie next to what they encrypt.
        """
        if self.users_file is not None:
            self.users_file.users()
        path, root = self.access_key_file, self.store_root
        if path is None:
            return
        if path.resolve().is_relative_to(root.resolve()):
            raise ConfigError(
                f"accessKeyFile={path} is inside storePathRootDir",
                hint="keep it elsewhere: a copy of the store must not contain its keys",
            )
        self.secret_keys  # noqa: B018 - raises if they cannot be read

    @property
    def administrator_files(self) -> list[AdministratorFile]:
        """The files that may make an administrator at this start."""
        found = []
        if self.initial_admin_file is not None:
            found.append(AdministratorFile(self.initial_admin_file, recovers=False))
        recovery = recovery_file(self.store_root)
        if recovery.exists():
            found.append(AdministratorFile(recovery, recovers=True))
        return found

    @property
    def users_file(self) -> InitialUsersFile | None:
        """The file of users who exist from the first start on."""
        path = self.initial_users_file
        return None if path is None else InitialUsersFile(path)

    @property
    def knows_replicas(self) -> bool:
        """Whether all who reach the listener for replicas have the key of one, or it is closed."""
        return not self.replication_enabled or self.curve_members not in (None, ANY)

    @property
    def members_bind_address(self) -> str:
        """`host:port` to bind for replicas of the log; port 0 uses a free port."""
        port = self.raft_port if self.raft_enabled else self.replication_port
        if port is None:
            after = self.listen_port + REPLICATION_PORT_SHIFT
            port = after if self.listen_port and after <= PORT_MAX else 0
        return self.zmq_address(port)

    @property
    def ack_on_flush(self) -> bool:
        """Does a copy count only when it is on the follower's disk?"""
        return self.sync_flush if self.ack_on is None else self.ack_on == FLUSHED
