"""`kourou up` through the front door: its lines, its disk, a killed broker, Ctrl-C at any time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kourou.cli.up import FLIGHTS_LINE
from kourou.client.settings.client_settings import ClientSettings, ConsumerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou.service.local_cluster import (
    SMALL_SEGMENT_BYTES,
    ClusterSettings,
    LocalCluster,
    plain_address,
)
from kourou.sync import Client
from kourou_demo.terms import TOPIC as FLIGHTS

READY = "Ctrl-C stops it."
DISK_BYTES_MAX = 50_000_000
LINE = re.compile(r"((?:http://)?127\.0\.0\.1:\d+) +([\w -]+?) +ready in +\d+\.\d s   pid (\d+)")

pytestmark = pytest.mark.timeout(300)  # several processes: a minute on a busy machine


class Up:
    """A running `kourou up`; its output is read line by line."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        typed = ["up", "--free-ports", "--folder", str(folder), "--filter-servers", "0", *words]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kourou.cli", *typed],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, word: str) -> list[str]:
        """The lines up to the first one with that word."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if word in line:
                return lines
        raise AssertionError(f"{lines} {self.process.communicate()[1]}")

    def interrupt(self) -> tuple[int, str, str]:
        """Ctrl-C; the exit code and what was still printed."""
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err

    def left(self) -> list[str]:
        """The command lines of processes that were started for the folder and still run."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:  # it ended just now
                continue
            if any(word.startswith(f"{self.folder}/") for word in words):
                found.append(" ".join(words))
        return found


@contextmanager
def started(folder: Path, *words: str) -> Iterator[Up]:
    running = Up(folder, *words)
    try:
        yield running
    finally:
        running.process.kill()  # the kernel ends its services
        running.process.communicate()


def services(lines: list[str]) -> dict[str, tuple[str, int]]:
    """Name -> address and process id, as the lines of the services say."""
    found = (LINE.match(line) for line in lines)
    return {one[2]: (one[1], int(one[3])) for one in found if one is not None}


def address_in(lines: list[str]) -> str:
    [line] = [line for line in lines if "NAMESRV_ADDR=" in line]
    return line.partition("=")[2]


