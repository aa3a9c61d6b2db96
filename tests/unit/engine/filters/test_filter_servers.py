"""Which filter servers run beside a broker."""

from __future__ import annotations

import pytest

from kourou.engine.filters.filter_servers import FilterServerTable
from kourou.errors import BadRequest, Throttled
from kourou.model.limits import FILTER_SERVER_LISTENERS_MAX, FILTER_SERVERS_MAX
from kourou.runtime import Peer


def peer(number: int, protocol: str = "zmq", listener: str = "internal") -> Peer:
    return Peer(number, protocol, ("127.0.0.1", number), listener)


def listeners(number: int) -> dict[str, str]:
    return {
        "zmq:internal": f"f{number}:20915",
        "zmq:host": f"localhost:{number}",
        "tcp:internal": f"f{number}:10915",
    }


@pytest.fixture
def servers() -> FilterServerTable:
    made = FilterServerTable()
    for number in (2, 1):
        assert made.register(0, f"f{number}:10915", listeners(number), peer(number))
    return made


@pytest.mark.feature("F239")
def test_an_asker_gets_addresses_of_its_own_protocol_and_listener(
    servers: FilterServerTable,
) -> None:
    assert servers.addresses_for(peer(9)) == ["f1:20915", "f2:20915"]
    assert servers.addresses_for(peer(9, "zmq", "host")) == ["localhost:1", "localhost:2"]
    assert servers.addresses_for(peer(9, "tcp")) == ["f1:10915", "f2:10915"]
    assert servers.addresses_for(peer(9, "tcp", "host")) == ["f1:10915", "f2:10915"]
    assert servers.addresses_for(peer(9, "local")) == []


def test_one_of_rocketmq_is_dialled_as_it_says_by_its_own_protocol() -> None:
    servers = FilterServerTable()
    assert servers.register(0, "10.0.0.7:30125", None, peer(1, "tcp"))
    assert servers.addresses_for(peer(9, "tcp")) == ["10.0.0.7:30125"]
    assert servers.addresses_for(peer(9)) == []
    assert [one.notified for one in servers] == [False], "it knows no notices of ours"


def test_only_what_name_servers_must_hear_of_is_new(servers: FilterServerTable) -> None:
    assert not servers.register(5, "f1:10915", listeners(1), peer(1))
    assert servers.register(6, "f1:10915", {"zmq:internal": "moved:1"}, peer(1))
    assert servers.reported() == ({"zmq:internal": "moved:1"}, listeners(2))


def test_a_lost_connection_takes_along_only_who_registered_over_it(
    servers: FilterServerTable,
) -> None:
    servers.register(1, "f1:10915", listeners(1), peer(3))
    assert servers.drop_peer(peer(1)) == [], "it has come back over another connection"
    assert servers.drop_peer(peer(3)) == ["f1:10915"]
    assert servers.drop_peer(peer(3)) == []


def test_a_late_farewell_does_not_take_its_successor_along(servers: FilterServerTable) -> None:
    servers.register(1, "f1:10915", listeners(1), peer(3))
    assert not servers.unregister("f1:10915", peer(1))
    assert servers.unregister("f1:10915", peer(3))
    assert not servers.unregister("f1:10915", peer(3))
    assert servers.addresses_for(peer(9)) == ["f2:20915"]


@pytest.mark.parametrize(
    ("address", "table"),
    [
        ("", {}),
        ("a\n:1", {}),
        ("x" * 264, {}),
        ("f:1", {"zmq:internal": ""}),
        ("f:1", {"": "f:1"}),
        ("f:1", {f"zmq:{n}": "f:1" for n in range(FILTER_SERVER_LISTENERS_MAX + 1)}),
    ],
)
def test_odd_addresses_are_refused(address: str, table: dict[str, str]) -> None:
    servers = FilterServerTable()
    with pytest.raises(BadRequest):
        servers.register(0, address, table, peer(1))
    assert len(servers) == 0


def test_there_is_room_for_so_many(servers: FilterServerTable) -> None:
    for number in range(3, FILTER_SERVERS_MAX + 1):
        servers.register(0, f"f{number}:10915", listeners(number), peer(number))
    with pytest.raises(Throttled, match="64 filter servers"):
        servers.register(0, "one:more", None, peer(999))
    assert not servers.register(1, "f1:10915", listeners(1), peer(1)), "who is there may go on"
