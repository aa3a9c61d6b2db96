"""Count how often each byte of a message is copied in user space when it is sent and pulled.

    .venv/bin/python benchmarks/copies.py [--messages 20000] [--size 1024]

A broker and a client run in one process. The script inspects every buffer that is written to a
socket and every append: does the buffer point into a mapped log segment, and is it copied? It
prints one JSON line:

    send    copies per byte between the client's call and the kernel's page cache
    pull    copies per byte between the page cache and the consumer's frame, for queues whose
            records are contiguous in the log (1 queue) and interleaved (4 queues), through mappings
            and by pread; pull_tcp is the same for RocketMQ's clients

In addition, the kernel copies each byte once on either side of each socket and once into the page
cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.engine.ports import QueueRead
from kourou.engine.pulls.pull_handler import PullHandler
from kourou.engine.sends.appends import Appends
from kourou.errors import Code
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.messages.sends import SendRecords, Target
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft
from kourou.runtime import Received, Reply
from kourou.transport.remoting_client import RemotingConnection
from kourou.transport.remoting_server import RemotingLink
from kourou.transport.tcp_link import Buffer
from kourou.transport.zmq_client import ZmqConnection
from kourou.transport.zmtp import JOIN_BYTES, ZmtpLink

PATIENT_MS = 30_000
BATCH = 256
SUBSCRIBE = 4  # PullFlag.SUBSCRIPTION
BODY_FROM_BYTES = 4_096  # smaller buffers are frame headers


def address_of(data: Buffer) -> int:
    """The memory address of a buffer."""
    return int(np.frombuffer(data, np.uint8).ctypes.data)


class Watch:
    """A context manager that counts the bytes passing the instrumented functions."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self.counts: Counter[str] = Counter()

    def _is_mapped(self, data: Buffer) -> bool:
        session = self._service._session
        if session is None:
            return False
        at = address_of(data)
        for segment in session.store._log.segments:
            view = segment._mapping
            if view is not None and 0 <= at - address_of(view) < segment.size:
                return True
        return False

    def __enter__(self) -> Counter[str]:
        message, write, reply = ZmtpLink.put_message, Appends.write, PullHandler._reply
        put = RemotingLink.put
        counts = self.counts

        def look_at(data: Buffer) -> None:
            if len(data) >= BODY_FROM_BYTES:
                counts["sent"] += len(data)
                counts["from the mapping"] += len(data) if self._is_mapped(data) else 0

        def watched_message(link: ZmtpLink, parts: Any) -> None:
            for data in parts:
                look_at(data)
                if BODY_FROM_BYTES <= len(data) <= JOIN_BYTES:
                    counts["joined"] += len(data)
            message(link, parts)

        def watched_write(appends: Appends, blob: Buffer, *rest: Any) -> Any:
            before = len(appends._done)
            written = write(appends, blob, *rest)
            for effect in appends._done[before:]:
                for _, data in effect.pieces:
                    counts["stored"] += len(data)
                    apart = not 0 <= address_of(data) - address_of(blob) < len(blob)
                    counts["to be stamped"] += len(data) if apart else 0
            return written

        def watched_reply(
            pulls: PullHandler,
            received: Received,
            request: PullMessage,
            code: Code,
            read: QueueRead,
        ) -> Reply:
            counts["read"] += read.size_bytes
            counts["put together"] += 0 if read.run is not None else read.size_bytes
            return reply(pulls, received, request, code, read)

        def watched_put(link: RemotingLink, parts: Any) -> None:
            for data in parts:
                look_at(data)
            put(link, parts)

        self._undo = (message, write, reply, put)
        ZmtpLink.put_message, Appends.write, PullHandler._reply, RemotingLink.put = (
            watched_message,
            watched_write,
            watched_reply,
            watched_put,
        )
        return counts

    def __exit__(self, *_: object) -> None:
        ZmtpLink.put_message, Appends.write, PullHandler._reply, RemotingLink.put = self._undo


