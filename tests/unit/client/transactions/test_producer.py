"""RocketMQ's shape of transactions: an executor and a checker, for both faces."""

import asyncio

import pytest

from kourou import ProducerSettings, TransactionState
from kourou.engine.sends.confirmations import Confirmations
from kourou.errors import BadRequest, TopicNotFound

SETTINGS = ProducerSettings(producer_group="shop")


@pytest.mark.feature("F252", "F255")
@pytest.mark.parametrize("face", ["blocking", "plain functions awaited", "coroutines"])
def test_the_executor_says_what_becomes_of_the_message(broker, topic, sent, face):
    seen = []

    def execute(transaction, argument):
        seen.append((transaction.id, transaction.half.body, argument))
        return argument

    async def execute_later(transaction, argument):
        return execute(transaction, argument)

    arguments = [TransactionState.COMMIT, TransactionState.ROLLBACK, True, False]
    results = []
    if face == "blocking":
        with (
            broker.client("other") as mq,
            mq.transaction_producer(SETTINGS, execute=execute, check=lambda _: None) as producer,
        ):
            results = [producer.send_in_transaction(topic, b"x", one, tag="t") for one in arguments]
    else:

        async def story():
            chosen = execute_later if face == "coroutines" else execute
            async with (
                broker.async_client("other") as mq,
                mq.transaction_producer(SETTINGS, execute=chosen, check=lambda _: None) as producer,
            ):
                for one in arguments:
                    results.append(await producer.send_in_transaction(topic, b"x", one, tag="t"))

        asyncio.run(story())
    commit, rollback = TransactionState.COMMIT, TransactionState.ROLLBACK
    assert [one.state for one in results] == [commit, rollback, commit, rollback]
    assert all(one.reported for one in results)
    assert [key for key, _, _ in seen] == [one.send.message_id for one in results]
    assert {message.message_id for message in sent.all(topic, 2, tag="t")} == {
        results[0].send.message_id,
        results[2].send.message_id,
    }
    assert broker.open_halves() == 0


@pytest.mark.feature("F254")
@pytest.mark.parametrize("awaited", [False, True])
def test_an_executor_that_fails_leaves_it_to_the_checker(broker, topic, sent, awaited):
    def execute(transaction, argument):
        raise RuntimeError("no database")

    if awaited:

        async def story():
            async with (
                broker.async_client("other") as mq,
                mq.transaction_producer(
                    SETTINGS, execute=execute, check=lambda _: True
                ) as producer,
            ):
                result = await producer.send_in_transaction(topic, b"x")
                assert (result.state, result.reported) == (TransactionState.UNKNOWN, False)
                assert str(result.error) == "no database"
                await asyncio.to_thread(broker.round_passes)
                await asyncio.to_thread(sent.one, topic)

        asyncio.run(story())
        return
    with (
        broker.client("other") as mq,
        mq.transaction_producer(SETTINGS, execute=execute, check=lambda _: True) as producer,
    ):
        result = producer.send_in_transaction(topic, b"x")
        assert (result.state, result.reported) == (TransactionState.UNKNOWN, False)
        assert str(result.error) == "no database"
        broker.round_passes()
        sent.one(topic)


def test_where_the_half_message_is_not_stored_nothing_is_executed(broker):
    def execute(transaction, argument):
        raise AssertionError("nothing to execute")

    producer = ProducerSettings(producer_group="shop", create_topic_key="no-such-topic")
    with (
        broker.client("other") as mq,
        mq.transaction_producer(producer, execute=execute, check=lambda _: None) as shop,
        pytest.raises(TopicNotFound),
    ):
        shop.send_in_transaction("not-there", b"x")


def test_a_half_message_without_the_full_promise_is_rolled_back(broker, topic, sent, monkeypatch):
    """As RocketMQ does at FLUSH_DISK_TIMEOUT: the executor is not called."""
    defer = Confirmations.defer

    def late(self, now_ms, end, reply, *, wait=True):
        if type(reply.header).__name__ == "SendRecordsResponse":
            reply.code = 10
        return defer(self, now_ms, end, reply, wait=wait)

    monkeypatch.setattr(Confirmations, "defer", late)
    called = []
    with (
        broker.client("other") as mq,
        mq.transaction_producer(
            SETTINGS, execute=lambda *what: called.append(what), check=lambda _: None
        ) as producer,
    ):
        result = producer.send_in_transaction(topic, b"x")
    assert result.state is TransactionState.ROLLBACK
    assert called == []
    sent.none(topic)
    assert broker.open_halves() == 0


@pytest.mark.parametrize("which", ["execute", "check"])
def test_the_blocking_face_takes_plain_functions(broker, which):
    async def later(*_):
        return True

    functions = {"execute": lambda *_: True, "check": lambda _: True, which: later}
    with broker.client("other") as mq, pytest.raises(BadRequest, match="coroutine"):
        mq.transaction_producer(SETTINGS, **functions)
