from __future__ import annotations

import pytest

from kourou.errors import ConfigError
from kourou.service.protocol_server import advertised

DIAL = {"zmq": "127.0.0.1:20911", "tcp": "127.0.0.1:10911"}


def test_named_listeners_are_advertised_with_the_bound_ones() -> None:
    assert advertised(DIAL, " host=h:1 ; tcp:host=h:2; ") == {
        "zmq:internal": "127.0.0.1:20911",
        "tcp:internal": "127.0.0.1:10911",
        "zmq:host": "h:1",
        "tcp:host": "h:2",
    }


def test_a_transport_that_does_not_listen_is_not_advertised() -> None:
    assert advertised({"zmq": "a:1"}, "tcp:host=h:2") == {"zmq:internal": "a:1"}


@pytest.mark.parametrize("text", ["x", "x=", "x=h", "x=h:99999", "udp:x=h:1", "a b=h:1", "=h:1"])
def test_what_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="advertisedListeners"):
        advertised(DIAL, text)
