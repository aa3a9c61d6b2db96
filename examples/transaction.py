"""A message exists only if the work it tells of was done: local executor, and check-back.

Six payments: two are done, two are refused, and what became of two is not said. So the broker asks,
after a minute or so; brokers that were told this ask after some seconds:

    ./kourou admin updateBrokerConfig -b 127.0.0.1:10911 -k transactionCheckInterval -v 1000
"""

from __future__ import annotations

import os
import sqlite3
import uuid

from kourou import Ending, ProducerSettings, ReceivedMessage, TransactionState
from kourou.sync import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
SETTINGS = ProducerSettings(producer_group="payments")

# The application's own database. Whoever of the group is asked must be able to look there.
database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
database.execute("create table payment (transaction_id text primary key, state text)")


def say(line: str) -> None:
    """Print in one piece: a thread that answers the broker prints, too."""
    print(f"{line}\n", end="", flush=True)


def execute(transaction: Ending, fate: str) -> TransactionState:
    """The local transaction: runs when the message is stored, and nobody can consume it yet."""
    state = "refused" if fate == "refused" else "done"
    database.execute("insert into payment values (?, ?)", (transaction.id, state))
    if fate == "unclear":
        return TransactionState.UNKNOWN  # as if this process had died here
    return TransactionState.COMMIT if state == "done" else TransactionState.ROLLBACK


def check(message: ReceivedMessage) -> TransactionState:
    """A broker asks what became of it."""
    row = database.execute(
        "select state from payment where transaction_id = ?", (message.message_id,)
    ).fetchone()
    say(f"the broker asks about {message.keys[0]}: {row[0] if row else 'nobody knows'}")
    if row is None:
        return TransactionState.UNKNOWN  # it will ask again
    return TransactionState.COMMIT if row[0] == "done" else TransactionState.ROLLBACK


def main() -> None:
    """Send six payments in transactions, and consume the four that were made."""
    run = uuid.uuid4().hex[:6]
    with (
        Client(ADDRESS, group="receipts") as mq,
        mq.transaction_producer(SETTINGS, execute=execute, check=check) as producer,
    ):
        wanted = set()
        for number, fate in enumerate(("done", "refused", "unclear") * 2):
            payment = f"{run}-{number}"
            result = producer.send_in_transaction("transaction", fate, fate, keys=[payment])
            say(f"{payment} {fate}: {result.state.name}")
            if fate != "refused":
                wanted.add(payment)
        with mq.subscribe("transaction", body_type=str) as payments:
            for message in payments:
                say(f"{message.keys[0]} {message.body}: consumed")
                wanted.discard(message.keys[0])
                if not wanted:
                    message.ack()
                    break


if __name__ == "__main__":
    main()
