"""Which processor cores filters may keep busy, so that one is left to everybody else."""

from __future__ import annotations

from collections.abc import Set

from kourou.service.cores import cores_named, cores_that_compute

ALL = "all"


def cores_of_workers(wanted: str | None, there: Set[int]) -> frozenset[int]:
    """Those that workers keep to; empty where they may use all that are `there`.

    Without a wish that is all but the first, where there are two or more. ConfigError for a list
    that is none, or that names one which is not there.
    """
    if wanted is None:
        return cores_that_compute(there)
    if wanted.strip() == ALL:
        return frozenset()
    return cores_named("filterWorkerCores", wanted, there, also=f", or {ALL}")
