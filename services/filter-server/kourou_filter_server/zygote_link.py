"""The sandboxed processes of the filter server: their layers, the zygote, and its workers.

    probe            which sandbox layers this machine has; `kourou doctor` uses it as well
    Zygote           the connection to the zygote: starts it, and starts workers with it
    SandboxExecutor  executes the core's effects on workers, and restarts the zygote

The end of a worker is posted to the core once if the core knows the worker. When the zygote ends,
its workers end with it. It is restarted, and worker starts wait for it.

State: soft.

Invariants: a worker that this object does not know is killed as soon as it is reported; when the
zygote ends, all its workers end, and all waiting callers get an error.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kourou.errors import ConfigError, FilterFailed, KourouError, Unavailable
from kourou.filtering.python_rules import MODULES
from kourou_filter_server.interface import (
    LOST,
    BatchEvaluated,
    EndWorker,
    EvaluateBatch,
    Input,
    StartWorker,
    WorkerEnded,
    WorkerReady,
)
from kourou_filter_server.sandbox import wire
from kourou_filter_server.worker_link import (
    DEFAULT_LIMITS,
    NO_FILTERS_FAULT,
    Worker,
    WorkerExit,
    WorkerIdentity,
    WorkerLimits,
)

# -- sandbox layers -------------------------------------------------------------------------------

PROBE_S_MAX = 30.0
"""The timeout of the probe, which normally takes 0.1 s and longer on an overloaded machine."""

_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from kourou_filter_server.sandbox.zygote import main; main(sys.argv[2:])"
)
_HINT = (
    "in a container use deploy/seccomp/filter-server.json; for details run "
    "`kourou doctor`; --unsafe-no-sandbox runs filters without a sandbox, "
    "for development on loopback only"
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One sandbox layer. `detail` is its version, or the kernel's error with an explanation."""

    name: str
    there: bool
    detail: str


def command(*arguments: str) -> list[str]:
    """The zygote's command line: isolated, without site packages, with our folder only.

    It writes no bytecode, because its limit of file sizes is 0, and exceeding it would end it.

    The caller starts it with an empty environment and the working directory "/".
    """
    folder = str(Path(__file__).resolve().parent.parent)
    return [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _BOOT, folder, *arguments]


