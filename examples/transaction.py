"""Transactions: a message is delivered only if the local transaction was committed.

Six payments: two are done, two are refused, and two remain unresolved. For the latter, the broker
checks back after about a minute; with this setting, after some seconds:

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

# The application's own database. Every producer of the group must be able to answer check-backs
# from it.
database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
database.execute("create table payment (transaction_id text primary key, state text)")


def say(line: str) -> None:
    """Print with a single write, because the thread that handles check-backs prints, too."""
    print(f"{line}\n", end="", flush=True)


def execute(transaction: Ending, outcome: str) -> TransactionState:
    """The local transaction: runs when the half message is stored, before it can be consumed."""
    state = "refused" if outcome == "refused" else "done"
    database.execute("insert into payment values (?, ?)", (transaction.id, state))
    if outcome == "unclear":
        return TransactionState.UNKNOWN  # as if the process had died here
    return TransactionState.COMMIT if state == "done" else TransactionState.ROLLBACK


def check(message: ReceivedMessage) -> TransactionState:
    """Handle a check-back of the broker: return the state of the transaction."""
    row = database.execute(
        "select state from payment where transaction_id = ?", (message.message_id,)
    ).fetchone()
    say(f"the broker asks about {message.keys[0]}: {row[0] if row else 'no such payment'}")
    if row is None:
        return TransactionState.UNKNOWN  # the broker will check back again
    return TransactionState.COMMIT if row[0] == "done" else TransactionState.ROLLBACK


def main() -> None:
    """Send six payments in transactions, and consume the four that were committed."""
    run = uuid.uuid4().hex[:6]
    with (
        Client(ADDRESS, group="receipts") as mq,
        mq.transaction_producer(SETTINGS, execute=execute, check=check) as producer,
    ):
        wanted = set()
        for number, outcome in enumerate(("done", "refused", "unclear") * 2):
            payment = f"{run}-{number}"
            result = producer.send_in_transaction("transaction", outcome, outcome, keys=[payment])
            say(f"{payment} {outcome}: {result.state.name}")
            if outcome != "refused":
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
