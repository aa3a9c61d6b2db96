"""What our client writes to the trace topic is read by RocketMQ's own mqadmin."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest
from tests.interop import servers
from tests.interop.conftest import JVM

from kourou.client.settings.client_settings import ProducerSettings
from kourou.client.settings.consumer_settings import ConsumeFromWhere, ConsumerSettings
from kourou.sync import Client

MQADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
PATIENCE_S = 60


@pytest.mark.feature("F266")
def test_mqadmin_reads_what_became_of_our_message(class_path: str, tmp_path: Path) -> None:
    home = tmp_path / "mqadmin"
    (home / "conf").mkdir(parents=True)
    quiet = '<configuration><root level="OFF"/></configuration>'
    (home / "conf" / "logback_tools.xml").write_text(quiet)
    with servers.kourou_cluster(tmp_path / "ours") as cluster:
        sent = send_and_consume(cluster.address)
        done = subprocess.run(
            [
                *("java", *JVM, f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"),
                *("-cp", class_path, MQADMIN, "queryMsgTraceById"),
                *("-n", servers.tcp_address(cluster.namesrv), "-i", sent),
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        )
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip()}
    assert (rows["Pub"][1], rows["Pub"][-1]) == ("office", "success"), done.stdout + done.stderr
    assert (rows["Sub"][1], rows["Sub"][-1]) == ("readers", "success"), done.stdout


def send_and_consume(address: str) -> str:
    """One traced message; its id, when both traces are written."""
    producer = ProducerSettings(producer_group="office", message_trace=True)
    consumer = ConsumerSettings(
        consumer_group="readers",
        message_trace=True,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    seen = threading.Event()
    with Client(address, group="office", producer=producer) as mq:
        mq.admin.topics.create("traced", queues=1)
        sent = mq.send("traced", "hello").message_id
        with mq.listen("traced", lambda message: seen.set(), settings=consumer):
            assert seen.wait(PATIENCE_S)
    return sent  # what waits to be written is written when a client closes
