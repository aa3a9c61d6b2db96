"""A port that is kept stays free for the process that it is meant for, and for no other."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kourou.service.processes import KEPT_PORTS, LOOPBACK, UNKEPT_PORTS, KeptPorts, free_port


def listening(port: int, *, reuse: bool) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
    try:
        made.bind((LOOPBACK, port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def test_a_free_port_has_free_neighbours() -> None:
    port = free_port(-2)
    with socket.socket() as one, socket.socket() as other:
        one.bind((LOOPBACK, port))
        other.bind((LOOPBACK, port - 2))


def test_no_port_is_one_that_the_system_gives_to_a_connection() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = KeptPorts()
    try:
        assert all(port < first for port in (ports["a"], free_port()))
    finally:
        ports.release()


def test_no_kept_port_is_chosen_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.service.processes.KEPT_PORTS", range(12_000, 12_003))
    one, other = KeptPorts(), KeptPorts()
    try:
        assert len({one["a"], other["a"], other["b"]}) == 3
    finally:
        one.release()
        other.release()


def test_no_kept_port_is_one_that_a_broker_derives_from_a_free_one() -> None:
    derived = {port + shift for port in UNKEPT_PORTS for shift in (-2, 0, 1, 10_000, 10_001)}
    assert derived.isdisjoint(KEPT_PORTS)
    assert free_port() in UNKEPT_PORTS


def test_a_name_has_one_port_and_names_differ() -> None:
    ports = KeptPorts()
    try:
        assert ports["a"] == ports["a"] != ports["b"]
    finally:
        ports.release()


def test_a_service_listens_on_it_again_and_again_and_strangers_do_not() -> None:
    ports = KeptPorts()
    try:
        for _ in range(2):
            with pytest.raises(OSError, match="in use"):
                listening(ports["a"], reuse=False)
            listening(ports["a"], reuse=True).close()
    finally:
        ports.release()


def test_what_is_released_is_free() -> None:
    ports = KeptPorts()
    port = ports["a"]
    ports.release()
    listening(port, reuse=False).close()
