"""A dynamic setting goes where it has an effect."""

import pytest

from kourou.engine.groups.subscriptions import SubscriptionPolicy
from kourou.engine.policy import BrokerPolicy
from kourou.settings.declaration import Setting, settings_of
from kourou_rigs.engine import Engine


@pytest.mark.parametrize("one", [one for one in settings_of(BrokerPolicy) if one.dynamic])
def test_the_policy_follows(engine, one) -> None:
    old = getattr(engine.policy, one.name)
    if one.kind is str:
        new = "refuse" if one.choices else "05"
    else:
        new = (not old) if one.kind is bool else old + 1
    engine.core.parts.apply(one.key, new)
    assert getattr(engine.policy, one.name) == new


def test_settings_kept_elsewhere_go_there(engine) -> None:
    parts = engine.core.parts
    parts.apply("syncFlushTimeout", 7)
    parts.apply("channelExpiredTimeout", 8)
    parts.apply("groupSubscriptionPolicy", "refuse")
    parts.apply("flushConsumerOffsetInterval", 9)
    parts.apply("deleteWhen", "3;15")
    assert parts.confirmations.flush_timeout_ms == 7
    assert parts.membership.expiry_ms == 8
    assert parts.membership.policy is SubscriptionPolicy.REFUSE
    assert parts.commits.interval_ms == 9
    assert engine.policy.delete_hours == (3, 15)


def test_keys_of_other_parts_are_left_to_them(engine) -> None:
    engine.core.parts.apply("someKeyOfTheStore", 1)


def test_what_was_changed_before_a_restart_is_in_force_from_the_start() -> None:
    specs = [Setting("defaultQueryMaxNum", 32, dynamic=True)]
    engine = Engine(specs=specs, policy=BrokerPolicy("c", "b", query_max=1))
    assert engine.policy.query_max == 32, "the registry has the word"