def probe() -> tuple[Layer, ...]:
    """Try every layer in child processes; this process does not change.

    Blocks for about a tenth of a second. Raises Unavailable if Python cannot be started.
    """
    try:
        done = subprocess.run(
            command("probe"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            cwd="/",
            timeout=PROBE_S_MAX,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        text = error.stderr.decode("utf-8", "replace").strip()[-500:]
        raise Unavailable(f"the layers of the sandbox could not be tested: {text}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"the layers of the sandbox could not be tested: {error}") from None
    return layers_of(json.loads(done.stdout))


def layers_of(reply: Iterable[tuple[str, bool, str]]) -> tuple[Layer, ...]:
    """Convert the layers from the JSON form that the zygote and the probe use."""
    return tuple(Layer(name, there, detail) for name, there, detail in reply)


def missing(layers: Iterable[Layer] | None = None) -> tuple[Layer, ...]:
    """The missing ones of `layers`, or of a new probe."""
    return tuple(layer for layer in (probe() if layers is None else layers) if not layer.there)


def refusal(lacking: Iterable[Layer]) -> ConfigError:
    """The error of a filter server that does not start: one sentence with every missing layer."""
    named = "; ".join(f"{layer.name} ({layer.detail})" for layer in lacking)
    return ConfigError(f"the sandbox of filters lacks: {named}", hint=_HINT)


# -- the zygote -----------------------------------------------------------------------------------

START_S_MAX = 30.0
"""The timeout until the zygote is ready; normally a fraction of a second."""

FORK_S_MAX = 10.0
"""The timeout of forking a worker, which normally takes milliseconds."""

_SAID_BYTES_MAX = 4_096
"""How much of its output to stderr is kept; normally there is none."""

_CODECS = ("lz4", "zstandard")


@dataclass(slots=True)
class _ZygoteProcess:
    """One zygote process, from its start to its end."""

    process: subprocess.Popen[bytes]
    pidfd: int
    control: socket.socket
    stderr_fd: int
    ready: asyncio.Future[tuple[Layer, ...]]
    ended: asyncio.Future[str]
    said: bytes = b""


@dataclass(frozen=True, slots=True)
class _PendingWorker:
    """A requested worker: what is needed to create it when the zygote reports the fork."""

    identity: WorkerIdentity
    limits: WorkerLimits
    channel: socket.socket
    forked: asyncio.Future[Worker]


class Zygote:
    """Starts workers. Use it from one event loop, in the thread that lives longest.

    The kernel kills the zygote when the *thread* that started it ends; this is the loop's thread.
    `unsafe`: without the sandbox, for development only; the caller logs warnings. `cores`: the
    cores of the workers; empty for all.
    """

    def __init__(self, *, unsafe: bool = False, cores: frozenset[int] = frozenset()) -> None:
        self._unsafe = unsafe
        self._cores = cores
        self._life: _ZygoteProcess | None = None
        self._number = 0
        self._wanted: dict[int, _PendingWorker] = {}
        self._workers: dict[int, Worker] = {}
        self._last_end = "it was never started"

    @property
    def running(self) -> bool:
        """Whether workers can be started."""
        return self._life is not None and self._life.ready.done()

    @property
    def pid(self) -> int:
        """The zygote's process ID. Raises Unavailable if it does not run."""
        return self._alive().process.pid

    async def start(self) -> None:
        """Start the process and wait until it can fork workers; also after an earlier one ended.

        Raises ConfigError if a layer is missing (and not `unsafe`), Unavailable if it cannot start.
        """
        assert self._life is None, "the zygote runs already"
        life = self._spawn()
        self._life = life
        try:
            hello = {
                "modules": MODULES,
                "codec_paths": _codec_paths(),
                "unsafe": self._unsafe,
                "cores": sorted(self._cores),
            }
            with suppress(BrokenPipeError):  # it has ended; `ready` gets the reason
                life.control.send(json.dumps(hello).encode())
            async with asyncio.timeout(START_S_MAX):
                layers = await asyncio.shield(life.ready)
        except TimeoutError:
            await self.close()
            raise Unavailable(f"the zygote was not ready within {START_S_MAX:.0f} s") from None
        except BaseException:
            await self.close()
            raise
        if (lacking := missing(layers)) and not self._unsafe:
            await self.close()
            raise refusal(lacking)

    async def start_worker(
        self, identity: WorkerIdentity, source: bytes, limits: WorkerLimits = DEFAULT_LIMITS
    ) -> Worker:
        """Start a worker and set up its filter.

        Raises FilterFailed with the kind setup, memory, timeout, died or lied, and Unavailable if
        there is no zygote or it cannot fork.
        """
        life = self._alive()
        self._number = number = (self._number + 1) & 0xFFFF_FFFF
        ours, theirs = socket.socketpair()
        forked: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._wanted[number] = _PendingWorker(identity, limits, ours, forked)
        try:
            with theirs:
                asked = wire.START.pack(
                    b"S", number, limits.memory_bytes, limits.cpu_allowance_s, limits.niceness
                )
                socket.send_fds(life.control, [asked], [theirs.fileno()])
            async with asyncio.timeout(FORK_S_MAX):
                worker = await asyncio.shield(forked)
        except TimeoutError:
            self._cancel(number)
            raise Unavailable(f"no worker was forked within {FORK_S_MAX:.0f} s") from None
        except OSError as error:
            self._cancel(number)
            raise Unavailable(f"the zygote does not accept requests: {error.strerror}") from None
        except BaseException:
            self._cancel(number)
            raise
        try:
            await worker.set_up(source)
        except BaseException:
            worker.kill("its set-up was cancelled")
            raise
        return worker

    async def wait_ended(self) -> str:
        """Wait until the zygote and all its workers have ended. Returns the reason."""
        return self._last_end if self._life is None else await self._ended(self._life)

    async def close(self) -> None:
        """End it and all its workers, and wait until they have ended."""
        if (life := self._life) is not None:
            # It kills and reaps its workers when the control socket closes. If it hangs, it is
            # killed, and the kernel kills the workers with it.
            life.control.shutdown(socket.SHUT_RDWR)
            try:
                async with asyncio.timeout(FORK_S_MAX):
                    await self._ended(life)
            except TimeoutError:
                signal.pidfd_send_signal(life.pidfd, signal.SIGKILL)
                await self._ended(life)

    # -- the process ----------------------------------------------------------------------------

    def _spawn(self) -> _ZygoteProcess:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stderr_fd, stderr_end = os.pipe()
        try:
            process = subprocess.Popen(
                command(str(theirs.fileno()), str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr_end,
                env={},
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C goes to the filter server, which closes it
            )
        except OSError as error:
            ours.close()
            os.close(stderr_fd)
            raise Unavailable(f"the zygote cannot be started: {error.strerror}") from None
        finally:
            theirs.close()
            os.close(stderr_end)
        ours.setblocking(False)
        os.set_blocking(stderr_fd, False)
        life = _ZygoteProcess(
            process,
            os.pidfd_open(process.pid),
            ours,
            stderr_fd,
            loop.create_future(),
            loop.create_future(),
        )
        loop.add_reader(ours.fileno(), self._read_control, life)
        loop.add_reader(stderr_fd, self._listen_to_stderr, life)
        loop.add_reader(life.pidfd, self._process_ended, life)
        return life

    def _alive(self) -> _ZygoteProcess:
        if self._life is None:
            raise Unavailable("the zygote of filter workers is not running")
        return self._life

    async def _ended(self, life: _ZygoteProcess) -> str:
        return await asyncio.shield(life.ended)

    def _listen_to_stderr(self, life: _ZygoteProcess) -> None:
        try:
            part = os.read(life.stderr_fd, _SAID_BYTES_MAX)
        except BlockingIOError:
            return
        life.said = (life.said + part)[-_SAID_BYTES_MAX:]
        if not part:
            asyncio.get_running_loop().remove_reader(life.stderr_fd)

    def _process_ended(self, life: _ZygoteProcess) -> None:
        """The process has ended: read its last output, then notify all waiting callers."""
        loop = asyncio.get_running_loop()
        self._read_control(life)
        self._listen_to_stderr(life)
        for fd in (life.control.fileno(), life.stderr_fd, life.pidfd):
            loop.remove_reader(fd)
        life.control.close()
        os.close(life.stderr_fd)
        os.close(life.pidfd)
        code = life.process.wait()  # it has ended, so this does not block
        reason = f"the zygote {in_words(code)}"
        if said := life.said.decode("utf-8", "replace").strip():
            reason += f": {said.splitlines()[-1]}"
        self._life = None
        self._last_end = reason
        for number in list(self._wanted):
            self._not_forked(number, reason)
        workers, self._workers = self._workers, {}
        for worker in workers.values():
            worker.ended(WorkerExit(NO_FILTERS_FAULT, f"{reason}, and its workers with it"))
        if not life.ready.done():
            life.ready.set_exception(Unavailable(reason))
            life.ready.exception()  # marks it as retrieved: `start` may have timed out
        life.ended.set_result(reason)

    # -- frames of the zygote -------------------------------------------------------------------

    def _read_control(self, life: _ZygoteProcess) -> None:
        while True:
            try:
                frame, descriptors, _, _ = socket.recv_fds(
                    life.control, wire.CONTROL_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError:
                frame, descriptors = b"", []
            if not frame:
                # The zygote has closed its end; its pidfd reports the exit.
                asyncio.get_running_loop().remove_reader(life.control.fileno())
                return
            self._take(life, frame, descriptors)

    def _take(self, life: _ZygoteProcess, frame: bytes, descriptors: list[int]) -> None:
        kind = frame[:1]
        if kind == b"W":
            _, number, pid = wire.STARTED.unpack(frame)
            self._forked(life, number, pid, descriptors[0])
        elif kind == b"E":
            _, number, code = wire.ENDED.unpack(frame)
            worker = self._workers.pop(number, None)
            if worker is not None:
                worker.ended(how_it_ended(code))
        elif kind == b"F":
            _, number = wire.NOT_STARTED.unpack_from(frame)
            said = frame[wire.NOT_STARTED.size :].decode("utf-8", "replace")
            self._not_forked(number, f"no worker could be started: {said}")
        elif not life.ready.done():
            life.ready.set_result(layers_of(json.loads(frame[1:])["layers"]))

    def _forked(self, life: _ZygoteProcess, number: int, pid: int, pidfd: int) -> None:
        """Create the worker now, not when its requester resumes: its end may be the next frame."""
        wanted = self._wanted.pop(number, None)
        if wanted is None:  # the request was cancelled
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
            return
        renew = functools.partial(self._renew, life, number, wanted.limits.cpu_allowance_s)
        worker = Worker(wanted.identity, wanted.limits, wanted.channel, pid, pidfd, renew)
        self._workers[number] = worker
        wanted.forked.set_result(worker)

    def _not_forked(self, number: int, reason: str) -> None:
        if (wanted := self._wanted.pop(number, None)) is not None:
            wanted.channel.close()
            wanted.forked.set_exception(Unavailable(reason))
            wanted.forked.exception()  # marks it as retrieved: the requester may be cancelled

    def _cancel(self, number: int) -> None:
        """Cancel a request: the worker is not created, or is killed."""
        if (wanted := self._wanted.pop(number, None)) is not None:
            wanted.channel.close()
        elif (worker := self._workers.get(number)) is not None:
            worker.kill("it is no longer needed")

    def _renew(self, life: _ZygoteProcess, number: int, allowance_s: int) -> None:
        if life is self._life:
            # A zygote that does not accept it is about to end or hangs. Then `_process_ended` or
            # the CPU allowance ends its workers, too.
            with suppress(OSError):
                life.control.send(wire.RENEW.pack(b"R", number, allowance_s))


def how_it_ended(code: int) -> WorkerExit:
    """Convert an exit code, or minus a signal number, to a failure kind and a text."""
    if code == -signal.SIGXCPU:
        return WorkerExit("timeout", "the worker used more processor time than allowed")
    return WorkerExit("died", f"the worker {in_words(code)}")


def in_words(code: int) -> str:
    """A text such as "was killed by SIGSEGV (it crashed)"."""
    if code >= 0:
        return f"ended with exit code {code}"
    number = -code
    known = {one.value: one.name for one in signal.Signals}
    name = known.get(number, f"signal {number}")  # real-time signals have no names
    cause = _CAUSES.get(number)
    return f"was killed by {name}" + (f" ({cause})" if cause else "")


_CAUSES: dict[int, str] = {
    signal.SIGSEGV: "it crashed",
    signal.SIGBUS: "it crashed",
    signal.SIGILL: "it crashed",
    signal.SIGFPE: "it crashed",
    signal.SIGABRT: "it aborted",
    signal.SIGSYS: "a forbidden system call",
    signal.SIGKILL: "by an operator, or by the system for lack of memory",
}


def _codec_paths() -> list[str]:
    """The folders of the decompression packages that this process finds."""
    found = (importlib.util.find_spec(name) for name in _CODECS)
    origins = [spec.origin for spec in found if spec is not None and spec.origin]
    return sorted({str(Path(origin).parent.parent) for origin in origins})


_log = logging.getLogger("kourou.filter-server")

# -- effects on workers ---------------------------------------------------------------------------

START_AGAIN_S = 1.0
"""The interval between attempts to start the zygote, and the delay after a failed fork."""

_NS_PER_US = 1_000


class SandboxExecutor:
    """Executes effects on workers. `failed` is called if the zygote can never be restarted."""

    def __init__(
        self,
        zygote: Zygote,
        limits: WorkerLimits,
        post: Callable[[Input], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._zygote = zygote
        self._limits = limits
        self._post = post
        self._failed = failed
        self._workers: dict[int, Worker] = {}
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._batches: set[asyncio.Task[None]] = set()
        self._judging: set[int] = set()
        self._up = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.zygotes_started = 0

    def performers(self) -> dict[type[Any], Callable[[Any], None]]:
        """The executor of each type of effect on workers."""
        return {StartWorker: self._start, EvaluateBatch: self._evaluate, EndWorker: self._end}

    # -- startup and shutdown ---------------------------------------------------------------------

    async def start(self) -> None:
        """Start the zygote. Raises ConfigError, which names the missing layers, or Unavailable."""
        await self._zygote.start()
        self.zygotes_started += 1
        self._up.set()
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """End the zygote and all workers, and wait until they are gone."""
        tasks = [*self._lives.values(), *self._batches]
        if self._keeper is not None:
            tasks.append(self._keeper)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._zygote.close()

    async def _keep(self) -> None:
        try:
            while True:
                reason = await self._zygote.wait_ended()
                self._up.clear()
                _log.warning("zygote-ended: %(reason)s; restarting it", {"reason": reason})
                await self._start_again()
                self.zygotes_started += 1
                self._up.set()
        except KourouError as error:  # the sandbox has lost a layer
            self._failed(error)

    async def _start_again(self) -> None:
        while True:
            try:
                await self._zygote.start()
            except KourouError as error:
                if not error.retryable:
                    raise
                _log.error("zygote-start-failed: filters cannot run: %(error)s", {"error": error})
                await asyncio.sleep(START_AGAIN_S)
            else:
                return

    # -- workers ----------------------------------------------------------------------------------

    def _start(self, effect: StartWorker) -> None:
        number = effect.worker
        life = asyncio.get_running_loop().create_task(self._live(effect))
        self._lives[number] = life
        life.add_done_callback(lambda _: self._lives.pop(number, None))

    async def _live(self, effect: StartWorker) -> None:
        """Run a worker from its start to its end, and post both to the core."""
        number = effect.worker
        worker: Worker | None = None
        try:
            await self._up.wait()
            began_ns = time.monotonic_ns()
            identity = WorkerIdentity(effect.group, effect.name, effect.version)
            worker = await self._zygote.start_worker(identity, effect.source, self._limits)
            self._workers[number] = worker
            micros = (time.monotonic_ns() - began_ns) // _NS_PER_US
            self._post(WorkerReady(number, micros))
            reason = await worker.wait_ended()
            if number not in self._judging:  # otherwise `_ask` posts the end, with its cause
                self._post(WorkerEnded(number, LOST, reason))
        except FilterFailed as failure:
            self._post(WorkerEnded(number, failure.kind, str(failure)))
        except KourouError as error:
            if self._up.is_set():  # the machine lacks a resource
                await asyncio.sleep(START_AGAIN_S)
            self._post(WorkerEnded(number, LOST, str(error)))
        finally:
            self._workers.pop(number, None)
            if worker is not None:
                worker.kill()

    def _end(self, effect: EndWorker) -> None:
        worker = self._workers.pop(effect.worker, None)
        if worker is not None:
            worker.kill()
        life = self._lives.pop(effect.worker, None)
        if life is not None:
            life.cancel()

    # -- batches ----------------------------------------------------------------------------------

    def _evaluate(self, effect: EvaluateBatch) -> None:
        worker = self._workers.get(effect.worker)
        if worker is None:  # it has just ended, and the core will receive WorkerEnded
            return
        self._judging.add(effect.worker)
        batch = asyncio.get_running_loop().create_task(self._ask(worker, effect))
        self._batches.add(batch)
        batch.add_done_callback(self._batches.discard)

    async def _ask(self, worker: Worker, effect: EvaluateBatch) -> None:
        number = effect.worker
        try:
            reply = await worker.evaluate(
                effect.topic.encode(), effect.wall_ms, effect.records, effect.count
            )
        except FilterFailed as failure:
            self._post(WorkerEnded(number, failure.kind, str(failure)))
        except KourouError as error:
            self._post(WorkerEnded(number, LOST, str(error)))
        else:
            self._post(
                BatchEvaluated(
                    number,
                    effect.batch,
                    reply.results,
                    reply.kind,
                    reply.failure or "",
                    reply.micros,
                )
            )
        finally:
            self._judging.discard(number)
            if not worker.alive:  # the core ignores a second WorkerEnded
                self._post(WorkerEnded(number, LOST, "it ended with its last batch"))
