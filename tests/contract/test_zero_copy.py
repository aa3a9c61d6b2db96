"""Bytes of a mapped segment go to sockets as they lie there, and outlive the segment if need be."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from kourou.runtime import Peer
from kourou.store.real_disk import RealDisk
from kourou.store.store import Store
from kourou.transport.remoting_server import RemotingLink
from kourou.transport.zmq_socket import COPY_BELOW_BYTES, NOBLOCK, SNDMORE, open_router, send_parts
from kourou_rigs.store import Draft, StoreWriter, delete_before, small_settings

SEGMENT_BYTES = 1 << 20
TIMES = 40  # more than the system's buffers take


def until(condition: Callable[[], bool]) -> None:
    """Let ZeroMQ's threads run until something is so; the test's own timeout ends it otherwise."""
    while not condition():
        os.sched_yield()


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    settings = small_settings(tmp_path, segment_size_bytes=SEGMENT_BYTES, queue_file_units=1_000)
    opened = Store.open(settings, RealDisk())
    yield opened
    opened.close()


@pytest.fixture
def sockets() -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes], bytes]]:
    """A server's socket, a client's that does not read yet, and the client's name."""
    router = open_router()
    port = router.bind_to_random_port("tcp://127.0.0.1")
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.RCVHWM, 1)
    dealer.set(zmq.RCVBUF, 65_536)
    dealer.connect(f"tcp://127.0.0.1:{port}")
    dealer.send(b"hello")
    name, _ = router.recv_multipart()
    yield router, dealer, name
    dealer.close(linger=0)
    context.term()
    router.close(linger=0)


@pytest.mark.feature("F115")
def test_a_segment_that_is_deleted_meanwhile_arrives_whole(
    store: Store, sockets: tuple[zmq.Socket[bytes], zmq.Socket[bytes], bytes]
) -> None:
    router, dealer, name = sockets
    bodies = [bytes([n]) * 40_000 for n in range(20)]
    written = StoreWriter(store).write([Draft(body=body) for body in bodies])
    StoreWriter(store).write([Draft(body=bytes(400_000)) for _ in range(3)])
    wanted = b"".join(item.record for item in written)
    read = store.read_queue(
        "TopicA", 0, 0, max_messages=20, max_bytes=1 << 21, codes=None, below=store.end
    )
    assert len(read.run) == len(wanted) > COPY_BELOW_BYTES
    for _ in range(TIMES):
        router.send(name, SNDMORE | NOBLOCK)
        send_parts(router.send, [read.run], NOBLOCK)
    del read
    path = store.paths.segment(0)
    assert delete_before(store, SEGMENT_BYTES) == 1
    assert not path.exists()
    assert is_mapped(path), "ZeroMQ holds what it was given and not a copy"
    for _ in range(TIMES):
        assert dealer.recv() == wanted
    until(lambda: not is_mapped(path))


@pytest.mark.feature("F115")
def test_a_tcp_connection_sends_from_the_segment_too(store: Store) -> None:
    """What its socket does not take at once waits as a view, and not as a copy."""
    wanted = StoreWriter(store).write([Draft(body=b"x" * 40_000) for _ in range(20)])
    StoreWriter(store).write([Draft(body=bytes(400_000)) for _ in range(3)])
    read = store.read_queue(
        "TopicA", 0, 0, max_messages=20, max_bytes=1 << 21, codes=None, below=store.end
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        link = RemotingLink(ours, Peer(1, "tcp", ("127.0.0.1", 5)), 0)
        link.put((b"head", read.run))
        link.write(0)
        assert 0 < link.queued_bytes < len(read.run), "the other side does not read yet"
        del read
        path = store.paths.segment(0)
        delete_before(store, SEGMENT_BYTES)
        assert not path.exists()
        assert is_mapped(path), "the link holds what it was given and not a copy"
        came = b""
        while link.queue:
            came += theirs.recv(1 << 20)
            link.write(0)
        came += theirs.recv(1 << 20)
    assert came == b"head" + b"".join(item.record for item in wanted)
    gc.collect()
    until(lambda: not is_mapped(path))


@pytest.mark.feature("F115")
def test_what_lies_back_to_back_is_one_piece(store: Store) -> None:
    """Records of one queue between those of another are put together by a copy."""

    def run(queue_id: int, offset: int, count: int) -> memoryview:
        return store.read_queue(
            "TopicA", queue_id, offset, max_messages=count, max_bytes=1 << 20, codes=None,
            below=store.end,
        ).run  # fmt: skip

    queues = (0, 0, 0, 1, 0)
    written = StoreWriter(store).write([Draft(queue_id=queue_id) for queue_id in queues])
    first_three = run(0, 0, 3)
    assert bytes(first_three) == b"".join(item.record for item in written[:3])
    assert not isinstance(first_three.obj, bytes), "it is the mapped file"
    four = run(0, 0, 4)
    assert bytes(four) == b"".join(written[number].record for number in (0, 1, 2, 4))
    assert isinstance(four.obj, bytes), "it is a copy"
    alone = run(1, 0, 10)
    assert bytes(alone) == written[3].record
