from __future__ import annotations

import hashlib

import msgspec
import pytest

from kourou.errors import Code
from kourou.protocol.messages.filter_server import (
    GetFilters,
    PutFilter,
    RegisterFilterServer,
    RegisterFilterServerResponse,
    RegisterMessageFilterClass,
    UnregisterFilterServer,
)
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.record.layout import masked_crc
from kourou.runtime import LogWarning, Reply
from kourou_filter_server.catalogue import JAVA_TEXT
from kourou_filter_server.interface import BrokerFound, Leaving
from kourou_rigs.filter_bench import GROUP, NAME, TOPIC, Bench, a_pull

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


# -- uploads ---------------------------------------------------------------------------------------


SOURCE = b"import json; import math\n\ndef match(message, context):\n    return True\n"
JAVA = b"""package org.example;

import com.alibaba.rocketmq.common.message.MessageExt;

public class Late implements MessageFilter { }
"""


def upload(source: bytes = SOURCE, crc: int | None = None) -> RegisterMessageFilterClass:
    return RegisterMessageFilterClass(
        consumer_group=GROUP,
        topic=TOPIC,
        class_name=NAME,
        class_crc=masked_crc(source) if crc is None else crc,
    )


@pytest.mark.feature("F240")
def test_an_upload_goes_to_the_broker_and_its_answer_back(bench: Bench) -> None:
    bench.turn(bench.received(upload(), SOURCE))
    asked = bench.asked(PutFilter)
    assert asked.body == (SOURCE,)
    request = asked.request
    assert isinstance(request, PutFilter)
    assert (request.consumer_group, request.name) == (GROUP, NAME)
    assert request.sha256 == hashlib.sha256(SOURCE).hexdigest()
    assert request.author == "127.0.0.1:40000"
    assert not bench.all(Reply)
    bench.answer(asked)
    assert bench.done(Reply).code == Code.SUCCESS


def test_the_brokers_refusal_comes_back(bench: Bench) -> None:
    bench.turn(bench.received(upload(), SOURCE))
    bench.answer(bench.asked(PutFilter), code=Code.NO_PERMISSION, remark="not here")
    assert (bench.done(Reply).code, bench.done(Reply).remark) == (Code.NO_PERMISSION, "not here")
    bench.turn(bench.received(upload(), SOURCE))
    bench.no_answer(bench.asked(PutFilter))
    assert bench.done(Reply).code == Code.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("source", "crc", "told"),
    [
        (JAVA, None, "filters must be Python"),
        (b"public final class A {}", None, "filters must be Python"),
        (b"\n\n\timport java.util.List;", None, "filters must be Python"),
        (SOURCE, 1, "CRC"),
        (b"", 0, "bytes"),
        (b"#" * 65_537, None, "bytes"),
    ],
)
def test_what_cannot_be_a_filter_is_refused_here(
    bench: Bench, source: bytes, crc: int | None, told: str
) -> None:
    bench.turn(bench.received(upload(source, crc), source))
    reply = bench.done(Reply)
    assert reply.code == Code.SYSTEM_ERROR
    assert told in reply.remark


def test_java_is_looked_for_within_lines(bench: Bench) -> None:
    """A pattern that went on over empty lines would look 2,000,000,000 times at these."""
    found = JAVA_TEXT.search(b"\n\n\tpublic class A {}")
    assert found is not None
    assert found.start() == 2
    source = b"\n" * 65_536
    bench.turn(bench.received(upload(source), source))
    assert bench.asked(PutFilter).body == (source,)


def test_pulls_of_old_clients_name_no_filter(bench: Bench) -> None:
    """They pull through what their group brought along for the topic."""
    bench.turn(bench.received(upload(), SOURCE))
    bench.answer(bench.asked(PutFilter))
    bench.turn(bench.received(a_pull(subscription=None)))
    assert bench.asked(PullMessage)
