"""`aclEnable=true` is never ignored: a broker that leads does not start without users."""

from __future__ import annotations

import pytest

from kourou.access.model import RoleGrant, User, UserRole
from kourou.broker.config import BrokerSettings
from kourou.engine.admin.access_table import AccessAggregate
from kourou.errors import ConfigError

ROOT = User(name="root", roles=(RoleGrant(UserRole.ADMINISTRATOR),))


@pytest.mark.parametrize(
    "settings",
    [{"acl_enable": True}, {"authentication_enabled": True}, {"authorization_enabled": True}],
)
def test_without_users_it_is_refused_with_what_to_do(settings: dict[str, bool]) -> None:
    with pytest.raises(ConfigError, match="=true, but this broker has no users") as caught:
        BrokerSettings(**settings).check_users(AccessAggregate())
    assert "initialAdminFile" in caught.value.hint
    BrokerSettings(**settings).check_users(AccessAggregate({"root": ROOT}))


def test_by_default_a_broker_starts_without_users() -> None:
    BrokerSettings().check_users(AccessAggregate())
