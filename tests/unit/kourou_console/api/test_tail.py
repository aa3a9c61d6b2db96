"""A topic is followed by events, and resumed where a reader stood."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kourou.testing.cluster import Cluster
from kourou_rigs.console import ConsoleHere


@pytest.fixture
def cluster(suite: Any) -> Cluster:
    """Its cluster."""
    return suite.cluster


@pytest.fixture
def console(suite: Any) -> ConsoleHere:
    """Its console."""
    return suite.console


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic(queues=2)


def test_a_topic_is_followed_and_resumed(cluster, console, topic):
    path = f"/v1/topics/{topic}/tail"
    with cluster.client() as mq:
        mq.send(topic, "before")
        with console.events(path, query={"tag": ["a", "b"]}) as stream:
            mq.send(topic, "1", tag="a")
            mq.send(topic, "no", tag="c")
            mq.send(topic, "2", tag="b")
            events = iter(stream)
            seen = [next(events), next(events)]
        assert sorted(one.json["body"] for one in seen) == ["1", "2"]
        mq.send(topic, "3", tag="a")
        headers = {"Last-Event-ID": seen[-1].id}
        with console.events(path, query={"tag": ["a", "b"]}, headers=headers) as stream:
            assert next(iter(stream)).json["body"] == "3"
        with console.events(path, query={"from": "begin", "sql": "TAGS = 'c'"}) as stream:
            assert next(iter(stream)).json["body"] == "no"
    assert console.get(path, query={"from": "yesterday"}).status == 400
    assert console.get(path, headers={"Last-Event-ID": "x"}).status == 400


def test_there_is_no_head_of_what_does_not_end(console, topic):
    assert console.request("HEAD", f"/v1/topics/{topic}/tail").status == 405


def test_a_stream_ends_in_words_and_whole_when_the_gateway_ends(cluster, topic):
    with ConsoleHere(cluster) as console:
        host, _, port = console.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as link:
            link.sendall(
                b"GET /v1/topics/%b/tail HTTP/1.1\r\nHost: localhost\r\n\r\n" % topic.encode()
            )
            found = link.recv(65_536)
            console.run(console.service.drain())
            while more := link.recv(65_536):
                found += more
    assert found.startswith(b"HTTP/1.1 200")
    assert found.count(b"HTTP/1.1") == 1, "no other answer is in it"
    assert b"event: error\ndata: " in found
    assert b"the gateway is shutting down" in found
    assert found.endswith(b"\r\n0\r\n\r\n"), "the last chunk"