def bodies(address: str, count: int) -> set[str]:
    settings = ConsumerSettings(
        consumer_group="looks", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with (
        Client(address, group="looks") as client,
        client.subscribe("greetings", settings=settings) as messages,
    ):
        return {next(iter(messages)).body.decode() for _ in range(count)}


def receive_one(address: str, topic: str) -> None:
    """Wait for a message that is sent from now on, to a topic that may have to be created yet."""
    settings = ClientSettings(poll_name_server_interval_ms=500, rebalance_interval_ms=500)
    with (
        Client(address, group="looks", settings=settings) as client,
        client.subscribe(topic) as messages,
    ):
        next(iter(messages))


def status_of(page: str) -> int:
    with urllib.request.urlopen(page) as answer:
        status: int = answer.status
        return status


def test_a_killed_broker_is_reported_and_restarted_once_and_the_console_stays(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "up"
    with started(folder) as running:
        lines = running.until(READY)
        assert lines[0] == f"starting in {folder}"
        there = services(lines)
        assert set(there) == {"name server", "broker-a", "console"}
        address, console = address_in(lines), there["console"][0]
        assert there["name server"][0] == address
        assert f"console    {console}" in lines
        assert [one for one in lines if one.startswith("access ")] == [
            "access     open to everybody who reaches it: all services (docs/security.md)"
        ]
        for name in ("namesrv", "broker-a", "console"):
            assert (folder / f"{name}.log").read_text().count("access-open") == 1, name
        used = sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())
        assert used <= DISK_BYTES_MAX

        with Client(address, group="till") as client:
            client.send("greetings", "before")
            broker, pid = there["broker-a"]
            os.kill(pid, signal.SIGKILL)
            said = running.until("ready in")
            assert said[0] == (f"broker-a (pid {pid}) was killed by SIGKILL; starting it again")
            again, second = services(said)["broker-a"]
            assert again == broker
            assert second != pid
            client.send("greetings", "after")
        assert bodies(address, 2) == {"before", "after"}

        os.kill(second, signal.SIGKILL)
        said = running.until("    kourou broker -c")
        assert said[0].startswith(
            f"broker-a (pid {second}) was killed by SIGKILL, again within 60 s of its restart; "
            f"its log is {folder}/broker-a.log"
        )
        assert (
            said[-2]
            == "The other services keep running. To start it again, type in another terminal:"
        )
        command, _, name_server = said[-1].rpartition(" -n ")
        assert command == f"    kourou broker -c {folder}/broker-a.conf"
        assert plain_address(name_server) == address
        assert status_of(console) == 200
        code, out, err = running.interrupt()
        assert (code, err) == (0, "")
        assert out.splitlines() == [
            "stopping; a second Ctrl-C kills …",
            f"stopped; all messages are kept in {folder}",
        ]
    with started(folder, "--no-console") as running:
        address = address_in(running.until(READY))
        assert bodies(address, 2) == {"before", "after"}, "a second start keeps the messages"
        assert running.interrupt()[0] == 0


def test_with_flights_a_killed_broker_is_reported_at_once_and_the_flights_go_on(
    tmp_path: Path,
) -> None:
    """The report comes before anything else is printed, while flights are sent and consumed."""
    folder = tmp_path / "up"
    with started(folder, "--flights") as running:
        lines = running.until(READY)
        there = services(lines)
        address, console = address_in(lines), there["console"][0]
        assert f"flights    {FLIGHTS_LINE}" in lines
        receive_one(address, FLIGHTS)
        broker, pid = there["broker-a"]
        os.kill(pid, signal.SIGKILL)
        said = running.until("ready in")
        assert len(said) == 2
        assert said[0] == f"broker-a (pid {pid}) was killed by SIGKILL; starting it again"
        again, second = services(said)["broker-a"]
        assert again == broker
        assert status_of(console) == 200
        receive_one(address, FLIGHTS)

        os.kill(second, signal.SIGKILL)
        said = running.until("    kourou broker -c")
        assert said[0].startswith(
            f"broker-a (pid {second}) was killed by SIGKILL, again within 60 s of its restart; "
        )
        assert status_of(console) == 200


def test_ctrl_c_during_the_start_ends_everything(tmp_path: Path) -> None:
    with started(tmp_path / "up") as running:
        running.until("starting in")
        code, out, err = running.interrupt()
        assert (code, err) == (130, "kourou: interrupted\n")
        assert READY not in out
        assert running.left() == []


def test_a_second_ctrl_c_kills_what_does_not_stop(tmp_path: Path) -> None:
    with started(tmp_path / "up", "--no-console") as running:
        _, pid = services(running.until(READY))["broker-a"]
        os.kill(pid, signal.SIGSTOP)
        running.process.send_signal(signal.SIGINT)
        running.until("a second Ctrl-C kills")
        code, _, err = running.interrupt()
        assert (code, err) == (130, "kourou: interrupted\n")
        assert running.left() == []


def test_a_folder_that_cannot_be_used_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "busy", ClusterSettings(brokers=0)):
        with started(tmp_path / "busy") as running:
            _, err = running.process.communicate(timeout=60)
        assert running.process.returncode == 2
        assert err.startswith(f"kourou: {tmp_path}/busy is in use: process {os.getpid()} runs ")
        assert err.count("\n") == 1
    (tmp_path / "file").touch()
    with started(tmp_path / "file" / "up") as running:
        _, err = running.process.communicate(timeout=60)
    assert running.process.returncode == 2
    why = "is not a folder (choose another --folder; one that does not exist is created)"
    assert err == f"kourou: {tmp_path}/file {why}\n"


def test_an_existing_store_keeps_its_segment_size(tmp_path: Path) -> None:
    """Of a store that was made with RocketMQ's size, or another one."""
    other = {"mappedFileSizeCommitLog": str(SMALL_SEGMENT_BYTES * 2)}
    with (
        LocalCluster(tmp_path, ClusterSettings(broker=other)) as cluster,
        Client(cluster.address, group="till") as client,
    ):
        client.send("greetings", "before")
    with LocalCluster(tmp_path, ClusterSettings(small_segments=True)) as cluster:
        with Client(cluster.address, group="till") as client:
            client.send("greetings", "after")
        assert bodies(cluster.address, 2) == {"before", "after"}
    sizes = {file.stat().st_size for file in (tmp_path / "store-a" / "commitlog").iterdir()}
    assert sizes == {SMALL_SEGMENT_BYTES * 2}
