"""For tests of the sandbox: a machine that lacks a layer says so, and does not fail.

For tests of the core: one that is registered, and knows a filter whose version 1 is enabled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kourou.model.filter import FilterPolicy
from kourou_filter_server import zygote_link
from kourou_filter_server.context import ServerPolicy
from kourou_rigs.filter_bench import Bench


@pytest.fixture(scope="session")
def every_layer() -> None:
    """Skips where the kernel, or what contains us, does not let the sandbox be built."""
    if lacking := zygote_link.missing():
        named = ", ".join(f"{layer.name} ({layer.detail})" for layer in lacking)
        pytest.skip(f"needs a kernel layer: {named}")


@pytest.fixture
def bench() -> Bench:
    return Bench().registered()


@pytest.fixture
def benches() -> Callable[..., Bench]:
    """The same under another policy of the server, or of the filter."""

    def make(server: ServerPolicy | None = None, policy: FilterPolicy = FilterPolicy.HOLD) -> Bench:
        made = Bench(server)
        assert made.state is not None
        made.state = replace(made.state, policy=policy)
        return made.registered()

    return make
