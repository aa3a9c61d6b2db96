"""Configures Python's cyclic garbage collector for a process that runs one service.

A broker creates thousands of small tuples per loop iteration, which reference counting frees;
cycles are rare. With Python's default threshold of 700 the collector would still run a hundred
times a second, sometimes over all objects: with 10,000 queues that took a quarter of the broker's
time.

State: global to the process.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any

YOUNG_OBJECTS = 100_000
"""Threshold of new objects for a collection of the youngest generation: some 10 MB."""
MIDDLE_LOOKS = 20
OLD_LOOKS = 50


def relax() -> None:
    """Raise the thresholds; call it before a service's modules are imported."""
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_LOOKS, OLD_LOOKS)


def import_relaxed(module: str) -> Any:
    """Import the module of a service with raised thresholds."""
    relax()
    return import_module(module)


def settle() -> None:
    """Exclude all current objects from future collections.

    Call it once, when the service is ready.
    """
    gc.collect()
    gc.freeze()
    relax()
