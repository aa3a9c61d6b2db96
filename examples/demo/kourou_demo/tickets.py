"""Second act: a ticket message exists only if its seat was booked, even if a desk is killed.

The tower books a seat for each cancelled flight: two of three transactions are committed, the third
finds no seat and is rolled back. A ticket desk, a separate process, is killed with open
transactions. The broker then checks back with the tower, which finds in the desk's ledger what was
booked.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from kourou.client.client import Client
from kourou.client.consumer.received import ReceivedMessage
from kourou_demo.ledger import Ledger
from kourou_demo.stage import Stage
from kourou_demo.terms import COUNTER_GROUP, TICKETS_GROUP, TICKETS_TOPIC
from kourou_demo.ticket_counter import Ticket

NO_SEAT_EVERY = 3
AT_ONCE = 32
COUNTER_TICKETS = 20
COUNTER = "ticket-desk"


class NoSeat(Exception):
    """Raised by a local transaction that finds no seat."""


@dataclass(slots=True)
class Sold:
    """Row numbers of delivered tickets, and of the desk's tickets with a check-back."""

    delivered: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    counter_died: bool = False


async def sell(stage: Stage) -> None:
    """Run this part and record the counts."""
    rows = [flight.row for flight in stage.cancelled]
    booked = [row for place, row in enumerate(rows) if not seatless(place)]
    counter_rows = [flight.row for flight in stage.departed[:COUNTER_TICKETS]]
    stage.view.chapter(
        f"transactions: a ticket for each of {len(rows)} cancelled flights, "
        f"{len(rows) - len(booked)} rolled back"
    )
    await stage.create_topic(TICKETS_TOPIC)
    ledger = Ledger(stage.folder / f"{COUNTER}.ledger")
    sold = Sold()
    own: dict[int, bool] = {}
    counter = Client(stage.address, group=COUNTER_GROUP)

    @counter.transaction_check(TICKETS_TOPIC, body_type=Ticket)
    async def was_it_booked(message: ReceivedMessage) -> bool | None:
        row = message.body.row
        if row not in counter_rows:
            return own.get(row)
        if not sold.counter_died:
            return None
        sold.asked.add(row)
        return row in ledger.rows().tolist()

    async def take(message: ReceivedMessage) -> None:
        sold.delivered.add(message.body.row)

    async with (
        counter,
        stage.member(TICKETS_GROUP) as member,
        member.listen(TICKETS_TOPIC, take, body_type=Ticket),
    ):
        await _book(counter, rows, own)
        await _stored(stage, "booking", len(booked))
        await _die(stage, sold, counter_rows)
        found = ledger.rows().tolist()
        stored = await _stored(stage, "asking", len(booked) + len(found))
        await stage.waits.wait(
            "check-back",
            lambda: len(sold.asked) + len(sold.delivered),
            lambda: len(sold.asked) >= len(counter_rows) and len(sold.delivered) >= stored,
        )
        stored = await stage.stored(TICKETS_TOPIC)
    numbers = stage.numbers.worst_day
    wanted = {*booked, *found}
    numbers.tickets, numbers.tickets_expected = stored, len(wanted)
    numbers.unwanted_tickets = len(sold.delivered - wanted)
    numbers.asked, numbers.asked_expected = len(sold.asked), len(counter_rows)
    if missing := wanted - sold.delivered:
        stage.numbers.faults.append(f"{len(missing)} booked tickets were not delivered")
    stage.view.note(
        f"check-back of {len(sold.asked)} open transactions; "
        f"the ledger of {COUNTER} has {len(found)} of them as booked"
    )
    stage.view.note(f"{stored} tickets stored, {len(sold.delivered - wanted)} of them not booked")


def seatless(place: int) -> bool:
    """True if the ticket at this position finds no seat."""
    return place % NO_SEAT_EVERY == NO_SEAT_EVERY - 1


async def _book(counter: Client, rows: Sequence[int], own: dict[int, bool]) -> None:
    """Run the tower's own transactions concurrently; each outcome is recorded in `own`."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def book(place: int, row: int) -> None:
        async with slots, counter.transaction(TICKETS_TOPIC, Ticket(row), keys=[str(row)]):
            own[row] = not seatless(place)
            if not own[row]:
                raise NoSeat

    outcomes = await asyncio.gather(
        *(book(place, row) for place, row in enumerate(rows)), return_exceptions=True
    )
    for one in outcomes:
        if isinstance(one, BaseException) and not isinstance(one, NoSeat):
            raise one


async def _die(stage: Stage, sold: Sold, rows: Sequence[int]) -> None:
    """Start a desk with open transactions and kill it; none of its tickets may be delivered by
    then.
    """
    child = stage.children.start_module(
        COUNTER,
        "kourou_demo.ticket_counter",
        stage.address,
        str(stage.folder / f"{COUNTER}.ledger"),
        ",".join(map(str, rows)),
    )
    child.wait_for_ready()
    child.kill()
    sold.counter_died = True
    stage.view.note(f"killed {COUNTER} (SIGKILL) with {len(rows)} open transactions")
    if early := sold.delivered & set(rows):
        stage.numbers.faults.append(f"{len(early)} tickets were delivered before they were booked")


async def _stored(stage: Stage, what: str, goal: int) -> int:
    return await stage.waits.reach(what, lambda: stage.stored(TICKETS_TOPIC), goal)
