"""What operators do to a running cluster, and what its clients notice of it: nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kourou.client.settings.client_settings import ClientSettings, ConsumerSettings
from kourou.errors import KourouError
from kourou.model.message import SendResult
from kourou.model.subscription import ConsumeFromWhere
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child
from kourou.sync import Client

TOPIC = "orders"
QUICK = ClientSettings(poll_name_server_interval_ms=100)


@dataclass
class Sending:
    """A thread that sends one message after the other and notes every outcome."""

    client: Client
    results: list[SendResult] = field(default_factory=list)
    failures: list[KourouError] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            try:
                result = self.client.send(TOPIC, str(number))
            except KourouError as error:
                self.failures.append(error)
                return
            number += 1
            with self.changed:
                self.results.append(result)
                self.changed.notify_all()

    def wait_until_only(self, brokers: set[str], count: int = 40) -> None:
        """Until so many sends in a row went to these brokers and to each of them."""

        def settled() -> bool:
            last = self.results[-count:]
            return bool(self.failures) or (
                len(last) == count and {one.queue.broker_name for one in last} == brokers
            )

        with self.changed:
            assert self.changed.wait_for(settled, timeout=60)
        assert self.failures == []


@pytest.mark.feature("F376", "F359", "F034", "F360")
def test_a_broker_is_shut_down_by_its_name_and_restarted_and_no_send_fails(tmp_path: Path) -> None:
    """Only what is meant ends; the others do not notice."""
    with (
        LocalCluster(tmp_path, ClusterSettings(brokers=2)) as cluster,
        Client(cluster.address, group="till", settings=QUICK) as client,
    ):
        client.admin.topics.create(TOPIC, queues=4)
        sending = Sending(client)
        thread = threading.Thread(target=sending.run)
        thread.start()
        try:
            sending.wait_until_only({"broker-a", "broker-b"})
            client.admin.brokers.wipe_write_perm("broker-a")
            sending.wait_until_only({"broker-b"})
            shutdown("broker", cluster.brokers[0].pid)
            assert cluster.brokers[0].ended_in_peace
            assert cluster.brokers[1].running
            sending.wait_until_only({"broker-b"})
            cluster.start_broker(0)
            sending.wait_until_only({"broker-a", "broker-b"})
        finally:
            sending.stop.set()
            thread.join()
        assert sending.failures == []
        stored = client.admin.topics.stats(TOPIC)
        assert sum(one.max_offset for one in stored.values()) == len(sending.results)
        shutdown("namesrv", cluster.namesrv.pid)
        assert cluster.namesrv.ended_in_peace
        assert cluster.brokers[1].running


@pytest.mark.feature("F008", "F146")
def test_what_was_stored_is_there_after_everything_was_killed(tmp_path: Path) -> None:
    """Two groups read the same queues; a kill of all processes takes nothing that was stored."""
    with LocalCluster(tmp_path, ClusterSettings()) as cluster:
        with Client(cluster.address, group="till") as client:
            client.admin.topics.create(TOPIC, queues=2)
            sent = {client.send(TOPIC, f"order {number}").message_id for number in range(50)}
        cluster.brokers[0].kill()
        cluster.namesrv.kill()
    with LocalCluster(tmp_path, ClusterSettings()) as cluster:
        assert consumed(cluster, "cook", 50) == sent
        assert consumed(cluster, "waiter", 50) == sent


def consumed(cluster: LocalCluster, group: str, count: int) -> set[str]:
    settings = ConsumerSettings(
        consumer_group=group, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with (
        Client(cluster.address, group=group) as client,
        client.subscribe(TOPIC, settings=settings) as messages,
    ):
        return {next(iter(messages)).message_id for _ in range(count)}


@pytest.mark.feature("F355", "F356", "F357", "F361", "F360")
def test_a_template_is_printed_edited_started_and_stopped(tmp_path: Path) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "kourou.cli", "broker", "-m"],
        capture_output=True,
        text=True,
        check=True,
    )
    template = tmp_path / "broker.p"
    store = tmp_path / "my-store"
    lines = [
        f"storePathRootDir={store}"
        if line.startswith("storePathRootDir=")
        else "listenPort=0"
        if line.startswith("listenPort=")
        else line
        for line in printed.stdout.splitlines()
    ]
    assert lines != printed.stdout.splitlines()
    template.write_text("\n".join(lines) + "\n")
    kourou = [sys.executable, "-m", "kourou.cli"]
    with ExitStack() as stack:
        namesrv = Child("namesrv", [*kourou, "namesrv", "--set", "listenPort=0"], tmp_path)
        stack.callback(namesrv.kill)
        namesrv.wait_for_ready()
        address = str(namesrv.ready["zmq"]).removeprefix("tcp://")
        broker = Child("broker", [*kourou, "broker", "-n", address, "-c", str(template)], tmp_path)
        stack.callback(broker.kill)
        broker.wait_for_ready()
        with Client(address) as client:
            assert len(client.admin.brokers.names()) == 1
        assert (store / "abort").exists()
        told = shutdown("broker", broker.pid)
        assert broker.wait_for_exit(0.0) == 0
        assert told == [
            f"broker (pid {broker.pid}) {what}" for what in ("is stopping", "has ended")
        ]
    assert (store / "commitlog").is_dir()
    assert not (store / "abort").exists()


def shutdown(service: str, pid: int) -> list[str]:
    """`kourou shutdown`, of one process; what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "kourou.cli", "shutdown", service, "--pid", str(pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
