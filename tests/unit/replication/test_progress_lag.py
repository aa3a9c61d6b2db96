"""Since when a copy lacks something."""

from __future__ import annotations

from kourou.replication.progress import Lag


def test_a_copy_that_never_had_all_has_no_lag_to_tell() -> None:
    lag = Lag()
    assert lag.ms(5) is None
    lag.noted(10, 50, 100)
    lag.noted(20, 99, 200)
    assert lag.ms(30) is None


def test_it_kept_up_when_it_has_what_there_was_at_an_earlier_look() -> None:
    lag = Lag()
    lag.noted(0, 100, 100)
    assert lag.ms(7) == 7
    lag.noted(10, 100, 150)
    lag.noted(20, 149, 300)
    assert lag.ms(20) == 20, "it lacks a byte of what there was at 10"
    lag.noted(30, 150, 300)
    assert lag.ms(30) == 20, "since 10 it lacks something"
    lag.noted(40, 299, 400)
    assert lag.ms(40) == 30
    lag.noted(50, 400, 400)
    assert lag.ms(51) == 1
