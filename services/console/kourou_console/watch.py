"""Checks periodically whether the cluster replies, for /readyz.

State: soft, the last result.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kourou.client.session.io_thread import background
from kourou.errors import KourouError
from kourou_console.gateway import Gateway

PERIOD_S = 5.0
STARTING_PERIOD_S = 0.1
TROUBLED_PERIOD_S = 1.0
"""The interval while it does not reply: short, because operators wait for it."""


class ClusterWatch:
    """`trouble` is why the cluster cannot be used now; "" if it can."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._task: asyncio.Task[None] | None = None
        self.trouble = "the cluster has not been queried yet"

    async def start(self, wait_s: float = 0.0) -> None:
        """Check repeatedly for up to `wait_s` until the cluster replies; then periodically.

        Brokers and console are often started together.
        """
        await self._ask()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self.trouble:
                    await asyncio.sleep(STARTING_PERIOD_S)
                    await self._ask()
        self._task = background(self._go_on(), "watching the cluster")

    async def stop(self) -> None:
        """Stop checking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(TROUBLED_PERIOD_S if self.trouble else PERIOD_S)
            await self._ask()

    async def _ask(self) -> None:
        try:
            info = await self._gateway.admin.cluster.info()
        except KourouError as error:
            self.trouble = str(error)
        else:
            self._gateway.cluster_name = min(info.clusters, default=None)
            self.trouble = "" if info.brokers else "no broker is registered at the name servers"
