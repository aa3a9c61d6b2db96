"""A `broker.conf` of RocketMQ can be brought along as it is."""

from __future__ import annotations

from kourou.broker.config import BrokerSettings
from kourou.model.refused_settings import REFUSED
from kourou.service.rocketmq_keys import BROKER_KEYS, NAMESRV_KEYS
from kourou.settings.declaration import settings_of
from kourou_namesrv.config import NamesrvSettings


def test_names_are_names() -> None:
    assert all(key.isidentifier() and key[0].islower() for key in BROKER_KEYS | NAMESRV_KEYS)


def test_what_promises_safety_is_not_among_them() -> None:
    assert not (BROKER_KEYS | NAMESRV_KEYS) & REFUSED.keys()


def test_typical_keys_are_known() -> None:
    broker = BROKER_KEYS | {one.key for one in settings_of(BrokerSettings)}
    brought = (
        *("sendMessageThreadPoolNums", "useReentrantLockWhenPutMessage", "brokerIP2"),
        *("transientStorePoolEnable", "serverWorkerThreads", "slaveReadEnable", "haListenPort"),
        *("enableDLegerCommitLog", "storePathRootDir", "autoCreateTopicEnable"),
    )
    for key in brought:
        assert key in broker, key
    namesrv = NAMESRV_KEYS | {one.key for one in settings_of(NamesrvSettings)}
    assert {"rocketmqHome", "kvConfigPath", "orderMessageEnable", "serverWorkerThreads"} <= namesrv
