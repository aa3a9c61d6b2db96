from __future__ import annotations

import msgspec
import pytest

from kourou.errors import Code
from kourou.protocol.messages.filter_server import (
    GetFilters,
    RegisterFilterServer,
    RegisterFilterServerResponse,
    UnregisterFilterServer,
)
from kourou.runtime.core import LogWarning
from kourou_filter_server.interface import BrokerFound, Leaving
from kourou_rigs.filter_bench import Bench

ANSWER = RegisterFilterServerResponse(broker_name="broker-a", broker_id=0, filters_version=7)


@pytest.mark.feature("F239")
def test_it_registers_on_every_connection_and_every_ten_seconds() -> None:
    bench = Bench()
    bench.turn(BrokerFound())
    asked = bench.asked(RegisterFilterServer)
    assert asked.request == RegisterFilterServer(
        filter_server_addr="127.0.0.1:20915", listeners={"zmq:internal": "127.0.0.1:20915"}
    )
    bench.answer(asked, ANSWER)
    assert bench.core.registration.registered
    bench.tell_filters(bench.asked(GetFilters))
    assert not bench.pass_time(9_999)
    bench.pass_time(1)
    bench.answer(bench.asked(RegisterFilterServer), ANSWER)
    assert not bench.effects  # it knows these filters
    bench.turn(BrokerFound())
    assert bench.asked(RegisterFilterServer)
    assert not bench.core.catalogue.known


def test_it_knows_from_its_registration_whether_the_broker_decides() -> None:
    bench = Bench().registered()
    assert not bench.core.registration.broker_decides
    for decides in (True, False):
        bench.pass_time(10_000)
        bench.answer(
            bench.asked(RegisterFilterServer), msgspec.structs.replace(ANSWER, decides=decides)
        )
        assert bench.core.registration.broker_decides is decides


def test_it_goes_on_trying_and_says_so_once() -> None:
    bench = Bench()
    bench.pass_time(0)
    bench.no_answer(bench.asked(RegisterFilterServer))
    assert "rejected the registration" in str(bench.done(LogWarning))
    assert "it is offline" in bench.core.registration.trouble
    bench.pass_time(1_000)
    bench.no_answer(bench.asked(RegisterFilterServer))
    assert not bench.all(LogWarning)
    bench.pass_time(1_000)
    bench.answer(bench.asked(RegisterFilterServer), code=Code.SYSTEM_BUSY, remark="too many")
    assert "too many" in str(bench.done(LogWarning))


def test_it_leaves_when_it_ends() -> None:
    bench = Bench().registered()
    bench.turn(Leaving())
    asked = bench.asked(UnregisterFilterServer)
    assert not bench.core.left
    bench.answer(asked)
    assert bench.core.left
    assert not bench.pass_time(60_000)
