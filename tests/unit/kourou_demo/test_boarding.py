"""What the gates heard is judged flight by flight."""

from __future__ import annotations

import pytest

from kourou.client.consumer.outcomes import Suspend
from kourou_demo.boarding import CALLS, MISSED, Call, Gates


def heard(*texts: str) -> Gates:
    gates = Gates(set())
    for text in texts:
        gates.hear("gate 1", Call(7, text))
    return gates


def test_a_call_that_is_heard_twice_at_once_is_in_order() -> None:
    gates = heard(CALLS[0], CALLS[0], *CALLS[1:])
    assert (gates.count, gates.different, gates.out_of_order) == (5, 4, 0)


@pytest.mark.parametrize(
    "texts",
    [
        (CALLS[1], CALLS[0], *CALLS[2:]),
        (CALLS[0], *CALLS[2:]),
        (*CALLS, CALLS[0]),
        (CALLS[3],),
    ],
)
def test_another_order_is_seen(texts: tuple[str, ...]) -> None:
    assert heard(*texts).out_of_order == 1


def test_flights_are_judged_by_themselves() -> None:
    gates = Gates(set())
    for call in CALLS:
        for row in (1, 2):
            gates.hear(f"gate {row}", Call(row, call))
    assert (gates.different, gates.out_of_order, dict(gates.by_gate)) == (
        8,
        0,
        {"gate 1": 4, "gate 2": 4},
    )


def test_a_call_that_is_not_heard_comes_again() -> None:
    gates = Gates({7})
    gates.hear("gate 1", Call(7, CALLS[0]))
    with pytest.raises(Suspend):
        gates.hear("gate 1", Call(7, MISSED))
    assert (gates.count, gates.missed) == (1, [7])
    for call in CALLS[1:]:
        gates.hear("gate 2", Call(7, call))
    assert (gates.different, gates.out_of_order, gates.missed) == (4, 0, [7])
