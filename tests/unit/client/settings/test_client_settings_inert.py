"""RocketMQ's keys that do nothing here."""

from __future__ import annotations

import pytest

from kourou.client.settings.client_settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.errors import ConfigError

KINDS = [ClientSettings, ProducerSettings, ConsumerSettings, PullConsumerSettings]


@pytest.mark.parametrize("kind", KINDS)
def test_no_key_is_both_a_setting_and_inert(kind):
    assert not kind.by_key().keys() & kind.inert_keys.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_their_usual_values_are_taken_in_silence(kind, caplog, monkeypatch):
    monkeypatch.setattr("kourou.settings.declaration._warned", set())
    usual = {name: inert.usual for name, inert in kind.inert_keys.items()}
    assert kind.from_rocketmq(**usual) == kind()
    assert not caplog.records


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in KINDS
        for name, inert in kind.inert_keys.items()
        if not inert.refused
    ],
)
def test_other_values_are_taken_with_a_warning_that_says_why(kind, name, caplog, monkeypatch):
    monkeypatch.setattr("kourou.settings.declaration._warned", set())
    assert kind.from_rocketmq(**{name: "other"}) == kind()
    assert f"{name} has no effect" in caplog.text
    assert kind.inert_keys[name].why in caplog.text


@pytest.mark.parametrize("name", ["useTLS", "tls.enable"])
def test_what_promises_safety_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name}=True is refused: Kourou does not use TLS"):
        ClientSettings.from_rocketmq(**{name: True})
    assert ClientSettings.from_rocketmq(**{name: "false"}) == ClientSettings()


def test_what_would_do_harm_is_refused():
    with pytest.raises(ConfigError, match=r"namespace is .*, which this version does not support"):
        ClientSettings.from_rocketmq(namespace="ns")
