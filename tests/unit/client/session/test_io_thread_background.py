"""A background task's failure is not lost."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from kourou.client.session.io_thread import background


async def test_a_failure_is_logged_with_its_name(caplog):
    async def fail():
        raise ZeroDivisionError("ouch")

    task = background(fail(), "the heartbeat")
    with pytest.raises(ZeroDivisionError):
        await task
    await asyncio.sleep(0)
    assert "background task failed unexpectedly: the heartbeat" in caplog.text
    assert "ouch" in caplog.text


async def test_ending_and_cancelling_are_silent(caplog):
    async def end():
        return

    async def wait():
        await asyncio.Event().wait()

    await background(end(), "one")
    waiting = background(wait(), "two")
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert caplog.text == ""


async def test_what_is_current_where_it_starts_is_not_current_in_it():
    current = contextvars.ContextVar("current", default="nothing")
    current.set("a span of the application")
    seen = []

    async def look():
        seen.append(current.get())

    await background(look(), "looking")
    assert seen == ["nothing"]
