"""A real broker deletes the old end of its log: who may ask for it, and what readers find then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.client.settings import ConsumerSettings
from kourou.model.queue import MessageQueue
from kourou.model.subscription import ConsumeFromWhere
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.sync import Client

TOPIC = "orders"
SEGMENT = 65_536
BROKER = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    # The machine's own disk is not what is tried here.
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceCleanForciblyRatio": "100",
    "diskSpaceWarningLevelRatio": "100",
}
HUNDRED_HOURS_MS = 360_000_000


def run(cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kourou.cli", "admin", *arguments],
        env={**os.environ, "NAMESRV_ADDR": cluster.address},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def until(condition: Callable[[], bool]) -> None:
    """Ask again and again; each question is a round trip, so nothing spins."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


def make_older(ages: Path) -> None:
    """As if the broker had run a hundred hours longer."""
    written = json.loads(ages.read_text())
    assert written["ages_ms"], "the broker wrote them when it stopped"
    for start in written["ages_ms"]:
        written["ages_ms"][start] += HUNDRED_HOURS_MS
    ages.write_text(json.dumps(written))


@pytest.mark.feature("F120", "F121", "F126", "F341", "F358")
def test_expired_segments_go_when_asked_and_readers_go_on(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, ClusterSettings(broker=BROKER)) as cluster:
        store = cluster.store_folder(0)
        oldest = store / "commitlog" / f"{0:020}"
        with Client(cluster.address, group="till") as client:
            client.admin.topics.create(TOPIC, queues=1)
            for number in range(200):
                client.send(TOPIC, f"{number:04}" + "x" * 1_000)
        assert cluster.brokers[0].stop() == 0
        make_older(store / "kourou" / "ages.json")
        cluster.start_broker(0)
        with Client(cluster.address, group="till") as client:

            def lowest() -> int:
                client.send(TOPIC, "the log goes on")
                stats = client.admin.topics.stats(TOPIC)
                return stats[MessageQueue(TOPIC, "broker-a", 0)].min_offset

            assert lowest() == 0, "it is not the hour"
            change = ("updateBrokerConfig", "-b", "broker-a", "-k")
            assert run(cluster, *change, "deleteWhen", "-v", "25").returncode != 0
            assert run(cluster, *change, "fileReservedTime", "-v", "200").returncode == 0
            assert run(cluster, "deleteExpiredCommitLog", "-b", "broker-a").returncode == 0
            assert run(cluster, "cleanExpiredCQ").returncode == 0
            status = client.admin.brokers.runtime("broker-a")
            assert (status["commitLogMinOffset"], lowest()) == ("0", 0), "100 hours are not 200"
            assert run(cluster, *change, "fileReservedTime", "-v", "99").returncode == 0
            asked = run(cluster, "deleteExpiredCommitLog", "-c", "DefaultCluster")
            assert asked.returncode == 0
            assert "broker-a deletes expired log segments now" in asked.stdout + asked.stderr
            until(lambda: lowest() > 0 and not oldest.exists())
            first = lowest()
        settings = ConsumerSettings(
            consumer_group="late", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        with (
            Client(cluster.address, group="late") as client,
            client.subscribe(TOPIC, settings=settings) as messages,
        ):
            message = next(iter(messages))
        assert message.offset == first
        cluster.brokers[0].kill()
        cluster.start_broker(0)
        with Client(cluster.address, group="till") as client:
            assert client.send(TOPIC, "after a crash").status == "SEND_OK"
            stats = client.admin.topics.stats(TOPIC)
            assert stats[MessageQueue(TOPIC, "broker-a", 0)].min_offset == first
