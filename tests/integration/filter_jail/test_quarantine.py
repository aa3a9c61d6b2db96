"""Hostile filters in a whole cluster: uploaded, run, struck three times, and shut away.

Another group's filter goes on meanwhile, on the same filter server; and with a better version the
hostile group gets every message that it waited for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kourou import Client, Filter, PullConsumerSettings
from kourou.errors import FilterFailed
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou_filter_server.zygote_link import missing

COUNT = 30
THIRDS = "def match(message, context):\n    return message.json['n'] % 3 == 0\n"
WANTED = list(range(0, COUNT, 3))

POSIX = "import json\nos = json.codecs.sys.modules['posix']\n"
"""Past the rules: none of these words is forbidden, and this is the whole machine."""

HOSTILE = {
    "raised": "def match(message, context):\n    return message.json['nobody'] > 0",
    "timeout": "def match(message, context):\n    while True:\n        pass\n    return True",
    "memory": "def match(message, context):\n    return len(bytes(1 << 40)) > 0",
    "died": POSIX + "def match(message, context):\n    os._exit(0)\n    return True",
    "lied": POSIX + "def match(message, context):\n    os.write(3, b'x' * 9)\n    return True",
    "setup": "raise ValueError\ndef match(message, context):\n    return True",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if lacking := missing():
        pytest.skip("needs a kernel layer: " + ", ".join(layer.name for layer in lacking))
    settings = ClusterSettings(filter_servers=1)
    with LocalCluster(tmp_path_factory.mktemp("quarantine"), settings) as started:
        yield started


@pytest.mark.feature("F238", "F243")
@pytest.mark.parametrize("kind", HOSTILE)
async def test_three_failures_and_back_with_a_better_version(cluster, kind: str) -> None:
    topic = f"hostile-{kind}"
    async with Client(cluster.address) as mq:
        await mq.admin.topics.create(topic, queues=1)
        await mq.send_many(topic, [{"n": number} for number in range(COUNT)])
        good = await mq.pull_consumer(
            settings=PullConsumerSettings(consumer_group=f"good-{kind}"), body_type=dict
        )
        bad = await mq.pull_consumer(
            settings=PullConsumerSettings(consumer_group=f"bad-{kind}"), body_type=dict
        )
        (queue,) = await bad.queues(topic)
        hostile = Filter(HOSTILE[kind], name="hostile")
        honest = Filter(THIRDS, name="honest")

        kinds = []
        while "quarantined" not in kinds:
            with pytest.raises(FilterFailed) as failed:
                await bad.pull(queue, 0, expression=hostile)
            kinds.append(failed.value.kind)
            found = await good.pull(queue, 0, expression=honest)
            assert [message.body["n"] for message in found.messages] == WANTED
            assert len(kinds) < 10_000
        assert set(kinds) == {kind, "quarantined"}

        (states,) = (await mq.admin.filters.list(f"bad-{kind}", "hostile")).values()
        assert f"last error: {kind}: " in states[0].quarantined[1]
        assert states[0].active == 1

        await mq.admin.filters.put(f"bad-{kind}", "hostile", THIRDS, note="mended")
        found = await bad.pull(queue, 0, expression=Filter.named("hostile"))
        assert [message.body["n"] for message in found.messages] == WANTED
        assert found.next_offset == COUNT
