"""Work on the cluster's thread, from threads and loops of all kinds."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kourou.client.session import io_thread
from kourou.testing.cluster_thread import ClusterThread, run_elsewhere

ADDRESS = "tcp://127.0.0.1:9"


@pytest.fixture
def thread():
    thread = ClusterThread()
    yield thread
    thread.stop()


async def who() -> str:
    return threading.current_thread().name


async def for_ever() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    raise TimeoutError("its own")


def test_work_runs_there_and_its_result_comes_here(thread):
    assert thread.run(who()) == "kourou-io-cluster"
    assert threading.current_thread().name != "kourou-io-cluster"


def test_what_takes_too_long_is_ended_and_said(thread):
    with pytest.raises(TimeoutError, match="not done within"):
        thread.run(for_ever(), within_s=0)
    with pytest.raises(TimeoutError, match="its own"):
        thread.run(fails())


def test_clients_of_the_address_run_on_it_and_live_by_its_clock(thread):
    thread.register_thread(ADDRESS)
    assert io_thread.clock_at(ADDRESS) is thread.clock
    shared = io_thread.acquire(ADDRESS)
    assert shared.loop is thread.run(running_loop())
    io_thread.release(shared)
    assert thread.run(who()), "a client that leaves does not end it"


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_a_client_that_was_left_open_is_reported():
    thread = ClusterThread()
    thread.register_thread(ADDRESS)
    io_thread.acquire(ADDRESS)
    with pytest.warns(ResourceWarning, match="1 clients of the cluster"):
        thread.stop()
    assert io_thread.clock_at(ADDRESS) is not thread.clock


async def test_a_coroutine_runs_elsewhere_even_from_within_a_loop():
    assert run_elsewhere(who()) == "kourou-elsewhere"
    with pytest.raises(TimeoutError, match="its own"):
        run_elsewhere(fails())
