"""A running broker whose disk fails or fills up, as its clients see it.

A failed fsync: nobody is told SEND_OK any more, the process ends with code 75, and the next start
finds everything that was acknowledged. A full disk: sends are refused and say why, reads continue,
and so do sends when there is room again.

The disk fails inside a real broker process by order (kourou_rigs.failing_broker). A full one is
played by such a disk, too, which everybody can run, and by a file system of 16 MiB, which must be
mounted.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kourou import Client, ClientSettings, MessageQueue, ProducerSettings
from kourou.errors import Code, DiskFull, KourouError, StoreFaulted, Throttled, Unavailable
from kourou.model.message import SendStatus
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child
from kourou_rigs.failing_broker import MODULE, arguments_of
from kourou_rigs.failing_disk import Faults
from kourou_rigs.reading import read_topic

Place = tuple[int, int]
"""Queue id and offset."""

TOPIC = "T"
QUEUES = 4
MIB = 1 << 20
DISK_BYTES = 16 * MIB
FAULTED = 75
QUICK = ClientSettings(poll_name_server_interval_ms=100)
GIVES_UP = ProducerSettings(send_timeout_ms=10_000, retry_times_when_send_failed=0)
TRIES_AGAIN = ProducerSettings(send_timeout_ms=60_000, retry_times_when_send_failed=20)
SMALL = {
    "mappedFileSizeCommitLog": str(MIB),
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "maxMessageSize": "65536",
}

pytestmark = pytest.mark.fault


@dataclass
class Told:
    """What senders were told, in the order in which they were."""

    sent: int = 0
    stored: dict[bytes, Place] = field(default_factory=dict)
    errors: list[KourouError] = field(default_factory=list)
    refused: set[bytes] = field(default_factory=set)
    faulted: bool = False
    too_late: list[bytes] = field(default_factory=list)

    async def send(self, mq: Client, body: bytes, queue_id: int | None = None) -> bool:
        """Send one message and note what came of it; True if it was acknowledged."""
        queue = None if queue_id is None else MessageQueue(TOPIC, "broker-a", queue_id)
        self.sent += 1
        try:
            result = await mq.send(TOPIC, body, queue=queue, keys=f"k{self.sent}")
        except KourouError as error:
            self.errors.append(error)
            # A faulted store says of what it had taken already that the outcome is unknown.
            self.faulted |= isinstance(error, StoreFaulted) or (
                error.wire_code == Code.OUTCOME_UNKNOWN
            )
            if isinstance(error, (DiskFull, StoreFaulted)):
                self.refused.add(body)
            return False
        assert result.status is SendStatus.SEND_OK, result
        if self.faulted:
            self.too_late.append(body)
        self.stored[body] = (result.queue.queue_id, result.offset)
        return True

    async def read(self, mq: Client, ends: dict[int, int] | None = None) -> dict[Place, bytes]:
        read = await read_topic(mq, TOPIC, "g", ends=ends)
        return {place: one.raw_body for place, one in read.items()}

    async def compare(self, mq: Client) -> int:
        """All that was acknowledged is readable at its place, and nothing that was refused is."""
        ends: dict[int, int] = {}
        for queue_id, offset in self.stored.values():
            ends[queue_id] = max(ends.get(queue_id, 0), offset + 1)
        read = await self.read(mq, ends)
        missing = [body[:20] for body, place in self.stored.items() if read.get(place) != body]
        assert not missing, f"acknowledged and not there: {missing}"
        phantoms = self.refused & set(read.values())
        assert not phantoms, f"refused and stored all the same: {phantoms}"
        assert len(set(read.values())) == len(read)
        return len(read)


def start_failing(cluster: LocalCluster, faults: Faults, root: Path | None = None) -> Child:
    """Start broker-a on its store, with faults ordered; it need not become ready."""
    settings = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "listenPort": "0",
        "storePathRootDir": str(cluster.store_folder(0)),
        **(cluster.settings.broker or {}),
    }
    given = [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
    return cluster.children.start_module(
        "broker-a", MODULE, *arguments_of(faults, root), *given, "-n", cluster.address
    )


# -- fdatasync fails ------------------------------------------------------------------------------


@pytest.mark.timeout(900)
@pytest.mark.feature("F094", "F110")
async def test_nobody_is_promised_anything_after_a_failed_fsync(
    tmp_path: Path, rounds: Callable[[int], int]
) -> None:
    """The k-th fdatasync of the log fails; every third time it is one of the consume queues."""
    keys = {**SMALL, "flushDiskType": "SYNC_FLUSH", "flushIntervalConsumeQueue": "50"}
    full = 50
    ks = range(1, full + 1, full // rounds(full))
    told = Told()
    early: list[str] = []
    with LocalCluster(tmp_path, ClusterSettings(broker=keys)) as cluster:
        async with Client(cluster.address) as mq:
            await mq.admin.topics.create(TOPIC, queues=QUEUES)
        assert cluster.brokers[0].stop() == 0
        async with asyncio.TaskGroup() as closing:
            for k in ks:
                within = "consumequeue" if k % 3 == 0 else "commitlog"
                child = start_failing(cluster, Faults(within, fail_sync=k))
                try:
                    await asyncio.to_thread(child.wait_for_ready)
                except Unavailable as ended:  # it failed while it started, which is early enough
                    early.append(str(ended))
                else:
                    closing.create_task(await load_until_it_fails(cluster.address, child, k, told))
            assert told.too_late == [], "SEND_OK from a broker that called its store faulted"
            told.faulted = False
            await asyncio.to_thread(cluster.start_broker, 0)
            async with Client(cluster.address, producer=GIVES_UP) as mq:
                await told.compare(mq)
                assert await told.send(mq, b"it goes on"), told.errors[-1]
        assert cluster.brokers[0].stop() == 0
    kinds = Counter(type(error).__name__ for error in told.errors)
    print(  # noqa: T201 - the counts are results of the test
        f"{len(ks)} failed syncs, {len(early)} of them while starting; {len(told.stored)} messages "
        f"acknowledged, 0 of them lost; {dict(kinds)}"
    )
    assert kinds.keys() & {"StoreFaulted", "UnknownOutcome"}, "somebody learnt of it"
    assert all(f"ended with {FAULTED}" in why for why in early), early
    assert len(early) < len(ks)
    assert len(told.stored) > len(ks) * 2


async def load_until_it_fails(
    address: str, child: Child, k: int, told: Told
) -> Coroutine[None, None, None]:
    """What was acknowledged before is there. Then four senders, one message after the other, until
    the process is gone: by itself, with 75.

    Returns what closes the client, which takes its time when the broker is gone.
    """
    mq = await Client(address, settings=QUICK, producer=GIVES_UP).open()
    told.faulted = False
    await told.compare(mq)

    async def keep_sending(queue_id: int) -> None:
        number = 0
        while child.running:
            number += 1
            body = b"%d-%d-%d" % (k, queue_id, number)
            sent = await told.send(mq, body, queue_id)
            if not sent and not isinstance(told.errors[-1], StoreFaulted):
                return

    sending = [asyncio.create_task(keep_sending(queue_id)) for queue_id in range(QUEUES)]
    ended, _ = await asyncio.wait(sending, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    if not ended:
        child.kill()
        raise AssertionError(f"the {k}th sync failed, and the broker goes on: {child.log_tail()}")
    assert await asyncio.to_thread(child.wait_for_exit, 60) == FAULTED, child.log_tail()
    await asyncio.gather(*sending)
    return mq.close()


# -- the disk is full -----------------------------------------------------------------------------


@dataclass(frozen=True)
class FullDisk:
    """A folder on a disk of 16 MiB with a ballast on it, and how a broker comes to see its end."""

    root: Path
    faults: Faults
    settings: dict[str, str]

    @property
    def ballast(self) -> Path:
        return self.root / "ballast"


TO_THE_LAST_BYTE = {"diskSpaceWarningLevelRatio": "100", "diskSpaceCleanForciblyRatio": "100"}


@pytest.fixture(params=["by the figures", "no space left", "no space left, mounted"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FullDisk]:
    """What stops the broker is its own look at the disk, or the disk."""
    root = tmp_path / "disk"
    root.mkdir()
    mounted = request.param.endswith("mounted")
    if mounted:
        mount(root, tmp_path / "image")
    disk = FullDisk(
        root,
        Faults() if mounted else Faults(capacity_bytes=DISK_BYTES),
        {} if request.param == "by the figures" else TO_THE_LAST_BYTE,
    )
    disk.ballast.write_bytes(bytes(4 * MIB))
    yield disk
    if mounted:
        subprocess.run(["umount", str(root)], check=True)


def mount(root: Path, image: Path) -> None:
    """Put a file system of 16 MiB there: ext4 on a loop device, or a tmpfs."""
    for attempt in (
        [
            ["truncate", "-s", str(DISK_BYTES), str(image)],
            ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image)],
            ["mount", "-o", "loop", str(image), str(root)],
        ],
        [["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(root)]],
    ):
        if all(shutil.which(command[0]) for command in attempt) and all(
            subprocess.run(command, check=False, capture_output=True).returncode == 0
            for command in attempt
        ):
            return
    pytest.skip("needs root: neither a loop device nor a tmpfs can be mounted here")


async def test_a_full_disk_refuses_sends_and_goes_on_serving(
    tmp_path: Path, small_disk: FullDisk
) -> None:
    told = Told()
    broker_settings = {
        **SMALL,
        **small_disk.settings,
        "storePathRootDir": str(small_disk.root / "store"),
        "cleanFileForciblyEnable": "false",  # or it would make room by deleting what is kept here
    }
    settings = ClusterSettings(brokers=0, broker=broker_settings)
    with LocalCluster(tmp_path / "cluster", settings) as cluster:
        broker = start_failing(cluster, small_disk.faults, small_disk.root)
        await asyncio.to_thread(broker.wait_for_ready)
        async with Client(cluster.address, group="g", producer=GIVES_UP) as mq:
            await mq.admin.topics.create(TOPIC, queues=QUEUES)
            await fill(mq, told)
            assert len(told.stored) > 1_000
            assert len(told.refused) > 20
            # Everybody can go on reading, though the newest may not be in the queues yet: what the
            # log has reserved is more than what is left for them.
            read = await told.read(mq)
            assert len(read) > 1_000
            assert all(told.stored[body] == place for place, body in read.items())
            (found,) = await mq.admin.messages.by_key(TOPIC, "k7")
            assert found.raw_body in told.stored
            assert broker.running
            small_disk.ballast.unlink()
            patient = await mq.producer(TRIES_AGAIN).open()
            for number in range(50):
                assert await told.send(patient, b"there is room %d" % number), told.errors[-1]
            await patient.close()
            assert await told.compare(mq) == len(told.stored)
        assert broker.stop() == 0
        log = broker.log_path.read_text()
        assert re.search(r"the disk is (\d+ % )?full", log)
        assert "Traceback" not in log
        await asyncio.to_thread(cluster.start_broker, 0)
        async with Client(cluster.address, producer=GIVES_UP) as mq:
            assert await told.compare(mq) == len(told.stored)
            assert await told.send(mq, b"after a new start")
        assert cluster.brokers[0].stop() == 0
    print(f"{len(told.stored)} stored, {len(told.refused)} refused")  # noqa: T201 - results


async def fill(mq: Client, told: Told) -> None:
    """Send until nothing more fits: sixteen messages at a time, then one by one, 20 in vain."""
    rng = random.Random(16)
    while not told.refused:
        bodies = [rng.randbytes(6_000) for _ in range(16)]
        await asyncio.gather(*(told.send(mq, body) for body in bodies))
    in_vain = 0
    while in_vain < 20:
        in_vain = 0 if await told.send(mq, rng.randbytes(6_000)) else in_vain + 1
    # A burst may also come before the next segment of the log is there, while there is space.
    assert all(isinstance(error, (DiskFull, Throttled)) for error in told.errors), told.errors
    assert isinstance(told.errors[-1], DiskFull)
