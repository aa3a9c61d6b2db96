"""An asynchronous client produces on the loop that opened it; it consumes on a thread."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from kourou import Client
from kourou.client.io_thread import ClientClosed, ForkedClient

ALONE = "127.0.0.1:9877"
"""Name servers that no other test's client shares a thread with."""


def threads_of_clients() -> list[str]:
    return [one.name for one in threading.enumerate() if ALONE in one.name]


async def test_a_client_that_only_sends_has_no_thread(broker, cluster):
    async with Client(ALONE, dial=cluster.dial) as mq:
        await asyncio.gather(*(mq.send("T", b"%d" % number) for number in range(100)))
        await mq.send_batch("T", [b"a", b"b"])
        assert await mq.admin.topics.list()
        assert threads_of_clients() == []
    assert len(broker.stored("T")) == 102


async def test_consuming_starts_one_and_closing_ends_it(broker, cluster, tools):
    inbox = tools.Inbox(2)
    async with Client(ALONE, dial=cluster.dial, group="g") as mq:
        async with mq.listen("T", inbox.handle), mq.listen("T", inbox.handle, group="h"):
            assert len(threads_of_clients()) == 1
            assert list(broker.members["g"]) == list(broker.members["h"]) == [mq.client_id]
            await mq.send("T", b"x")
            await inbox.full.wait()
        await mq.pull_consumer("i")
        async with mq.listen("T", inbox.handle, group="j", ordered=True):
            assert len(threads_of_clients()) == 1
    assert threads_of_clients() == []


async def test_another_loop_may_send_while_that_one_runs(broker, cluster):
    async with Client(ALONE, dial=cluster.dial) as mq:

        async def send_there():
            return [await mq.send("T", b"%d" % number) for number in range(10)]

        results = await asyncio.to_thread(asyncio.run, send_there())
        assert len({one.message_id for one in results}) == len(broker.stored("T")) == 10


def test_when_that_loop_has_ended_calls_say_so(broker, cluster):
    mq = Client(ALONE, dial=cluster.dial)
    asyncio.run(mq.open())
    for call in (lambda: mq.send("T", b"x"), lambda: mq.admin.topics.list(), mq.close):
        with pytest.raises(ClientClosed, match="event loop that opened this client has ended"):
            asyncio.run(call())


@pytest.mark.fault
async def test_a_forked_child_is_told(broker, cluster):
    async with Client(ALONE, dial=cluster.dial) as mq:
        await mq.send("T", b"x")
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            verdict = b"nothing"
            try:
                mq.send("T", b"y").send(None)
            except ForkedClient:
                verdict = b"told"
            finally:
                os.write(write_end, verdict)
                os._exit(0)
        os.close(write_end)
        assert os.read(read_end, 100) == b"told"
        os.close(read_end)
        os.waitpid(child, 0)  # noqa: ASYNC222 - it has ended
        await mq.send("T", b"z")
