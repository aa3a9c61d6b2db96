"""A port that is kept stays free for the process that it is meant for, and for no other."""

from __future__ import annotations

import socket

import pytest

from kourou.service.kept_ports import LOOPBACK, KeptPorts


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
