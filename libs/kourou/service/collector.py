"""Python's cyclic garbage collector, set up for a process that is one service.

A broker makes thousands of small tuples in a turn and drops them by count of references; cycles are
rare. With Python's usual 700 the collector would still look a hundred times a second, now and then
at everything there is: with 10,000 queues that was a quarter of the broker's time.

State: of the process.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any

YOUNG_OBJECTS = 100_000
"""So many more objects than before make it look at the young ones: some 10 MB of them."""
MIDDLE_LOOKS = 20
OLD_LOOKS = 50


def relax() -> None:
    """Call before a service's modules are imported: they make many objects and drop few."""
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_LOOKS, OLD_LOOKS)


def import_relaxed(module: str) -> Any:
    """The module of a service, imported by a relaxed collector."""
    relax()
    return import_module(module)


def settle() -> None:
    """Call once, when the service is ready: what it is made of now is never looked at again."""
    gc.collect()
    gc.freeze()
    relax()
