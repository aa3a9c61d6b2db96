"""A filter server's core alone: a test supplies inputs and inspects effects.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from kourou.errors import Code, Unavailable
from kourou.model.filter import FilterState, FilterVersion
from kourou.protocol.bodies.filter_bodies import encode_filters
from kourou.protocol.messages import filter_server as words
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou.protocol.request import Request
from kourou.runtime import Peer, Received, Reply, ReplyTo, Tick
from kourou_filter_server.context import ServerPolicy
from kourou_filter_server.core import FilterCore
from kourou_filter_server.interface import (
    AskBroker,
    BatchEvaluated,
    BrokerAnswered,
    BrokerFound,
    Effect,
    EvaluateBatch,
    FiltersChanged,
    Input,
    StartWorker,
    WorkerReady,
)
from kourou_rigs.filter_records import Does, fake_record

E = TypeVar("E", bound=Effect)
GROUP, NAME, TOPIC = "till", "late", "flights"
WALL_MS = 1_700_000_000_000


class Bench:
    """One core, and the effects of its last loop iteration."""

    def __init__(self, policy: ServerPolicy | None = None) -> None:
        self.policy = policy or ServerPolicy(workers_max=2)
        self.core = FilterCore(self.policy, "127.0.0.1:20915", {"zmq:internal": "127.0.0.1:20915"})
        self.now_ms = 5_000
        self.effects: list[Effect] = []
        self.filters_version = 7
        self.state: FilterState | None = state()
        self.access: Callable[[words.CheckAccess], words.CheckAccessResponse] | None = lambda _: (
            words.CheckAccessResponse(undecided=True)
        )
        self._correlation = 0
        self.peer = Peer(1, "zmq", ("127.0.0.1", 40_000))

    # -- loop iterations --------------------------------------------------------------------------

    def turn(self, *inputs: Input) -> list[Effect]:
        """Handle these inputs; returns the effects.

        Questions about clients are answered by `access`, and are not among them; with None they
        are.
        """
        self.effects = list(self.core.handle(self.now_ms, inputs))
        while self.access is not None and (questions := self.questions()):
            for asked in questions:
                self.effects.remove(asked)
                request = asked.request
                assert isinstance(request, words.CheckAccess)
                answer = BrokerAnswered(asked.token, header=self.access(request))
                self.effects += self.core.handle(self.now_ms, [answer])
        return self.effects

    def questions(self) -> list[AskBroker]:
        """The questions about clients among the effects of the last iteration."""
        return [one for one in self.all(AskBroker) if isinstance(one.request, words.CheckAccess)]

    def pass_time(self, milliseconds: int) -> list[Effect]:
        """Advance the time and deliver a tick."""
        self.now_ms += milliseconds
        return self.turn(Tick(WALL_MS + self.now_ms, self.now_ms))

    def done(self, kind: type[E]) -> E:
        """The only effect of this kind in the last iteration."""
        found = self.all(kind)
        assert len(found) == 1, f"{len(found)} x {kind.__name__} among {self.effects}"
        return found[0]

    def all(self, kind: type[E]) -> list[E]:
        """All effects of a kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def asked(self, kind: type[Request]) -> AskBroker:
        """The only request of that kind to the broker."""
        found = [each for each in self.all(AskBroker) if isinstance(each.request, kind)]
        assert len(found) == 1, f"{len(found)} x {kind.__name__} among {self.effects}"
        return found[0]

    # -- the broker -------------------------------------------------------------------------------

    def answer(
        self,
        asked: AskBroker,
        header: Any = None,
        body: bytes = b"",
        code: int = Code.SUCCESS,
        remark: str = "",
    ) -> list[Effect]:
        """Deliver the broker's reply."""
        parts = (body,) if body else ()
        return self.turn(BrokerAnswered(asked.token, code, remark, header, parts))

    def no_answer(self, asked: AskBroker) -> list[Effect]:
        """Fail a request because the broker is offline."""
        return self.turn(BrokerAnswered(asked.token, error=Unavailable("it is offline")))

    def tell_filters(self, asked: AskBroker) -> list[Effect]:
        """Deliver the broker's list of filters."""
        header = words.GetFiltersResponse(filters_version=self.filters_version)
        request = asked.request
        assert isinstance(request, words.GetFilters)
        told = self.state
        if told is not None and not request.with_source:
            versions = tuple(replace(one, source=None) for one in told.versions)
            told = replace(told, versions=versions)
        return self.answer(asked, header, encode_filters([] if told is None else [told]))

    def registered(self) -> Bench:
        """Register the filter server and load the filters."""
        self.turn(BrokerFound())
        header = words.RegisterFilterServerResponse(
            broker_name="broker-a", broker_id=0, filters_version=self.filters_version
        )
        self.answer(self.asked(words.RegisterFilterServer), header)
        self.tell_filters(self.asked(words.GetFilters))
        return self

    def change(self, filters: FilterState | None) -> list[Effect]:
        """Change a filter at the broker, and notify the filter server."""
        self.state = filters
        self.filters_version += 1
        self.turn(FiltersChanged(self.filters_version))
        return self.tell_filters(self.asked(words.GetFilters))

    # -- pulls ------------------------------------------------------------------------------------

    def received(self, request: Request, body: bytes = b"", deadline_ms: int = 0) -> Received:
        """A request as an input."""
        self._correlation += 1
        to = ReplyTo(self.peer, self._correlation)
        deadline = self.now_ms + deadline_ms if deadline_ms else 0
        return Received(to, request, (body,) if body else (), WALL_MS, deadline)

    def pull(self, offset: int = 0, hold_ms: int = 0, **fields: Any) -> AskBroker:
        """Deliver a pull; returns the resulting request to the broker."""
        deadline_ms = fields.pop("deadline_ms", 0)
        self.turn(self.received(a_pull(offset, hold_ms, **fields), deadline_ms=deadline_ms))
        return self.asked(PullMessage)

    def found(self, asked: AskBroker, *records: bytes, maximum: int = 100) -> list[Effect]:
        """Reply to a pull with these messages."""
        request = asked.request
        assert isinstance(request, PullMessage)
        header = place(request.queue_offset + len(records), maximum)
        return self.answer(asked, header, b"".join(records), remark="FOUND")

    def worker(self) -> StartWorker:
        """Start the worker that a pull requires."""
        if self.all(AskBroker) and any(
            isinstance(each.request, words.GetFilters) for each in self.all(AskBroker)
        ):
            self.tell_filters(self.asked(words.GetFilters))
        started = self.done(StartWorker)
        self.turn(WorkerReady(started.worker, 4_000))
        return started

    def results(self, asked: EvaluateBatch, results: str, kind: str = "", reason: str = "") -> None:
        """Deliver the results of a worker: 0, 1 or 2 for each message."""
        told = bytes(map(int, results))
        self.turn(BatchEvaluated(asked.worker, asked.batch, told, kind, reason, 10))

    def serving(self) -> StartWorker:
        """Start a worker and let it filter a batch."""
        upstream = self.pull()
        source = self.asked(words.GetFilters)
        self.tell_filters(source)
        started = self.worker()
        self.found(upstream, record(0))
        self.results(self.done(EvaluateBatch), "1")
        assert self.done(Reply).code == Code.SUCCESS
        return started


