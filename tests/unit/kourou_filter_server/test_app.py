"""What only the service as a whole does; the rest is tested in tests/integration."""

from __future__ import annotations

import asyncio
import logging
import os

import pytest

from kourou_filter_server import app
from kourou_filter_server.app import FilterServerService
from kourou_filter_server.config import FilterServerSettings

ALONE = FilterServerSettings(
    connect_which_broker="tcp://127.0.0.1:1",
    listen_port=0,
    tcp_enabled=False,
    admin_enabled=False,
    unsafe_no_sandbox=True,
)


class Heard(logging.Handler):
    """Counts warnings about the missing sandbox."""

    def __init__(self, enough: int) -> None:
        super().__init__(logging.WARNING)
        self._enough = enough
        self.count = 0
        self.done = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "unsafeNoSandbox" in record.getMessage():
            self.count += 1
            if self.count >= self._enough:
                self.done.set()


@pytest.mark.feature("F243")
async def test_a_missing_sandbox_is_logged_every_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert app.UNSAFE_WARNING_S == 60
    monkeypatch.setattr(app, "UNSAFE_WARNING_S", 0.001)
    service = FilterServerService(ALONE)
    heard = Heard(enough=3)
    logger = logging.getLogger("kourou.filter-server")
    logger.addHandler(heard)
    try:
        await service.recover(pytest.fail)
        async with asyncio.timeout(30):
            await heard.done.wait()
        await service.drain()
        await service.stop()
        said = heard.count
        await asyncio.sleep(0)
        assert heard.count == said
    finally:
        logger.removeHandler(heard)


async def test_workers_get_their_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[frozenset[int]] = []

    class Unborn(Exception):
        """Enough was seen."""

    def zygote(*, unsafe: bool, cores: frozenset[int]) -> None:
        told.append(cores)
        raise Unborn

    monkeypatch.setattr(app, "Zygote", zygote)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    with pytest.raises(Unborn):
        await FilterServerService(ALONE).recover(pytest.fail)
    assert told == [{1, 2}]
