from __future__ import annotations

import os
from typing import Any

import pytest

from kourou.errors import ConfigError
from kourou.settings.sources import load_settings
from kourou_filter_server.config import FilterServerSettings
from kourou_filter_server.sandbox.kernel import DESCRIPTORS_MAX


def settings(**texts: str) -> FilterServerSettings:
    return load_settings(FilterServerSettings, arguments=texts, environment={}).settings


@pytest.mark.feature("F239")
def test_ports_follow_the_brokers() -> None:
    made = settings(listenPort="10931", filterServerIndex="2")
    assert made.zmq_bind_address == "127.0.0.1:20937"
    assert made.tcp_listeners == {"internal": "127.0.0.1:10937"}
    assert made.broker_address == "127.0.0.1:20931"
    assert made.admin_port == 18_183
    assert settings(listenPort="10911", tcpEnable="false").tcp_listeners == {}


def test_port_0_takes_any() -> None:
    made = settings(listenPort="0", connectWhichBroker="tcp://127.0.0.1:40000")
    assert made.zmq_bind_address == "127.0.0.1:0"
    assert made.tcp_listeners == {"internal": "127.0.0.1:0"}
    assert made.admin_port == 0


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:15000", "127.0.0.1:15000"),
        ("127.0.0.1:10911", "127.0.0.1:20911"),
        ("broker:20911", "broker:20911"),
        ("tcp://[::1]:20911", "[::1]:20911"),
    ],
)
def test_where_the_broker_is(text: str, address: str) -> None:
    assert settings(connectWhichBroker=text).broker_address == address


@pytest.mark.parametrize(
    "texts",
    [
        {"listenPort": "0"},
        {"connectWhichBroker": "nowhere"},
        {"connectWhichBroker": "a b:1"},
        {"filterServerIndex": "16"},
        {"listenPort": "60000"},
        {"bindAddress": "0.0.0.0"},
        {"advertisedListeners": "x"},
        {"unsafeNoSandbox": "true", "bindAddress": "0.0.0.0", "insecureNetwork": "true"},
        {"unsafeNoSandbox": "true", "tcpBindAddress": "0.0.0.0", "insecureNetwork": "true"},
    ],
)
def test_what_cannot_be_is_refused(texts: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        settings(**texts)


def test_how_far_ahead_is_set_in_messages_kib_and_mib() -> None:
    policy = settings(filterAheadMessages="7", filterAheadSize="2", filterAheadMemory="3").policy
    assert policy.ahead_messages == 7
    assert policy.ahead_bytes == 2 << 10
    assert policy.ahead_kept_bytes == 3 << 20


@pytest.mark.feature("F243")
def test_without_a_sandbox_only_on_loopback() -> None:
    assert settings(unsafeNoSandbox="true").unsafe_no_sandbox


def test_workers_are_no_more_than_the_zygote_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, and all workers with it, when it has no descriptor left for the next one."""
    monkeypatch.setattr(os, "cpu_count", lambda: 192)
    assert settings().workers_max < DESCRIPTORS_MAX - 64
    with pytest.raises(ConfigError):
        settings(filterWorkersMax=str(DESCRIPTORS_MAX))


def test_a_core_is_left_to_others_where_there_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5})
    assert settings().worker_cores == {3, 5}
    assert settings(filterWorkerCores="2-3").worker_cores == {2, 3}
    assert not settings(filterWorkerCores=" all ").worker_cores
    with pytest.raises(ConfigError, match="names 0,1, and this process may use"):
        settings(filterWorkerCores="0-2")
    with pytest.raises(ConfigError, match="is not a list of cores"):
        settings(filterWorkerCores="2-1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert not settings().worker_cores


def test_what_the_components_receive() -> None:
    texts: dict[str, Any] = {
        "filterWorkersMax": "3",
        "filterWorkerMemory": "128",
        "filterBatchMillis": "70",
        "filterMessageMicros": "2000",
        "filterStrikes": "5",
        "filterStrikeWindow": "30000",
    }
    made = settings(**texts)
    assert (made.policy.workers_max, made.policy.failures_max) == (3, 5)
    assert made.policy.failure_window_ms == 30_000
    limits = made.worker_limits
    assert (limits.memory_bytes, limits.batch_ms, limits.message_us) == (128 << 20, 70, 2_000)
    assert settings().policy.workers_max >= 2


def test_advertised_listeners_are_registered_with_the_own_ones() -> None:
    made = settings(advertisedListeners="host=10.0.0.1:20915;tcp:host=10.0.0.1:10915")
    assert made.listeners({"zmq": "127.0.0.1:1", "tcp": "127.0.0.1:2"}) == {
        "zmq:internal": "127.0.0.1:1",
        "tcp:internal": "127.0.0.1:2",
        "zmq:host": "10.0.0.1:20915",
        "tcp:host": "10.0.0.1:10915",
    }
