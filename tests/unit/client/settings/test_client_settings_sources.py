"""Values win over the environment, the environment over the file."""

from __future__ import annotations

import pytest

from kourou import load_settings
from kourou.client.settings.client_settings import (
    KINDS,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
)
from kourou.errors import ConfigError
from kourou.settings.declaration import environment_name

FILE = """
# what an application of RocketMQ brings along
namesrvAddr = 10.0.0.1:9876;10.0.0.2:9876
producerGroup: billing
consumerGroup = billing
sendMsgTimeout = 3000
brokerSuspendMaxTimeMillis=5000
vipChannelEnabled=false
logMessages=true
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text(FILE)
    return path


@pytest.mark.feature("F383")
def test_one_file_serves_all_kinds(file):
    assert load_settings(ClientSettings, file=file) == ClientSettings(
        namesrv_addr="10.0.0.1:9876;10.0.0.2:9876", log_messages=True
    )
    assert load_settings(ProducerSettings, file=str(file)) == ProducerSettings(
        producer_group="billing", send_timeout_ms=3_000
    )
    for kind in (ConsumerSettings, PullConsumerSettings):
        assert load_settings(kind, file=file) == kind(
            consumer_group="billing", broker_suspend_max_time_ms=5_000
        )


@pytest.mark.feature("F383")
def test_precedence(file):
    environment = {"KOUROU_SEND_MSG_TIMEOUT": "4000", "KOUROU_PRODUCER_GROUP": "env", "OTHER": "x"}
    made = load_settings(
        ProducerSettings, {"sendMsgTimeout": 5_000}, file=file, environment=environment
    )
    assert (made.send_timeout_ms, made.producer_group) == (5_000, "env")
    assert load_settings(ProducerSettings) == ProducerSettings(), "nothing is read unasked"


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_has_a_variable_of_its_own(kind):
    names = [environment_name(key) for key in kind.by_key()]
    assert len(set(names)) == len(names)


def test_a_key_that_nobody_knows_is_refused_with_source_and_nearest(file, tmp_path):
    with pytest.raises(ConfigError, match=r"given values.*'pullBatchSise'.*pullBatchSize"):
        load_settings(ProducerSettings, {"pullBatchSise": 1})
    file.write_text("sendMsgTimeot=1")
    with pytest.raises(ConfigError, match=r"client.properties.*did you mean sendMsgTimeout"):
        load_settings(ConsumerSettings, file=file)


def test_a_bad_value_is_refused_from_wherever_it_comes(file):
    sentence = "sendMsgTimeout.* is 'soon'; it must be a whole number between 1 and 120000 ms"
    for sources in (
        {"values": {"sendMsgTimeout": "soon"}},
        {"environment": {"KOUROU_SEND_MSG_TIMEOUT": "soon"}},
    ):
        with pytest.raises(ConfigError, match=sentence):
            load_settings(ProducerSettings, **sources)
    load_settings(ConsumerSettings, {"sendMsgTimeout": "soon"})  # not this kind's affair
