"""Measure what a send and a delivery cost in the client, against a server that does minimal work.

    .venv/bin/python benchmarks/client_paths.py [--messages 100000] [--json]
    .venv/bin/python benchmarks/client_paths.py --profile send      (or consume)

The server is another process that acts as name server and broker. It assigns offsets to messages
without storing them and answers pulls with prepared records. The results are therefore those of the
client: messages per second, and CPU time per message of its two threads (the application's event
loop and the I/O thread). `encode` is the cost of record encoding alone, for subtraction.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from kourou import Client, ConsumerSettings, ReceivedMessage
from kourou.client.producer.drafts import DraftDestination, Drafting
from kourou.client.settings.client_settings import ProducerSettings
from kourou.errors import Code
from kourou.model.subscription import ConsumeFromWhere
from kourou.model.topic import BrokerData, QueueData, TopicRoute
from kourou.protocol.bodies.heartbeat_body import decode_heartbeat
from kourou.protocol.bodies.lists_body import encode_consumer_ids
from kourou.protocol.bodies.route_bodies import encode_topic_route
from kourou.protocol.messages import groups, namesrv, pulls
from kourou.protocol.messages.sends import SendRecords, SendRecordsResponse
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_id import UniqKeyGenerator
from kourou.protocol.record.message_record import stamp
from kourou.protocol.request import Request, Response
from kourou.protocol.wire.frames import FrameKind, decode_request, encode_reply
from kourou.runtime import Peer
from kourou.transport.tcp_link import Buffer
from kourou.transport.zmq_server import Inbound, ZmqServer

BODY = b"x" * 1024
QUEUES = 4
HOST = ("127.0.0.1", 10911)


# -- the server -----------------------------------------------------------------------------------


class Server:
    """A server that replies with the least work that the protocol allows."""

    def __init__(self) -> None:
        self.server = ZmqServer("127.0.0.1:0", self.frames, self.lost)
        self.next_offset = 0
        self.ids: list[str] = []
        self.cache: dict[tuple[int, int, int], bytes] = {}

    def start(self) -> int:
        self.server.start()
        self.address = f"127.0.0.1:{self.server.port}"
        return self.server.port

    def lost(self, _peer: Peer) -> None:
        self.ids.clear()

    def frames(self, inbound: list[Inbound]) -> None:
        for one in inbound:
            frame = one.frame
            code, header, body = self.answer(decode_request(frame), frame.body)
            if frame.kind is FrameKind.REQUEST:
                head = encode_reply(frame.correlation, code, "", header)
                self.server.send(one.peer, [head, body] if body else [head])

    def answer(self, request: Request, body: list[Buffer]) -> tuple[int, Response | None, bytes]:
        if isinstance(request, SendRecords):
            targets = len(request.targets)
            first = self.next_offset
            self.next_offset += len(request.sizes) // 4
            header = SendRecordsResponse(
                target_codes=[0] * targets,
                target_remarks=[""] * targets,
                target_offsets=[first] * targets,
                runs=[(0, first * 1200)],
            )
            return 0, header, b""
        if isinstance(request, pulls.PullMessage):
            return self.pull(request)
        if isinstance(request, namesrv.GetRouteInfoByTopic):
            route = TopicRoute(
                (BrokerData("c", "b", {0: self.address}),), (QueueData("b", QUEUES, QUEUES, 6),)
            )
            return 0, None, encode_topic_route(route)
        if isinstance(request, groups.HeartBeat):
            self.ids.append(decode_heartbeat(body[0]).client_id)
            return 0, None, b""
        if isinstance(request, groups.GetConsumerListByGroup):
            return 0, None, encode_consumer_ids(self.ids)
        if isinstance(request, pulls.GetMinOffset):
            return 0, pulls.GetMinOffsetResponse(offset=0), b""
        if isinstance(request, pulls.QueryConsumerOffset):
            return Code.QUERY_NOT_FOUND, None, b""
        return 0, None, b""

    def pull(self, request: pulls.PullMessage) -> tuple[int, Response | None, bytes]:
        """Return the requested number of records from the requested offset; results are cached."""
        count = request.max_msg_nums
        key = (request.queue_id, request.queue_offset, count)
        body = self.cache.get(key)
        if body is None:
            body = self.cache[key] = prepared(*key)
        place = pulls.PullResponse(
            suggest_which_broker_id=0,
            next_begin_offset=request.queue_offset + count,
            min_offset=0,
            max_offset=2**40,
        )
        return 0, place, body


def prepared(queue_id: int, first: int, count: int) -> bytes:
    host = encode_host(HOST)
    drafting = Drafting(ProducerSettings(), host)
    keys = UniqKeyGenerator(b"\x7f\0\0\1", 1, 1)
    now_ms = time.time_ns() // 1_000_000
    records = bytearray()
    for number in range(count):
        record = bytearray(
            drafting.draft(
                DraftDestination(b"T", queue_id, "c"),
                BODY,
                keys.next(now_ms),
                now_ms,
                tag="A",
                keys="k",
            )
        )
        stamp(
            record,
            0,
            queue_offset=first + number,
            position=(first + number) * 1200,
            store_timestamp=now_ms,
            store_host=host,
        )
        records += record
    return bytes(records)


async def serve(per_pull: int, pulls: int) -> None:
    server = Server()
    for queue_id in range(QUEUES):
        for number in range(pulls):
            key = (queue_id, number * per_pull, per_pull)
            server.cache[key] = prepared(*key)
    print(server.start(), flush=True)
    await asyncio.Event().wait()


# -- the client -----------------------------------------------------------------------------------


class Cpu:
    """CPU time of the current thread and of the client's I/O thread."""

    def __init__(self) -> None:
        self.clocks = [
            time.pthread_getcpuclockid(thread.ident)
            for thread in threading.enumerate()
            if thread is threading.main_thread() or thread.name.startswith("kourou-io")
        ]
        self.began = [time.clock_gettime(clock) for clock in self.clocks]

    def us(self) -> list[float]:
        now = [time.clock_gettime(clock) for clock in self.clocks]
        return [(end - begin) * 1e6 for begin, end in zip(self.began, now, strict=True)]


