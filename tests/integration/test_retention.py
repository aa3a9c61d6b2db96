"""A broker deletes the old end of its log: who may ask for it, and what readers find then."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kourou.client.settings.client_settings import ConsumerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou.model.topic import MessageQueue
from kourou.sync import Client

TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
SETTINGS = {
    "mappedFileSizeCommitLog": 65_536,
    # The machine's own disk is not what is tried here.
    "diskMaxUsedSpaceRatio": 95,
    "diskSpaceCleanForciblyRatio": 100,
    "diskSpaceWarningLevelRatio": 100,
}
HOURS = 100


def far_from(hour: int) -> str:
    """An hour of the day that is not that one for long."""
    return f"{(hour + 12) % 24:02}"


def until(condition: Callable[[], bool]) -> None:
    """Ask again and again; each question is a round trip, so nothing spins."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


@pytest.mark.feature("F120", "F121", "F126", "F341", "F358")
def test_expired_segments_go_when_asked_and_readers_go_on(
    kourou_cluster: Callable[..., Any], kourou_admin: Callable[..., Any]
) -> None:
    hour = far_from(time.localtime().tm_hour + HOURS)
    cluster = kourou_cluster(1, storage="disk", settings={**SETTINGS, "deleteWhen": hour})
    oldest = cluster.folder / "broker-a" / "commitlog" / f"{0:020}"
    run = partial(kourou_admin, cluster.address)
    with Client(cluster.address, group="till") as client:
        client.admin.topics.create(TOPIC, queues=1)
        for number in range(200):
            client.send(TOPIC, f"{number:04}" + "x" * 1_000)
        cluster.clock.advance(seconds=2)  # the broker looks how old its segments are
        cluster.clock.leap(hours=HOURS)

    with Client(cluster.address, group="till") as client:

        def lowest() -> int:
            client.send(TOPIC, "the log goes on")
            return client.admin.topics.stats(TOPIC)[QUEUE].min_offset

        assert lowest() == 0, "it is not the hour"
        change = ("updateBrokerConfig", "-b", "broker-a", "-k")
        assert run(*change, "deleteWhen", "-v", "25").returncode != 0
        assert run(*change, "fileReservedTime", "-v", "200").returncode == 0
        assert run("deleteExpiredCommitLog", "-b", "broker-a").returncode == 0
        assert run("cleanExpiredCQ").returncode == 0
        status = client.admin.brokers.runtime("broker-a")
        assert (status["commitLogMinOffset"], lowest()) == ("0", 0), "100 hours are not 200"
        assert run(*change, "fileReservedTime", "-v", "99").returncode == 0
        asked = run("deleteExpiredCommitLog", "-c", "DefaultCluster")
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
    cluster.chaos.kill()
    cluster.chaos.restart()
    with Client(cluster.address, group="till") as client:
        assert client.send(TOPIC, "after a crash").status == "SEND_OK"
        assert client.admin.topics.stats(TOPIC)[QUEUE].min_offset == first
