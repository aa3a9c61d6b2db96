"""A real zygote with real jailed workers, for filters that mean harm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import FilterFailed
from kourou_filter_server.context import ServerPolicy
from kourou_filter_server.discipline import FailureCounts
from kourou_filter_server.worker_link import FilterResults, Worker, WorkerIdentity, WorkerLimits
from kourou_filter_server.zygote_link import Zygote, missing
from kourou_rigs.records import RecordRun

HURRIED = WorkerLimits(start_ms=500)
"""As in service, but for the time to set up; for filters that never end."""

PATIENT = WorkerLimits(start_ms=20_000, batch_ms=20_000)
"""For all others: on a busy machine nothing may end by its deadline that should end otherwise."""
NEIGHBOUR = b"MARK = 'neighbour-4711'\ndef match(message, context): return message.tag == 't1'"

REACH = """
import json
sys = json.codecs.sys
os = sys.modules["posix"]

def everything(of=object, seen=None):
    seen = {} if seen is None else seen
    for one in type.__subclasses__(of):
        if id(one) not in seen:
            seen[id(one)] = one
            everything(one, seen)
    return seen.values()

def named(name):
    return next(one for one in everything() if one.__name__ == name)

class Told(Exception):
    pass

FOUND = []

def ctypes():
    if not FOUND:
        FOUND.append(named("CDLL").__init__.__globals__)
    return FOUND[0]

LIBC = []

def call(*words):
    c = ctypes()
    if not LIBC:
        LIBC.append(c["CDLL"](None, use_errno=True))
    c["set_errno"](0)
    result = LIBC[0].syscall(*[c["c_long"](w) if isinstance(w, int) else w for w in words])
    return result, c["get_errno"]()
"""
"""What a hostile filter begins with: `os` and `ctypes` in spite of the list of modules."""


@dataclass(frozen=True)
class Outcome:
    """What the filter server is left with: a kind of failure ("" for none), why, and verdicts."""

    kind: str
    reason: str
    results: bytes = b""


class Jail:
    """One zygote, a well-behaved neighbour in it, and any number of hostile filters, in turn."""

    preamble = REACH

    def __init__(self, *, unsafe: bool = False) -> None:
        self._runner = asyncio.Runner()
        self._zygote = Zygote(unsafe=unsafe)
        self._runner.run(self._zygote.start())
        self._neighbour = self._runner.run(self._start("neighbours", NEIGHBOUR, PATIENT))
        self._before = self._processes()
        policy = ServerPolicy()
        self._failures = FailureCounts(policy.failures_max, policy.failure_window_ms)

    def close(self) -> None:
        self._runner.run(self._zygote.close())
        self._runner.close()

    def ask(
        self,
        source: str,
        *,
        count: int = 3,
        batches: int = 1,
        hurried: bool = False,
        body: bytes = b"{}",
        flag: int = 0,
    ) -> Outcome:
        """The outcome of the last batch; raises if anything outside the worker was harmed.

        `hurried` gives the filter the time that it has in service, and else plenty.
        """
        limits = HURRIED if hurried else PATIENT
        records = run(count, body, flag)
        outcome = self._runner.run(self._ask(source.encode(), limits, records, batches))
        self.check_outside()
        return outcome

    @contextmanager
    def filter(self, source: str) -> Iterator[Callable[[list[bytes]], bytes]]:
        """A worker that is asked again and again; the verdicts of each batch."""
        worker = self._runner.run(self._start("flights", source.encode(), PATIENT))
        yield lambda records: self._runner.run(worker.evaluate(b"flights", 0, records)).results
        self._runner.run(worker.close())

    def reach(self, source: str, **more: Any) -> Outcome:
        """As `ask`, for a source that begins with `os`, `call`, `ctypes`, `everything`, `Told`."""
        return self.ask(REACH + source, **more)

    def until_quarantine(self, source: str, *, hurried: bool = False) -> int:
        """How often the filter must fail, with these outcomes, before its version is shut away."""
        who = (("hostile", "filter"), 1)
        self._failures.clear(who)
        for times in range(1, 10):
            outcome = self.ask(source, hurried=hurried)
            assert outcome.kind, "it did nothing that counts"
            if self._failures.add(times, who):
                return times
        raise AssertionError("never")

    def check_outside(self) -> None:
        """What must be true whatever a filter did."""
        assert self._zygote.running
        reply = self._runner.run(self._neighbour.evaluate(b"orders", 0, run(3)))
        assert reply.results == b"\0\1\0"
        self._runner.run(self._alone())

    async def _alone(self) -> None:
        """Wait until the neighbour is the zygote's only child; a killed worker takes a moment."""
        async with asyncio.timeout(60):
            while self._processes() != self._before:
                await self._neighbour.evaluate(b"orders", 0, run(1))

    def _processes(self) -> set[int]:
        """The zygote's children; every one of them that is not the neighbour would be left over."""
        children = Path(f"/proc/{self._zygote.pid}/task/{self._zygote.pid}/children")
        return {int(pid) for pid in children.read_text().split()}

    async def _start(self, group: str, source: bytes, limits: WorkerLimits) -> Worker:
        identity = WorkerIdentity(group, "filter", 1)
        return await self._zygote.start_worker(identity, source, limits)

    async def _ask(
        self, source: bytes, limits: WorkerLimits, records: list[bytes], batches: int
    ) -> Outcome:
        try:
            worker = await self._start("hostile", source, limits)
        except FilterFailed as failed:
            return Outcome(failed.kind, failed.message)
        reply = FilterResults(b"", None, 0)
        try:
            for _ in range(batches):
                reply = await worker.evaluate(b"orders", 0, records)
        except FilterFailed as failed:
            return Outcome(failed.kind, failed.message)
        finally:
            await worker.close()
        return Outcome(reply.kind, reply.failure or "", reply.results)


def run(count: int, body: bytes = b"{}", flag: int = 0) -> list[bytes]:
    """Records of a queue, with the tags t0, t1, …"""
    records = []
    for index in range(count):
        one = RecordRun()
        one.add("orders", 2, offset=index, tag=f"t{index}", body=body, sys_flag=flag)
        records.append(one.data)
    return records


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    if lacking := missing():
        pytest.skip("needs a kernel layer: " + ", ".join(layer.name for layer in lacking))
    made = Jail()
    yield made
    made.close()


@pytest.fixture(scope="module")
def no_jail() -> Iterator[Jail]:
    """The same without a sandbox: what the sandbox refuses is done there."""
    made = Jail(unsafe=True)
    yield made
    made.close()