async def measure(
    name: str, count: int, work: Callable[[], Awaitable[None]], report: list[dict[str, Any]]
) -> None:
    cpu, began = Cpu(), time.perf_counter()
    await work()
    elapsed = time.perf_counter() - began
    caller, io = (one / count for one in cpu.us())
    report.append(
        {
            "name": name,
            "messages": count,
            "per_second": round(count / elapsed),
            "caller_us": round(caller, 2),
            "io_us": round(io, 2),
            "cpu_us": round(caller + io, 2),
        }
    )


def encode_alone(count: int, report: list[dict[str, Any]]) -> None:
    drafting = Drafting(ProducerSettings(), encode_host(HOST))
    keys = UniqKeyGenerator(b"\x7f\0\0\1", 1, 1)
    place = DraftDestination(b"T", 0, "c")
    cpu = time.thread_time()
    for _ in range(count):
        now_ms = time.time_ns() // 1_000_000
        drafting.draft(place, BODY, keys.next(now_ms), now_ms, tag="A", keys="k")
    per = (time.thread_time() - cpu) * 1e6 / count
    report.append({"name": "encode", "messages": count, "cpu_us": round(per, 2)})


async def sends(mq: Client, count: int, report: list[dict[str, Any]]) -> None:
    async def in_flight(number: int, total: int) -> None:
        left = total

        async def one() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await mq.send("T", BODY, tag="A", keys="k")

        await asyncio.gather(*(one() for _ in range(number)))

    async def futures() -> None:
        waiting = [await mq.send_async("T", BODY, tag="A", keys="k") for _ in range(count)]
        await asyncio.gather(*waiting)

    async def many() -> None:
        for _ in range(count // 4096 + 1):
            await mq.send_many("T", [BODY] * 4096, tag="A", keys="k")

    async def batches() -> None:
        async def one() -> None:
            for _ in range(count // 32 // 8):
                await mq.send_batch("T", [BODY] * 32, tag="A", keys="k")

        await asyncio.gather(*(one() for _ in range(8)))

    await mq.send("T", BODY)
    single = min(count, 5_000)
    await measure("send, 1 in flight", single, lambda: in_flight(1, single), report)
    await measure("send, 64 in flight", count, lambda: in_flight(64, count), report)
    await measure("send, 1,000 in flight", count, lambda: in_flight(1_000, count), report)
    await measure("send_async", count, futures, report)
    await measure("send_many", (count // 4096 + 1) * 4096, many, report)
    await measure("send_batch of 32, 8 in flight", count // 256 * 256, batches, report)


async def consume(mq: Client, count: int, batch: int, report: list[dict[str, Any]]) -> None:
    seen, full = 0, asyncio.Event()

    async def each(_message: ReceivedMessage) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            full.set()

    async def several(messages: list[ReceivedMessage]) -> None:
        nonlocal seen
        seen += len(messages)
        if seen >= count:
            full.set()

    async def work() -> None:
        listener = mq.listen("T", several if batch else each, group=f"g{batch}", batch=batch)
        async with listener:
            await full.wait()

    await measure(f"consume, batch {batch or 1}", count, work, report)


async def client(address: str, count: int, profile: str, report: list[dict[str, Any]]) -> None:
    settings = ConsumerSettings(
        consumer_group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    async with Client(f"tcp://{address}", group="g", consumer=settings) as mq:
        profiles = []
        if profile:
            io_profile = cProfile.Profile(time.thread_time)
            profiles = [cProfile.Profile(time.thread_time), io_profile]
            mq._client.io.loop.call_soon_threadsafe(io_profile.enable)
            profiles[0].enable()
        if profile in ("", "send"):
            await sends(mq, count, report)
        if profile in ("", "consume"):
            await consume(mq, count, 0, report)
            await consume(mq, count, 256, report)
        if profile:
            profiles[0].disable()
            mq._client.io.loop.call_soon_threadsafe(profiles[1].disable)
            await mq.send("T", b"")
            for name, one in zip(("application", "I/O thread"), profiles, strict=True):
                print(f"-- {name}")
                pstats.Stats(one).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", choices=["send", "consume"], default="")
    parser.add_argument("--serve", type=int, nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        uvloop.run(serve(*chosen.serve))
        return
    per_pull = ConsumerSettings().pull_threshold_for_queue
    pulls = chosen.messages // per_pull // QUEUES + 4
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(per_pull), str(pulls)], stdout=subprocess.PIPE
    )
    report: list[dict[str, Any]] = []
    try:
        port = int(server.stdout.readline())
        encode_alone(chosen.messages, report)
        uvloop.run(client(f"127.0.0.1:{port}", chosen.messages, chosen.profile, report))
    finally:
        server.terminate()
        server.wait()
    for row in report:
        if chosen.json:
            print(json.dumps(row))
            continue
        figures = "  ".join(f"{key} {value:>9}" for key, value in row.items() if key != "name")
        print(f"{row['name']:32}{figures}")


if __name__ == "__main__":
    main()
