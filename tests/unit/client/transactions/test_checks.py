"""Questions about half messages are answered within the bounds of the settings."""

import asyncio
import threading

import pytest

from kourou import ProducerSettings
from kourou.client.introspection.broker_requests import BrokerRequest
from kourou.client.transactions import checks as transaction_checks
from kourou.client.transactions.checks import Check, TransactionChecks
from kourou.errors import KourouError, Unavailable
from kourou.model.transaction import TransactionState
from kourou.protocol.messages.sends import CheckTransactionState, EndTransaction
from kourou.testing.cluster import Cluster
from kourou_rigs.records import RecordRun

COMMIT, ROLLBACK = 8, 12


class Wires:
    """The session, as much as checks use of it: what is asked of brokers."""

    def __init__(self) -> None:
        self.reported: list[EndTransaction] = []
        self.heard = asyncio.Event()
        self.half_handlers: dict[str, object] = {}
        self.connections = self.request_handlers = self.settings = self
        self.request_timeout_ms = 3_000
        self.answerers: dict[type, object] = {}
        self.lost: set[str] = set()

    def is_connected(self, address) -> bool:
        return address not in self.lost

    def on(self, request, answerer) -> None:
        self.answerers[request] = answerer

    async def ask(self, address, request, *, timeout_ms) -> None:
        self.reported.append(request)
        self.heard.set()


async def nothing(topic: str) -> None:
    return None


def record(number: int, group: str = "shop", topic: str = "orders") -> bytes:
    run = RecordRun()
    run.add(topic, body=b"%d" % number, unique_key=f"U{number}", properties={"PGROUP": group})
    return run.data


def question(number: int) -> CheckTransactionState:
    return CheckTransactionState(
        tran_state_table_offset=number,
        commit_log_offset=number * 1000,
        msg_id=f"U{number}",
        transaction_id=f"U{number}",
    )


def checks(wires: Wires) -> TransactionChecks:
    return TransactionChecks(ProducerSettings(producer_group="shop"), wires, nothing)


class Gate:
    """A plain function that waits at a gate; how many wait there, and at most waited."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.inside = 0
        self.seen: list[bytes] = []
        self.is_open = False

    def check(self, message) -> bool:
        with self.lock:
            self.inside += 1
            self.seen.append(message.raw_body)
            self.lock.notify_all()
            self.lock.wait_for(lambda: self.is_open)
            self.inside -= 1
        return True

    def wait_for(self, count: int) -> None:
        with self.lock:
            assert self.lock.wait_for(lambda: self.inside >= count, 60)

    def open(self) -> None:
        with self.lock:
            self.is_open = True
            self.lock.notify_all()


async def until(satisfied) -> None:
    async with asyncio.timeout(60):
        while not satisfied():  # noqa: ASYNC110 - threads and tasks of several kinds are waited for
            await asyncio.sleep(0)


@pytest.fixture
def broker(tmp_path):
    with Cluster(tmp_path) as cluster:
        yield cluster


def open_halves(broker) -> int:
    return broker.each()["broker-a"].half_messages


@pytest.mark.parametrize(
    ("settings", "running", "dropped"),
    [
        pytest.param(
            {"checkThreadPoolMinSize": threads, "checkThreadPoolMaxSize": threads + 2}, threads, 0,
            marks=pytest.mark.feature("F298"), id=f"{threads} run before any is held",
        )
        for threads in (1, 3)
    ]
    + [
        pytest.param(
            {"checkThreadPoolMaxSize": threads, "checkRequestHoldMax": 4}, threads, 5 - threads,
            marks=pytest.mark.feature("F299"), id=f"{threads} run when no more can be held",
        )
        for threads in (1, 3)
    ]
    + [
        pytest.param(
            {"checkRequestHoldMax": held}, 1, 8 - held,
            marks=pytest.mark.feature("F300"), id=f"{held} are held",
        )
        for held in (1, 2)
    ],
)  # fmt: skip
@pytest.mark.feature("F255")
def test_nine_questions_of_a_broker_at_once(broker, caplog, settings, running, dropped):
    """So many run, so many are dropped, and all others are answered."""
    gate, topic = Gate(), broker.create_topic()
    texts = {name: str(value) for name, value in settings.items()}
    producer = ProducerSettings.from_rocketmq(producerGroup="shop", **texts)
    with broker.client(producer=producer) as mq:
        mq.transaction_check(topic)(gate.check)
        for number in range(9):
            with mq.transaction(topic, b"%d" % number) as transaction:
                transaction.unknown()
        producers = broker.each()["broker-a"].membership.producers
        assert broker._thread.run(broker.until(lambda: bool(producers("shop")), 60))
        broker.clock.leap(minutes=1)
        try:
            gate.wait_for(running)
            mq.send(topic, b"its reply follows the questions")
            broker.clock.advance(0)
            assert gate.inside == running
            assert sum("checkRequestHoldMax" in line for line in caplog.messages) == dropped
        finally:
            gate.open()
        assert broker._thread.run(broker.until(lambda: open_halves(broker) <= dropped, 60))
    assert open_halves(broker) == dropped
    assert len(gate.seen) == 9 - dropped


@pytest.mark.feature("F255")
async def test_what_a_broker_asked_that_is_gone_delays_nobody():
    """Waiting for a dead broker's connection takes seconds for each of its questions."""
    wires, gate = Wires(), Gate()
    checker = checks(wires)
    await checker.add(Check("orders", gate.check), None)
    checker.take("here", question(1), record(1))
    await asyncio.to_thread(gate.wait_for, 1)
    for number in range(2, 5):
        checker.take("gone", question(number), record(number))
    checker.take("here", question(5), record(5))
    wires.lost.add("gone")
    gate.open()
    await until(lambda: checker._running == 0)
    await checker.close(1_000)
    assert gate.seen == [b"1", b"5"]
    assert [reported.msg_id for reported in wires.reported] == ["U1", "U5"]


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (True, COMMIT),
        (TransactionState.COMMIT, COMMIT),
        (False, ROLLBACK),
        (TransactionState.ROLLBACK, ROLLBACK),
        (None, None),
        (TransactionState.UNKNOWN, None),
        ("yes", None),
        (1, None),
    ],
)
async def test_answers_and_what_the_broker_receives(answer, reported, caplog):
    wires = Wires()
    checker = checks(wires)
    await checker.add(Check("orders", lambda message: answer), None)
    checker.take("broker", question(7), record(7))
    await until(lambda: checker._running == 0)
    assert [one.commit_or_rollback for one in wires.reported] == (
        [] if reported is None else [reported]
    )
    for one in wires.reported:
        assert (one.tran_state_table_offset, one.commit_log_offset) == (7, 7_000)
        assert (one.producer_group, one.msg_id, one.from_transaction_check) == ("shop", "U7", True)
    assert ("failed" in caplog.text) == (answer in ("yes", 1) and answer is not True)
    await checker.close(1_000)


