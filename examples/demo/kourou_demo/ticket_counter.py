"""A ticket desk: a process that is killed in the middle of its transactions.

    python -m kourou_demo.ticket_counter NAMESRV LEDGER ROWS --ready-file FILE

It starts a transaction for each of ROWS (numbers joined by commas), records every second one in the
ledger as booked, resolves none of them, and waits to be killed.

State: soft; the ledger is a file.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kourou.client.consumer.received import ReceivedMessage
from kourou.sync import Client
from kourou_demo.ledger import LedgerWriter
from kourou_demo.member import say_ready
from kourou_demo.terms import COUNTER_GROUP, TICKETS_TOPIC


class Ticket(msgspec.Struct):
    """A seat in another aircraft for the passengers of the flight with row number `row`."""

    row: int


def booked_of(rows: Sequence[int]) -> list[int]:
    """The tickets of a desk that it books before it is killed."""
    return list(rows[::2])


def main(argv: Sequence[str] | None = None) -> None:
    """Start the transactions and resolve none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("namesrv")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("rows", type=lambda text: [int(row) for row in text.split(",")])
    parser.add_argument("--ready-file", type=Path, required=True)
    chosen = parser.parse_args(argv)
    stop = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)  # before threads start: none may receive them
    client = Client(chosen.namesrv, group=COUNTER_GROUP)
    client.transaction_check(TICKETS_TOPIC)(_not_known_yet)
    with LedgerWriter(chosen.ledger) as ledger, client:
        for row in chosen.rows:
            with client.transaction(TICKETS_TOPIC, Ticket(row), keys=[str(row)]) as ticket:
                ticket.unknown()
        ledger.add(booked_of(chosen.rows))
        say_ready(chosen.ready_file, {"pid": os.getpid(), "client": client.client_id})
        signal.sigwait(stop)


def _not_known_yet(message: ReceivedMessage) -> None:
    """Replies nothing to a check-back, because the desk is still working."""


if __name__ == "__main__":
    main()
