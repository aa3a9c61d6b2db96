"""For tests of what runs inside the sandbox: its modules loaded once, in this process."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import lz4.frame
import pytest

from kourou.filtering.python_rules import MODULES
from kourou_filter_server.sandbox import runtime


@pytest.fixture(scope="module", autouse=True)
def without_what_others_left() -> None:
    """A child that is to have namespaces of its own must have one thread.

    OpenTelemetry's span processors start one in every child of this process, for as long as they
    exist; those that other tests have shut down exist until they are collected.
    """
    gc.collect()


@pytest.fixture(scope="module")
def prepared() -> Iterator[None]:
    """What a zygote does before it forks; this process keeps its own time zone."""
    zone = os.environ.get("TZ")
    runtime.prepare(MODULES, [str(Path(lz4.frame.__file__).parents[2])])
    yield
    if zone is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = zone
    time.tzset()
