"""RocketMQ's settings that switch access control on, at a broker.

Requests are decided as soon as a broker has users, with these settings or without. Written as true
they say that the operator relies on it, so a broker that leads does not start without users.
"""

from __future__ import annotations

from dataclasses import dataclass

from kourou.engine.admin.access_table import AccessAggregate
from kourou.errors import ConfigError
from kourou.settings.declaration import SAME, setting


@dataclass(frozen=True, kw_only=True)
class AclKeys:
    """RocketMQ 4's key and the two of RocketMQ 5, which Kourou does not tell apart."""

    acl_enable: bool = setting(
        False,
        "aclEnable",
        "Do not start without users. With users requests are always decided; `kourou user mode` "
        "changes that",
        rocketmq=SAME,
    )
    authentication_enabled: bool = setting(
        False, "authenticationEnabled", "The same as aclEnable", rocketmq=SAME
    )
    authorization_enabled: bool = setting(
        False, "authorizationEnabled", "The same as aclEnable", rocketmq=SAME
    )

    def check_users(self, access: AccessAggregate) -> None:
        """Raises ConfigError if requests must be decided and there is nobody to decide about.

        Called by a broker that leads, when the first administrator of a file is recorded.
        """
        if access.users:
            return
        for key, wanted in (
            ("aclEnable", self.acl_enable),
            ("authenticationEnabled", self.authentication_enabled),
            ("authorizationEnabled", self.authorization_enabled),
        ):
            if wanted:
                raise ConfigError(
                    f"{key}=true, but this broker has no users, so everybody could do everything",
                    hint="name a file with NAME:SECRET of the first administrator by "
                    "initialAdminFile, and keys for secrets by accessKeyFile",
                )