async def test_a_check_that_raises_has_not_answered_and_the_next_is_asked(caplog):
    def check(message):
        if message.raw_body == b"1":
            raise RuntimeError("the table is away")
        return True

    wires = Wires()
    checker = checks(wires)
    await checker.add(Check("orders", check), None)
    for number in (1, 2):
        checker.take("broker", question(number), record(number))
    await until(lambda: checker._running == 0)
    assert [one.msg_id for one in wires.reported] == ["U2"]
    assert "the table is away" in caplog.text
    await checker.close(1_000)


async def test_a_broker_that_does_not_take_an_answer_is_logged(caplog):
    wires = Wires()

    async def refuse(address, request, *, timeout_ms) -> None:
        raise Unavailable("gone")

    wires.ask = refuse
    checker = checks(wires)
    await checker.add(Check("orders", lambda message: True), None)
    checker.take("broker", question(1), record(1))
    await until(lambda: checker._running == 0)
    assert "gone" in caplog.text
    await checker.close(1_000)


async def test_each_topic_has_its_function_and_the_rest_the_general_one():
    asked: list[tuple[str, str]] = []
    wires = Wires()
    checker = checks(wires)
    for name in ("orders", ""):
        await checker.add(
            Check(name, lambda message, name=name: asked.append((name, message.topic))), None
        )
    checker.take("broker", question(1), record(1))
    checker.take("broker", question(2), record(2, topic="bills"))
    await until(lambda: checker._running == 0)
    assert sorted(asked) == [("", "bills"), ("orders", "orders")]
    await checker.close(1_000)


async def test_a_question_goes_to_the_producer_of_its_group(caplog):
    wires = Wires()
    shop = checks(wires)
    other = TransactionChecks(ProducerSettings(producer_group="other"), wires, nothing)
    seen: list[str] = []
    for checker in (shop, other):
        await checker.add(
            Check("", lambda message, checker=checker: seen.append(checker.group)), None
        )
    answer = wires.answerers[CheckTransactionState]
    for group in ("shop", "other", "nobody's"):
        await answer(BrokerRequest("broker", question(1), [record(1, group)]))
    await until(lambda: shop._running + other._running == 0)
    assert sorted(seen) == ["other", "shop"]
    assert "nobody's" in caplog.text
    await shop.close(1_000)
    assert list(wires.half_handlers) == ["other"]
    await other.close(1_000)


async def test_a_member_joins_its_group_as_soon_as_its_brokers_are_known(monkeypatch, caplog):
    """It may never send, and is to be asked all the same."""
    monkeypatch.setattr(transaction_checks, "JOIN_RETRY_S", 0)
    found: list[str] = []

    async def find(topic: str) -> None:
        found.append(topic)
        if len(found) < 3:
            raise KourouError("no route yet")

    checker = TransactionChecks(ProducerSettings(producer_group="shop"), Wires(), find)
    await checker.add(Check("orders", lambda message: None), None)
    await until(lambda: len(found) == 3)
    assert found == ["orders"] * 3
    assert sum("no route yet" in line for line in caplog.messages) == 1
    await checker.close(1_000)


async def test_closing_lets_a_running_check_answer_and_forgets_those_held():
    wires, gate = Wires(), Gate()
    checker = checks(wires)
    await checker.add(Check("orders", gate.check), None)
    for number in range(3):
        checker.take("broker", question(number), record(number))
    await asyncio.to_thread(gate.wait_for, 1)
    closing = asyncio.create_task(checker.close(10_000))
    await asyncio.sleep(0)
    gate.open()
    await closing
    assert [one.msg_id for one in wires.reported] == ["U0"]
    checker.take("broker", question(9), record(9))
    assert checker._running == 0
