"""`kourou admin why`: lines for people, one object for programs, and an exit code."""

from __future__ import annotations

import json

import pytest

from kourou.cli.main import main
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
        assert main(["admin", "why", "A-1", "-n", cluster.address, "-t", topic]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].endswith(f"{sent.queue!s}@0")
        assert lines[1].startswith("nobody_consumes: ")
        assert lines[2].startswith("  -> ")
        mq.admin.offsets.commit("till", {sent.queue: 1})
        why = ["admin", "why", sent.message_id, "-n", cluster.address]
        assert main([*why, "-g", "till", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["message"]["keys"] == ["A-1"]
        assert [one["code"] for one in found["groups"][0]["causes"]] == ["consumed"]
