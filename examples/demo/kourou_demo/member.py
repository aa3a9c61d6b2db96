"""One consumer of the demo's group: a process that consumes and records deliveries.

    python -m kourou_demo.member NAMESRV LEDGER --ready-file FILE

State: soft; the ledger is a file.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kourou.client.settings.client_settings import ClientSettings, ConsumerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou.sync import Client
from kourou_demo.ledger import LedgerWriter
from kourou_demo.terms import BATCH, COMMIT_INTERVAL_MS, GROUP, TOPIC


class Delivered(msgspec.Struct):
    """The only field of a flight that the consumer decodes."""

    row: int


def main(argv: Sequence[str] | None = None) -> None:
    """Consume until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("namesrv")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--ready-file", type=Path, required=True)
    chosen = parser.parse_args(argv)
    stop = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)  # before threads start: none may receive them
    settings = ConsumerSettings(
        consumer_group=GROUP, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    often = ClientSettings(persist_consumer_offset_interval_ms=COMMIT_INTERVAL_MS)
    with (
        LedgerWriter(chosen.ledger) as ledger,
        Client(chosen.namesrv, settings=often, consumer=settings) as client,
        client.listen(
            TOPIC,
            lambda messages: ledger.add([message.body.row for message in messages]),
            body_type=Delivered,
            batch=BATCH,
        ),
    ):
        say_ready(chosen.ready_file, {"pid": os.getpid(), "client": client.client_id})
        signal.sigwait(stop)


def say_ready(path: Path, facts: dict[str, Any]) -> None:
    """Write the ready file atomically, by a rename."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(facts), encoding="utf-8")
    draft.rename(path)


if __name__ == "__main__":
    main()