def a_pull(offset: int = 0, hold_ms: int = 0, **fields: Any) -> PullMessage:
    """A consumer's pull with its filter."""
    flags = PullFlag.CLASS_FILTER | PullFlag.SUBSCRIPTION
    if hold_ms:
        flags |= PullFlag.SUSPEND
    given: dict[str, Any] = {
        "consumer_group": GROUP,
        "topic": TOPIC,
        "queue_id": 0,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": int(flags),
        "suspend_timeout_millis": hold_ms,
        "subscription": NAME,
        "expression_type": "TAG",
        "max_msg_bytes": 1 << 20,
    }
    return PullMessage(**(given | fields))


def record(offset: int, size: int = 120) -> bytes:
    """A stored message with the parts that a filter server reads."""
    return fake_record(offset, 3, Does.NOTHING, size)


def place(next_offset: int, maximum: int = 100) -> PullResponse:
    """The header of a pull reply with the next offset."""
    return PullResponse(
        suggest_which_broker_id=1,
        next_begin_offset=next_offset,
        min_offset=0,
        max_offset=maximum,
    )


def version(number: int, text: str = "") -> FilterVersion:
    """A filter version; different texts have different digests."""
    text = text or f"source {number}"
    return FilterVersion(number, f"digest of {text}", "ann", "", 0, len(text), text)


def state(*numbers: int, **fields: Any) -> FilterState:
    """A filter with these versions; the newest is enabled."""
    versions = tuple(version(number) for number in numbers or (1,))
    newest = versions[-1].version
    given: dict[str, Any] = {"active": newest, "next_version": newest + 1}
    return FilterState(GROUP, NAME, versions, **(given | fields))


def judged_bytes(reply: Reply) -> bytes:
    """The messages of a reply."""
    return b"".join(bytes(part) for part in reply.body)
