"""Transactions through a real broker in this process, its time in the test's hands."""

import asyncio
import logging
import threading

import pytest

from kourou import ProducerSettings
from kourou.client.transactions.transaction import require_check
from kourou.errors import BadRequest, NoPermission, Rejected
from kourou.model.transaction import TransactionState
from kourou.protocol.messages.sends import EndTransaction

HEARTBEAT_S = 30


@pytest.mark.feature("F252")
def test_the_block_ends_and_the_message_is_there(broker, topic, sent):
    async def story():
        async with broker.async_client("shop") as mq:
            mq.transaction_check(topic)(lambda message: None)
            async with mq.transaction(
                topic, {"id": 1}, tag="paid", keys=["A-1"], properties={"shop": "north"}
            ) as tx:
                sent.none(topic)
                assert broker.open_halves() == 1
                assert tx.id == tx.result.message_id
            assert tx.reported

    asyncio.run(story())
    message = sent.one(topic, tag="paid", key="A-1", properties={"shop": "north"})
    assert message.raw_body == b'{"id":1}'
    assert broker.open_halves() == 0


@pytest.mark.feature("F252")
def test_the_end_is_sent_in_the_background(broker, topic, sent):
    """The block is over before the broker has replied; closing the client waits for it."""

    async def story():
        producer = ProducerSettings(producer_group="shop", wait_for_transaction_end=False)
        async with broker.async_client("shop", producer=producer) as mq:
            mq.transaction_check(topic)(lambda message: None)
            broker.chaos.drop_requests(EndTransaction, times=None, cut=True)
            async with mq.transaction(topic, b"later") as tx:
                pass
            assert not tx.reported
            broker.chaos.repair()
        assert tx.reported, "repeated until the broker has heard it"

    asyncio.run(story())
    assert sent.one(topic).raw_body == b"later"
    assert broker.open_halves() == 0


def test_a_thread_need_not_wait_for_the_end(broker, topic, sent):
    producer = ProducerSettings(producer_group="shop", wait_for_transaction_end=False)
    with broker.client("shop", producer=producer) as mq:
        mq.transaction_check(topic)(lambda message: None)
        with mq.transaction(topic, b"later"):
            pass
    assert sent.one(topic).raw_body == b"later"
    assert broker.open_halves() == 0


def test_a_refused_end_that_nobody_waits_for_is_logged(broker, topic, sent, caplog):
    async def story():
        producer = ProducerSettings(producer_group="shop", wait_for_transaction_end=False)
        async with broker.async_client("shop", producer=producer) as mq:
            mq.transaction_check(topic)(lambda message: None)
            async with mq.transaction(topic, b"slow") as tx:
                await mq.decide(tx.result, TransactionState.ROLLBACK)

    with caplog.at_level(logging.ERROR, "kourou.client.transactions"):
        asyncio.run(story())
    assert "the broker refused to end transaction" in caplog.text
    assert "rolled back already" in caplog.text
    sent.none(topic)


def test_the_block_raises_and_there_is_no_message(broker, topic, sent):
    class Mistake(Exception):
        pass

    async def story():
        async with broker.async_client("shop") as mq:
            mq.transaction_check(topic)(lambda message: None)
            with pytest.raises(Mistake):
                async with mq.transaction(topic, b"x") as tx:
                    raise Mistake
            assert tx.state is TransactionState.ROLLBACK
            async with mq.transaction(topic, b"x") as tx:
                tx.rollback()

    asyncio.run(story())
    sent.none(topic)
    assert broker.open_halves() == 0


@pytest.mark.feature("F254")
def test_what_was_left_unknown_is_asked_about_and_a_coroutine_answers_on_its_loop(
    broker, topic, sent
):
    async def story():
        asked = asyncio.Queue()
        async with broker.async_client("shop") as mq:
            here = asyncio.get_running_loop()

            @mq.transaction_check(topic, body_type=dict)
            async def check(message):
                assert asyncio.get_running_loop() is here
                await asked.put((message.body, message.message_id, message.topic, message.tag))
                return message.body["good"]

            ids = []
            for good in (True, False, None):
                async with mq.transaction(topic, {"good": good}, tag="t") as tx:
                    tx.unknown()
                ids.append(tx.id)
            await asyncio.to_thread(broker.round_passes)
            answers = [await asyncio.wait_for(asked.get(), 60) for _ in range(3)]
            assert sorted(key for _, key, _, _ in answers) == sorted(ids)
            assert {(name, tag) for _, _, name, tag in answers} == {(topic, "t")}

    asyncio.run(story())
    assert sent.one(topic).body == b'{"good":true}'
    assert broker.open_halves() == 1  # the one of which nobody knows
    forget_all(broker)


def forget_all(broker) -> None:
    """Let nothing be left to the next test."""
    for view in broker.each().values():
        transactions = view._parts.transactions
        for half in list(transactions.halves):
            transactions.forget(half)


def test_a_cancelled_block_is_not_rolled_back_but_asked_about(broker, topic, sent):
    """It may have done its work before it was stopped."""

    async def story():
        async with broker.async_client("shop") as mq:
            mq.transaction_check(topic)(lambda message: True)
            inside = asyncio.Event()

            async def work():
                async with mq.transaction(topic, b"done"):
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert broker.open_halves() == 1
            await asyncio.to_thread(broker.round_passes)
            await asyncio.to_thread(sent.one, topic)

    asyncio.run(story())


