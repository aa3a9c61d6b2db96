"""A dynamic setting goes where it has an effect."""

from dataclasses import fields

import pytest

from kourou.engine.groups.subscriptions import SubscriptionPolicy
from kourou.engine.parts import POLICY_FIELDS
from kourou.engine.policy import BrokerPolicy
from kourou.errors import Code
from kourou.protocol.messages.sending import SendMessage
from kourou.settings.declaration import Setting
from kourou_rigs.engine import Engine


def test_every_field_a_setting_changes_exists() -> None:
    assert set(POLICY_FIELDS.values()) <= {field.name for field in fields(BrokerPolicy)}
    assert len(set(POLICY_FIELDS.values())) == len(POLICY_FIELDS)


@pytest.mark.parametrize(("key", "field"), sorted(POLICY_FIELDS.items()))
def test_the_policy_follows(engine, key, field) -> None:
    old = getattr(engine.policy, field)
    new = (not old) if isinstance(old, bool) else old + 1
    engine.core.parts.apply(key, new)
    assert getattr(engine.policy, field) == new


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


@pytest.mark.feature("F331")
def test_automatic_topics_can_be_switched_off_and_on(engine) -> None:
    def send(topic: str) -> int:
        request = SendMessage(
            producer_group="p",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            born_timestamp=1,
        )
        return engine.ask(request, b"x").code

    assert send("a") == Code.SUCCESS
    engine.core.parts.apply("autoCreateTopicEnable", False)
    assert send("b") == Code.TOPIC_NOT_EXIST
    assert send("a") == Code.SUCCESS
    engine.core.parts.apply("autoCreateTopicEnable", True)
    assert send("b") == Code.SUCCESS


def test_keys_of_other_parts_are_left_to_them(engine) -> None:
    engine.core.parts.apply("someKeyOfTheStore", 1)


def test_what_was_changed_before_a_restart_is_in_force_from_the_start() -> None:
    specs = [Setting("defaultQueryMaxNum", 32, dynamic=True)]
    engine = Engine(specs=specs, policy=BrokerPolicy("c", "b", query_max=1))
    assert engine.policy.query_max == 32, "the registry has the word"
