"""The commands a newcomer types, against real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kourou.service.local_cluster import ClusterSettings, LocalCluster

KOUROU = (sys.executable, "-m", "kourou.cli")


def kourou(
    *arguments: str, stdin: str = "", within_s: float = 100
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    return subprocess.run(
        [*KOUROU, *arguments],
        input=stdin,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=within_s,
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), ClusterSettings()) as running:
        yield running


def test_what_is_sent_can_be_tailed(cluster: LocalCluster) -> None:
    sent = kourou(
        "send", "greetings", "hello", "-n", cluster.address, "--tag", "t", "--key", "k", "--json"
    )
    assert sent.returncode == 0, sent.stderr
    result = json.loads(sent.stdout)
    assert result["status"] == "SEND_OK"
    assert kourou("send", "greetings", "-n", cluster.address, stdin="a\nb\n").returncode == 0
    tailed = kourou("tail", "greetings", "-n", cluster.address, "--first", "--count=3", "--json")
    assert tailed.returncode == 0, tailed.stderr
    messages = [json.loads(line) for line in tailed.stdout.splitlines()]
    assert sorted(message["body"] for message in messages) == ["a", "b", "hello"]
    (tagged,) = [message for message in messages if message["tag"] == "t"]
    assert tagged["message_id"] == result["message_id"]
    assert tagged["keys"] == ["k"]


def test_an_unknown_topic_is_one_sentence(cluster: LocalCluster) -> None:
    done = kourou("tail", "nothing-here", "-n", cluster.address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("kourou: ")
    assert "nothing-here" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "work",
    [
        ("send", "--in-flight=16"),
        ("send", "--batch=8"),
        ("consume", "--handler=message"),
        ("consume", "--handler=batch"),
        ("latency",),
    ],
)
def test_a_benchmark_prints_its_figures(cluster: LocalCluster, work: tuple[str, ...]) -> None:
    done = kourou("bench", *work, "--messages=200", "--size=100", "--json", "-n", cluster.address)
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(figures) >= 3
    assert all(figure["value"] > 0 and figure["unit"] for figure in figures)
    assert all(figure["settings"]["messages"] == 200 for figure in figures)