@pytest.mark.feature("F255", "F297")
def test_a_check_is_mandatory_and_the_settings_may_name_it(broker, topic, sent):
    with (
        broker.client("shop") as mq,
        pytest.raises(BadRequest, match="transaction_check"),
        mq.transaction(topic, b"x"),
    ):
        raise AssertionError("the block must not run")
    asked = threading.Event()

    def listener(message):
        asked.set()
        return TransactionState.COMMIT

    producer = ProducerSettings(producer_group="shop", transaction_check_listener=listener)
    with broker.client("shop", producer=producer) as mq:
        with mq.transaction(topic, b"listened") as tx:
            tx.unknown()
        broker.round_passes()
        assert asked.wait(60)
        sent.one(topic)


@pytest.mark.feature("F006", "F254")
def test_another_member_is_asked_when_the_sender_is_gone(broker, topic, sent):
    with broker.client("shop") as sender:
        sender.transaction_check(topic)(lambda message: None)
        with sender.transaction(topic, b"orphan") as tx:
            tx.unknown()
    with broker.client("others") as stranger, broker.client("shop") as member:
        stranger.transaction_check(topic)(lambda message: False)

        @member.transaction_check(topic)
        def check(message):
            return True

        broker.round_passes()
        assert sent.one(topic).body == b"orphan"


def test_when_the_half_message_cannot_be_stored_the_block_does_not_run(broker, topic):
    with broker.client("shop") as mq:
        mq.transaction_check(topic)(lambda message: None)
        parts = next(iter(broker.each().values()))._parts
        parts.apply("rejectTransactionMessage", value=True)
        try:
            with pytest.raises(NoPermission), mq.transaction(topic, b"x"):
                raise AssertionError("the block must not run")
        finally:
            parts.apply("rejectTransactionMessage", value=False)


def test_a_lost_answer_is_asked_for_again_and_nothing_is_stored_twice(broker, topic, sent):
    with broker.client("shop") as mq:
        mq.transaction_check(topic)(lambda message: None)
        fault = broker.chaos.drop_answers(EndTransaction, cut=True)
        with mq.transaction(topic, b"once") as tx:
            pass
        assert (fault.met, tx.reported) == (1, True)
    sent.one(topic)


def test_a_broker_that_stays_away_is_no_error_of_the_block(broker, topic, sent, caplog):
    with broker.client("shop") as mq:
        mq.transaction_check(topic)(lambda message: True)
        broker.chaos.drop_requests(EndTransaction, times=None, cut=True)
        with caplog.at_level(logging.WARNING), mq.transaction(topic, b"x", timeout_ms=2_000) as tx:
            pass
        broker.chaos.repair()
        broker.clock.leap(HEARTBEAT_S)  # the connection is a new one, so the broker forgot it
        assert not tx.reported
        assert tx.id in caplog.text
        broker.round_passes()
        sent.one(topic)


def test_a_commit_against_what_a_check_has_answered_is_refused(broker, topic, sent):
    with broker.client("shop") as mq:
        mq.transaction_check(topic)(lambda message: False)
        tx = mq.transaction(topic, b"x").__enter__()
        broker.round_passes()
        assert broker._thread.run(broker.until(lambda: not broker.open_halves(), 60))
        with pytest.raises(Rejected, match="rolled back"):
            tx.__exit__(None, None, None)
    sent.none(topic)


def test_a_check_registered_before_the_client_is_opened_answers(broker, topic, sent):
    mq = broker.client("shop")

    @mq.transaction_check(topic)
    def check(message):
        return True

    with mq, mq.transaction(topic, b"early") as tx:
        tx.unknown()
        broker.round_passes()
        sent.one(topic)


def test_the_blocking_client_takes_no_coroutine_for_a_check(broker, topic):
    async def check(message):
        return True

    with broker.client("shop") as mq, pytest.raises(BadRequest, match="coroutine"):
        mq.transaction_check(topic)(check)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        *(
            ({"check_immunity_s": seconds}, "check_immunity_s")
            for seconds in (0, -1, 8 * 24 * 3_600)
        ),
        ({"properties": {"PGROUP": "other"}}, "reserved"),
    ],
)
def test_arguments_that_are_refused_before_the_block_runs(broker, topic, wrong, text):
    with broker.client("shop") as mq:
        mq.transaction_check(topic)(lambda message: None)
        with pytest.raises(BadRequest, match=text), mq.transaction(topic, b"x", **wrong):
            raise AssertionError("the block must not run")


def test_a_closed_client_begins_no_transaction(broker, topic):
    mq = broker.client("shop")
    with mq:
        mq.transaction_check(topic)(lambda message: None)
    with pytest.raises(Rejected), mq.transaction(topic, b"x"):
        raise AssertionError("the block must not run")


@pytest.mark.feature("F255")
def test_who_registers_a_check_may_begin_a_transaction_in_the_next_line(broker, topic):
    gate = threading.Event()
    with broker.client("shop") as mq:
        mq.send(topic, b"the producer is there")
        broker._thread._io.loop.call_soon_threadsafe(gate.wait, 10)  # the I/O thread is busy
        try:
            mq.transaction_check(topic)(lambda message: None)
            require_check(mq._core, topic)
        finally:
            gate.set()