async def measure(root: Path, mode: str, queues: int, messages: int, size: int) -> dict[str, float]:
    """Send and pull once; returns copies per byte."""
    settings = BrokerSettings(
        store_root=root, listen_port=0, admin_enabled=False, broker_name="b", read_mode=mode
    )
    service = BrokerService(settings)
    with Watch(service) as counts:
        await service.recover(lambda error: print(error))
        listening = await service.serve()
        connection = ZmqConnection(listening["zmq"].removeprefix("tcp://"))
        await send(connection, queues, messages, size)
        sent = dict(counts)
        counts.clear()
        pulled = await pull_all(connection, queues)
        assert pulled == messages, (pulled, messages)
        out = dict(counts)
        connection.close()
        counts.clear()
        remoting = RemotingConnection(listening["tcp"].removeprefix("tcp://"))
        pulled = await pull_all(remoting, queues)
        assert pulled == messages, (pulled, messages)
        tcp = dict(counts)
        remoting.close()
        await service.drain()
        await service.stop()
    if mode == "mmap":  # the addresses must agree with the counts
        for one in (out, tcp):
            assert one["sent"] - one["from the mapping"] == one["put together"], one
    return {
        # A client encodes the body into a draft and joins the drafts into a frame.
        "send_client": 2 + sent.get("joined", 0) / sent["sent"],
        "send_broker": sent["to be stamped"] / sent["stored"],
        "pull_broker": (mode == "pread")
        + out["put together"] / out["read"]
        + out.get("joined", 0) / out["sent"],
        "pull_tcp": (mode == "pread") + tcp["put together"] / tcp["read"],
    }


async def send(connection: ZmqConnection, queues: int, messages: int, size: int) -> None:
    """Send messages round robin over the queues, in frames of BATCH messages."""
    host = encode_host(("127.0.0.1", 1))
    drafts = [
        encode_draft(
            topic=b"copies",
            queue_id=number,
            body=b"x" * size,
            properties=b"",
            born_timestamp=1,
            born_host=host,
        )
        for number in range(queues)
    ]
    targets = [Target("copies", number) for number in range(queues)]
    for first in range(0, messages, BATCH):
        numbers = [number % queues for number in range(first, min(first + BATCH, messages))]
        parts = [drafts[number] for number in numbers]
        request = SendRecords(
            targets=targets,
            target_of=struct.pack(f"<{len(numbers)}H", *numbers) if queues > 1 else b"",
            sizes=struct.pack(f"<{len(parts)}I", *map(len, parts)),
            producer_group="p",
            default_topic="TBW102",
            default_topic_queue_nums=queues,
        )
        while True:
            reply = await connection.request(request, body=[b"".join(parts)], timeout_ms=PATIENT_MS)
            if reply.code == Code.SUCCESS:
                break
            await asyncio.sleep(0.02)  # the broker is still allocating the next segment


async def pull_all(connection: ZmqConnection | RemotingConnection, queues: int) -> int:
    """Pull every message of every queue, with pulls as large as the broker allows."""
    count = 0
    for number in range(queues):
        offset, end = 0, 1
        while offset < end:
            request = PullMessage(
                consumer_group="TOOLS_CONSUMER",
                topic="copies",
                queue_id=number,
                queue_offset=offset,
                max_msg_nums=10_000,
                sys_flag=SUBSCRIBE,
                subscription="*",
                max_msg_bytes=1 << 20,
            )
            reply = await connection.request(request, timeout_ms=PATIENT_MS)
            assert reply.code == Code.SUCCESS, (reply.code, reply.remark)
            header: Any = reply.header
            count += header.next_begin_offset - offset
            offset, end = header.next_begin_offset, header.max_offset
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=1_024, help="bytes of a body")
    options = parser.parse_args()
    figures: dict[str, Any] = {"benchmark": "copies", "join_bytes": JOIN_BYTES}
    for mode in ("mmap", "pread"):
        for queues in (1, 4):
            with tempfile.TemporaryDirectory() as name:
                found = uvloop.run(
                    measure(Path(name), mode, queues, options.messages, options.size)
                )
            for key, value in found.items():
                where = f"{key}_{queues}_queues_{mode}" if key.startswith("pull") else key
                figures[where] = round(value, 2)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
