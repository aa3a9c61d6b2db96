"""Who books what: the tower two of three, the desk every second before it dies."""

from __future__ import annotations

from kourou_demo.ticket_counter import booked_of
from kourou_demo.tickets import seatless


def test_the_third_of_three_finds_no_seat() -> None:
    assert [seatless(place) for place in range(6)] == [False, False, True] * 2


def test_the_desk_books_every_second() -> None:
    assert booked_of([5, 6, 7]) == [5, 7]
    assert booked_of([]) == []
