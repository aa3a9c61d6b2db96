"""Asking several at once: who does not answer is named, and the others stand."""

import asyncio

import pytest

from kourou.errors import Rejected, Unavailable
from kourou_console.lists import (
    Missing,
    answers,
    asked,
    why,
)


async def test_one_that_hangs_and_one_that_fails_cost_the_others_nothing() -> None:
    never = asyncio.Event()

    async def ask(name: str) -> str:
        if name == "hangs":
            await never.wait()
        if name == "fails":
            raise Unavailable("it is down")
        return name.upper()

    found, missing = await asked(["a", "hangs", "b", "fails"], ask, limit_s=0.01)
    assert found == {"a": "A", "b": "B"}
    assert missing == [
        Missing("hangs", "it did not respond in time"),
        Missing("fails", "it is down"),
    ]


async def test_a_bug_is_no_missing_broker() -> None:
    async def ask(_name: str) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await asked(["a"], ask)
    with pytest.raises(ZeroDivisionError):
        why(ZeroDivisionError())


async def test_nobody_is_an_error_and_somebody_is_an_answer() -> None:
    async def ask(name: str) -> str:
        if name == "down":
            raise Unavailable("it is down")
        if name == "no":
            raise Rejected("there is no such thing")
        return name

    found, missing = await answers(["down", "a", "no"], ask)
    assert found == {"a": "a"}
    assert [one.what for one in missing] == ["down", "no"]
    assert await answers([], ask) == ({}, [])
    with pytest.raises(Unavailable, match="down: it is down"):
        await answers(["down", "no"], ask)
    with pytest.raises(Rejected, match="no such thing"):
        await answers(["no", "no"], ask)
