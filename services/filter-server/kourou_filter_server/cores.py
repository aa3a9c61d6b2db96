"""The choice of processor cores for workers, which leaves one core to other processes."""

from __future__ import annotations

from collections.abc import Set

from kourou.service.os_processes import cores_named, cores_that_compute

ALL = "all"


def cores_of_workers(wanted: str | None, there: Set[int]) -> frozenset[int]:
    """The cores for workers, of those that are `there`; empty if workers may use all.

    By default these are all but the first, if there are at least two. Raises ConfigError if the
    text is not a list of cores or names a core that does not exist.
    """
    if wanted is None:
        return cores_that_compute(there)
    if wanted.strip() == ALL:
        return frozenset()
    return cores_named("filterWorkerCores", wanted, there, also=f", or {ALL}")
