"""Reads control events back from the log."""

from __future__ import annotations

from collections.abc import Callable

from kourou.engine.ports import StoreView
from kourou.errors import KourouError
from kourou.events.control_events import EventLost, Recorded, decode_record_body
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.record.message_record import decode_record

BATCH_EVENTS = 500
BATCH_BYTES = 1 << 20


def read_control_events(
    view: StoreView, offset: int, below: int, lost: Callable[[str], None]
) -> list[Recorded]:
    """Read up to `BATCH_EVENTS` events from `offset` on, with records below position `below`.

    An unreadable event is returned as EventLost, so that offsets have no gap; `lost` gets the
    reason.
    """
    read = view.read_queue(
        CONTROL_TOPIC,
        0,
        offset,
        max_messages=BATCH_EVENTS,
        max_bytes=BATCH_BYTES,
        codes=None,
        below=below,
    )
    found: dict[int, Recorded] = {}
    for record in read.records:
        stored = decode_record(record)
        try:
            found[stored.offset] = decode_record_body(
                stored.body, offset=stored.offset, position=stored.position
            )
        except KourouError as error:
            lost(f"control event {stored.offset}: {error}")
    batch: list[Recorded] = []
    for at in range(offset, read.next_offset):
        recorded = found.get(at)
        if recorded is None:
            lost(f"control event {at} is unreadable and is skipped")
            event = EventLost("its record is unreadable")
            recorded = Recorded(at, -1, 0, "broker", "", "", event)
        batch.append(recorded)
    return batch
