"""`kourou admin why`: lines for people, one object for programs, and an exit code."""

from __future__ import annotations

import json

import pytest

from kourou.cli.admin.why_commands import why
from kourou.testing.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("why")) as cluster:
        yield cluster


@pytest.mark.feature("F265")
def test_lines_json_and_exit_code(cluster, capsys):
    topic = cluster.create_topic(queues=1)
    with cluster.client() as mq:
        sent = mq.send(topic, b"x", keys="A-1")
        assert why("A-1", cluster.address, topic=topic) == 1
        told = capsys.readouterr().out.splitlines()
        assert told[0].endswith(f"{sent.queue!s}@0")
        assert told[1].startswith("nobody_consumes: ")
        assert told[2].startswith("  -> ")
        mq.admin.offsets.commit("till", {sent.queue: 1})
        assert why(sent.message_id, cluster.address, group="till", json=True) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["message"]["keys"] == ["A-1"]
        assert [one["code"] for one in found["groups"][0]["causes"]] == ["consumed"]
